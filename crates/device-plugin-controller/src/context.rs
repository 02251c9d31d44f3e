//! What a reconcile works with.

use crate::controller::Key;
use crate::index::Index;
use crate::mig_nodes::Changes;
use crate::pods::TroubledPods;
use crate::referenced::Referenced;
use parking_lot::RwLock;
use std::sync::Arc;
use tessera_api::EffectivePolicy;
use tessera_api::nodes::NodeFacts;
use tessera_runtime::apply::{Applier, Owned};
use tessera_runtime::events::Events;
use tessera_runtime::node_labels::NodeLabels;
use tessera_runtime::policy::Policies;
use tessera_runtime::queue::Queue;
use tessera_runtime::status::StatusWriter;
use tessera_runtime::watch::Store;

/// The policy that nodes are labelled by.
#[derive(Clone, Debug, Default)]
pub enum Current {
    /// Not looked at yet: no node is touched.
    #[default]
    Unknown,
    /// There is none: our labels go.
    None,
    /// This one.
    Policy(Arc<EffectivePolicy>),
}

/// Everything that a reconcile works with.
pub struct Context {
    /// Namespace of the operands.
    pub namespace: String,
    /// The policies.
    pub policies: Policies,
    /// All nodes.
    pub nodes: Store<NodeFacts>,
    /// Verdicts on them.
    pub index: Index,
    /// Our DaemonSets.
    pub daemon_sets: Store<Owned>,
    /// Pods that are not ready.
    pub troubled: TroubledPods,
    /// ConfigMaps of the user.
    pub referenced: Referenced,
    /// Writer of objects.
    pub applier: Applier,
    /// Writer of status.
    pub status: StatusWriter,
    /// Writer of node labels.
    pub labels: NodeLabels,
    /// The policy that nodes are labelled by.
    pub current: RwLock<Current>,
    /// MIG changes under way.
    pub changes: Changes,
    /// For what cannot be undone.
    pub events: Events,
    /// To look at something again.
    pub queue: Queue<Key>,
}
