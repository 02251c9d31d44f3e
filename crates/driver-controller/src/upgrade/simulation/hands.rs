//! The machine's acts in the simulated cluster.

use super::world::{SimNode, World};
use crate::upgrade::error::UpgradeError;
use crate::upgrade::facts::KIND;
use crate::upgrade::run::{Clearing, Hands, NodeWrite};
use k8s_openapi::jiff::Timestamp;
use tessera_api::NodeFacts;
use tessera_api::names::annotation;
use tessera_api::nodeoperation::{Blocker, OperationReason};
use tessera_runtime::drain::{NodeChange, Remaining, is_marked};
use tessera_runtime::operation::{Operation, Progress, next_status};

impl Hands for World {
    fn now(&self) -> Timestamp {
        self.cluster.lock().now()
    }

    async fn jobs(&self, _: &str) -> Result<Vec<Blocker>, UpgradeError> {
        Ok(Vec::new())
    }

    async fn clear(&self, name: &str, _: Clearing) -> Result<Remaining, UpgradeError> {
        self.act("clear", |cluster| {
            let Some(node) = cluster.nodes.get_mut(name) else {
                return Remaining::default();
            };
            for job in node.jobs.iter_mut().filter(|job| !job.blocked) {
                job.ending = true;
            }
            let blocked = node.jobs.iter().any(|job| job.blocked);
            let reason = if blocked {
                OperationReason::DisruptionBudget
            } else {
                OperationReason::PodsTerminating
            };
            Remaining {
                pods: node.jobs.len(),
                reason: Some(reason),
                blockers: Vec::new(),
            }
        })
    }

    async fn read(&self, name: &str) -> Result<Option<NodeFacts>, UpgradeError> {
        self.act("read node", |cluster| {
            cluster.nodes.get(name).map(|node| node.facts.clone())
        })
    }

    async fn change(
        &self,
        known: &NodeFacts,
        write: NodeWrite,
    ) -> Result<NodeChange, UpgradeError> {
        let mut known = known.clone();
        loop {
            let allowed = match write {
                NodeWrite::Cordon => !known.unschedulable || is_marked(&known, KIND),
                NodeWrite::Uncordon => is_marked(&known, KIND),
                NodeWrite::Unmark => !known.unschedulable,
                NodeWrite::ClearRequest | NodeWrite::MarkFailed => true,
            };
            if !allowed {
                return Ok(NodeChange::Foreign(Box::new(known)));
            }
            let written = self.act("write node", |cluster| {
                let version = cluster.next_version();
                let node = cluster
                    .nodes
                    .get_mut(&known.name)
                    .filter(|node| node.facts.uid == known.uid)?;
                if node.facts.resource_version == known.resource_version {
                    apply(node, write);
                    node.facts.resource_version = version;
                    return Some(Ok(node.facts.clone()));
                }
                Some(Err(node.facts.clone()))
            })?;
            match written {
                None => return Ok(NodeChange::Gone),
                Some(Ok(facts)) => return Ok(NodeChange::Done(Box::new(facts))),
                Some(Err(current)) => known = current,
            }
        }
    }

    async fn delete_pod(&self, name: &str, uid: &str) -> Result<(), UpgradeError> {
        self.act("delete pod", |cluster| {
            for node in cluster.nodes.values_mut() {
                if let Some(pod) = node
                    .driver
                    .as_mut()
                    .filter(|pod| pod.name == name && pod.uid == uid)
                {
                    let held = node.facts.unschedulable && node.cordoned_by_us;
                    assert!(
                        !held || node.jobs.is_empty(),
                        "the driver was taken from under {:?}",
                        node.jobs
                    );
                    (pod.deleting, pod.ready) = (true, false);
                }
                if let Some(pod) = node
                    .validator
                    .as_mut()
                    .filter(|pod| pod.name == name && pod.uid == uid)
                {
                    (pod.deleting, pod.ready) = (true, false);
                }
            }
        })
    }

    async fn advance(
        &self,
        operation: &Operation,
        progress: &Progress,
    ) -> Result<Operation, UpgradeError> {
        let status = next_status(&operation.status, progress, self.now());
        if status == operation.status {
            return Ok(operation.clone());
        }
        self.replace(operation, |current, _| current.status = status)
    }

    async fn remove(&self, operation: &Operation) -> Result<(), UpgradeError> {
        self.act("remove operation", |cluster| {
            assert!(operation.is_ended(), "a running operation was removed");
            cluster.operations.remove(&operation.node);
        })
    }
}

fn apply(node: &mut SimNode, write: NodeWrite) {
    let facts = &mut node.facts;
    match write {
        NodeWrite::Cordon => {
            assert!(
                !facts.unschedulable || node.cordoned_by_us,
                "a foreign cordon was taken over"
            );
            facts.unschedulable = true;
            node.cordoned_by_us = true;
            facts
                .annotations
                .insert(annotation::CORDONED_BY.into(), KIND.as_str().into());
        }
        NodeWrite::Uncordon => {
            assert!(
                !facts.unschedulable || node.cordoned_by_us,
                "a foreign cordon was undone"
            );
            let (driver, validator) = (
                node.driver.as_ref().unwrap(),
                node.validator.as_ref().unwrap(),
            );
            assert!(
                driver.ready && validator.ready && validator.created > driver.created,
                "given back without validation"
            );
            facts.unschedulable = false;
            facts.annotations.remove(annotation::CORDONED_BY);
        }
        NodeWrite::Unmark => {
            facts.annotations.remove(annotation::CORDONED_BY);
        }
        NodeWrite::ClearRequest | NodeWrite::MarkFailed => {
            facts.annotations.remove(annotation::UPGRADE_REQUESTED);
        }
    }
}
