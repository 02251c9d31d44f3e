//! The device plugin's configuration file: what Tessera renders for the device plugin and its companions.
//!
//! Format: NVIDIA/k8s-device-plugin v0.20.0, `api/config/v1`. The plugin drops unknown keys without a word, so files are
//! rendered from typed values only, and a user's file is read strictly ([`tessera_api::plugin_file`]).

use crate::yaml::{Yaml, render};
use tessera_api::EffectivePolicy;
use tessera_api::effective::{SharedResources, Sharing};
use tessera_api::policy::MigStrategy;

/// The key of the rendered file in its ConfigMap, and its name in the pods.
pub const FILE: &str = "config.yaml";

/// Everything that decides the rendered file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFile {
    /// How MIG instances are advertised.
    pub mig_strategy: MigStrategy,
    /// Where the driver is on the host.
    pub driver_root: String,
    /// Directory of MPS on the host, when cards are shared by MPS.
    pub mps_root: Option<String>,
    /// How devices reach containers.
    pub device_list: &'static [&'static str],
    /// How cards are shared.
    pub sharing: Sharing,
}

/// How devices reach containers: by CDI, or by an environment variable that the container runtime reads.
pub fn device_list(cdi: bool) -> &'static [&'static str] {
    if cdi {
        &["cdi-annotations", "cdi-cri"]
    } else {
        &["envvar"]
    }
}

impl PluginFile {
    /// Of a policy with inline sharing.
    pub fn of(policy: &EffectivePolicy, sharing: &Sharing) -> Self {
        let is_mps = matches!(sharing, Sharing::Mps(_)) && sharing.is_active();
        Self {
            mig_strategy: policy.mig.strategy,
            driver_root: if policy.driver.operand.enabled {
                policy.host_paths.driver_install_dir.clone()
            } else {
                "/".to_owned()
            },
            mps_root: is_mps.then(|| policy.device_plugin.mps_root.clone()),
            device_list: device_list(policy.cdi.enabled),
            sharing: sharing.clone(),
        }
    }

    /// The file: fixed order of keys, everything explicit, nothing that changes by itself.
    pub fn render(&self) -> String {
        let list = self
            .device_list
            .iter()
            .map(|item| Yaml::from(*item))
            .collect();
        let mut flags = vec![
            ("migStrategy", self.mig_strategy.as_str().into()),
            ("failOnInitError", true.into()),
            ("nvidiaDriverRoot", self.driver_root.as_str().into()),
        ];
        if let Some(root) = &self.mps_root {
            flags.push(("mpsRoot", root.as_str().into()));
        }
        flags.push((
            "plugin",
            Yaml::Map(vec![
                ("passDeviceSpecs", true.into()),
                ("deviceListStrategy", Yaml::List(list)),
                ("deviceIDStrategy", "uuid".into()),
            ]),
        ));
        let mut file = vec![("version", "v1".into()), ("flags", Yaml::Map(flags))];
        if let Some(sharing) = sharing(&self.sharing) {
            file.push(("sharing", sharing));
        }
        render(&Yaml::Map(file))
    }
}

/// The stanza; none when nothing is shared: the plugin refuses an empty one, and replicas below two.
fn sharing(sharing: &Sharing) -> Option<Yaml> {
    let (kind, shared) = match sharing {
        Sharing::None => return None,
        Sharing::TimeSlicing(shared) => ("timeSlicing", shared),
        Sharing::Mps(shared) => ("mps", shared),
    };
    let resources = resources(shared);
    (!resources.is_empty()).then(|| {
        let stanza = Yaml::Map(vec![
            ("renameByDefault", shared.rename_by_default.into()),
            (
                "failRequestsGreaterThanOne",
                shared.fail_requests_greater_than_one.into(),
            ),
            ("resources", Yaml::List(resources)),
        ]);
        Yaml::Map(vec![(kind, stanza)])
    })
}

fn resources(shared: &SharedResources) -> Vec<Yaml> {
    let entry = |(name, replicas): (&str, u32)| {
        Yaml::Map(vec![("name", name.into()), ("replicas", replicas.into())])
    };
    shared.shared().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn file(sharing: Sharing) -> PluginFile {
        PluginFile {
            mig_strategy: MigStrategy::None,
            driver_root: "/run/nvidia/driver".to_owned(),
            mps_root: None,
            device_list: device_list(true),
            sharing,
        }
    }

    fn shared(resources: &[(&str, u32)]) -> SharedResources {
        let resources: BTreeMap<String, u32> = resources
            .iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect();
        SharedResources {
            resources,
            rename_by_default: false,
            fail_requests_greater_than_one: true,
        }
    }

    #[test]
    fn time_slicing() {
        let sharing = Sharing::TimeSlicing(shared(&[
            ("nvidia.com/mig-1g.10gb", 2),
            ("nvidia.com/gpu", 4),
        ]));
        insta::assert_snapshot!(file(sharing).render());
    }

    #[test]
    fn mps_names_its_root() {
        let mut file = file(Sharing::Mps(shared(&[("nvidia.com/gpu", 10)])));
        file.mps_root = Some("/run/nvidia/mps".to_owned());
        file.device_list = device_list(false);
        insta::assert_snapshot!(file.render());
    }

    #[test]
    fn what_the_plugin_would_not_start_with_never_reaches_it() {
        for sharing in [
            Sharing::None,
            Sharing::TimeSlicing(shared(&[])),
            Sharing::TimeSlicing(shared(&[("nvidia.com/gpu", 1)])),
            Sharing::Mps(shared(&[("nvidia.com/gpu", 1)])),
        ] {
            let text = file(sharing).render();
            assert!(!text.contains("sharing"), "{text}");
        }
        let mixed = Sharing::TimeSlicing(shared(&[
            ("nvidia.com/gpu", 1),
            ("nvidia.com/mig-1g.5gb", 3),
        ]));
        let text = file(mixed).render();
        assert!(
            !text.contains("nvidia.com/gpu\n") && text.contains("replicas: 3"),
            "{text}"
        );
    }

    #[test]
    fn our_own_file_passes_the_strict_reader() {
        let sharing = Sharing::TimeSlicing(shared(&[("nvidia.com/gpu", 4)]));
        let read = tessera_api::plugin_file::parse(&file(sharing).render(), MigStrategy::None);
        assert_eq!((read.problems, read.notes), (vec![], vec![]));
    }
}
