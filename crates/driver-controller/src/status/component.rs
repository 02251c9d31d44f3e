//! `status.driver`: counts, versions, exceptions.

use crate::build::DRIVER;
use crate::context::{config_hash, image};
use crate::observe::Rolled;
use crate::upgrade::Survey;
use crate::validate::Validated;
use std::collections::BTreeSet;
use tessera_api::conditions::Reason;
use tessera_api::names::label;
use tessera_api::policy::{ComponentStatus, NodeExceptions, OperandStatus};
use tessera_runtime::operands::{NAMED, Rollout, Verdict};

/// At most so many groups of exceptions.
const GROUPS: usize = 20;

/// The sub-object.
pub(super) fn status(
    validated: &Validated<'_>,
    rolled: &Rolled,
    verdicts: [Option<&Verdict>; 3],
    upgrades: &Survey,
) -> ComponentStatus {
    let driver = &validated.policy.driver;
    let rollout = verdicts
        .first()
        .copied()
        .flatten()
        .map(|verdict| verdict.rollout);
    let (desired, ready) = rollout.map_or((0, 0), |rollout| (rollout.desired, rollout.ready));
    let summary = if !driver.operand.enabled {
        "disabled".to_owned()
    } else if desired == 0 && !rolled.census.host_driver.is_empty() {
        "host".to_owned()
    } else {
        format!("{ready}/{desired}")
    };
    let enabled = driver.operand.enabled;
    ComponentStatus {
        summary: Some(summary),
        desired: enabled.then_some(desired),
        ready: enabled.then_some(ready),
        updated: enabled.then(|| updated(rolled)),
        version: enabled
            .then(|| driver.version().to_owned())
            .filter(|version| !version.is_empty()),
        operands: operands(rolled),
        exceptions: exceptions(rolled, verdicts, upgrades),
        upgrade: upgrades.progress(),
    }
}

/// Driver pods that are made from what the policy now says, whatever revision their DaemonSet counts.
fn updated(rolled: &Rolled) -> i32 {
    let wanted: BTreeSet<&str> = rolled
        .sets
        .values()
        .filter(|set| set.label(label::COMPONENT) == Some(DRIVER))
        .filter_map(|set| config_hash(set))
        .collect();
    let pods = rolled
        .pods
        .get(DRIVER)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let count = pods
        .iter()
        .filter(|pod| !pod.deleting && wanted.contains(pod.config_hash.as_str()))
        .count();
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn operands(rolled: &Rolled) -> Vec<OperandStatus> {
    let operand = |(name, set): (&String, &std::sync::Arc<tessera_runtime::apply::Owned>)| {
        let rollout = Rollout::of(set);
        Some(OperandStatus {
            name: name.clone(),
            desired: rollout.desired,
            ready: rollout.ready,
            updated: rollout.updated,
            version: image(set)
                .map(|image| image.version().to_owned())
                .filter(|version| !version.is_empty()),
        })
    };
    rolled.sets.iter().filter_map(operand).collect()
}

fn exceptions(
    rolled: &Rolled,
    verdicts: [Option<&Verdict>; 3],
    upgrades: &Survey,
) -> Vec<NodeExceptions> {
    let census = &rolled.census;
    let nodes = census.exceptions.iter().flat_map(|(node, list)| {
        list.iter()
            .map(|(reason, message)| (*reason, node.clone(), message.clone()))
    });
    let host = census
        .host_driver
        .iter()
        .map(|node| (Reason::NodesWithHostDriver, node.clone(), String::new()));
    let mut groups = NodeExceptions::group(nodes.chain(host));
    groups.extend(upgrades.exceptions());
    for exception in verdicts
        .into_iter()
        .flatten()
        .flat_map(|verdict| &verdict.exceptions)
    {
        groups.push(NodeExceptions {
            reason: exception.reason.to_string(),
            count: i32::try_from(exception.count).unwrap_or(i32::MAX),
            nodes: exception
                .nodes
                .iter()
                .filter(|node| !node.is_empty())
                .take(NAMED)
                .cloned()
                .collect(),
            message: Some(exception.message.clone()),
        });
    }
    groups.truncate(GROUPS);
    groups
}
