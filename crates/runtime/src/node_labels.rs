//! The shared writer of `nvidia.com/gpu.present` and `nvidia.com/gpu.deploy.*` labels (DESIGN section 3).
//!
//! Any of the three GPU controllers can write them, by one pure function and one field manager. So that together they
//! write once, each has a rank: the driver-controller writes at once, the others only when a label has been missing
//! for a while, because then the driver-controller is not there.

use crate::clients::within;
use crate::election::{NotLeading, Term};
use crate::error::{is_conflict, is_not_found, sentence};
use crate::process::Process;
use crate::watch::{Change, ObjectKey, Part, Store};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tessera_api::names::{NODE_LABELS_MANAGER, controller};
use tessera_api::nodes::desired_labels;
use tessera_api::{EffectivePolicy, NodeFacts};

/// How long a shared write may be missing before `name` does it.
pub fn patience(name: &str) -> Duration {
    match name {
        controller::DRIVER => Duration::ZERO,
        controller::DEVICE_PLUGIN => Duration::from_secs(3),
        _ => Duration::from_secs(6),
    }
}

/// Remembers since when something is missing, and when somebody else was last seen at work.
#[derive(Debug)]
pub struct Patience {
    limit: Duration,
    state: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    missing: BTreeMap<String, Instant>,
    progress: Option<Instant>,
}

impl Patience {
    /// Of the controller `name`.
    pub fn of(name: &str) -> Self {
        Self {
            limit: patience(name),
            state: Mutex::default(),
        }
    }

    /// `key` is missing: `None` when it is our turn to act, else how long to wait. While the controller of a lower rank
    /// is at work (things that were missing appear), it is not our turn, however long its queue.
    pub fn wait(&self, key: &str, now: Instant) -> Option<Duration> {
        let mut state = self.state.lock();
        let since = *state.missing.entry(key.to_owned()).or_insert(now);
        let since = state.progress.map_or(since, |progress| progress.max(since));
        let left = (since + self.limit).saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// We have just acted for `key`.
    pub fn acted(&self, key: &str) {
        self.state.lock().missing.remove(key);
    }

    /// `key` is there; if it was missing, somebody else has seen to it.
    pub fn clear(&self, key: &str, now: Instant) {
        let mut state = self.state.lock();
        if state.missing.remove(key).is_some() {
            state.progress = Some(now);
        }
    }
}

/// Labels of a node could not be written.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// The API server refused or did not answer.
    #[error("cannot label node {node}: {}", sentence(source))]
    Write {
        /// The node.
        node: String,
        /// The client's error.
        #[source]
        source: kube::Error,
    },
    /// No longer the leader.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

impl crate::Classify for LabelError {
    fn class(&self) -> crate::Class {
        match self {
            Self::Write { source, .. } => crate::error::classify(source),
            Self::NotLeading(_) => crate::Class::LostLeadership,
        }
    }
    fn reason(&self) -> &'static str {
        "NodeLabelFailed"
    }
}

/// Watches all nodes as [`NodeFacts`]; `on_change` is not called for changes of the resource version alone
/// (heartbeats, conditions and labels that we do not read).
pub fn watch_nodes(
    process: &mut Process,
    on_change: impl Fn(&Change<NodeFacts>) + Send + Sync + 'static,
) -> Store<NodeFacts> {
    let api: Api<Part<Node>> = Api::all(process.client());
    process.watch(
        api,
        watcher::Config::default(),
        |Part(node)| Some(NodeFacts::from_node(&node)),
        move |change| {
            let same = match (&change.old, &change.new) {
                (Some(old), Some(new)) => old.same_but_version(new),
                _ => false,
            };
            if !same {
                on_change(change);
            }
        },
    )
}

/// The writer.
pub struct NodeLabels {
    api: Api<Node>,
    limit: Duration,
    nodes: Store<NodeFacts>,
    patience: Patience,
}

impl NodeLabels {
    /// Of the controller `name`.
    pub fn new(process: &Process, name: &str, nodes: Store<NodeFacts>) -> Self {
        Self {
            api: Api::all(process.client()),
            limit: process.args().request_timeout,
            nodes,
            patience: Patience::of(name),
        }
    }

    /// Brings the labels of one node to what `policy` wants (`None`: no policy, ours go). `Some(delay)`: they are not,
    /// but it is another controller's turn; look again after `delay`.
    pub async fn reconcile(
        &self,
        term: &Term,
        node: &NodeFacts,
        policy: Option<&EffectivePolicy>,
    ) -> Result<Option<Duration>, LabelError> {
        let change = desired_labels(node, policy);
        if !change.needed || node.deleting {
            self.patience.clear(&node.name, crate::clock::now());
            return Ok(None);
        }
        if let Some(left) = self.patience.wait(&node.name, crate::clock::now()) {
            return Ok(Some(left));
        }
        // Not forced without need: a value that somebody sets at this moment is a wish.
        self.apply(
            term,
            node,
            NODE_LABELS_MANAGER,
            &change.apply,
            change.replaces,
        )
        .await
    }

    /// Gives back what a program of NVIDIA has paused and never restored: labels with the value `paused` become what
    /// `policy` wants, and ours again. `Some(delay)`: try again then.
    pub async fn restore(
        &self,
        term: &Term,
        node: &NodeFacts,
        policy: Option<&EffectivePolicy>,
        paused: &str,
    ) -> Result<Option<Duration>, LabelError> {
        let mut as_before = node.clone();
        as_before.labels.retain(|_, value| value != paused);
        let change = desired_labels(&as_before, policy);
        self.apply(term, node, NODE_LABELS_MANAGER, &change.apply, true)
            .await
    }

    /// Sets labels that `manager` alone writes, where nobody else has set them. `Some(delay)`: try again then.
    pub async fn set(
        &self,
        term: &Term,
        node: &NodeFacts,
        manager: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Option<Duration>, LabelError> {
        self.apply(term, node, manager, labels, false).await
    }

    async fn apply(
        &self,
        term: &Term,
        node: &NodeFacts,
        manager: &str,
        labels: &BTreeMap<String, String>,
        force: bool,
    ) -> Result<Option<Duration>, LabelError> {
        term.check()?;
        // The UID keeps the apply from creating a Node that has just gone.
        let mut metadata = json!({"name": node.name, "uid": node.uid, "labels": labels});
        if force && let Some(metadata) = metadata.as_object_mut() {
            // What is overwritten is what was looked at, and not a wish that somebody has just written.
            metadata.insert("resourceVersion".to_owned(), json!(node.resource_version));
        }
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
        let params = PatchParams {
            force,
            ..PatchParams::apply(manager)
        };
        match within(
            self.limit,
            self.api.patch(&node.name, &params, &Patch::Apply(&body)),
        )
        .await
        {
            Ok(written) => {
                self.patience.acted(&node.name);
                tracing::info!(node = %node.name, labels = labels.len(), "Reconcile: labelled node {}", node.name);
                let version = crate::watch::version(&written);
                self.nodes.observe(
                    ObjectKey::cluster(&node.name),
                    version,
                    NodeFacts::from_node(&written),
                );
                Ok(None)
            }
            Err(error) if is_conflict(&error) || is_not_found(&error) => {
                Ok(Some(Duration::from_millis(500)))
            }
            Err(source) => Err(LabelError::Write {
                node: node.name.clone(),
                source,
            }),
        }
    }

    /// A node has gone.
    pub fn forget(&self, node: &str) {
        self.patience.acted(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_take_turns() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        assert_eq!(Patience::of(controller::DRIVER).wait("n", start), None);
        let plugin = Patience::of(controller::DEVICE_PLUGIN);
        assert_eq!(plugin.wait("n", start), Some(second * 3));
        assert_eq!(plugin.wait("n", start + second * 2), Some(second));
        assert_eq!(plugin.wait("n", start + second * 3), None);
        plugin.acted("n");
        assert_eq!(plugin.wait("n", start + second * 4), Some(second * 3));
        // Somebody works through a long queue: each label that appears prolongs the wait for the others.
        plugin.wait("other", start + second * 4);
        plugin.clear("other", start + second * 6);
        assert_eq!(plugin.wait("n", start + second * 7), Some(second * 2));
        assert_eq!(
            Patience::of(controller::DCGM_MONITOR).wait("n", start),
            Some(second * 6)
        );
    }
}
