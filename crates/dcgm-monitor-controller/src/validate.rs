//! The effective policy and what was observed become one value from which objects are built. Every mistake of a user is found here.

use tessera_api::{
    EffectivePolicy,
    effective::{Dcgm, DcgmExporter, HostPaths, NodeStatusExporter, Sharing},
    image::ImageRef,
    names,
};
use tessera_runtime::template::Common;

use crate::{
    metrics_list::metrics_file,
    metrics_source::{MetricsFile, MetricsProblem, UserMap, choose},
};

/// What is wanted of one operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted<T> {
    /// The policy turns it off: its objects go.
    Off,
    /// Its part of the policy cannot be used: its objects stay as they are.
    Unusable(String),
    /// It runs like this.
    On(T),
}

impl<T> Wanted<T> {
    fn of(enabled: bool, invalid: Option<&String>, on: impl FnOnce() -> T) -> Self {
        match (enabled, invalid) {
            (false, _) => Self::Off,
            (true, Some(why)) => Self::Unusable(why.clone()),
            (true, None) => Self::On(on()),
        }
    }

    /// Why it cannot be used.
    pub fn unusable(&self) -> Option<&str> {
        match self {
            Self::Unusable(why) => Some(why),
            Self::Off | Self::On(_) => None,
        }
    }
}

/// An init container that waits for the toolkit on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitForToolkit {
    /// An image with a shell: the validator's.
    pub image: ImageRef,
    /// When the kubelet pulls it.
    pub pull_policy: String,
    /// Secrets for the pull.
    pub pull_secrets: Vec<String>,
}

/// The exporter as it should run.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of one container"
)]
pub struct Exporter {
    /// What the policy says.
    pub policy: DcgmExporter,
    /// What it collects.
    pub metrics: MetricsFile,
    /// Cards may be shared: each container gets the metrics of its share.
    pub virtual_gpus: bool,
    /// Resources beyond `nvidia.com/gpu` and `nvidia.com/mig-*` that containers use cards by.
    pub resource_names: Vec<String>,
    /// Uses the host engine DaemonSet instead of its embedded one.
    pub remote_engine: bool,
    /// Labels or UIDs of pods on metrics: the only case that needs the API server.
    pub reads_pods: bool,
    /// A ServiceMonitor is wanted and its kind exists.
    pub monitor: bool,
}

/// Everything that objects are built from.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// What all DaemonSets have in common.
    pub common: Common,
    /// Paths on the host.
    pub host_paths: HostPaths,
    /// `None` where nothing makes that file: the validator is off.
    pub wait_for_toolkit: Option<WaitForToolkit>,
    /// The exporter, its Services and its ServiceMonitor.
    pub exporter: Wanted<Exporter>,
    /// The host engine and its Service.
    pub engine: Wanted<Dcgm>,
    /// The node status exporter and its Service.
    pub node_status: Wanted<NodeStatusExporter>,
    /// What is wrong with the user's metrics.
    pub metrics_problem: Option<MetricsProblem>,
    /// The ServiceMonitor is left as it is: its kind exists, but what there is of it is not known yet.
    pub monitor_unknown: bool,
}

/// What validation needs beyond the policy.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Namespace of the operands.
    pub namespace: &'a str,
    /// The ConfigMap that the policy names, if it exists.
    pub user_metrics: Option<&'a UserMap>,
    /// What our own metrics ConfigMap holds.
    pub last_metrics: Option<&'a MetricsFile>,
    /// The host engine's DaemonSet exists.
    pub engine_exists: bool,
    /// ServiceMonitors exist as a kind and ours are known.
    pub monitor_usable: bool,
    /// ServiceMonitors exist as a kind.
    pub monitor_present: bool,
}

/// Validates.
pub fn validate(policy: &EffectivePolicy, facts: Facts<'_>) -> Validated {
    let exporter = &policy.dcgm_exporter;
    let mut metrics_problem = None;
    let exporter = Wanted::of(
        exporter.operand.enabled,
        exporter.operand.invalid.as_ref(),
        || {
            let last = facts.last_metrics.cloned();
            let built_in = || metrics_file(&exporter.operand.image);
            let (metrics, problem) = choose(
                facts.namespace,
                exporter.metrics_config.as_deref(),
                facts.user_metrics,
                last,
                built_in,
            );
            metrics_problem = problem;
            Exporter {
                policy: exporter.clone(),
                metrics,
                virtual_gpus: policy.device_plugin.operand.enabled
                    && policy.device_plugin.config.may_share(),
                resource_names: renamed(policy),
                // One that cannot be used keeps what ran before, if anything did.
                remote_engine: policy.dcgm.operand.enabled
                    && (policy.dcgm.operand.invalid.is_none() || facts.engine_exists),
                reads_pods: exporter.enable_pod_labels || exporter.enable_pod_uid,
                monitor: exporter.service_monitor.enabled && facts.monitor_usable,
            }
        },
    );
    let validator = &policy.validator.operand;
    Validated {
        common: Common::of(policy, names::controller::DCGM_MONITOR, facts.namespace),
        host_paths: policy.host_paths.clone(),
        wait_for_toolkit: validator.enabled.then(|| WaitForToolkit {
            image: validator.image.clone(),
            pull_policy: validator.image_pull_policy.as_str().to_owned(),
            pull_secrets: validator.image_pull_secrets.clone(),
        }),
        exporter,
        engine: Wanted::of(
            policy.dcgm.operand.enabled,
            policy.dcgm.operand.invalid.as_ref(),
            || policy.dcgm.clone(),
        ),
        node_status: Wanted::of(
            policy.node_status_exporter.operand.enabled,
            policy.node_status_exporter.operand.invalid.as_ref(),
            || policy.node_status_exporter.clone(),
        ),
        metrics_problem,
        monitor_unknown: facts.monitor_present && !facts.monitor_usable,
    }
}

/// Names that shared resources get by `renameByDefault`; the exporter maps no pods to names that it is not told.
fn renamed(policy: &EffectivePolicy) -> Vec<String> {
    use tessera_api::effective::PluginConfig::{ConfigMap, Inline};
    let shared = match &policy.device_plugin.config {
        Inline(Sharing::TimeSlicing(shared) | Sharing::Mps(shared)) if shared.rename_by_default => {
            shared
        }
        Inline(_) => return Vec::new(),
        // What a user's ConfigMap says is not known here: the usual name costs nothing.
        ConfigMap { .. } => return vec![format!("{}.shared", names::GPU_RESOURCE)],
    };
    shared
        .shared()
        .map(|(name, _)| format!("{name}.shared"))
        .collect()
}
