//! What nodes have that a policy does not go with.

use std::collections::{BTreeMap, BTreeSet};

use super::{MapFacts, case::Case, json::some_of, memory};
use crate::{
    cards::Cards,
    effective::{EffectivePolicy, PluginConfig, Sharing},
    mig::layout::{self, Rule},
    names::config_map,
    policy::MigStrategy,
    shares::{MAX_MPS_CLIENTS_OLD, MPS_FULL_COMPUTE},
};

/// What the judgement of the strategy depends on besides.
const OTHERS: &[&str] = &[
    "migManager.config.name",
    "migManager.enabled",
    "nodeSelector",
];

/// What the cards of one node cannot give although the policy's sharing asks for it, in words; `None` where all is well or unknown.
///
/// One node alone, so that a controller can ask it as nodes change.
pub fn node(policy: &EffectivePolicy, cards: &Cards) -> Option<String> {
    let mut found = Vec::new();
    if let (PluginConfig::Inline(Sharing::Mps(shared)), Some((major, minor))) =
        (&policy.device_plugin.config, cards.compute)
        && (major, minor) < MPS_FULL_COMPUTE
    {
        let many = shared
            .shared()
            .filter(|(_, replicas)| *replicas > MAX_MPS_CLIENTS_OLD);
        found.extend(many.map(|(name, replicas)| {
            format!(
                "{name} has {replicas} MPS clients, and a card of compute capability {major}.{minor} takes {MAX_MPS_CLIENTS_OLD}: write at \
                 most {MAX_MPS_CLIENTS_OLD} replicas, or leave the node out by nodeSelector"
            )
        }));
    }
    found.extend(memory::node(policy, cards));
    (!found.is_empty()).then(|| found.join("; "))
}

/// Strategy single advertises nothing on a node whose instances are not all alike.
pub(super) fn judge(case: &mut Case<'_>) {
    if case.effective.mig.strategy != MigStrategy::Single {
        return;
    }
    let uneven = uneven_layouts(case);
    let bad: Vec<String> = case
        .cards
        .iter()
        .filter_map(|cards| {
            let layout = cards.layout.as_ref().filter(|name| uneven.contains(*name));
            match layout {
                Some(layout) => Some(format!("{} (layout {layout})", cards.node)),
                None if cards.profiles.len() > 1 => {
                    Some(format!("{} ({})", cards.node, cards.profiles.join(", ")))
                }
                None => None,
            }
        })
        .collect();
    if !bad.is_empty() {
        let why = format!(
            "needs nodes whose MIG instances are all alike; the device plugin advertises none on others: {}",
            some_of(&bad)
        );
        let remedy = "write mig.strategy: mixed, or choose an even layout for them by label nvidia.com/mig.config";
        case.warn(("mig.strategy", OTHERS), why, remedy);
    }
}

/// Layouts that give cards instances of different profiles; those that Tessera ships are known by name.
fn uneven_layouts(case: &Case<'_>) -> BTreeSet<String> {
    let file = match &case.effective.mig_manager.config_map {
        None => return BTreeSet::from(["all-balanced".to_owned()]),
        Some(name) => match case.facts.config_maps.get(name) {
            Some(MapFacts::Present(data)) => data
                .get(config_map::CONFIG_KEY)
                .map(|text| layout::parse(text)),
            Some(MapFacts::Absent | MapFacts::Unknown) | None => None,
        },
    };
    let layouts = file.map(|file| file.layouts).unwrap_or_default();
    let uneven = layouts.into_iter().filter(|(_, rules)| is_uneven(rules));
    uneven.map(|(name, _)| name).collect()
}

/// Rules with different filters are for different cards, which rarely share a node: only rules of one filter count together.
fn is_uneven(rules: &[Rule]) -> bool {
    let mut shapes: BTreeMap<&[String], BTreeSet<&str>> = BTreeMap::new();
    for rule in rules {
        let profiles = rule.instances.iter().filter(|(_, count)| **count > 0);
        shapes
            .entry(&rule.filter)
            .or_default()
            .extend(profiles.map(|(profile, _)| profile.as_str()));
    }
    shapes.values().any(|profiles| profiles.len() > 1)
}
