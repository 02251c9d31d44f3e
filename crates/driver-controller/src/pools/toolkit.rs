//! Toolkit pools: nodes whose container runtime is configured in the same way.

use super::{Requirement, TOOLKIT_POOL, all_hold, node_affinity};
use k8s_openapi::api::core::v1::Affinity;
use tessera_api::NodeFacts;
use tessera_api::names::app;

/// k3s and RKE2 write their own name here, unless a cloud provider writes a machine type.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// On every node of MicroK8s.
const MICROK8S: &str = "microk8s.io/cluster";
/// On every node of a GKE node pool.
const GKE: &str = "cloud.google.com/gke-nodepool";

/// Nodes whose container runtime is configured in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolkitPool {
    /// containerd with its usual paths.
    Containerd,
    /// k3s with the containerd that it brings.
    K3s,
    /// RKE2 with the containerd that it brings.
    Rke2,
    /// k0s with the containerd that it brings.
    K0s,
    /// MicroK8s (a snap).
    Microk8s,
    /// Google Kubernetes Engine: the toolkit cannot ask containerd's binary for its configuration.
    Gke,
    /// CRI-O.
    Crio,
    /// Docker.
    Docker,
}

/// Where a runtime's configuration and sockets are on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimePaths {
    /// `RUNTIME` of the toolkit.
    pub runtime: &'static str,
    /// Main configuration file.
    pub config: &'static str,
    /// Drop-in file that the toolkit writes; none where the runtime knows no drop-ins.
    pub drop_in: Option<&'static str>,
    /// Socket, by which the runtime is told to read its configuration again.
    pub socket: Option<&'static str>,
    /// `RUNTIME_CONFIG_SOURCE` where the runtime's binary cannot be asked.
    pub source: Option<&'static str>,
}

impl ToolkitPool {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Containerd,
        Self::K3s,
        Self::Rke2,
        Self::K0s,
        Self::Microk8s,
        Self::Gke,
        Self::Crio,
        Self::Docker,
    ];

    /// The pool of a node; `None` when the runtime is not reported yet or not supported by the toolkit.
    ///
    /// The distribution comes from the kubelet's version string; a k3s or RKE2 node that was told to use the host's own
    /// containerd reports that one's version, without `-k3s`.
    pub fn of(node: &NodeFacts) -> Option<Self> {
        let (kubelet, runtime) = (&node.kubelet_version, &node.runtime);
        Some(match runtime.name.as_str() {
            "cri-o" => Self::Crio,
            "docker" => Self::Docker,
            "containerd" if kubelet.contains("+k3s") && runtime.version.contains("k3s") => {
                Self::K3s
            }
            "containerd" if kubelet.contains("+rke2") && runtime.version.contains("k3s") => {
                Self::Rke2
            }
            "containerd" if kubelet.contains("+k0s") => Self::K0s,
            "containerd" if node.label(MICROK8S).is_some() => Self::Microk8s,
            "containerd" if kubelet.contains("-gke.") => Self::Gke,
            "containerd" => Self::Containerd,
            _ => return None,
        })
    }

    /// Name: value of the pool label, and suffix of the DaemonSet but for plain containerd.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::K3s => "k3s",
            Self::Rke2 => "rke2",
            Self::K0s => "k0s",
            Self::Microk8s => "microk8s",
            Self::Gke => "gke",
            Self::Crio => "cri-o",
            Self::Docker => "docker",
        }
    }

    /// Name of its DaemonSet.
    pub fn daemon_set(self) -> String {
        if self == Self::Containerd {
            app::TOOLKIT.to_owned()
        } else {
            format!("{}-{}", app::TOOLKIT, self.name())
        }
    }

    /// The pool label that a node of this pool needs; `None` when its own labels tell.
    pub fn label_for(self, node: &NodeFacts) -> Option<String> {
        let tells = self
            .natural()
            .is_some_and(|natural| all_hold(&natural, node));
        (!tells).then(|| self.name().to_owned())
    }

    /// Which nodes its DaemonSet runs on.
    pub fn affinity(self) -> Affinity {
        node_affinity(self.natural(), TOOLKIT_POOL, self.name())
    }

    fn natural(self) -> Option<Vec<Requirement>> {
        match self {
            Self::Containerd => Some(vec![
                Requirement::IsNot(INSTANCE_TYPE, &["k3s", "rke2"]),
                Requirement::Absent(MICROK8S),
                Requirement::Absent(GKE),
            ]),
            Self::K3s | Self::Rke2 => {
                Some(vec![Requirement::Is(INSTANCE_TYPE, self.name().to_owned())])
            }
            Self::Microk8s => Some(vec![Requirement::Exists(MICROK8S)]),
            Self::Gke => Some(vec![Requirement::Exists(GKE)]),
            Self::K0s | Self::Crio | Self::Docker => None,
        }
    }

    /// Where the runtime's files are. Sources: NVIDIA's container toolkit for the usual paths; the documentation of each
    /// distribution for its own. Always a drop-in beside the distribution's generated file, never that file itself,
    /// wherever the distribution reads drop-ins.
    pub const fn paths(self) -> RuntimePaths {
        match self {
            Self::Containerd => containerd(
                "/etc/containerd/config.toml",
                "/etc/containerd/conf.d/99-nvidia.toml",
                "/run/containerd/containerd.sock",
                None,
            ),
            Self::Gke => containerd(
                "/etc/containerd/config.toml",
                "/etc/containerd/conf.d/99-nvidia.toml",
                "/run/containerd/containerd.sock",
                Some("file=/etc/containerd/config.toml"),
            ),
            Self::K3s => containerd(
                "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
                "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml",
                "/run/k3s/containerd/containerd.sock",
                Some("file=/var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
            ),
            Self::Rke2 => containerd(
                "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
                "/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml",
                "/run/k3s/containerd/containerd.sock",
                Some("file=/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
            ),
            Self::K0s => containerd(
                "/etc/k0s/containerd.toml",
                "/etc/k0s/containerd.d/nvidia.toml",
                "/run/k0s/containerd.sock",
                Some("file=/etc/k0s/containerd.toml"),
            ),
            Self::Microk8s => containerd(
                "/var/snap/microk8s/current/args/containerd-template.toml",
                "/var/snap/microk8s/current/args/conf.d/99-nvidia.toml",
                "/var/snap/microk8s/common/run/containerd.sock",
                Some("file=/var/snap/microk8s/current/args/containerd-template.toml"),
            ),
            Self::Crio => RuntimePaths {
                runtime: "crio",
                config: "/etc/crio/config.toml",
                drop_in: Some("/etc/crio/crio.conf.d/99-nvidia.conf"),
                socket: None,
                source: None,
            },
            Self::Docker => RuntimePaths {
                runtime: "docker",
                config: "/etc/docker/daemon.json",
                drop_in: None,
                socket: Some("/var/run/docker.sock"),
                source: None,
            },
        }
    }
}

const fn containerd(
    config: &'static str,
    drop_in: &'static str,
    socket: &'static str,
    source: Option<&'static str>,
) -> RuntimePaths {
    RuntimePaths {
        runtime: "containerd",
        config,
        drop_in: Some(drop_in),
        socket: Some(socket),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_api::nodes::ContainerRuntime;

    fn node(kubelet: &str, runtime: &str, labels: &[(&str, &str)]) -> NodeFacts {
        let (name, version) = runtime.split_once("://").unwrap_or_default();
        NodeFacts {
            kubelet_version: kubelet.to_owned(),
            runtime: ContainerRuntime {
                name: name.to_owned(),
                version: version.to_owned(),
            },
            labels: labels
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..NodeFacts::default()
        }
    }

    #[test]
    fn pools_come_from_version_strings_and_labels_are_rare() {
        let k3s = [(INSTANCE_TYPE, "k3s")];
        let cloud = [(INSTANCE_TYPE, "g5.xlarge")];
        let cases = [
            (
                node("v1.33.1", "containerd://1.7.27", &[]),
                Some(ToolkitPool::Containerd),
                None,
            ),
            (
                node("v1.33.1", "containerd://1.7.27", &cloud),
                Some(ToolkitPool::Containerd),
                None,
            ),
            (
                node("v1.33.1+k3s1", "containerd://2.0.5-k3s1", &k3s),
                Some(ToolkitPool::K3s),
                None,
            ),
            (
                node("v1.33.1+k3s1", "containerd://2.0.5-k3s1", &cloud),
                Some(ToolkitPool::K3s),
                Some("k3s"),
            ),
            (
                node("v1.33.1+k3s1", "containerd://1.7.27", &k3s),
                Some(ToolkitPool::Containerd),
                Some("containerd"),
            ),
            (
                node("v1.33.1+k3s1", "docker://27.1", &k3s),
                Some(ToolkitPool::Docker),
                Some("docker"),
            ),
            (
                node(
                    "v1.33.1+rke2r1",
                    "containerd://2.0.5-k3s1",
                    &[(INSTANCE_TYPE, "rke2")],
                ),
                Some(ToolkitPool::Rke2),
                None,
            ),
            (
                node("v1.33.1+k0s", "containerd://1.7.27", &[]),
                Some(ToolkitPool::K0s),
                Some("k0s"),
            ),
            (
                node("v1.33.1", "containerd://1.6.36", &[(MICROK8S, "true")]),
                Some(ToolkitPool::Microk8s),
                None,
            ),
            (
                node("v1.33.1-gke.100", "containerd://2.0", &[(GKE, "p")]),
                Some(ToolkitPool::Gke),
                None,
            ),
            (
                node("v1.33.1", "cri-o://1.33.0", &[]),
                Some(ToolkitPool::Crio),
                Some("cri-o"),
            ),
            (node("v1.33.1", "", &[]), None, None),
        ];
        for (node, pool, label) in cases {
            assert_eq!(ToolkitPool::of(&node), pool, "{node:?}");
            assert_eq!(
                pool.and_then(|pool| pool.label_for(&node)).as_deref(),
                label,
                "{node:?}"
            );
        }
    }

    /// Every node is taken by the DaemonSet of its own pool and by no other.
    #[test]
    fn each_node_is_selected_exactly_once() {
        let kubelets = [
            "v1.33.1",
            "v1.33.1+k3s1",
            "v1.33.1+rke2r1",
            "v1.33.1+k0s",
            "v1.33.1-gke.1",
        ];
        let runtimes = [
            "containerd://2.0.5-k3s1",
            "containerd://1.7.27",
            "cri-o://1.33",
            "docker://27",
        ];
        let labels: [&[(&str, &str)]; 5] = [
            &[],
            &[(INSTANCE_TYPE, "k3s")],
            &[(INSTANCE_TYPE, "rke2")],
            &[(MICROK8S, "true")],
            &[(GKE, "p")],
        ];
        for kubelet in kubelets {
            for runtime in runtimes {
                for labels in labels {
                    let mut node = node(kubelet, runtime, labels);
                    let pool = ToolkitPool::of(&node).unwrap();
                    if let Some(label) = pool.label_for(&node) {
                        node.labels.insert(TOOLKIT_POOL.to_owned(), label);
                    }
                    let takers: Vec<ToolkitPool> = ToolkitPool::ALL
                        .into_iter()
                        .filter(|pool| takes(*pool, &node))
                        .collect();
                    assert_eq!(takers, [pool], "{kubelet} {runtime} {labels:?}");
                }
            }
        }
    }

    fn takes(pool: ToolkitPool, node: &NodeFacts) -> bool {
        let natural = pool
            .natural()
            .is_some_and(|natural| all_hold(&natural, node))
            && node.label(TOOLKIT_POOL).is_none();
        natural || node.label(TOOLKIT_POOL) == Some(pool.name())
    }
}
