//! The core: what is seen, what is remembered and the rules' numbers become a plan. Pure: the same input gives the same
//! plan, and nothing is done here.
//!
//! Level-triggered: a plan follows from what is up now, never from a list of old events, so a restart or a closed breaker
//! replays nothing.

mod breaker;
mod guard;
mod incidents;
mod repair;

pub use guard::{Stop, most_held, most_out_of_service};
pub use incidents::{incident_id, present};
pub use repair::awaiting;

use crate::memory::{Memory, NodeMemory};
use crate::policy::Policy;
use crate::signals::{self, Occurrence};
use crate::signature::Signature;
use crate::snapshot::Snapshot;
use crate::xid::Class;
use jiff::Timestamp;
use std::collections::BTreeMap;
use tessera_api::nodeoperation::{OperationPhase, OperationReason};

/// One thing to do to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Take the node's lock and cordon it; also goes on with an isolation that was interrupted.
    Isolate {
        /// Node.
        node: String,
        /// What for.
        signature: Signature,
        /// Its class.
        class: Class,
    },
    /// Record how far our operation is.
    Move {
        /// Node.
        node: String,
        /// New phase.
        phase: OperationPhase,
        /// Why.
        reason: OperationReason,
        /// What for, now.
        signature: Signature,
        /// In words.
        message: String,
    },
    /// Undo what we did and end the operation.
    Release {
        /// Node.
        node: String,
        /// How it ends.
        phase: OperationPhase,
        /// Why.
        reason: OperationReason,
        /// In words.
        message: String,
    },
    /// Remove the record of an operation that ended a day ago.
    Expire {
        /// Node.
        node: String,
    },
}

impl Act {
    /// The node.
    pub fn node(&self) -> &str {
        match self {
            Self::Isolate { node, .. }
            | Self::Move { node, .. }
            | Self::Release { node, .. }
            | Self::Expire { node } => node,
        }
    }

    /// For the log and metrics.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Isolate { .. } => "isolate",
            Self::Move { .. } => "record",
            Self::Release { .. } => "release",
            Self::Expire { .. } => "expire",
        }
    }
}

/// What one check found and wants done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In this order.
    pub acts: Vec<Act>,
    /// What would be done if it were allowed, by node.
    pub would: BTreeMap<String, String>,
    /// What holds an isolation back, by node.
    pub stops: BTreeMap<String, Stop>,
    /// What occurred just now, by node.
    pub occurrences: Vec<(String, Occurrence)>,
    /// Nodes that a person took back while we held them.
    pub overridden: Vec<String>,
}

/// Decides what to do now.
pub fn decide(snapshot: &Snapshot, memory: &mut Memory, policy: &Policy, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    forget(snapshot, memory);
    for (name, view) in &snapshot.nodes {
        let node = memory.nodes.entry(name.clone()).or_default();
        let occurred = signals::update(view, snapshot.telemetry.get(name), node, policy, now);
        plan.occurrences.extend(
            occurred
                .into_iter()
                .map(|occurrence| (name.clone(), occurrence)),
        );
        repair::silence(snapshot.operations.get(name), node, now);
    }
    // First what we hold already: recovery goes on whatever else is wrong.
    for (name, view) in &snapshot.nodes {
        let Some(operation) = snapshot.operations.get(name) else {
            continue;
        };
        repair::expire(name, operation, policy, now, &mut plan);
        if let Some(node) = memory
            .nodes
            .get_mut(name)
            .filter(|_| operation.is_our_work())
        {
            repair::go_on(name, view, operation, node, policy, now, &mut plan);
        }
    }
    breaker::update(snapshot, memory, policy, now);
    isolate(snapshot, memory, policy, now, &mut plan);
    for (name, view) in &snapshot.nodes {
        if let Some(node) = memory.nodes.get_mut(name) {
            incidents::open(view, snapshot.operations.get(name), node, now);
        }
    }
    plan
}

/// A node that is gone, or another one of the same name, takes its memory with it.
fn forget(snapshot: &Snapshot, memory: &mut Memory) {
    memory.nodes.retain(|name, node| {
        snapshot
            .nodes
            .get(name)
            .is_some_and(|view| node.uid.is_empty() || view.uid == node.uid)
    });
}

/// New isolations, the worst first, each only if no guard rail stops it; at most one a check, so that each sees the
/// effect of the one before.
fn isolate(snapshot: &Snapshot, memory: &Memory, policy: &Policy, now: Timestamp, plan: &mut Plan) {
    let mut candidates: Vec<(&String, &NodeMemory, Signature, Class)> = Vec::new();
    for (name, node) in &memory.nodes {
        let held = snapshot
            .operations
            .get(name)
            .is_some_and(crate::snapshot::OperationView::is_our_work);
        let selected = snapshot.nodes.get(name).is_some_and(|view| view.selected);
        if let (false, true, Some((signature, class))) = (held, selected, node.worst()) {
            candidates.push((name, node, signature, class));
        }
    }
    candidates.sort_by(|a, b| b.3.cmp(&a.3).then_with(|| a.0.cmp(b.0)));
    for (name, node, signature, class) in candidates {
        if let Some(stop) =
            guard::first_stop(name, node, signature, snapshot, memory, policy, plan, now)
        {
            plan.stops.insert(name.clone(), stop);
        }
        let stopped = plan.stops.contains_key(name);
        if !policy.may_act {
            plan.would.insert(
                name.clone(),
                format!(
                    "cordon node {name} because of {signature} ({})",
                    class.remedy()
                ),
            );
        } else if !stopped {
            plan.acts.push(Act::Isolate {
                node: name.clone(),
                signature,
                class,
            });
        }
    }
}

#[cfg(test)]
mod tests;
