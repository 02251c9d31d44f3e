//! sreagent-controller: each SREAgent becomes one agent Deployment with just the rights that its spec allows.
//!
//! **Watches.** SREAgents of all namespaces; the ServiceAccounts, RoleBindings, ClusterRoleBindings and Deployments that it made; agents'
//! pods.
//!
//! **Reads.** Nothing in a reconcile: all reads are watches.
//!
//! **Writes.** Per SREAgent: ServiceAccount, RoleBinding and Deployment `sre-agent-<name>` in its namespace; ClusterRoleBindings
//! `tessera-sre-agent-<namespace>.<name>-observe` and, only with `autoRepair`, `-repair` (a namespace has no dot, so no two SREAgents
//! share a name; long ones are cut and end in a hash). Finalizer `aiops.local/sreagent`: cluster-scoped bindings cannot be owned by a
//! namespaced object, so nothing else would remove them.
//!
//! **Field manager and owned paths.** `sreagent-controller.aiops.local`: these objects; of an SREAgent's status everything but
//! `status.agent`, which is the agent's.
//!
//! **Conditions owned.** `Ready`, `AgentAvailable`, `RepairsAllowed`, `TelemetryHealthy`, `NodesHealthy` of an SREAgent.
//!
//! **Relies on.** The three ClusterRoles of [`rbac::AGENT_ROLES`], which the chart makes. Agents write `status.agent` and nothing else.
//!
//! **Guarantees.** No agent has the right to change a node unless its SREAgent says `autoRepair: true` and its namespace is allowed to
//! (`--repair-namespaces`). A bad SREAgent stops no other. Converged, it sends no request.
//!
//! **Rights on RBAC.** DESIGN section 3 gives controllers none; this one is the exception, because agents come and go with their
//! SREAgents. It may create, change and delete bindings, and it may `bind` exactly the three ClusterRoles of the agents: the API server
//! refuses any other binding from it, and it cannot write roles at all.
//!
//! **On leader loss.** No write begins after the token has expired; the next leader starts from what is there.
//!
//! **Failure modes.** A spec that cannot be used: `Ready` False, `InvalidSpec`, and what was made before stays. An agent that does not
//! start: `AgentAvailable` False with its pod's reason. A refused write: `ApplyFailed`. An agent that cannot be stopped (its node is
//! lost) delays the deletion of its SREAgent by a minute at most.

#![warn(missing_docs)]

pub mod args;
pub mod build;
mod context;
mod controller;
pub mod error;
pub mod observe;
pub mod rbac;
mod reconcile;
pub mod status;
pub mod validate;

use tessera_runtime::Process;

/// Its name: binary, Deployment, ServiceAccount, Lease, `app.kubernetes.io/managed-by`.
pub const NAME: &str = tessera_api::names::controller::SREAGENT;

/// Runs the controller until the process is told to stop.
///
/// # Errors
/// The process could not start, or a part of it died.
pub async fn start(args: args::Args) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let settings = args.settings();
    let process = Process::start(NAME, args.runtime).await?;
    controller::run(process, settings).await?;
    Ok(())
}
