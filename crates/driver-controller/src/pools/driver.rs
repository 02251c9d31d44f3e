//! Driver pools: nodes that run the same driver image.

use super::{DRIVER_POOL, Requirement, all_hold, node_affinity, safe_name};
use k8s_openapi::api::core::v1::Affinity;
use tessera_api::NodeFacts;
use tessera_api::image::OsRelease;
use tessera_api::names::{app, label};

/// NFD: the part of `VERSION_ID` before the first dot.
const NFD_OS_MAJOR: &str = "feature.node.kubernetes.io/system-os_release.VERSION_ID.major";
/// Distributions whose driver images exist for major versions only (NVIDIA's image tags).
const MAJOR_ONLY: [&str; 3] = ["rhel", "rocky", "ol"];
/// The usual architecture in a kernel release, which names leave out. Another one stays: one kernel on two architectures
/// is two pools.
const USUAL_ARCHITECTURE: &str = ".x86_64";

/// Nodes that run the same driver image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverPool {
    /// Operating system; the version is what image tags contain.
    pub os: OsRelease,
    /// Kernel release, for precompiled drivers only.
    pub kernel: Option<String>,
}

impl DriverPool {
    /// The pool of a node; `None` while its operating system (or kernel) is not known.
    pub fn of(node: &NodeFacts, precompiled: bool) -> Option<Self> {
        let mut os = node.os.clone()?;
        if MAJOR_ONLY.contains(&os.id.as_str()) {
            os.version = os.version.chars().take_while(|c| *c != '.').collect();
        }
        let kernel = precompiled.then(|| node.kernel.clone());
        (kernel.as_deref() != Some("")).then_some(Self { os, kernel })
    }

    /// Name: suffix of the DaemonSet and value of the pool label, e.g. `ubuntu22.04`.
    pub fn name(&self) -> String {
        let os = self.os.tag();
        let text = match &self.kernel {
            Some(kernel) => format!("{os}-{}", short_kernel(kernel)),
            None => os,
        };
        safe_name(&text, app::DRIVER.len() + 1)
    }

    /// Name of its DaemonSet.
    pub fn daemon_set(&self) -> String {
        format!("{}-{}", app::DRIVER, self.name())
    }

    /// The pool label that a node of this pool needs; `None` when its own labels tell.
    pub fn label_for(&self, node: &NodeFacts) -> Option<String> {
        (!all_hold(&self.natural(), node)).then(|| self.name())
    }

    /// Which nodes its DaemonSet runs on.
    pub fn affinity(&self) -> Affinity {
        node_affinity(Some(self.natural()), DRIVER_POOL, &self.name())
    }

    fn natural(&self) -> Vec<Requirement> {
        let version = if MAJOR_ONLY.contains(&self.os.id.as_str()) {
            NFD_OS_MAJOR
        } else {
            label::NFD_OS_VERSION
        };
        let mut requirements = vec![
            Requirement::Is(label::NFD_OS_ID, self.os.id.clone()),
            Requirement::Is(version, self.os.version.clone()),
        ];
        if let Some(kernel) = &self.kernel {
            requirements.push(Requirement::Is(label::NFD_KERNEL, kernel.clone()));
        }
        requirements
    }
}

/// A kernel release without its architecture, if that is the usual one.
fn short_kernel(kernel: &str) -> String {
    kernel.replace(USUAL_ARCHITECTURE, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)], os: Option<(&str, &str)>, kernel: &str) -> NodeFacts {
        NodeFacts {
            labels: labels
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            os: os.map(|(id, version)| OsRelease {
                id: id.to_owned(),
                version: version.to_owned(),
            }),
            kernel: kernel.to_owned(),
            ..NodeFacts::default()
        }
    }

    #[test]
    fn pools_and_their_names() {
        let cases = [
            (
                Some(("ubuntu", "22.04")),
                false,
                "5.15.0-117-generic",
                Some("nvidia-driver-daemonset-ubuntu22.04"),
            ),
            (
                Some(("ubuntu", "22.04")),
                true,
                "5.15.0-117-generic",
                Some("nvidia-driver-daemonset-ubuntu22.04-5.15.0-117-generic"),
            ),
            (
                Some(("rhel", "9.4")),
                false,
                "",
                Some("nvidia-driver-daemonset-rhel9"),
            ),
            (
                Some(("rhel", "9.4")),
                true,
                "5.14.0-427.13.1.el9_4.x86_64",
                Some("nvidia-driver-daemonset-rhel9-5.14.0-427.13.1.el9.4"),
            ),
            (
                Some(("rhel", "9.4")),
                true,
                "5.14.0-427.13.1.el9_4.aarch64+64k",
                Some("nvidia-driver-daemonset-rhel9-5.14.0-427.13.1.el9.4.aarch64-64k"),
            ),
            (Some(("ubuntu", "24.04")), true, "", None),
            (None, false, "6.1", None),
        ];
        for (os, precompiled, kernel, want) in cases {
            let pool = DriverPool::of(&node(&[], os, kernel), precompiled);
            assert_eq!(
                pool.map(|pool| pool.daemon_set()).as_deref(),
                want,
                "{os:?}"
            );
        }
    }

    #[test]
    fn only_nodes_that_do_not_tell_need_a_label() {
        let nfd = [
            (label::NFD_OS_ID, "rhel"),
            (label::NFD_OS_VERSION, "9.4"),
            (NFD_OS_MAJOR, "9"),
        ];
        let labelled = node(&nfd, Some(("rhel", "9.4")), "");
        let pool = DriverPool::of(&labelled, false).unwrap();
        assert_eq!(pool.label_for(&labelled), None);
        let bare = node(&[], Some(("rhel", "9.2")), "");
        assert_eq!(DriverPool::of(&bare, false), Some(pool.clone()));
        assert_eq!(pool.label_for(&bare).as_deref(), Some("rhel9"));
    }
}
