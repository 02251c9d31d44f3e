//! What nodes have that a policy does not go with.

use std::collections::{BTreeMap, BTreeSet};

use super::{MapFacts, case::Case, json::some_of};
use crate::{
    mig::layout::{self, Rule},
    names::config_map,
    policy::MigStrategy,
};

/// What the judgement of the strategy depends on besides.
const OTHERS: &[&str] = &[
    "migManager.config.name",
    "migManager.enabled",
    "nodeSelector",
];

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
