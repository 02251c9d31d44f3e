//! What the reconcilers work with.

use crate::Key;
use crate::build::{DRIVER, VALIDATOR};
use crate::fleet::{DriverPlace, Fleet, Placement};
use crate::pool_labels::PoolLabels;
use crate::upgrade::{Rules, UpgradeView, Upgrades, Want, Wanted};
use crate::validate::ConfigFacts;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_api::image::ImageRef;
use tessera_api::names::annotation;
use tessera_api::{EffectivePolicy, NodeFacts};
use tessera_runtime::apply::{Applier, Owned};
use tessera_runtime::node_labels::NodeLabels;
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::policy::Policies;
use tessera_runtime::queue::Queue;
use tessera_runtime::status::StatusWriter;
use tessera_runtime::watch::{Change, ObjectKey, Store};

/// Everything that a reconcile may touch.
pub struct Context {
    /// Namespace of the operands.
    pub namespace: String,
    /// The engine.
    pub applier: Applier,
    /// The policies.
    pub policies: Policies,
    /// All nodes.
    pub nodes: Store<NodeFacts>,
    /// Pods of our operands.
    pub pods: Store<PodFacts>,
    /// ConfigMaps of the operands' namespace.
    pub configs: Store<ConfigFacts>,
    /// Our DaemonSets.
    pub sets: Store<Owned>,
    /// What is kept up to date event by event.
    pub known: Arc<Known>,
    /// Writer of our part of the policy's status.
    pub status: StatusWriter,
    /// Writer of the deploy labels.
    pub node_labels: NodeLabels,
    /// Writer of the pool labels.
    pub pool_labels: PoolLabels,
    /// Driver upgrades.
    pub upgrades: Upgrades,
    /// To ask for another look.
    pub queue: Queue<Key>,
}

impl Context {
    /// A node's pod of one of our operands: one that stays before one that is going away.
    fn operand_pod(&self, node: &str, component: &str) -> Option<Arc<PodFacts>> {
        let pods = self.known.pods.read();
        let on_node = pods
            .get(node)?
            .values()
            .filter(|pod| pod.component == component);
        on_node.min_by_key(|pod| pod.deleting).cloned()
    }
}

impl UpgradeView for Context {
    fn rules(&self) -> Rules {
        match self.known.adopted() {
            Adopted::Policy(policy) => Rules::of(&policy),
            Adopted::NotYet | Adopted::Nothing => Rules::default(),
        }
    }

    fn gpu_nodes(&self) -> Vec<Arc<NodeFacts>> {
        let fleet = self.known.fleet.read();
        fleet
            .names()
            .filter_map(|name| self.nodes.get_cluster(name))
            .collect()
    }

    fn node(&self, name: &str) -> Option<Arc<NodeFacts>> {
        self.nodes.get_cluster(name)
    }

    fn want(&self, node: &NodeFacts) -> Want {
        let daemon_set = match self
            .known
            .fleet
            .read()
            .get(&node.name)
            .map(|placement| &placement.driver)
        {
            Some(DriverPlace::Pool(pool)) => pool.daemon_set(),
            Some(DriverPlace::Unknown) => return Want::Unknown,
            Some(DriverPlace::Host | DriverPlace::Off) | None => return Want::Nothing,
        };
        let live = self
            .sets
            .get(&ObjectKey::namespaced(&self.namespace, &daemon_set));
        let wanted = live.and_then(|live| {
            Some(Wanted {
                hash: config_hash(&live)?.to_owned(),
                version: driver_version(&live)?,
            })
        });
        wanted.map_or(Want::Unknown, Want::Driver)
    }

    fn driver_pod(&self, node: &str) -> Option<Arc<PodFacts>> {
        self.operand_pod(node, DRIVER)
    }

    fn validator_pod(&self, node: &str) -> Option<Arc<PodFacts>> {
        self.operand_pod(node, VALIDATOR)
    }
}

/// `aiops.local/config-hash` of a DaemonSet's pods.
pub fn config_hash(set: &Owned) -> Option<&str> {
    set.value
        .pointer("/spec/template/metadata/annotations")?
        .get(annotation::CONFIG_HASH)?
        .as_str()
}

/// The image of a DaemonSet's first container.
pub fn image(set: &Owned) -> Option<ImageRef> {
    set.value
        .pointer("/spec/template/spec/containers/0/image")?
        .as_str()
        .map(ImageRef::parse)
}

/// The driver's version as the running image says: its tag without the operating system.
fn driver_version(set: &Owned) -> Option<String> {
    let image = image(set)?;
    let pool = set.label(crate::pools::DRIVER_POOL).unwrap_or_default();
    let tag = image.version();
    Some(
        tag.strip_suffix(&format!("-{pool}"))
            .unwrap_or(tag)
            .to_owned(),
    )
}

/// State that follows from events.
#[derive(Default)]
pub struct Known {
    policy: RwLock<Adopted>,
    /// The GPU nodes.
    pub fleet: RwLock<Fleet>,
    pods: RwLock<BTreeMap<String, BTreeMap<ObjectKey, Arc<PodFacts>>>>,
    unreadable: RwLock<Vec<(String, String)>>,
}

/// The policy that nodes are looked at with.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Adopted {
    /// The policies have not been looked at yet.
    #[default]
    NotYet,
    /// There is none.
    Nothing,
    /// This one.
    Policy(Arc<EffectivePolicy>),
}

impl Known {
    /// The policy that nodes are looked at with.
    pub fn adopted(&self) -> Adopted {
        self.policy.read().clone()
    }

    /// Looks at nodes with `policy` from now on. Returns whether that is another one than before.
    pub fn adopt(&self, policy: Option<&Arc<EffectivePolicy>>, nodes: &Store<NodeFacts>) -> bool {
        let same = match (&*self.policy.read(), policy) {
            (Adopted::NotYet, _) | (Adopted::Policy(_), None) | (Adopted::Nothing, Some(_)) => {
                false
            }
            (Adopted::Nothing, None) => true,
            (Adopted::Policy(old), Some(new)) => Arc::ptr_eq(old, new) || old == new,
        };
        if same {
            return false;
        }
        let adopted = policy.map_or(Adopted::Nothing, |policy| Adopted::Policy(policy.clone()));
        // The lock is held until the fleet is rebuilt, so that no node event in between is placed by the old policy.
        let mut current = self.policy.write();
        let placed = nodes
            .list()
            .into_iter()
            .filter_map(|(key, node)| Some((key.name, Placement::of(&node, policy?)?)));
        self.fleet.write().rebuild(placed);
        *current = adopted;
        true
    }

    /// The pool labels that a node should carry.
    pub fn pool_labels(&self, node: &str) -> BTreeMap<&'static str, String> {
        let fleet = self.fleet.read();
        let placement = fleet.get(node);
        placement
            .map(|placement| placement.labels.clone())
            .unwrap_or_default()
    }

    /// Takes over which policies cannot be read. Returns whether that has changed.
    pub fn unreadable(&self, policies: &[(String, String)]) -> bool {
        let mut known = self.unreadable.write();
        let changed = *known != policies;
        if changed {
            *known = policies.to_vec();
        }
        changed
    }

    /// Takes over a node's change. Returns whether a placement has changed.
    pub fn node(&self, change: &Change<NodeFacts>) -> bool {
        let policy = self.policy.read();
        let placement = match (&*policy, &change.new) {
            (Adopted::Policy(policy), Some(node)) => Placement::of(node, policy),
            (Adopted::NotYet | Adopted::Nothing, _) | (Adopted::Policy(_), None) => None,
        };
        self.fleet.write().set(&change.key.name, placement)
    }

    /// Takes over a pod's change.
    pub fn pod(&self, change: &Change<PodFacts>) {
        let mut pods = self.pods.write();
        if let Some(old) = &change.old
            && let Some(on_node) = pods.get_mut(&old.node)
        {
            on_node.remove(&change.key);
            if on_node.is_empty() {
                pods.remove(&old.node);
            }
        }
        if let Some(new) = &change.new {
            pods.entry(new.node.clone())
                .or_default()
                .insert(change.key.clone(), new.clone());
        }
    }
}
