//! Simulated GPU nodes: objects as large as real ones (about 8 KB), with what Node Feature Discovery, the kubelet and the runtime
//! would have written on an Ubuntu GPU server. kwok keeps them Ready; [`crate::gpusim`] plays the operands on them.

mod product;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

pub use self::product::Product;
use crate::controlplane::KUBERNETES_VERSION;

const FEATURE: &str = "feature.node.kubernetes.io/";

/// CPU flags of a Sapphire Rapids server, each a label of Node Feature Discovery.
const CPU_FLAGS: &str = "ADX AESNI AMXBF16 AMXINT8 AMXTILE AVX AVX2 AVX512BF16 AVX512BITALG AVX512BW AVX512CD AVX512DQ AVX512F \
AVX512FP16 AVX512IFMA AVX512VBMI AVX512VBMI2 AVX512VL AVX512VNNI AVX512VPOPCNTDQ CLDEMOTE CMPXCHG8 FMA3 FSRM FXSR GFNI IBPB LAHF \
MOVBE MOVDIR64B MOVDIRI OSXSAVE SERIALIZE SHA SPEC_CTRL_SSBD STIBP SYSCALL VAES VMX VPCLMULQDQ WBNOINVD X87 XSAVE";

/// Annotations of a node that gpusim reads when it first sees it.
pub mod annotation {
    /// Number of cards.
    pub const GPUS: &str = "sim.tessera.dev/gpus";
    /// Product, as in [`super::Product::label`].
    pub const PRODUCT: &str = "sim.tessera.dev/product";
    /// What the host brings itself, comma-separated: `driver`, `toolkit`.
    pub const PREINSTALLED: &str = "sim.tessera.dev/preinstalled";
}

/// A taint with effect NoSchedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taint {
    /// No taint.
    None,
    /// `gpu-node=true:NoSchedule`
    GpuNode,
    /// `gpu=true:NoSchedule`
    Gpu,
    /// `nvidia.com/gpu=present:NoSchedule`
    Nvidia,
}

impl Taint {
    fn json(self) -> Option<Value> {
        let (key, value) = match self {
            Self::None => return None,
            Self::GpuNode => ("gpu-node", "true"),
            Self::Gpu => ("gpu", "true"),
            Self::Nvidia => ("nvidia.com/gpu", "present"),
        };
        Some(json!({ "key": key, "value": value, "effect": "NoSchedule" }))
    }
}

/// A simulated node to be made. Change the fields, then [`GpuNode::build`].
#[derive(Clone, Debug)]
pub struct GpuNode {
    /// Name of the Node.
    pub name: String,
    /// Number of cards.
    pub gpus: u32,
    /// What cards.
    pub product: Product,
    /// ID and VERSION_ID of os-release.
    pub os: (String, String),
    /// Kernel release.
    pub kernel: String,
    /// Container runtime as the kubelet reports it.
    pub runtime: String,
    /// Kubelet version; a suffix such as `+k3s1` tells the distribution.
    pub kubelet: String,
    /// Taint.
    pub taint: Taint,
    /// `driver` and `toolkit` if the host has them; those operands need not run then.
    pub preinstalled: Vec<String>,
    /// More labels; they replace those of the same key.
    pub labels: Vec<(String, String)>,
    /// Whether Node Feature Discovery has labelled the node.
    pub nfd: bool,
}

impl GpuNode {
    /// A server with 8 H100 cards, Ubuntu 22.04, containerd, label `gpu=true` and no taint.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            gpus: 8,
            product: Product::H100,
            os: ("ubuntu".to_owned(), "22.04".to_owned()),
            kernel: "5.15.0-117-generic".to_owned(),
            runtime: "containerd://1.7.27".to_owned(),
            kubelet: KUBERNETES_VERSION.to_owned(),
            taint: Taint::None,
            preinstalled: Vec::new(),
            labels: vec![("gpu".to_owned(), "true".to_owned())],
            nfd: true,
        }
    }

    /// The Node object.
    pub fn build(&self) -> Node {
        serde_json::from_value(self.json()).unwrap_or_default()
    }

    fn json(&self) -> Value {
        let labels = self.all_labels();
        let features: Vec<&str> = labels
            .keys()
            .filter_map(|key| key.strip_prefix(FEATURE))
            .collect();
        // kubelet: no extended resource before the device plugin has registered it.
        let resources = json!({ "cpu": "112", "memory": "2113Gi", "pods": "110", "ephemeral-storage": "1800Gi" });
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "annotations": {
                    "kwok.x-k8s.io/node": "fake",
                    "nfd.node.kubernetes.io/feature-labels": features.join(","),
                    annotation::GPUS: self.gpus.to_string(),
                    annotation::PRODUCT: self.product.label(),
                    annotation::PREINSTALLED: self.preinstalled.join(","),
                },
                "labels": labels,
            },
            "spec": { "taints": self.taint.json().into_iter().collect::<Vec<_>>() },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "images": images(),
                "nodeInfo": self.node_info(),
            },
        })
    }

    fn all_labels(&self) -> Map<String, Value> {
        let mut labels = Map::new();
        if self.nfd {
            self.feature_labels(&mut labels);
        }
        for (key, value) in [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            ("beta.kubernetes.io/os", "linux"),
            ("type", "kwok"),
        ] {
            labels.insert(key.to_owned(), json!(value));
        }
        for (key, value) in &self.labels {
            labels.insert(key.clone(), json!(value));
        }
        labels
    }

    fn feature_labels(&self, labels: &mut Map<String, Value>) {
        let (id, version) = (self.os.0.as_str(), self.os.1.as_str());
        let (os_major, os_minor) = version.split_once('.').unwrap_or((version, "0"));
        let mut kernel = self.kernel.split('.');
        let (major, minor) = (kernel.next().unwrap_or("0"), kernel.next().unwrap_or("0"));
        for flag in CPU_FLAGS.split_whitespace() {
            labels.insert(format!("{FEATURE}cpu-cpuid.{flag}"), json!("true"));
        }
        for (key, value) in [
            ("pci-10de.present", "true"),
            ("pci-15b3.present", "true"),
            ("pci-1a03.present", "true"),
            ("cpu-model.vendor_id", "Intel"),
            ("cpu-model.family", "6"),
            ("cpu-model.id", "143"),
            ("cpu-hardware_multithreading", "true"),
            ("cpu-cstate.enabled", "true"),
            ("kernel-config.NO_HZ", "true"),
            ("kernel-version.full", &self.kernel),
            ("kernel-version.major", major),
            ("kernel-version.minor", minor),
            ("kernel-version.revision", "0"),
            ("memory-numa", "true"),
            ("network-sriov.capable", "true"),
            ("storage-nonrotationaldisk", "true"),
            ("system-os_release.ID", id),
            ("system-os_release.VERSION_ID", version),
            ("system-os_release.VERSION_ID.major", os_major),
            ("system-os_release.VERSION_ID.minor", os_minor),
        ] {
            labels.insert(format!("{FEATURE}{key}"), json!(value));
        }
    }

    fn node_info(&self) -> Value {
        let os_image = match self.os.0.as_str() {
            "ubuntu" => format!("Ubuntu {} LTS", self.os.1),
            "rhel" => format!("Red Hat Enterprise Linux {} (Plow)", self.os.1),
            other => format!("{other} {}", self.os.1),
        };
        json!({
            "architecture": "amd64",
            "operatingSystem": "linux",
            "osImage": os_image,
            "kernelVersion": self.kernel,
            "containerRuntimeVersion": self.runtime,
            "kubeletVersion": self.kubelet,
            "kubeProxyVersion": "",
            // kwok renders YAML: an identifier of digits only would become a number there and be refused.
            "bootID": format!("boot-{}", self.name),
            "machineID": format!("machine-{}", self.name),
            "systemUUID": format!("system-{}", self.name),
        })
    }
}

/// What a kubelet lists: by far the largest part of a node that has run for a while.
fn images() -> Vec<Value> {
    let image = |i: u32| {
        let name = format!("registry.example/team/image-{i:02}");
        json!({ "names": [format!("{name}@sha256:{i:064x}"), format!("{name}:v1.{i}")], "sizeBytes": 100_000_000 + i })
    };
    (0..15).map(image).collect()
}

/// `n` nodes `gpu-00000`, `gpu-00001`, ... with the three taints that GPU nodes are found with, in turn.
pub fn gpu_nodes(n: usize) -> Vec<Node> {
    gpu_nodes_from(0, n)
}

/// As [`gpu_nodes`], beginning with number `start`.
pub fn gpu_nodes_from(start: usize, n: usize) -> Vec<Node> {
    let one = |i: usize| {
        let mut node = GpuNode::new(format!("gpu-{i:05}"));
        node.taint = match i % 3 {
            0 => Taint::GpuNode,
            1 => Taint::Gpu,
            _ => Taint::Nvidia,
        };
        node.build()
    };
    (start..start + n).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_as_large_as_real_ones_and_complete() {
        let nodes = gpu_nodes(3);
        for node in &nodes {
            let size = serde_json::to_string(node).unwrap().len();
            assert!((6_000..10_000).contains(&size), "{size}");
            assert_eq!(node.metadata.labels.as_ref().unwrap()["gpu"], "true");
        }
        let taints: Vec<&str> = nodes
            .iter()
            .map(|node| {
                node.spec.as_ref().unwrap().taints.as_ref().unwrap()[0]
                    .key
                    .as_str()
            })
            .collect();
        assert_eq!(taints, ["gpu-node", "gpu", "nvidia.com/gpu"]);
    }
}
