//! Taking a node out of service and giving it back: cordon with our own mark, evictions, uncordon.
//!
//! - A cordon of ours carries annotation `aiops.local/cordoned-by` = the operation's kind. Only a cordon with that mark
//!   is ever undone, and a node that somebody else cordoned is left alone. Both writes carry the Node's UID and resource
//!   version: the decision is made on exactly what is changed.
//! - Pods leave by the Eviction API with their UID as a precondition; a PodDisruptionBudget that refuses is named.
//! - One list of the node's pods for each [`Drain::step`]. Pods of other namespaces are not watched: who waits for them
//!   looks again after [`look_again`].

mod error;
mod pods;
mod refusal;

pub use error::DrainError;
pub use pods::{Force, Leave, Plan, PodView, plan, uses_gpu};
use refusal::{refusal, remaining};

use crate::clients::within;
use crate::election::Term;
use crate::error::{is_conflict, is_not_found};
use crate::watch::{ObjectKey, Store, version};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{
    DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tessera_api::NodeFacts;
use tessera_api::names::annotation;
use tessera_api::nodeoperation::{Blocker, OperationKind, OperationReason};

/// Labels and annotations that go with a write of the node, so that they cost no request: `None` removes.
pub type Extras<'a> = &'a [(&'a str, Option<&'a str>)];

/// What a node looked like when it was to be changed.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeChange {
    /// It is as wanted now.
    Done(Box<NodeFacts>),
    /// It is, or has just become, cordoned by somebody else (or no longer by us): nothing was written.
    Foreign(Box<NodeFacts>),
    /// The Node has gone.
    Gone,
}

/// What one look at a node's pods found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// How many pods still have to leave.
    pub pods: usize,
    /// Why they have not, the first that a person can help with first.
    pub reason: Option<OperationReason>,
    /// Pods, and the PodDisruptionBudgets that protect them.
    pub blockers: Vec<Blocker>,
}

impl Remaining {
    /// Whether the node is clear.
    pub fn is_clear(&self) -> bool {
        self.pods == 0
    }
}

/// What the API server answered to an eviction.
enum Eviction {
    Accepted,
    Gone,
    Refused(Vec<Blocker>),
}

/// Cordons, uncordons and drains in the name of one controller.
#[derive(Clone)]
pub struct Drain {
    client: Client,
    nodes: Api<Node>,
    store: Store<NodeFacts>,
    manager: String,
    limit: Duration,
}

impl Drain {
    /// Writing as field manager `manager`, each request within `limit`. `store` is the caller's watch of Nodes; it
    /// learns from our writes.
    pub fn new(client: &Client, manager: &str, limit: Duration, store: Store<NodeFacts>) -> Self {
        Self {
            client: client.clone(),
            nodes: Api::all(client.clone()),
            store,
            manager: manager.to_owned(),
            limit,
        }
    }

    /// Cordons a node with the mark of `kind`, and writes `labels` and `annotations` in the same request.
    pub async fn cordon(
        &self,
        term: &Term,
        node: &NodeFacts,
        kind: OperationKind,
        labels: Extras<'_>,
        annotations: Extras<'_>,
    ) -> Result<NodeChange, DrainError> {
        let mark = kind.as_str();
        let mut annotations = annotations.to_vec();
        annotations.push((annotation::CORDONED_BY, Some(mark)));
        let allowed = |node: &NodeFacts| !node.unschedulable || is_marked(node, kind);
        self.change(
            term,
            node,
            "cordon",
            &allowed,
            Some(true),
            labels,
            &annotations,
        )
        .await
    }

    /// Takes our cordon and its mark away, if it is ours (`kind`); and writes `labels` and `annotations`.
    pub async fn uncordon(
        &self,
        term: &Term,
        node: &NodeFacts,
        kind: OperationKind,
        labels: Extras<'_>,
        annotations: Extras<'_>,
    ) -> Result<NodeChange, DrainError> {
        let mut annotations = annotations.to_vec();
        annotations.push((annotation::CORDONED_BY, None));
        self.change(
            term,
            node,
            "uncordon",
            &|node| is_marked(node, kind),
            Some(false),
            labels,
            &annotations,
        )
        .await
    }

    /// Takes our mark off a node whose cordon somebody else has undone.
    pub async fn unmark(
        &self,
        term: &Term,
        node: &NodeFacts,
        annotations: Extras<'_>,
    ) -> Result<NodeChange, DrainError> {
        let mut annotations = annotations.to_vec();
        annotations.push((annotation::CORDONED_BY, None));
        self.change(
            term,
            node,
            "unmark",
            &|node| !node.unschedulable,
            None,
            &[],
            &annotations,
        )
        .await
    }

    /// Writes labels and annotations and leaves the cordon as it is.
    pub async fn annotate(
        &self,
        term: &Term,
        node: &NodeFacts,
        labels: Extras<'_>,
        annotations: Extras<'_>,
    ) -> Result<NodeChange, DrainError> {
        self.change(term, node, "annotate", &|_| true, None, labels, annotations)
            .await
    }

    /// Reads a node anew, for a decision that a lagging watch must not make.
    pub async fn read(&self, name: &str) -> Result<Option<NodeFacts>, DrainError> {
        let node = within(self.limit, self.nodes.get_opt(name)).await;
        let node = node.map_err(|source| Self::failed(format!("read node {name}"), source))?;
        Ok(node.map(|node| self.learn(&node)))
    }

    /// One guarded write; when somebody else wrote first, one more look and one more try.
    #[expect(
        clippy::too_many_arguments,
        reason = "the one writer behind the three public ones"
    )]
    async fn change(
        &self,
        term: &Term,
        node: &NodeFacts,
        verb: &str,
        allowed: &(dyn Fn(&NodeFacts) -> bool + Sync),
        unschedulable: Option<bool>,
        labels: Extras<'_>,
        annotations: Extras<'_>,
    ) -> Result<NodeChange, DrainError> {
        let mut node = node.clone();
        for last in [false, true] {
            if !allowed(&node) {
                return Ok(NodeChange::Foreign(Box::new(node)));
            }
            term.check()?;
            let patch = patch(&node, unschedulable, labels, annotations);
            let params = PatchParams {
                field_manager: Some(self.manager.clone()),
                ..PatchParams::default()
            };
            match within(
                self.limit,
                self.nodes.patch(&node.name, &params, &Patch::Merge(&patch)),
            )
            .await
            {
                Ok(written) => {
                    tracing::info!(node = %node.name, "Reconcile: {verb} node {}", node.name);
                    return Ok(NodeChange::Done(Box::new(self.learn(&written))));
                }
                Err(error) if is_not_found(&error) => return Ok(NodeChange::Gone),
                Err(error) if is_conflict(&error) && !last => {}
                Err(source) => {
                    return Err(Self::failed(format!("{verb} node {}", node.name), source));
                }
            }
            match self.read(&node.name).await? {
                Some(current) if current.uid == node.uid => node = current,
                _ => return Ok(NodeChange::Gone),
            }
        }
        Ok(NodeChange::Gone)
    }

    fn learn(&self, node: &Node) -> NodeFacts {
        let facts = NodeFacts::from_node(node);
        self.store.observe(
            ObjectKey::cluster(&facts.name),
            version(node),
            facts.clone(),
        );
        facts
    }

    /// The live pods of a node with these labels (empty: all), whatever their namespace.
    pub async fn pods(
        &self,
        node: &str,
        selector: &str,
        renamed: &BTreeSet<String>,
    ) -> Result<Vec<PodView>, DrainError> {
        let params = ListParams::default()
            .fields(&format!("spec.nodeName={node}"))
            .labels(selector);
        let pods = within(
            self.limit,
            Api::<Pod>::all(self.client.clone()).list(&params),
        )
        .await;
        let pods =
            pods.map_err(|source| Self::failed(format!("list the pods of node {node}"), source))?;
        Ok(pods
            .items
            .iter()
            .map(|pod| PodView::of(pod, renamed))
            .filter(|pod| pod.live)
            .collect())
    }

    /// Looks at the node's pods once and evicts those that must leave.
    pub async fn step(
        &self,
        term: &Term,
        node: &str,
        selector: &str,
        renamed: &BTreeSet<String>,
        leave: Leave,
        force: Force,
    ) -> Result<Remaining, DrainError> {
        let plan = plan(&self.pods(node, selector, renamed).await?, leave, force);
        let mut refusals = Vec::new();
        let mut ending: Vec<Blocker> = plan
            .ending
            .iter()
            .map(|pod| pod.blocker("it is ending"))
            .collect();
        for pod in &plan.evict {
            match self.evict(term, pod).await? {
                Eviction::Gone => {}
                Eviction::Accepted => ending.push(pod.blocker("it is ending")),
                Eviction::Refused(blockers) => refusals.push((pod, blockers)),
            }
        }
        Ok(remaining(plan.refused, &refusals, ending))
    }

    async fn evict(&self, term: &Term, pod: &PodView) -> Result<Eviction, DrainError> {
        term.check()?;
        let preconditions = Preconditions {
            uid: Some(pod.uid.clone()),
            resource_version: None,
        };
        let params = EvictParams {
            delete_options: Some(DeleteParams {
                preconditions: Some(preconditions),
                ..DeleteParams::default()
            }),
            post_options: PostParams::default(),
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        match within(self.limit, api.evict(&pod.name, &params)).await {
            Ok(_) => {
                tracing::info!(pod = %pod.name, namespace = %pod.namespace, "Reconcile: evicted pod {}/{}", pod.namespace, pod.name);
                Ok(Eviction::Accepted)
            }
            // Gone, or a successor of the same name.
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(Eviction::Gone),
            Err(error) => match refusal(pod, &error) {
                Some(blockers) => Ok(Eviction::Refused(blockers)),
                None => Err(Self::failed(
                    format!("evict pod {}/{}", pod.namespace, pod.name),
                    error,
                )),
            },
        }
    }

    fn failed(what: String, source: kube::Error) -> DrainError {
        DrainError::Request { what, source }
    }
}

/// Whether the node carries the cordon mark of `kind`.
pub fn is_marked(node: &NodeFacts, kind: OperationKind) -> bool {
    node.annotations
        .get(annotation::CORDONED_BY)
        .is_some_and(|mark| mark == kind.as_str())
}

/// When to look at the pods again that have been awaited for `waited`: soon at first, then at ever longer intervals.
pub fn look_again(waited: Duration, longest: Duration) -> Duration {
    waited.max(Duration::from_secs(2)).min(longest)
}

fn patch(
    node: &NodeFacts,
    unschedulable: Option<bool>,
    labels: Extras<'_>,
    annotations: Extras<'_>,
) -> Value {
    let map = |pairs: Extras<'_>| -> Map<String, Value> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect()
    };
    let mut patch = json!({
        "metadata": {
            "uid": node.uid,
            "resourceVersion": node.resource_version,
            "labels": map(labels),
            "annotations": map(annotations),
        },
    });
    if let (Some(value), Some(object)) = (unschedulable, patch.as_object_mut()) {
        // Null is how a Node says schedulable.
        let value = if value { json!(true) } else { Value::Null };
        object.insert("spec".to_owned(), json!({ "unschedulable": value }));
    }
    patch
}

#[cfg(test)]
mod tests;
