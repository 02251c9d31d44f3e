//! Runs the machine of one node until it rests. What acts is behind a trait, so that the simulation runs this very loop.

use super::error::UpgradeError;
use super::facts::{Facts, Rules, Want};
use super::step::{Act, Looked, Moment, Rest, Then, step};
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use tessera_api::NodeFacts;
use tessera_api::nodeoperation::Blocker;
use tessera_runtime::drain::{NodeChange, Remaining};
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::operation::{Operation, Progress};

/// More rounds than the machine has phases: who needs more turns in a circle.
const ROUNDS: usize = 24;

/// Which pods must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// GPU pods (`podDeletion`).
    Gpu,
    /// The pods of `drain`.
    Drain,
}

/// A write of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeWrite {
    /// See [`Act::Cordon`].
    Cordon,
    /// See [`Act::Uncordon`].
    Uncordon,
    /// See [`Act::Unmark`].
    Unmark,
    /// See [`Act::ClearRequest`].
    ClearRequest,
    /// See [`Act::MarkFailed`].
    MarkFailed,
}

/// What the machine acts with.
pub trait Hands {
    /// The time.
    fn now(&self) -> Timestamp;
    /// The jobs on a node to wait for.
    fn jobs(&self, node: &str) -> impl Future<Output = Result<Vec<Blocker>, UpgradeError>> + Send;
    /// Evicts pods and tells which are left.
    fn clear(
        &self,
        node: &str,
        what: Clearing,
    ) -> impl Future<Output = Result<Remaining, UpgradeError>> + Send;
    /// Reads a node anew; `None`: it has gone.
    fn read(
        &self,
        node: &str,
    ) -> impl Future<Output = Result<Option<NodeFacts>, UpgradeError>> + Send;
    /// Writes a node.
    fn change(
        &self,
        node: &NodeFacts,
        write: NodeWrite,
    ) -> impl Future<Output = Result<NodeChange, UpgradeError>> + Send;
    /// Deletes a pod of ours; one that has gone is no error.
    fn delete_pod(
        &self,
        name: &str,
        uid: &str,
    ) -> impl Future<Output = Result<(), UpgradeError>> + Send;
    /// Writes how far an operation is.
    fn advance(
        &self,
        operation: &Operation,
        progress: &Progress,
    ) -> impl Future<Output = Result<Operation, UpgradeError>> + Send;
    /// Removes the record of an ended operation.
    fn remove(
        &self,
        operation: &Operation,
    ) -> impl Future<Output = Result<(), UpgradeError>> + Send;
}

/// A node, its pods and its operation.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The node.
    pub node: NodeFacts,
    /// The driver that it should run.
    pub want: Want,
    /// Its driver pod.
    pub driver: Option<Arc<PodFacts>>,
    /// Its validator pod.
    pub validator: Option<Arc<PodFacts>>,
    /// The operation on it, whoever's.
    pub operation: Option<Operation>,
}

impl Scene {
    /// What the machine looks at.
    pub fn facts(&self, rules: &Rules) -> Facts {
        Facts::of(
            &self.node,
            self.want.clone(),
            self.driver.clone(),
            self.validator.clone(),
            rules,
        )
    }
}

/// Runs the machine until it rests.
pub async fn work<H: Hands>(
    hands: &H,
    scene: &mut Scene,
    rules: &Rules,
    holder: &str,
) -> Result<Rest, UpgradeError> {
    let mut looked = Looked::default();
    for _ in 0..ROUNDS {
        let facts = scene.facts(rules);
        let at = Moment {
            facts: &facts,
            looked: &looked,
            rules,
            now: hands.now(),
        };
        let decision = step(&at, scene.operation.as_ref(), holder);
        for act in decision.acts {
            if !perform(hands, scene, &mut looked, act).await? {
                // The Node has gone, and its operation goes with it.
                return Ok(Rest::Quiet);
            }
        }
        if let Then::Rest(rest) = decision.then {
            return Ok(rest);
        }
    }
    Err(UpgradeError::Restless(scene.node.name.clone()))
}

/// Whether the node is still there.
async fn perform<H: Hands>(
    hands: &H,
    scene: &mut Scene,
    looked: &mut Looked,
    act: Act,
) -> Result<bool, UpgradeError> {
    let name = scene.node.name.clone();
    let write = match act {
        Act::Cordon => NodeWrite::Cordon,
        Act::Uncordon => NodeWrite::Uncordon,
        Act::Unmark => NodeWrite::Unmark,
        Act::ClearRequest => NodeWrite::ClearRequest,
        Act::MarkFailed => NodeWrite::MarkFailed,
        Act::LookForJobs => {
            looked.jobs = Some(hands.jobs(&name).await?);
            return Ok(true);
        }
        Act::EvictGpuPods => {
            looked.gpu = Some(hands.clear(&name, Clearing::Gpu).await?);
            return Ok(true);
        }
        Act::DrainPods => {
            looked.drain = Some(hands.clear(&name, Clearing::Drain).await?);
            return Ok(true);
        }
        Act::ReadNode => {
            looked.node = true;
            let Some(node) = hands.read(&name).await? else {
                return Ok(false);
            };
            scene.node = node;
            return Ok(true);
        }
        Act::DeletePod { name, uid } => {
            hands.delete_pod(&name, &uid).await?;
            return Ok(true);
        }
        Act::Persist(progress) => {
            if let Some(operation) = &scene.operation {
                scene.operation = Some(hands.advance(operation, &progress).await?);
            }
            return Ok(true);
        }
        Act::RemoveRecord => {
            if let Some(operation) = scene.operation.take() {
                hands.remove(&operation).await?;
            }
            return Ok(true);
        }
    };
    match hands.change(&scene.node, write).await? {
        NodeChange::Done(node) | NodeChange::Foreign(node) => {
            scene.node = *node;
            Ok(true)
        }
        NodeChange::Gone => Ok(false),
    }
}
