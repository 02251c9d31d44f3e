//! The driver-controller: drivers, container toolkit, runtime classes, validator and driver upgrades.
//!
//! # Contract
//!
//! - **Watches**: ClusterPolicies, Nodes, NodeOperations; in the operands' namespace its own DaemonSets and pods, and
//!   ConfigMaps; its own RuntimeClasses; pods that use GPUs, for upgrades.
//! - **Reads**: only what it watches. Desired state comes from Node objects, never from their readiness.
//! - **Writes**: RuntimeClasses; ConfigMap of the startup probe; DaemonSets of driver (one a pool), toolkit (one a pool)
//!   and validator; node labels `nvidia.com/gpu.present` and `nvidia.com/gpu.deploy.*` by the shared manager; pool labels
//!   of nodes whose own labels do not tell; NodeOperations, cordons and evictions of upgrades; its slice of the status.
//! - **Field manager**: `driver-controller.aiops.local`; owns `status.driver`.
//! - **Conditions**: DriverReady, ToolkitReady, ValidatorReady.
//! - **Relies on**: nobody else writes objects labelled `app.kubernetes.io/managed-by=driver-controller`; a value of a
//!   deploy label that is not `"true"` is somebody's wish.
//! - **Guarantees**: a node event costs work for that node only; a running driver is replaced only by an upgrade, one
//!   node at a time within the budget; an unusable part of a policy leaves what runs; nothing is written when nothing
//!   changes.
//! - **On leader loss**: writes stop; upgrades go on under the next leader from their NodeOperations.
//! - **Failure modes**: invalid spec (InvalidSpec), missing ConfigMap (ConfigMapNotFound, ConfigKeyNotFound), unknown
//!   operating system (UnknownOperatingSystem), unknown runtime (UnsupportedRuntime), taints (TaintsNotTolerated), image
//!   that cannot be pulled (ImagePullFailed, with the image), failing checks (ValidationFailed), missing rights
//!   (Forbidden), API errors (ReconcileFailed).

pub mod args;
pub mod build;
pub mod context;
pub mod controller;
pub mod error;
pub mod fleet;
pub mod labels;
pub mod observe;
pub mod pool_labels;
pub mod pools;
pub mod rbac;
pub mod reconcile;
pub mod status;
#[cfg(test)]
mod testing;
pub mod upgrade;
pub mod validate;

pub use args::Args;
pub use context::Context;
pub use controller::Key;
pub use error::Error;

use reconcile::DriverReconciler;
use std::sync::Arc;
use tessera_api::names::controller::DRIVER as NAME;
use tessera_runtime::Process;
use tessera_runtime::queue::Queue;

/// Runs until told to stop.
pub async fn start(args: Args) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut process = Process::start(NAME, args.runtime.clone()).await?;
    let queue = Queue::new();
    let context = Arc::new(controller::context(&mut process, &args, &queue));
    process.run(queue, DriverReconciler { context }).await?;
    Ok(())
}
