//! Driver upgrades (DESIGN section 7): a changed driver reaches the nodes a few at a time, and a node that has it is
//! given back only when driver and validator are ready.
//!
//! ```text
//! Idle -> Tentative -> Active -> (cordon) -> WaitingForJobs -> EvictingPods -> Draining
//!      -> RestartingDriver -> Validating -> (uncordon) -> Done | Failed
//! ```
//!
//! - **When.** A node's driver pod was made from another template than its DaemonSet has now (annotation
//!   `aiops.local/config-hash`), or somebody asked for it (annotation `nvidia.com/gpu-driver-upgrade-requested=true`, or
//!   NVIDIA's label `nvidia.com/gpu-driver-upgrade-state=upgrade-required`). A node without a driver pod gets its first
//!   one from the DaemonSet: no upgrade. With `autoUpgrade: false` nothing is ever begun or restarted.
//! - **Where the state is.** In the node's NodeOperation, in the node's cordon mark, and in the pods; nothing in memory.
//!   A phase that passes at once is not written. The machine ([`step`]) decides from these alone, so that any act may be
//!   the last one of a process.
//! - **Who is next.** One look at all nodes ([`survey`]): within the budget, failed nodes first, then requested ones, then
//!   by name. Nodes that failed halt the roll-out until a person has helped: a changed driver, or the annotation, begins
//!   a new attempt. Nodes that somebody else cordoned are left alone and named.
//! - **The gate.** A validator pod must have been made after the driver pod and be ready. One that is older is deleted
//!   once the driver is ready, because a validator checks once and then sleeps.
//! - **Driver-manager.** While we hold a node, annotation `nvidia.com/gpu-driver-upgrade-enabled=true` keeps NVIDIA's
//!   driver-manager from evicting and from undoing the cordon.
//!
//! Requests for one node, whatever their number: create, two lists, Active, cordon, pod list, RestartingDriver, two pod
//! deletions, Validating, uncordon, Done, an event: 13; with pods to evict one status write and a few lists more.

pub mod error;
pub mod facts;
mod hands;
pub mod run;
#[cfg(test)]
mod simulation;
pub mod step;
pub mod survey;

pub use error::UpgradeError;
pub use facts::{Rules, Want, Wanted};
pub use survey::Survey;

use facts::{Facts, KIND, node_state};
use hands::RealHands;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use run::{Scene, work};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use step::Rest;
use survey::Candidate;
use tessera_api::NodeFacts;
use tessera_api::names::controller;
use tessera_api::nodeoperation::{Found, Undo, UndoAct};
use tessera_runtime::drain::Drain;
use tessera_runtime::election::Term;
use tessera_runtime::events::Events;
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::operation::{Begun, Intent, NodeState, Operation, Operations};
use tessera_runtime::watch::Store;
use tessera_runtime::{Outcome, Process};

/// What upgrades read of the rest of the controller: all from stores.
pub trait UpgradeView: Sync {
    /// How upgrades go: [`Rules::of`] the active policy, [`Rules::default`] without one.
    fn rules(&self) -> Rules;
    /// All GPU nodes.
    fn gpu_nodes(&self) -> Vec<Arc<NodeFacts>>;
    /// A node, GPU or not.
    fn node(&self, name: &str) -> Option<Arc<NodeFacts>>;
    /// What the template of the driver DaemonSet that serves the node says, as the API server has it.
    fn want(&self, node: &NodeFacts) -> Want;
    /// The node's driver pod. Of two (one ending) the one that stays.
    fn driver_pod(&self, node: &str) -> Option<Arc<PodFacts>>;
    /// The node's validator pod, likewise.
    fn validator_pod(&self, node: &str) -> Option<Arc<PodFacts>>;
}

/// The upgrades of one controller.
pub struct Upgrades {
    operations: Operations,
    drain: Drain,
    pods: Api<Pod>,
    events: Events,
    limit: Duration,
}

impl Upgrades {
    /// With the stores of all Nodes and of all NodeOperations ([`tessera_runtime::operation::watch_operations`]).
    ///
    /// A change of a NodeOperation must wake its node's key and the roll-out's; so must a change of a node; a change of a
    /// driver or validator pod its node's key; a change of a driver DaemonSet or of the policy the roll-out's.
    pub fn new(process: &Process, nodes: Store<NodeFacts>, operations: Store<Operation>) -> Self {
        let (client, limit) = (process.client(), process.args().request_timeout);
        let manager = controller::field_manager(controller::DRIVER);
        Self {
            operations: Operations::new(&client, controller::DRIVER, &manager, limit, operations),
            drain: Drain::new(&client, &manager, limit, nodes),
            pods: Api::namespaced(client, &process.args().namespace),
            events: process.events(),
            limit,
        }
    }

    /// Where all GPU nodes stand now. Reads stores only.
    pub fn survey(&self, view: &impl UpgradeView) -> Survey {
        self.look(view, &view.rules(), &view.gpu_nodes()).0
    }

    fn look(
        &self,
        view: &impl UpgradeView,
        rules: &Rules,
        nodes: &[Arc<NodeFacts>],
    ) -> (Survey, BTreeMap<String, NodeState>) {
        let states = nodes
            .iter()
            .map(|node| (node.name.clone(), node_state(node)))
            .collect();
        let facts = |node: &Arc<NodeFacts>| {
            let (driver, validator) = (view.driver_pod(&node.name), view.validator_pod(&node.name));
            let facts = Facts::of(node, view.want(node), driver, validator, rules);
            let operation = self
                .operations
                .on(&node.name)
                .filter(|op| op.node_uid.is_empty() || op.node_uid == node.uid);
            (facts, operation)
        };
        let nodes: Vec<_> = nodes
            .iter()
            .filter(|node| !node.deleting)
            .map(facts)
            .collect();
        let (operations, now) = (
            self.operations.store().values(),
            tessera_runtime::clock::wall(),
        );
        (
            survey::survey(
                &nodes,
                &operations,
                &states,
                rules,
                self.operations.holder(),
                now,
            ),
            states,
        )
    }

    /// Begins the operations of the nodes that are next. Without room, or without need, this makes no request.
    pub async fn reconcile_rollout(
        &self,
        view: &impl UpgradeView,
        term: &Term,
    ) -> Result<Outcome, UpgradeError> {
        let (rules, nodes) = (view.rules(), view.gpu_nodes());
        let (survey, states) = self.look(view, &rules, &nodes);
        let (mut again, mut failure) = (survey.again, None);
        for candidate in &survey.next {
            let Some(node) = nodes.iter().find(|node| node.name == candidate.node) else {
                continue;
            };
            match self
                .begin(term, node, candidate, &rules, &states, view)
                .await
            {
                Ok(Begun::Withdrawn { retry, .. }) => {
                    again = again.into_iter().chain([retry]).min();
                }
                Ok(Begun::Active(_) | Begun::NoRoom { .. } | Begun::Busy(_)) => {}
                // The others are tried all the same.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        Ok(outcome(&survey, again))
    }

    async fn begin(
        &self,
        term: &Term,
        node: &NodeFacts,
        candidate: &Candidate,
        rules: &Rules,
        states: &BTreeMap<String, NodeState>,
        view: &impl UpgradeView,
    ) -> Result<Begun, UpgradeError> {
        let old = view
            .driver_pod(&node.name)
            .map(|pod| pod.config_hash.clone());
        let intent = Intent {
            node: &node.name,
            node_uid: &node.uid,
            kind: KIND,
            reason: candidate.reason,
            message: format!("the driver is replaced by {}", candidate.target),
            target: candidate.target.clone(),
            found: Found {
                cordoned_before: false,
                boot_id: node.boot_id.clone(),
                version: old.unwrap_or_default(),
            },
            undo: vec![Undo {
                act: UndoAct::Uncordon,
                key: String::new(),
                value: String::new(),
            }],
            budget: rules.budget,
            nodes: states,
        };
        Ok(self.operations.begin(term, &intent).await?)
    }

    /// Brings the operation on one node as far as it goes now.
    pub async fn reconcile_node(
        &self,
        view: &impl UpgradeView,
        name: &str,
        term: &Term,
    ) -> Result<Outcome, UpgradeError> {
        let Some(node) = view.node(name).filter(|node| !node.deleting) else {
            return Ok(Outcome::Gone);
        };
        let operation = self
            .operations
            .on(name)
            .map(|operation| Operation::clone(&operation));
        // An operation on an earlier Node of this name is collected with it.
        let operation = operation
            .filter(|operation| operation.node_uid.is_empty() || operation.node_uid == node.uid);
        let mut scene = Scene {
            want: view.want(&node),
            driver: view.driver_pod(name),
            validator: view.validator_pod(name),
            node: NodeFacts::clone(&node),
            operation,
        };
        let rules = view.rules();
        let hands = RealHands {
            upgrades: self,
            term,
            rules: &rules,
        };
        Ok(
            match work(&hands, &mut scene, &rules, self.operations.holder()).await? {
                Rest::Quiet => Outcome::Ready,
                Rest::Waiting { reason, again } => Outcome::Progressing {
                    reason,
                    requeue: again,
                },
                Rest::Failed { reason } => Outcome::Blocked { reason },
            },
        )
    }
}

fn outcome(survey: &Survey, again: Option<Duration>) -> Outcome {
    let (pending, running, failed) = (survey.pending(), survey.in_progress(), survey.failed());
    if let Some(reason) = survey.halted.clone().filter(|_| pending > 0) {
        return Outcome::Blocked { reason };
    }
    if pending + running == 0 {
        return Outcome::Ready;
    }
    let reason =
        format!("{pending} nodes wait for their upgrade, {running} are upgraded, {failed} failed");
    Outcome::Progressing {
        reason,
        requeue: again,
    }
}
