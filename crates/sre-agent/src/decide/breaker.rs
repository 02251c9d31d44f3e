//! The circuit breaker: when too much is wrong at once, the cause is rarely the nodes, and isolating them all would be
//! the outage. It stops new isolations only; recovery and release go on. It closes by itself.

use super::guard::{most_held, percent};
use crate::memory::{Memory, NodeMemory, OpenBreaker};
use crate::policy::Policy;
use crate::signature::Signature;
use crate::snapshot::{OperationView, Snapshot};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// Opens it, keeps it open for the cooldown, closes it.
pub(super) fn update(snapshot: &Snapshot, memory: &mut Memory, policy: &Policy, now: Timestamp) {
    let cause = cause(snapshot, memory, policy, now);
    match (cause, &mut memory.breaker) {
        // The first cause stays told: which one it is now may change from check to check.
        (Some(_), Some(open)) => open.last_cause = now,
        (Some((reason, message)), closed @ None) => {
            *closed = Some(OpenBreaker {
                reason,
                message,
                since: now,
                last_cause: now,
            });
        }
        (None, Some(open)) if now.duration_since(open.last_cause) >= Policy::BREAKER_COOLDOWN => {
            memory.breaker = None;
        }
        (None, _) => {}
    }
}

fn cause(
    snapshot: &Snapshot,
    memory: &Memory,
    policy: &Policy,
    now: Timestamp,
) -> Option<(&'static str, String)> {
    let watched: Vec<(&String, &NodeMemory)> = memory
        .nodes
        .iter()
        .filter(|(name, _)| snapshot.nodes.get(*name).is_some_and(|view| view.selected))
        .collect();
    let total = watched.len();
    let held = |name: &String| {
        snapshot
            .operations
            .get(name)
            .is_some_and(OperationView::is_our_work)
    };
    let unhealthy = watched
        .iter()
        .filter(|(name, node)| held(name) || node.worst().is_some())
        .count();
    if unhealthy > most_held(total) {
        let limit = if total < Policy::SMALL_POOL {
            format!(
                "more than {} nodes of a small pool are unhealthy",
                Policy::SMALL_POOL_MAX
            )
        } else {
            format!(
                "more than {} % of the nodes are unhealthy",
                Policy::MAX_UNHEALTHY_PERCENT
            )
        };
        return Some((
            "TooManyUnhealthy",
            format!("{limit}: look for a common cause before more is isolated"),
        ));
    }
    let mut same: BTreeMap<Signature, usize> = BTreeMap::new();
    for (_, node) in &watched {
        let mut signatures: Vec<Signature> = node
            .confirmed_fatal()
            .map(|(signature, _)| signature)
            .collect();
        signatures.dedup();
        for signature in signatures
            .into_iter()
            .filter(|signature| is_recent(node, *signature, now))
        {
            *same.entry(signature).or_default() += 1;
        }
    }
    let limit = Policy::SAME_SIGNATURE.max(percent(total, 1));
    if let Some((signature, _)) = same.into_iter().find(|(_, count)| *count >= limit) {
        let message = format!(
            "{signature} came up on several nodes within minutes: look for a common cause (driver, switch, cooling)"
        );
        return Some(("SameSignature", message));
    }
    let stale = watched
        .iter()
        .filter(|(_, node)| node.telemetry.stale.is_some())
        .count();
    if policy.watch_gpus && stale * 2 > total {
        return Some((
            "Blind",
            "more than half of the exporters give no usable data".to_owned(),
        ));
    }
    None
}

fn is_recent(node: &NodeMemory, signature: Signature, now: Timestamp) -> bool {
    let tracks = node
        .tracks
        .iter()
        .filter(|((have, _), track)| *have == signature && !track.restored);
    tracks
        .map(|(_, track)| track.first)
        .min()
        .is_some_and(|first| now.duration_since(first) < Policy::SAME_SIGNATURE_WINDOW)
}
