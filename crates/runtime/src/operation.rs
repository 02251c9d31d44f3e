//! The per-node lock: a [`NodeOperation`] is held while somebody disturbs a node on purpose (DESIGN section 2.4).
//!
//! How a holder uses it:
//!
//! 1. Watch all NodeOperations into a `Store<Operation>` ([`watch_operations`]) and make one [`Operations`] with it.
//!    The store learns from our own writes, so a decision never uses a copy older than what this process wrote.
//! 2. To begin, call [`Operations::begin`] with an [`Intent`]. It looks into the store first: with no room there it
//!    writes nothing ([`Begun::NoRoom`]); the change that makes room is a watch event, so nobody polls. Else it writes
//!    the operation as `Tentative` (creation, or compare-and-swap on an ended one), then reads all NodeOperations and
//!    all cordoned Nodes anew from the API server's newest state, and makes it `Active` or `Withdrawn`. Of two racers
//!    at least one sees the other, because each writes before it reads: the budget holds without a coordinator.
//! 3. While it is active, act, and say how far it is with [`Operations::advance`]: a compare-and-swap that writes
//!    nothing when nothing changes. Do not write phases that pass at once.
//! 4. End it with `advance` to `Done` or `Failed`; undo the cordon before. Only the holder ends it.
//! 5. An ended operation stays as a record until the next one on the node, or until its holder removes it
//!    ([`Operation::is_expired`], [`Operations::remove`]). It goes with its Node, which owns it.
//!
//! The holder is a controller, not a replica: after a change of leader the new one finds its operations by
//! [`Operation::runs_for`] and goes on. [`Operations::begin`] resumes a tentative operation that was left behind.
//!
//! Requests: `begin` costs four (create or replace, two lists, one status write), one of them proportional to the number
//! of operations, one to that of cordoned nodes; `advance` one. Node readiness comes from the caller's store: a kubelet
//! is declared dead after 40 s, so some milliseconds of a watch change nothing, and a list of whole Nodes would cost
//! megabytes.

mod budget;
mod intent;
mod record;

pub use budget::{Admission, Budget, NodeState, admit};
pub use intent::{Begun, Intent, OperationError};
pub use record::{BLOCKERS, Operation, Progress, RECORD, first_status, later, next_status};

use crate::clients::within;
use crate::election::Term;
use crate::error::{is_conflict, is_not_found};
use crate::process::Process;
use crate::watch::{Change, ObjectKey, Store, version};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::core::{DeserializeGuard, ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tessera_api::NodeOperation;
use tessera_api::names::annotation;
use tessera_api::nodeoperation::{NodeOperationSpec, NodeOperationStatus, OperationPhase};
use tokio::sync::Mutex;

/// Shortest and longest time, in seconds, after which a withdrawn operation is tried again; random, so that racers part.
const RETRY: (f64, f64) = (1.0, 5.0);

/// Watches all NodeOperations. `on_change` should wake who waits for room and who works on the node.
pub fn watch_operations(
    process: &mut Process,
    on_change: impl Fn(&Change<Operation>) + Send + Sync + 'static,
) -> Store<Operation> {
    let api: Api<DeserializeGuard<NodeOperation>> = Api::all(process.client());
    let store = Store::new("NodeOperation", on_change);
    process.watch_into(
        api,
        watcher::Config::default(),
        store.clone(),
        Operation::project,
    );
    store
}

/// Begins, advances and ends the operations of one holder.
#[derive(Clone)]
pub struct Operations {
    api: Api<NodeOperation>,
    all: Api<DeserializeGuard<NodeOperation>>,
    nodes: Api<PartialObjectMeta<Node>>,
    holder: String,
    write: PostParams,
    limit: Duration,
    store: Store<Operation>,
    /// Two beginnings in one process would only make each other withdraw.
    gate: Arc<Mutex<()>>,
}

impl Operations {
    /// Of `holder` (a controller's name, or `sre-agent/<namespace>/<name>`), writing as field manager `manager`, each
    /// request within `limit`. `store` holds all operations ([`watch_operations`]).
    pub fn new(
        client: &Client,
        holder: &str,
        manager: &str,
        limit: Duration,
        store: Store<Operation>,
    ) -> Self {
        Self {
            api: Api::all(client.clone()),
            all: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
            holder: holder.to_owned(),
            write: PostParams {
                field_manager: Some(manager.to_owned()),
                ..PostParams::default()
            },
            limit,
            store,
            gate: Arc::default(),
        }
    }

    /// Who holds what is begun here.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// All operations as known now.
    pub fn store(&self) -> &Store<Operation> {
        &self.store
    }

    /// The operation on a node, whoever holds it.
    pub fn on(&self, node: &str) -> Option<Arc<Operation>> {
        self.store.get_cluster(node)
    }

    /// Begins an operation, or resumes a tentative one of ours. See the module's text.
    pub async fn begin(&self, term: &Term, intent: &Intent<'_>) -> Result<Begun, OperationError> {
        let _one_at_a_time = self.gate.lock().await;
        let current = self
            .on(intent.node)
            .map(|operation| Operation::clone(&operation));
        // An operation on an earlier Node of this name is about to be collected with it.
        if let Some(other) = current
            .as_ref()
            .filter(|op| op.node_uid != intent.node_uid && !op.node_uid.is_empty())
        {
            self.remove(term, other).await?;
            return Ok(Begun::Busy(other.clone()));
        }
        match current.as_ref().filter(|operation| !operation.is_ended()) {
            Some(other) if other.holder != self.holder => return Ok(Begun::Busy(other.clone())),
            Some(ours) if ours.phase() != OperationPhase::Tentative => {
                return Ok(Begun::Active(ours.clone()));
            }
            _ => {}
        }
        let known: Vec<Operation> = self
            .store
            .values()
            .iter()
            .map(|op| Operation::clone(op))
            .collect();
        let resumed = current
            .as_ref()
            .is_some_and(|operation| !operation.is_ended());
        if let (Admission::Withdraw { reason, message }, false) =
            (Self::judge(intent, &known, intent.nodes), resumed)
        {
            return Ok(Begun::NoRoom { reason, message });
        }
        let mine = self.claim(term, intent, current).await?;
        let operations = self.list().await?;
        let nodes = self.cordoned(intent.nodes).await?;
        self.settle(
            term,
            intent,
            &mine,
            Self::judge(intent, &operations, &nodes),
        )
        .await
    }

    fn judge(
        intent: &Intent<'_>,
        operations: &[Operation],
        nodes: &BTreeMap<String, NodeState>,
    ) -> Admission {
        admit(intent.budget, intent.kind, intent.node, operations, nodes)
    }

    /// Makes the object ours and tentative.
    async fn claim(
        &self,
        term: &Term,
        intent: &Intent<'_>,
        current: Option<Operation>,
    ) -> Result<Operation, OperationError> {
        match current {
            Some(ours) if !ours.is_ended() => Ok(ours),
            Some(ended) => {
                let progress = Self::opening(intent, OperationPhase::Tentative);
                let status = first_status(
                    &ended.status,
                    intent.kind,
                    &self.holder,
                    &progress,
                    crate::clock::wall(),
                );
                self.write(term, &ended, status).await
            }
            None => {
                term.check()?;
                let object = NodeOperation::on_node(intent.node, intent.node_uid, &self.holder);
                let created = within(self.limit, self.api.create(&self.write, &object)).await;
                let created =
                    created.map_err(|source| Self::failed("create", intent.node, source))?;
                Ok(self.learn(&created))
            }
        }
    }

    fn opening(intent: &Intent<'_>, phase: OperationPhase) -> Progress {
        let mut progress = Progress::to(phase, intent.reason, intent.message.clone())
            .leading_to(intent.target.clone());
        progress.found = Some(intent.found.clone());
        progress
    }

    /// Makes a tentative operation active or withdrawn.
    async fn settle(
        &self,
        term: &Term,
        intent: &Intent<'_>,
        mine: &Operation,
        admission: Admission,
    ) -> Result<Begun, OperationError> {
        let now = crate::clock::wall();
        let status = |progress: &Progress| match mine.kind() {
            Some(_) => next_status(&mine.status, progress, now),
            None => first_status(
                &NodeOperationStatus::default(),
                intent.kind,
                &self.holder,
                progress,
                now,
            ),
        };
        match admission {
            Admission::Admit => {
                let active =
                    Self::opening(intent, OperationPhase::Active).undoing(intent.undo.clone());
                let operation = self.write(term, mine, status(&active)).await?;
                tracing::info!(node = intent.node, kind = %intent.kind, target = %intent.target, "Reconcile: began {} of node {}", intent.kind, intent.node);
                Ok(Begun::Active(operation))
            }
            Admission::Withdraw { reason, message } => {
                let retry = Duration::from_secs_f64(
                    RETRY.0 + (RETRY.1 - RETRY.0) * crate::backoff::jitter(),
                );
                let progress = Progress::to(OperationPhase::Withdrawn, reason, message.clone())
                    .leading_to(intent.target.clone())
                    .undoing(Vec::new())
                    .until(Some(later(now, retry)));
                self.write(term, mine, status(&progress)).await?;
                Ok(Begun::Withdrawn {
                    reason,
                    message,
                    retry,
                })
            }
        }
    }

    /// Says how far `operation` is. Writes nothing if that is known already.
    pub async fn advance(
        &self,
        term: &Term,
        operation: &Operation,
        progress: &Progress,
    ) -> Result<Operation, OperationError> {
        let status = next_status(&operation.status, progress, crate::clock::wall());
        if status == operation.status {
            return Ok(operation.clone());
        }
        let written = self.write(term, operation, status).await?;
        let (node, phase, reason) = (&written.node, progress.phase, progress.reason);
        if operation.phase() != phase {
            tracing::info!(%node, %phase, %reason, message = %progress.message, "Reconcile: node {node} is {phase}");
        }
        Ok(written)
    }

    /// Removes an ended operation, or one whose Node has gone.
    pub async fn remove(&self, term: &Term, operation: &Operation) -> Result<(), OperationError> {
        term.check()?;
        let preconditions = Preconditions {
            uid: Some(operation.uid.clone()),
            resource_version: Some(operation.version.clone()),
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match within(self.limit, self.api.delete(&operation.node, &params)).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => {
                Err(Self::failed("delete", &operation.node, error))
            }
            _ => {
                self.store.forget(&ObjectKey::cluster(&operation.node));
                Ok(())
            }
        }
    }

    /// Replaces the status of exactly the version that is known.
    async fn write(
        &self,
        term: &Term,
        known: &Operation,
        status: NodeOperationStatus,
    ) -> Result<Operation, OperationError> {
        term.check()?;
        let metadata = ObjectMeta {
            name: Some(known.node.clone()),
            uid: Some(known.uid.clone()),
            resource_version: Some(known.version.clone()),
            ..ObjectMeta::default()
        };
        let object = NodeOperation {
            metadata,
            spec: NodeOperationSpec {},
            status: Some(status),
        };
        match within(
            self.limit,
            self.api.replace_status(&known.node, &self.write, &object),
        )
        .await
        {
            Ok(written) => Ok(self.learn(&written)),
            Err(error) => {
                if is_not_found(&error) {
                    self.store.forget(&ObjectKey::cluster(&known.node));
                }
                Err(Self::failed("update", &known.node, error))
            }
        }
    }

    fn learn(&self, written: &NodeOperation) -> Operation {
        let operation = Operation::of(written);
        self.store.observe(
            ObjectKey::cluster(&operation.node),
            version(written),
            operation.clone(),
        );
        operation
    }

    /// All operations in the API server's newest state (no resource version: a quorum read).
    async fn list(&self) -> Result<Vec<Operation>, OperationError> {
        let list = within(self.limit, self.all.list(&ListParams::default())).await;
        let list = list.map_err(|source| Self::failed("list", "s", source))?;
        Ok(list
            .items
            .into_iter()
            .filter_map(Operation::project)
            .collect())
    }

    /// `known` with the cordons of the API server's newest state: metadata of the cordoned Nodes only.
    async fn cordoned(
        &self,
        known: &BTreeMap<String, NodeState>,
    ) -> Result<BTreeMap<String, NodeState>, OperationError> {
        let selected = ListParams::default().fields("spec.unschedulable=true");
        let list = within(self.limit, self.nodes.list(&selected)).await;
        let list = list.map_err(|source| Self::failed("list cordoned Nodes for", "s", source))?;
        let mut nodes = known.clone();
        for node in nodes.values_mut() {
            node.cordoned = false;
        }
        for cordoned in list.items {
            if let Some(node) = nodes.get_mut(&cordoned.name_any()) {
                node.cordoned = true;
                node.cordoned_by = cordoned.annotations().get(annotation::CORDONED_BY).cloned();
            }
        }
        Ok(nodes)
    }

    fn failed(verb: &'static str, node: &str, source: kube::Error) -> OperationError {
        OperationError::Request {
            verb,
            node: node.to_owned(),
            source,
        }
    }
}

/// When a withdrawn operation may be tried again; `None` if at once.
pub fn retry_at(operation: &Operation, now: Timestamp) -> Option<Timestamp> {
    let waits = operation.phase() == OperationPhase::Withdrawn && !operation.is_late(now);
    operation.deadline().filter(|_| waits)
}
