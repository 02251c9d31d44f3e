//! The parts of the effective policy.

mod driver;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSecurityContext, ResourceRequirements, Toleration};
use serde::Serialize;

pub use self::driver::*;
use crate::{
    image::ImageRef,
    policy::{MigStrategy, PullPolicy, RelabelConfig, ServiceType, TrafficPolicy},
    units::{IntOrPercent, MemoryLimit, ScrapeDuration},
};

/// What every operand has.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operand {
    /// Whether it is deployed.
    pub enabled: bool,
    /// Why its part of the policy cannot be used; the controller reports it and leaves the last good state.
    pub invalid: Option<String>,
    /// Image; for the driver before the suffix of the operating system.
    pub image: ImageRef,
    /// When the kubelet pulls.
    pub image_pull_policy: PullPolicy,
    /// Secrets for the pull.
    pub image_pull_secrets: Vec<String>,
    /// Requests and limits of the main container.
    pub resources: Option<ResourceRequirements>,
    /// Arguments of the main container.
    pub args: Vec<String>,
    /// The user's environment; wins over the controller's.
    pub env: BTreeMap<String, String>,
    /// The host's network.
    pub host_network: bool,
}

/// Common parts of DaemonSets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Daemonsets {
    /// Labels of DaemonSets and pods.
    pub labels: BTreeMap<String, String>,
    /// Annotations of DaemonSets and pods.
    pub annotations: BTreeMap<String, String>,
    /// Tolerations of every operand: `daemonsets.tolerations` (default `nvidia.com/gpu` Exists NoSchedule), `driver.tolerations`, and
    /// one for each entry of `nodeSelector`, without duplicates, sorted.
    pub tolerations: Vec<Toleration>,
    /// Priority class.
    pub priority_class_name: String,
    /// How pods are replaced (not the driver's, which is always OnDelete).
    pub update_strategy: UpdateStrategy,
    /// Security context of operand pods.
    pub pod_security_context: Option<PodSecurityContext>,
}

/// How changed pods are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum UpdateStrategy {
    /// Node after node.
    #[serde(rename_all = "camelCase")]
    RollingUpdate {
        /// Nodes at once.
        max_unavailable: IntOrPercent,
    },
    /// When someone deletes the old pod.
    OnDelete,
}

/// Paths on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "named as in the section hostPaths")]
pub struct HostPaths {
    pub root_fs: String,
    pub driver_install_dir: String,
    pub kubelet_root_dir: String,
}

/// Container toolkit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Toolkit {
    /// Image, environment and so on.
    pub operand: Operand,
    /// Where it is installed on the host.
    pub install_dir: String,
}

/// Container Device Interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cdi {
    /// Hand devices to containers by CDI.
    pub enabled: bool,
    /// By the NRI plugin: no runtime configuration, no RuntimeClasses. Only with `enabled`.
    pub nri: bool,
}

/// Validator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "environment of each check")]
pub struct Validator {
    pub operand: Operand,
    pub driver_env: BTreeMap<String, String>,
    pub toolkit_env: BTreeMap<String, String>,
    pub cuda_env: BTreeMap<String, String>,
    pub plugin_env: BTreeMap<String, String>,
}

/// Device plugin.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DevicePlugin {
    /// Image, environment and so on.
    pub operand: Operand,
    /// Its configuration.
    pub config: PluginConfig,
    /// Memory that a time-sliced share is told to use.
    pub memory_limit: MemoryLimit,
    /// Directory of MPS on the host.
    pub mps_root: String,
}

/// Where the device plugin's configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PluginConfig {
    /// Rendered by Tessera.
    Inline(Sharing),
    /// A ConfigMap of the user.
    ConfigMap {
        /// Its name.
        name: String,
        /// Key for nodes without label nvidia.com/device-plugin.config.
        default: Option<String>,
    },
}

impl PluginConfig {
    /// Whether cards are shared, or may be (a ConfigMap's content is not known here).
    pub fn may_share(&self) -> bool {
        match self {
            Self::Inline(sharing) => sharing.is_active(),
            Self::ConfigMap { .. } => true,
        }
    }
}

/// How cards are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Sharing {
    /// Not at all.
    #[default]
    None,
    /// By turns.
    TimeSlicing(SharedResources),
    /// By MPS.
    Mps(SharedResources),
}

impl Sharing {
    /// Whether any resource has more than one replica.
    pub fn is_active(&self) -> bool {
        self.resources()
            .is_some_and(|shared| shared.shared().next().is_some())
    }

    /// What is shared, however.
    pub fn resources(&self) -> Option<&SharedResources> {
        match self {
            Self::None => None,
            Self::TimeSlicing(shared) | Self::Mps(shared) => Some(shared),
        }
    }
}

/// What is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedResources {
    /// Replicas by full resource name; 1 is not shared.
    pub resources: BTreeMap<String, u32>,
    /// Advertise `<name>.shared`.
    pub rename_by_default: bool,
    /// Refuse requests for more than one share.
    pub fail_requests_greater_than_one: bool,
}

impl SharedResources {
    /// Those with at least two replicas: the plugin does not start with fewer.
    pub fn shared(&self) -> impl Iterator<Item = (&str, u32)> {
        self.resources
            .iter()
            .filter(|(_, replicas)| **replicas > 1)
            .map(|(name, replicas)| (name.as_str(), *replicas))
    }
}

/// GPU feature discovery.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gfd {
    /// Image, environment and so on.
    pub operand: Operand,
}

/// MIG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mig {
    /// How instances are advertised; never `Unrecognised`.
    pub strategy: MigStrategy,
}

/// MIG manager.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MigManager {
    /// Image, environment and so on.
    pub operand: Operand,
    /// ConfigMap with layouts (key config.yaml); none: generated on each node.
    pub config_map: Option<String>,
    /// Layout of nodes without a label; none: such nodes are left alone.
    pub config_default: Option<String>,
    /// ConfigMap with programs to stop on the host.
    pub gpu_clients_config: Option<String>,
}

/// DCGM host engine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Dcgm {
    /// Image, environment and so on.
    pub operand: Operand,
}

/// DCGM exporter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DcgmExporter {
    /// Image, environment and so on.
    pub operand: Operand,
    /// ConfigMap with the metrics to collect.
    pub metrics_config: Option<String>,
    /// ServiceMonitor.
    pub service_monitor: ServiceMonitor,
    /// Type of the Services.
    pub service_type: ServiceType,
    /// Traffic policy of the Services; none: Kubernetes' default.
    pub internal_traffic_policy: Option<TrafficPolicy>,
    /// The host's process namespace.
    pub host_pid: bool,
    /// Annotations of the DaemonSet.
    pub annotations: BTreeMap<String, String>,
    /// Annotations of its pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Labels of its pods.
    pub pod_labels: BTreeMap<String, String>,
    /// Directory of job files, if mapping is on.
    pub hpc_job_mapping_dir: Option<String>,
    /// Labels of the using pod on metrics.
    pub enable_pod_labels: bool,
    /// UID of the using pod on metrics.
    pub enable_pod_uid: bool,
    /// Which pod labels.
    pub pod_label_allowlist_regex: Vec<String>,
}

/// ServiceMonitor.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitor {
    /// Whether one is made.
    pub enabled: bool,
    /// How often metrics are scraped; the exporter collects as often.
    pub interval: ScrapeDuration,
    /// When a scrape has failed.
    pub scrape_timeout: ScrapeDuration,
    /// Keep the exporter's labels.
    pub honor_labels: bool,
    /// Its labels.
    pub additional_labels: BTreeMap<String, String>,
    /// Rewriting of targets.
    pub relabelings: Vec<RelabelConfig>,
    /// Rewriting of metrics.
    pub metric_relabelings: Vec<RelabelConfig>,
}

/// Node status exporter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeStatusExporter {
    /// Image, environment and so on.
    pub operand: Operand,
}
