//! dcgm-monitor-controller: DCGM exporter, host engine, node status exporter, their Services, and the exporter's ServiceMonitor.
//!
//! **Watches.** ClusterPolicies; Nodes; its own DaemonSets, Services and ConfigMaps, and other ConfigMaps of its namespace; pods of its
//! own operands; the CRD of ServiceMonitor, and its own ServiceMonitors as long as that exists.
//!
//! **Reads.** Nothing in a reconcile: all reads are watches. A conflict of the status writer reads the policy once.
//!
//! **Writes.** DaemonSets `nvidia-dcgm-exporter`, `nvidia-dcgm`, `nvidia-node-status-exporter`; their Services and `dcgm-exporter`;
//! ConfigMap `nvidia-dcgm-exporter-metrics`; ServiceMonitor `nvidia-dcgm-exporter`.
//!
//! **Field manager and owned paths.** `dcgm-monitor-controller.aiops.local`: these objects, `status.dcgm`, its two conditions and the
//! computed summary of a ClusterPolicy. `node-labels.aiops.local`: the shared labels of GPU nodes, when no other controller has
//! written them for six seconds.
//!
//! **Conditions owned.** `ExporterReady`, `MonitoringReady`.
//!
//! **Relies on.** Nobody else applies under its field managers. Operands' ServiceAccounts are the chart's. The file
//! `toolkit-ready` on a node is made by the validator, and RuntimeClass `nvidia` by the driver-controller.
//!
//! **Guarantees.** A metrics file that the exporter cannot read never reaches a pod. What is not wanted any more is removed; a part of
//! the policy that cannot be used changes nothing. Converged, it sends no request.
//!
//! **On leader loss.** No write begins after the token has expired; stores stay warm and the next term starts from them.
//!
//! **Failure modes.** A part of the policy that cannot be used: `InvalidSpec`. The user's metrics ConfigMap missing, without its key, or
//! wrong in a line: `ConfigMapNotFound`, `ConfigKeyNotFound`, `ConfigInvalid` in `ExporterReady`; the exporter keeps what it had. Pods
//! that are not ready: their reason. No ServiceMonitor CRD: `MonitoringReady` True, `CRDNotInstalled`. A refused write: `Forbidden` or
//! `ReconcileFailed`.

#![warn(missing_docs)]

pub mod args;
pub mod build;
mod context;
mod controller;
pub mod error;
pub mod expected;
pub mod metrics_csv;
pub mod metrics_list;
pub mod metrics_source;
mod observe;
pub mod rbac;
mod reconcile;
pub mod service_monitor;
pub mod status;
pub mod validate;

use tessera_runtime::Process;

/// Its name: binary, Deployment, ServiceAccount, Lease, `app.kubernetes.io/managed-by`.
pub const NAME: &str = tessera_api::names::controller::DCGM_MONITOR;

/// Runs the controller until the process is told to stop.
pub async fn start(args: args::Args) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let images = args.images();
    let process = Process::start(NAME, args.runtime).await?;
    controller::run(process, images).await?;
    Ok(())
}
