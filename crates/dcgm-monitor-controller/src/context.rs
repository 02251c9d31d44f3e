//! What a reconcile works with.

use parking_lot::Mutex;
use tessera_api::NodeFacts;
use tessera_runtime::{
    apply::{Applier, Owned},
    node_labels::NodeLabels,
    operands::pod::PodFacts,
    optional::Presence,
    policy::Policies,
    queue::Queue,
    status::StatusWriter,
    watch::Store,
};

use crate::{expected::Census, metrics_source::UserMap};

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The active policy: all objects and the status.
    Policy,
    /// The labels of one node.
    Node(String),
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Policy => f.write_str("policy"),
            Self::Node(name) => write!(f, "node/{name}"),
        }
    }
}

/// What a reconcile works with.
pub(crate) struct Context {
    /// Namespace of the operands.
    pub(crate) namespace: String,
    /// Keys to look at.
    pub(crate) queue: Queue<Key>,
    /// The policies.
    pub(crate) policies: Policies,
    /// All nodes.
    pub(crate) nodes: Store<NodeFacts>,
    /// Pods of our operands.
    pub(crate) pods: Store<PodFacts>,
    /// Our DaemonSets.
    pub(crate) daemon_sets: Store<Owned>,
    /// Our ConfigMaps.
    pub(crate) config_maps: Store<Owned>,
    /// ConfigMaps of others in our namespace.
    pub(crate) user_maps: Store<UserMap>,
    /// ServiceMonitors, where they exist.
    pub(crate) monitors: Presence,
    /// Writes objects.
    pub(crate) applier: Applier,
    /// Writes the status.
    pub(crate) status: StatusWriter,
    /// Writes node labels.
    pub(crate) labels: NodeLabels,
    /// What changes between reconciles.
    pub(crate) memory: std::sync::Arc<Memory>,
}

/// What is remembered to spare work, never to decide by.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    labelled_for: Mutex<Option<String>>,
    /// What the nodes let expect.
    pub(crate) census: Mutex<Census>,
}

impl Memory {
    /// Whether the nodes' labels were last looked at for another policy than `hash`.
    pub(crate) fn is_new_policy(&self, hash: &str) -> bool {
        let mut last = self.labelled_for.lock();
        let new = last.as_deref() != Some(hash);
        if new {
            *last = Some(hash.to_owned());
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_as_people_write_them() {
        for (key, want) in [
            (Key::Policy, "policy"),
            (Key::Node("gpu-1".to_owned()), "node/gpu-1"),
        ] {
            assert_eq!(key.to_string(), want);
        }
    }
}
