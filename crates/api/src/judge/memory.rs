//! The limit of memory of a time-sliced share, against what cards have.

use super::case::Case;
use crate::{
    cards::{self, Cards, largest_known},
    effective::{EffectivePolicy, PluginConfig, Sharing},
    mig::parts,
    names::MIG_RESOURCE_PREFIX,
    shares::LEAST_USABLE,
    units::MemoryLimit,
};

const PATH: &str = "devicePlugin.config.sharing.timeSlicing.memoryLimit";
/// What the judgement of the limit depends on besides.
const OTHERS: &[&str] = &[
    "devicePlugin.config.sharing.timeSlicing.resources",
    "nodeSelector",
];

pub(super) fn judge(case: &mut Case<'_>) {
    let MemoryLimit::MiB(limit) = case.effective.device_plugin.memory_limit else {
        return;
    };
    let shared = slices(&case.effective);
    if shared.is_empty() {
        let why = "has no effect, as no resource is time-sliced with 2 replicas or more";
        case.warn((PATH, OTHERS), why, "remove it, or share a resource");
        return;
    }
    if limit < LEAST_USABLE {
        let why = format!(
            "is less than the {LEAST_USABLE} MiB that CUDA itself needs to tell how much memory is left"
        );
        case.warn((PATH, OTHERS), why, "write at least 512Mi");
    }
    for (name, replicas) in shared {
        match name.strip_prefix(MIG_RESOURCE_PREFIX) {
            Some(_) => instance(case, &name, replicas, limit),
            None => card(case, &name, replicas, limit),
        }
    }
}

/// Time-sliced resources with their replicas.
fn slices(policy: &EffectivePolicy) -> Vec<(String, u32)> {
    match &policy.device_plugin.config {
        PluginConfig::Inline(Sharing::TimeSlicing(shared)) => shared
            .shared()
            .map(|(name, replicas)| (name.to_owned(), replicas))
            .collect(),
        PluginConfig::Inline(Sharing::None | Sharing::Mps(_)) | PluginConfig::ConfigMap { .. } => {
            Vec::new()
        }
    }
}

/// Whole cards: by what the nodes say, else by what any card has.
fn card(case: &mut Case<'_>, name: &str, replicas: u32, limit: u32) {
    let smallest = case
        .cards
        .iter()
        .filter_map(|cards| Some((cards.memory?, cards)))
        .min_by_key(|(memory, cards)| (*memory, cards.node.clone()));
    let unknown = smallest.is_none();
    let (memory, whose) = match smallest {
        Some((memory, cards)) => (memory, describe(cards, memory)),
        None => (
            largest_known(),
            format!(
                "the {} MiB of the largest card that is known",
                largest_known()
            ),
        ),
    };
    let most = cards::most(memory, smallest.is_some_and(|(_, cards)| cards.is_measured));
    let all = u64::from(limit) * u64::from(replicas);
    if u64::from(limit) > most {
        let why = format!("is {limit} MiB, more than {whose}");
        case.refuse(
            (PATH, OTHERS),
            why,
            format!("write at most {}Mi, or Auto", memory / replicas),
        );
    } else if all > most {
        let why = format!(
            "is {limit} MiB, and {replicas} shares of {name} with so much are {all} MiB, more than {whose}"
        );
        let remedy = format!(
            "write at most {}Mi, or Auto, or fewer replicas",
            memory / replicas
        );
        case.refuse((PATH, OTHERS), why, remedy);
    } else if unknown {
        let why = "cannot be compared with the memory of cards, as no node says yet what it has";
        case.warn(
            (PATH, OTHERS),
            why,
            "look at condition SharingApplied once there are GPU nodes",
        );
    }
}

/// What is too much for the cards of one node.
pub(super) fn node(policy: &EffectivePolicy, cards: &Cards) -> Vec<String> {
    let (MemoryLimit::MiB(limit), Some(memory)) = (policy.device_plugin.memory_limit, cards.memory)
    else {
        return Vec::new();
    };
    let whole = slices(policy)
        .into_iter()
        .filter(|(name, _)| !name.starts_with(MIG_RESOURCE_PREFIX));
    let too_much = whole.filter_map(|(name, replicas)| {
        let all = u64::from(limit) * u64::from(replicas);
        (all > cards::most(memory, cards.is_measured)).then(|| {
            format!(
                "{replicas} shares of {name} with memoryLimit {limit}Mi are {all} MiB, and a card has {memory} MiB: write at most {}Mi, or Auto",
                memory / replicas
            )
        })
    });
    too_much.collect()
}

fn describe(cards: &Cards, memory: u32) -> String {
    match &cards.product {
        Some(product) => format!(
            "the {memory} MiB of a card of node {} ({product})",
            cards.node
        ),
        None => format!("the {memory} MiB of a card of node {}", cards.node),
    }
}

/// MIG instances: by what the profile's name says, which is rounded up.
fn instance(case: &mut Case<'_>, name: &str, replicas: u32, limit: u32) {
    let size = parts::profile_of_resource(name).and_then(parts::memory_of_profile);
    let Some(memory) = size else {
        return;
    };
    let all = u64::from(limit) * u64::from(replicas);
    if all > u64::from(memory) {
        let why = format!(
            "is {limit} MiB, and {replicas} shares of {name} with so much are {all} MiB, more than the {memory} MiB of such an instance"
        );
        let remedy = format!(
            "write at most {}Mi, or Auto, or fewer replicas",
            memory / replicas
        );
        case.refuse((PATH, OTHERS), why, remedy);
    }
}
