//! `ClusterPolicy` (nvidia.com/v1): NVIDIA's fields and the short dialect in one schema (DESIGN section 2.1).
//!
//! Field names, defaults and enums are those of NVIDIA/gpu-operator v26.7.0 (`api/nvidia/v1/clusterpolicy_types.go`). Nothing is
//! required, and no default is written into stored objects: defaults are applied in [`crate::effective`].

mod cluster;
mod common;
mod driver;
pub(crate) mod fields;
mod monitoring;
pub(crate) mod rules;
mod sandbox;
mod sharing;
mod status;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

pub use self::{
    cluster::*, common::*, driver::*, monitoring::*, sandbox::*, sharing::*, status::*,
};
use crate::names::label;

/// What the GPU nodes of a cluster should run. One policy is active at a time; see DESIGN section 2.2.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "nvidia.com",
    version = "v1",
    kind = "ClusterPolicy",
    plural = "clusterpolicies",
    shortname = "cp",
    category = "gpu",
    status = "ClusterPolicyStatus",
    derive = "PartialEq",
    doc = "What the GPU nodes of the cluster should run: driver, container toolkit, device plugin, sharing, monitoring.",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(
        name = "Driver",
        type_ = "string",
        json_path = ".status.driver.summary"
    ),
    printcolumn(
        name = "Plugin",
        type_ = "string",
        json_path = ".status.devicePlugin.summary"
    ),
    printcolumn(
        name = "Monitoring",
        type_ = "string",
        json_path = ".status.dcgm.summary"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::toolkit_enabled())]
#[x_kube(validation = rules::cdi_enabled())]
#[x_kube(validation = rules::exporter_short_form(&["enabled"]))]
#[x_kube(validation = rules::exporter_short_form(&["repository", "image", "version"]))]
#[x_kube(validation = rules::exporter_short_form(&["serviceMonitor.enabled"]))]
#[x_kube(validation = rules::exporter_short_form(&["serviceMonitor.interval", "serviceMonitor.scrapeTimeout"]))]
#[x_kube(validation = rules::exporter_short_form(&["config.name", "hostPID", "hostNetwork"]))]
#[x_kube(validation = rules::mig_and_sharing())]
#[x_kube(validation = rules::mig_and_mps())]
#[x_kube(validation = rules::mig_names())]
pub struct ClusterPolicySpec {
    /// The operator itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<OperatorSpec>,
    /// What all operand DaemonSets share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemonsets: Option<DaemonsetsSpec>,
    /// Which nodes are GPU nodes: those with all of these labels. Default: nodes where NFD has seen an NVIDIA card. A taint with the
    /// key and value of an entry is tolerated by all operands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// NVIDIA driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverSpec>,
    /// NVIDIA container toolkit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toolkit: Option<ToolkitSpec>,
    /// Short form of `toolkit` and `cdi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<ContainerRuntimeSpec>,
    /// Container Device Interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdi: Option<CdiSpec>,
    /// Checks on each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validator: Option<ValidatorSpec>,
    /// NVIDIA device plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_plugin: Option<DevicePluginSpec>,
    /// GPU feature discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gfd: Option<GfdSpec>,
    /// Multi-Instance GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigSpec>,
    /// MIG manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_manager: Option<MigManagerSpec>,
    /// DCGM host engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcgm: Option<DcgmSpec>,
    /// DCGM exporter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcgm_exporter: Option<DcgmExporterSpec>,
    /// Node status exporter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_status_exporter: Option<NodeStatusExporterSpec>,
    /// Paths on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_paths: Option<HostPathsSpec>,
    /// Pod security labels of the operator's namespace. Not supported by Tessera here (the namespace's owner sets them): reported in
    /// condition Supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psa: Option<Switch>,
    /// Deprecated by NVIDIA and ignored: pod security policies are gone from Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psp: Option<Switch>,
    /// GPUDirect Storage sidecar of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gds: Option<DriverSidecarSpec>,
    /// GDRCopy sidecar of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gdrcopy: Option<DriverSidecarSpec>,
    /// Virtual machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_workloads: Option<SandboxWorkloadsSpec>,
    /// VFIO-PCI manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vfio_manager: Option<VfioManagerSpec>,
    /// Device plugin for virtual machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_device_plugin: Option<SandboxDevicePluginSpec>,
    /// Device plugin for Kata containers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kata_sandbox_device_plugin: Option<KataSandboxDevicePluginSpec>,
    /// vGPU manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vgpu_manager: Option<VgpuManagerSpec>,
    /// vGPU device manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vgpu_device_manager: Option<VgpuDeviceManagerSpec>,
    /// Kata manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kata_manager: Option<KataManagerSpec>,
    /// Confidential computing manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc_manager: Option<CcManagerSpec>,
}

impl ClusterPolicy {
    /// As [`is_base`].
    pub fn is_base(&self) -> bool {
        is_base(&self.metadata)
    }
}

/// Whether a policy with these metadata is the one that the umbrella chart renders from its values.
pub fn is_base(metadata: &ObjectMeta) -> bool {
    let role = metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(label::POLICY_ROLE));
    role.is_some_and(|role| role == label::POLICY_ROLE_BASE)
}
