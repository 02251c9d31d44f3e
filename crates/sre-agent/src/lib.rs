//! The agent of one SREAgent: it watches GPU nodes, tells what is wrong with them, and takes those with a fatal fault out of
//! service until they are clean again, where that is allowed.
//!
//! **Watches**: its SREAgent; Nodes; NodeOperations; exporter pods (label `app=nvidia-dcgm-exporter`) of all namespaces.
//!
//! **Reads**: only its stores, and `/metrics` of each exporter, once an interval. API requests only when it acts, and
//! one at its start that asks who it is: its Lease belongs to its ServiceAccount, and goes with it.
//!
//! **Writes**: `status.agent` of its SREAgent, events, its Lease; with `autoRepair` also NodeOperations of kind `Repair` and,
//! on Nodes, `spec.unschedulable` together with annotation `aiops.local/cordoned-by`.
//!
//! **Field manager**: `sre-agent.aiops.local`. **Owned paths**: `status.agent` and nothing else of the SREAgent.
//!
//! **Conditions owned**: none; the sreagent-controller derives them from `status.agent`.
//!
//! **Relies on**: nobody else writing `status.agent` or ending an operation that this agent holds; condition `RepairsAllowed`
//! telling truly whether the rights were given.
//!
//! **Guarantees**: no write to nodes without `autoRepair` (the API server refuses it, too); never more nodes than the guard
//! rails allow, in the cluster's newest state; only its own cordon is undone; what a person decides wins; lost telemetry is
//! never a fault of a GPU, and never health; with nothing wrong, no write and no read but the Lease and the watches.
//!
//! **On leader loss**: nothing more is written; another agent of the same SREAgent goes on from NodeOperation and status.
//!
//! **Failure modes**: an exporter that is silent, slow, frozen or talks nonsense -> `status.agent.telemetry.staleNodes` names
//! node and cause; too much wrong at once -> `status.agent.breaker`; held back by a guard rail -> `blockedBy` of the incident.
//!
//! Not in this form: soft isolation by taint, evictions, requests for reset or reboot, plugin restarts, maintenance windows,
//! imported conditions, and all of their settings (the full ladder of `reference/self-healing.md` section 4.6).

pub mod act;
pub mod args;
pub mod context;
pub mod controller;
pub mod dcgm;
pub mod decide;
pub mod error;
pub mod exposition;
pub mod memory;
pub mod metrics;
pub mod observe;
pub mod policy;
pub mod rbac;
pub mod reconcile;
pub mod report;
pub mod scrape;
pub mod signals;
pub mod signature;
pub mod snapshot;
pub mod status;
pub mod xid;

use args::Args;
use tessera_api::names::controller::SRE_AGENT;
use tessera_runtime::Process;
use tessera_runtime::queue::Queue;

/// Longest name of an object.
const MAX_NAME: usize = 253;

/// Name of the Lease: one an SREAgent, so that two agents of one never act. Where the SREAgent's own name leaves no room for
/// ours, a hash of it is in its place.
pub fn lease_name(sreagent: &str) -> String {
    let name = format!("{SRE_AGENT}-{sreagent}");
    if name.len() <= MAX_NAME {
        return name;
    }
    format!("{SRE_AGENT}-{}", tessera_api::effective::hash_of(&sreagent))
}

/// Runs the agent until it is told to stop.
///
/// # Errors
/// The process could not start, or a part of it died.
pub async fn start(args: Args) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut process = Process::start(SRE_AGENT, args.runtime.clone()).await?;
    process.elect_by(&lease_name(&args.sreagent_name));
    let queue = Queue::new();
    let check = controller::set_up(&mut process, &args, &queue);
    process.run(queue, check).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sreagent_has_a_lease_of_a_valid_name() {
        assert_eq!(lease_name("gpu"), "sre-agent-gpu");
        let (one, other) = (lease_name(&"a".repeat(253)), lease_name(&"a".repeat(252)));
        assert!(one.len() <= MAX_NAME && other.len() <= MAX_NAME);
        assert_ne!(one, other);
    }
}
