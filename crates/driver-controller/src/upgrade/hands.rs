//! The machine's acts on a real cluster.

use super::Upgrades;
use super::error::UpgradeError;
use super::facts::{KIND, Rules, state};
use super::run::{Clearing, Hands, NodeWrite};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Preconditions};
use tessera_api::NodeFacts;
use tessera_api::names::{annotation, label};
use tessera_api::nodeoperation::{Blocker, OperationPhase};
use tessera_runtime::clients::within;
use tessera_runtime::drain::{Leave, NodeChange, Remaining};
use tessera_runtime::election::Term;
use tessera_runtime::error::{is_conflict, is_not_found};
use tessera_runtime::operation::{Operation, Progress};

/// While it is `true`, NVIDIA's driver-manager leaves cordons and evictions to us. Without it, it uncordons the node as
/// soon as the old driver is unloaded, whoever cordoned it (cmd/driver-manager/main.go of k8s-driver-manager 0.12).
const EVICTIONS_ARE_OURS: &str = annotation::UPGRADE_ENABLED;

/// For one term of leadership.
pub(super) struct RealHands<'a> {
    pub(super) upgrades: &'a Upgrades,
    pub(super) term: &'a Term,
    pub(super) rules: &'a Rules,
}

impl Hands for RealHands<'_> {
    fn now(&self) -> Timestamp {
        tessera_runtime::clock::wall()
    }

    async fn jobs(&self, node: &str) -> Result<Vec<Blocker>, UpgradeError> {
        let pods = self
            .upgrades
            .drain
            .pods(node, &self.rules.jobs, &self.rules.renamed)
            .await?;
        let awaited = pods.iter().filter(|pod| !pod.daemon && !pod.mirror);
        Ok(awaited.map(|pod| pod.blocker("it runs")).collect())
    }

    async fn clear(&self, node: &str, what: Clearing) -> Result<Remaining, UpgradeError> {
        let rules = self.rules;
        let (selector, leave, force) = match (what, &rules.drain) {
            (Clearing::Drain, Some(drain)) => {
                (drain.selector.as_str(), Leave::AllPods, drain.force)
            }
            (Clearing::Drain, None) | (Clearing::Gpu, _) => ("", Leave::GpuPods, rules.eviction),
        };
        Ok(self
            .upgrades
            .drain
            .step(self.term, node, selector, &rules.renamed, leave, force)
            .await?)
    }

    async fn read(&self, node: &str) -> Result<Option<NodeFacts>, UpgradeError> {
        Ok(self.upgrades.drain.read(node).await?)
    }

    async fn change(&self, node: &NodeFacts, write: NodeWrite) -> Result<NodeChange, UpgradeError> {
        let (drain, term) = (&self.upgrades.drain, self.term);
        // A request made by NVIDIA's label would be lost with the label's new value, so it is kept as the annotation.
        let label_asks = node.label(label::UPGRADE_STATE) == Some(state::REQUIRED);
        let change = match write {
            NodeWrite::Cordon => {
                let mut annotations = vec![(EVICTIONS_ARE_OURS, Some("true"))];
                annotations
                    .extend(label_asks.then_some((annotation::UPGRADE_REQUESTED, Some("true"))));
                let labels = [(label::UPGRADE_STATE, Some(state::UNDER_WAY))];
                drain
                    .cordon(term, node, KIND, &labels, &annotations)
                    .await?
            }
            NodeWrite::Uncordon => {
                let labels = [(label::UPGRADE_STATE, Some(state::DONE))];
                drain
                    .uncordon(term, node, KIND, &labels, &[(EVICTIONS_ARE_OURS, None)])
                    .await?
            }
            NodeWrite::Unmark => {
                drain
                    .unmark(term, node, &[(EVICTIONS_ARE_OURS, None)])
                    .await?
            }
            NodeWrite::ClearRequest => {
                let labels = [(label::UPGRADE_STATE, Some(state::UNDER_WAY))];
                drain
                    .annotate(
                        term,
                        node,
                        &labels,
                        &[(annotation::UPGRADE_REQUESTED, None)],
                    )
                    .await?
            }
            NodeWrite::MarkFailed => {
                let labels = [(label::UPGRADE_STATE, Some(state::FAILED))];
                drain
                    .annotate(
                        term,
                        node,
                        &labels,
                        &[(annotation::UPGRADE_REQUESTED, None)],
                    )
                    .await?
            }
        };
        Ok(change)
    }

    async fn delete_pod(&self, name: &str, uid: &str) -> Result<(), UpgradeError> {
        self.term.check()?;
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match within(
            self.upgrades.limit,
            self.upgrades.pods.delete(name, &params),
        )
        .await
        {
            Ok(_) => {
                tracing::info!(
                    pod = name,
                    "Reconcile: deleted pod {name}, its DaemonSet makes the next one"
                );
                Ok(())
            }
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(source) => Err(UpgradeError::DeletePod {
                pod: name.to_owned(),
                source,
            }),
        }
    }

    async fn advance(
        &self,
        operation: &Operation,
        progress: &Progress,
    ) -> Result<Operation, UpgradeError> {
        let next = self
            .upgrades
            .operations
            .advance(self.term, operation, progress)
            .await?;
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(operation.node.clone()),
            uid: Some(operation.node_uid.clone()),
            ..ObjectReference::default()
        };
        let (events, note) = (&self.upgrades.events, &progress.message);
        if progress.phase == OperationPhase::Done {
            events
                .normal(&about, "DriverUpgraded", "Uncordon", note)
                .await;
        } else if progress.phase == OperationPhase::Failed {
            events
                .warning(&about, "DriverUpgradeFailed", "Upgrade", note)
                .await;
        }
        Ok(next)
    }

    async fn remove(&self, operation: &Operation) -> Result<(), UpgradeError> {
        Ok(self
            .upgrades
            .operations
            .remove(self.term, operation)
            .await?)
    }
}
