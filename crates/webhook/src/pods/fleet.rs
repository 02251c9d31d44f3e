//! The nodes with cards and what each offers under a resource's name.

use std::sync::Arc;

use tessera_api::NodeFacts;
use tessera_api::cards::{self, Cards};
use tessera_api::effective::EffectivePolicy;
use tessera_api::mig::parts;
use tessera_api::names::{MIG_RESOURCE_PREFIX, label};
use tessera_api::nodes::has_cards;
use tessera_api::plugin_file::{Chosen, Configs, Shares};
use tessera_api::units::MemoryLimit;

use super::placement::Placement;

/// A node and what its labels say of its cards.
#[derive(Clone, Debug)]
pub struct Member {
    /// The node.
    pub node: Arc<NodeFacts>,
    /// Its cards.
    pub cards: Arc<Cards>,
}

impl Member {
    /// Reads a node's labels.
    pub fn of(node: Arc<NodeFacts>) -> Self {
        Self {
            cards: Arc::new(Cards::of(&node)),
            node,
        }
    }
}

/// What counts when a Pod asks for a card.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The policy's limit.
    pub limit: MemoryLimit,
    /// Which configuration of the device plugin a node uses.
    pub configs: Configs,
    /// The nodes that have cards.
    pub members: Vec<Member>,
    /// HAMi runs in this cluster: its resources are its own matter.
    pub hami: bool,
}

/// How a card is given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As a whole.
    Whole,
    /// By turns.
    Turns,
    /// By MPS, which keeps its clients to their memory itself.
    Mps,
}

/// What one node gives to a container that asks for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// How a card is given away.
    pub way: Way,
    /// Containers on one card.
    pub replicas: u32,
    /// Memory of the card, or MIG instance, in MiB.
    pub memory: Option<u32>,
    /// The most that it may be, where `memory` is a table's figure.
    pub most: Option<u64>,
    /// The plugin refuses a container that asks for more than one.
    pub one_each: bool,
    /// Something on the node keeps programs to their limit.
    pub enforced: bool,
}

impl Offer {
    /// MiB of one share.
    pub(super) fn share(&self) -> Option<u32> {
        self.memory?.checked_div(self.replicas)
    }
}

impl Fleet {
    /// Of the nodes that the policy is for. `None` while its device plugin is not ours to judge: off, invalid, or of a configuration
    /// that is not known.
    pub fn of(
        policy: &EffectivePolicy,
        configs: Configs,
        members: impl IntoIterator<Item = Member>,
        hami: bool,
    ) -> Option<Self> {
        let plugin = &policy.device_plugin;
        if !plugin.operand.enabled
            || plugin.operand.invalid.is_some()
            || configs == Configs::Unknown
        {
            return None;
        }
        Some(Self {
            limit: plugin.memory_limit,
            configs,
            members: members
                .into_iter()
                .filter(|member| has_cards(&member.node, policy))
                .collect(),
            hami,
        })
    }

    /// What the nodes offer on which a Pod may run. While there is no such node, what one without labels would.
    pub(super) fn offers(&self, resource: &str, placement: &Placement<'_>) -> Vec<Offer> {
        let mut fitting = self
            .members
            .iter()
            .filter(|member| placement.allows(&member.node))
            .peekable();
        if fitting.peek().is_none() {
            return self.imagined(resource).into_iter().collect();
        }
        fitting
            .filter_map(|member| self.offer(resource, member))
            .collect()
    }

    fn imagined(&self, resource: &str) -> Option<Offer> {
        let (way, replicas, _, one_each) = match self.configs.choose(None) {
            Chosen::Shares(shares) => found(shares, resource)?,
            Chosen::Nothing => (Way::Whole, 1, resource, false),
            Chosen::Unknown | Chosen::Missing(_) => return None,
        };
        let memory = instance(resource);
        Some(Offer {
            way,
            replicas,
            memory,
            most: memory.map(u64::from),
            one_each,
            enforced: false,
        })
    }

    fn offer(&self, resource: &str, member: &Member) -> Option<Offer> {
        let (way, replicas, name, one_each) = match self.configs.of(&member.node) {
            Chosen::Shares(shares) => found(shares, resource)?,
            Chosen::Nothing => (Way::Whole, 1, resource, false),
            // Its plugin does not start.
            Chosen::Missing(_) | Chosen::Unknown => return None,
        };
        let (memory, most) = memory(name, member)?;
        Some(Offer {
            way,
            replicas,
            memory,
            most,
            one_each,
            enforced: member.node.label(label::MEMORY_ENFORCER) == Some("true"),
        })
    }
}

/// How a configuration gives away a resource: way, replicas, the resource that is shared, one share a container. `None` if it
/// advertises no such resource.
fn found<'a>(shares: &'a Shares, resource: &'a str) -> Option<(Way, u32, &'a str, bool)> {
    let shared = shares.shared.iter();
    let mut advertised = shared.map(|(name, replicas)| (shares.advertised(name), name, replicas));
    if let Some((_, name, replicas)) = advertised.find(|(advertised, ..)| advertised == resource) {
        let way = if shares.mps { Way::Mps } else { Way::Turns };
        return Some((way, *replicas, name, shares.one_each));
    }
    let is_renamed = shares.shared.contains_key(resource) || resource.ends_with(".shared");
    (!is_renamed).then_some((Way::Whole, 1, resource, false))
}

/// Memory of what is behind a resource on a node, and the most that it may be; `None` if the node has no such thing.
fn memory(resource: &str, member: &Member) -> Option<(Option<u32>, Option<u64>)> {
    let cards = &member.cards;
    let Some(profile) = resource.strip_prefix(MIG_RESOURCE_PREFIX) else {
        let most = cards
            .memory
            .map(|memory| cards::most(memory, cards.is_measured));
        return Some((cards.memory, most));
    };
    // Feature discovery has run, and found no such instance.
    if cards.count.is_some() && !cards.profiles.iter().any(|known| known == profile) {
        return None;
    }
    let measured = member.node.label(&format!("{resource}.memory"));
    let measured = measured.and_then(|text| text.parse().ok());
    let memory = measured.or_else(|| instance(resource));
    Some((memory, memory.map(u64::from)))
}

/// Memory of a MIG instance by the profile's name, which rounds up.
fn instance(resource: &str) -> Option<u32> {
    parts::profile_of_resource(resource.strip_suffix(".shared").unwrap_or(resource))
        .and_then(parts::memory_of_profile)
}
