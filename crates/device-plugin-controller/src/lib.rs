//! device-plugin-controller: device plugin, GPU feature discovery, sharing (time-slicing, MPS), MIG manager.
//!
//! - **Watches**: ClusterPolicies; Nodes (cut to facts); own DaemonSets and ConfigMaps; pods of own DaemonSets; the
//!   ConfigMaps that the policy names, each alone.
//! - **Reads**: nothing beyond these stores.
//! - **Writes**: DaemonSets nvidia-device-plugin-daemonset, gpu-feature-discovery, nvidia-device-plugin-mps-control-daemon
//!   (only with MPS), nvidia-mig-manager (only with migManager.enabled) and the ConfigMaps that they read; `status` of the
//!   active policy; node labels when nobody else has written them for 3 s, label nvidia.com/mig.config where a node has none,
//!   and labels that the MIG manager has paused and not restored in time.
//! - **Field manager**: `device-plugin-controller.aiops.local`; owned paths: whole objects of its own, `status.devicePlugin`,
//!   its conditions, and the computed summary. Node labels: the shared `node-labels.aiops.local`.
//! - **Conditions owned**: DevicePluginReady, FeatureDiscoveryReady, SharingApplied, MigReady.
//! - **Relies on**: nobody else writes objects that carry `app.kubernetes.io/managed-by: device-plugin-controller`; feature
//!   discovery alone writes `nvidia.com/gpu.count` and its like, the MIG manager alone `nvidia.com/mig.config.state`.
//! - **Guarantees**: the rendered configuration is byte-stable; the plugin never gets an entry that keeps it from starting;
//!   a configuration that cannot be used changes nothing that runs; a change of a configuration restarts plugin, feature
//!   discovery and MPS daemon by the DaemonSets' own roll-out; the cost of a node's event does not depend on their number.
//! - **On leader loss**: every write stops; stores, verdicts and watches stay warm.
//! - **Failure modes**: a bad part of the policy (`InvalidSpec`), a ConfigMap or key that is not there (`ConfigMapNotFound`,
//!   `ConfigKeyNotFound`), one that cannot be used, or sharing that the
//!   cards of a node cannot give (`ConfigInvalid`), a node that chooses a key that is not there
//!   (`NodeConfigUnknown`), nodes that advertise something else (`SharingMismatch`), MIG (`MigPending`, `MigFailed`,
//!   `MigLayoutInvalid`), pods (reasons of their own), the API server (`ReconcileFailed`, `Forbidden`).

pub mod args;
pub mod build;
pub mod context;
pub mod controller;
pub mod error;
pub mod index;
pub mod mig;
pub mod mig_nodes;
pub mod observe;
pub mod plugin_config;
pub mod pods;
pub mod rbac;
pub mod reconcile;
pub mod referenced;
pub mod sharing;
pub mod status;
#[cfg(test)]
mod tests;
pub mod validate;
pub mod verdict;
pub mod yaml;

pub use args::Args;
pub use rbac::rights;

/// Runs until told to stop.
pub async fn start(args: Args) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (process, queue, reconciler) = controller::prepare(args).await?;
    process.run(queue, reconciler).await?;
    Ok(())
}
