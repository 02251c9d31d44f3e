//! Driver.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Operand;
use crate::{
    image::ImageRef,
    policy::{KernelModuleType, PullPolicy},
    units::IntOrPercent,
};

/// Driver.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Driver {
    /// Image, environment and so on.
    pub operand: Operand,
    /// Precompiled modules: the image's tag is a driver branch.
    pub use_precompiled: bool,
    /// Kernel modules.
    pub kernel_module_type: KernelModuleType,
    /// Times of the startup probe.
    pub startup_probe: ProbeTimes,
    /// Times of the liveness probe, if wanted.
    pub liveness_probe: Option<ProbeTimes>,
    /// Times of the readiness probe, if wanted.
    pub readiness_probe: Option<ProbeTimes>,
    /// GPUDirect RDMA.
    pub rdma: Rdma,
    /// How a changed driver reaches the nodes.
    pub upgrade: UpgradePolicy,
    /// The init container.
    pub manager: DriverManager,
    /// GPUDirect Storage (nvidia-fs), if wanted.
    pub gds: Option<DriverSidecar>,
    /// GDRCopy, if wanted.
    pub gdrcopy: Option<DriverSidecar>,
    /// ConfigMap with package repositories.
    pub repo_config: Option<String>,
    /// ConfigMap with certificates.
    pub cert_config: Option<String>,
    /// vGPU licence.
    pub licensing: Option<Licensing>,
    /// ConfigMap of the vGPU topology daemon.
    pub virtual_topology: Option<String>,
    /// ConfigMap with kernel module parameters.
    pub kernel_module_config: Option<String>,
    /// Secret whose entries are environment variables.
    pub secret_env: Option<String>,
}

impl Driver {
    /// Driver version (or branch, or digest) as the image says.
    pub fn version(&self) -> &str {
        self.operand.image.version()
    }
}

/// Times and counts of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "Kubernetes' names; seconds and counts")]
pub struct ProbeTimes {
    pub initial_delay_seconds: i32,
    pub timeout_seconds: i32,
    pub period_seconds: i32,
    pub success_threshold: i32,
    pub failure_threshold: i32,
}

/// GPUDirect RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "named as in the section driver.rdma")]
pub struct Rdma {
    pub enabled: bool,
    pub use_host_mofed: bool,
}

/// How a changed driver reaches the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePolicy {
    /// Upgrade without being asked.
    pub auto_upgrade: bool,
    /// Nodes at once; 0 is no limit.
    pub max_parallel_upgrades: u32,
    /// Nodes that may be out of service.
    pub max_unavailable: IntOrPercent,
    /// Selector of pods to wait for; empty waits for none.
    pub wait_pod_selector: String,
    /// Longest such wait in seconds; 0 is for ever.
    pub wait_timeout_seconds: u64,
    /// Eviction of GPU pods.
    pub pod_deletion: PodDeletion,
    /// Drain of the node.
    pub drain: Drain,
}

/// Eviction of GPU pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    missing_docs,
    reason = "named as in the section driver.upgradePolicy.podDeletion"
)]
pub struct PodDeletion {
    pub force: bool,
    pub timeout_seconds: u64,
    pub delete_empty_dir: bool,
}

/// Drain of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    missing_docs,
    reason = "named as in the section driver.upgradePolicy.drain"
)]
pub struct Drain {
    pub enable: bool,
    pub force: bool,
    pub pod_selector: String,
    pub timeout_seconds: u64,
    pub delete_empty_dir: bool,
}

/// The driver's init container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "named as in the section driver.manager")]
pub struct DriverManager {
    pub image: ImageRef,
    pub image_pull_policy: PullPolicy,
    pub image_pull_secrets: Vec<String>,
    pub env: BTreeMap<String, String>,
}

/// A sidecar of the driver pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverSidecar {
    /// Image, before the suffix of the operating system.
    pub image: ImageRef,
    /// When the kubelet pulls.
    pub image_pull_policy: PullPolicy,
    /// Secrets for the pull.
    pub image_pull_secrets: Vec<String>,
    /// Arguments; empty: the controller's.
    pub args: Vec<String>,
    /// The user's environment; wins over the controller's.
    pub env: BTreeMap<String, String>,
}

/// vGPU licence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    missing_docs,
    reason = "named as in the section driver.licensingConfig"
)]
pub struct Licensing {
    pub secret_name: Option<String>,
    pub config_map_name: Option<String>,
    pub nls_enabled: bool,
}
