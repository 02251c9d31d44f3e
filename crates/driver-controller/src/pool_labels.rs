//! The pool labels of nodes whose own labels do not tell their pool ([`crate::pools`]).

use crate::pools::{DRIVER_POOL, TOOLKIT_POOL};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tessera_api::NodeFacts;
use tessera_api::names::controller;
use tessera_runtime::clients::within;
use tessera_runtime::election::{NotLeading, Term};
use tessera_runtime::error::{classify, is_conflict, is_not_found, sentence};
use tessera_runtime::watch::{ObjectKey, Store, version};
use tessera_runtime::{Class, Classify, Process};

/// Pool labels of a node could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PoolLabelError {
    /// The API server refused or did not answer.
    #[error("cannot label node {node} with its pool: {}", sentence(source))]
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

impl Classify for PoolLabelError {
    fn class(&self) -> Class {
        match self {
            // The watch brings what has changed.
            Self::Write { source, .. } if is_conflict(source) || is_not_found(source) => {
                Class::Conflict
            }
            Self::Write { source, .. } => classify(source),
            Self::NotLeading(_) => Class::LostLeadership,
        }
    }

    fn reason(&self) -> &'static str {
        "PoolLabelFailed"
    }
}

/// What has to change: a value, or `None` for a label that goes.
pub fn change(
    node: &NodeFacts,
    wanted: &BTreeMap<&'static str, String>,
) -> BTreeMap<&'static str, Option<String>> {
    let keys = [DRIVER_POOL, TOOLKIT_POOL];
    let differing = keys
        .into_iter()
        .filter(|key| node.label(key) != wanted.get(key).map(String::as_str));
    differing
        .map(|key| (key, wanted.get(key).cloned()))
        .collect()
}

/// The writer.
pub struct PoolLabels {
    api: Api<Node>,
    limit: Duration,
    nodes: Store<NodeFacts>,
}

impl PoolLabels {
    /// Writes to the nodes of `nodes`.
    pub fn new(process: &Process, nodes: Store<NodeFacts>) -> Self {
        Self {
            api: Api::all(process.client()),
            limit: process.args().request_timeout,
            nodes,
        }
    }

    /// Brings the pool labels of one node to what is wanted. A merge patch: the keys are ours whoever wrote them, so a
    /// value that somebody else left there goes too. The UID keeps it from another node of the same name.
    pub async fn reconcile(
        &self,
        term: &Term,
        node: &NodeFacts,
        wanted: &BTreeMap<&'static str, String>,
    ) -> Result<(), PoolLabelError> {
        let labels = change(node, wanted);
        if labels.is_empty() || node.deleting {
            return Ok(());
        }
        term.check()?;
        let patch = Patch::Merge(json!({"metadata": {"uid": node.uid, "labels": labels}}));
        let params = PatchParams {
            field_manager: Some(controller::field_manager(controller::DRIVER)),
            ..PatchParams::default()
        };
        let written = within(self.limit, self.api.patch(&node.name, &params, &patch))
            .await
            .map_err(|source| PoolLabelError::Write {
                node: node.name.clone(),
                source,
            })?;
        tracing::info!(node = %node.name, ?labels, "Reconcile: changed the pool labels of node {}", node.name);
        self.nodes.observe(
            ObjectKey::cluster(&node.name),
            version(&written),
            NodeFacts::from_node(&written),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_written() {
        let node = NodeFacts {
            labels: BTreeMap::from([(DRIVER_POOL.to_owned(), "old".to_owned())]),
            ..NodeFacts::default()
        };
        let wanted = |value: &str| BTreeMap::from([(DRIVER_POOL, value.to_owned())]);
        assert!(change(&node, &wanted("old")).is_empty());
        assert_eq!(
            change(&node, &wanted("new")),
            BTreeMap::from([(DRIVER_POOL, Some("new".to_owned()))])
        );
        assert_eq!(
            change(&node, &BTreeMap::new()),
            BTreeMap::from([(DRIVER_POOL, None)])
        );
    }
}
