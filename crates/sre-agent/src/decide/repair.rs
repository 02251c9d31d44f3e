//! What becomes of a node that we hold. It leaves our hands in three ways only: clean for the whole probation, taken back
//! by a person, or gone.

use super::{Act, Plan};
use crate::memory::{DAY, NodeMemory};
use crate::policy::Policy;
use crate::signature::Signature;
use crate::snapshot::{NodeView, OperationView};
use crate::xid::Class;
use jiff::Timestamp;
use tessera_api::nodeoperation::{OperationPhase, OperationReason};

/// Removes the record of an ended operation of ours when it is old.
pub(super) fn expire(
    name: &str,
    operation: &OperationView,
    policy: &Policy,
    now: Timestamp,
    plan: &mut Plan,
) {
    let old = operation
        .since
        .is_some_and(|since| now.duration_since(since) >= DAY);
    if operation.ours && operation.phase.is_ended() && old && policy.may_act {
        plan.acts.push(Act::Expire {
            node: name.to_owned(),
        });
    }
}

/// Goes on with an operation of ours.
pub(super) fn go_on(
    name: &str,
    view: &NodeView,
    operation: &OperationView,
    node: &mut NodeMemory,
    policy: &Policy,
    now: Timestamp,
    plan: &mut Plan,
) {
    let phase = operation.phase;
    let act = if matches!(phase, OperationPhase::Tentative | OperationPhase::Active) {
        begun(name, node, policy)
    } else if phase == OperationPhase::Uncordoning {
        Some(release(
            name,
            "the node stayed clean for the probation time",
        ))
    } else if !view.unschedulable {
        take_back(name, operation, node, now, plan);
        Some(taken_back(name, phase))
    } else if phase == OperationPhase::Probation {
        probation(name, view, operation, node, policy, now)
    } else {
        isolated(name, operation, node, now)
    };
    let Some(act) = act else { return };
    if policy.may_act {
        plan.acts.push(act);
    } else {
        plan.would.insert(name.to_owned(), describe(&act));
    }
}

/// The lock was taken, the cordon perhaps not yet made.
fn begun(name: &str, node: &NodeMemory, policy: &Policy) -> Option<Act> {
    match node.worst().filter(|_| !policy.suspended) {
        Some((signature, class)) => Some(Act::Isolate {
            node: name.to_owned(),
            signature,
            class,
        }),
        None if node.has_fatal() && !policy.suspended => None,
        None => Some(Act::Release {
            node: name.to_owned(),
            phase: OperationPhase::Withdrawn,
            reason: OperationReason::NoLongerNeeded,
            message: if policy.suspended {
                "spec.suspend is true: the isolation that had begun is taken back".to_owned()
            } else {
                "the signal was gone before the node was isolated".to_owned()
            },
        }),
    }
}

fn isolated(
    name: &str,
    operation: &OperationView,
    node: &NodeMemory,
    now: Timestamp,
) -> Option<Act> {
    let held_for = operation.target.parse::<Signature>().ok();
    let fresh = node.telemetry.last_good == Some(now);
    let (signature, class) = match (node.worst(), held_for) {
        // Hardware that needs service is not healthy because it is silent: only a person ends that.
        (Some((_, class)), Some(old))
            if old.class() == Class::Service && class < Class::Service =>
        {
            (old, Class::Service)
        }
        (Some(worst), _) => worst,
        (None, Some(old)) if old.class() == Class::Service => (old, Class::Service),
        // It was released before and came back: another release would only let it fail again.
        (None, Some(old)) if operation.attempts >= Policy::MAX_ATTEMPTS => {
            let told = operation.reason == Some(OperationReason::ManualRequired);
            return (!told).then(|| {
                let message = format!("{old} came back again and again: have the hardware looked at, then uncordon the node");
                let reason = OperationReason::ManualRequired;
                step(name, OperationPhase::AwaitingRepair, reason, old, message)
            });
        }
        (None, Some(old)) if fresh && node.clean_samples >= 1 => {
            return Some(step(
                name,
                OperationPhase::Probation,
                OperationReason::Watching,
                old,
                watching(old),
            ));
        }
        // No data, or a doubt: absence of data never means healthy.
        (None, _) => return None,
    };
    let (reason, message) = awaiting(signature, class);
    let told = operation.phase == OperationPhase::AwaitingRepair
        && operation.reason == Some(reason)
        && held_for == Some(signature);
    (!told).then(|| {
        step(
            name,
            OperationPhase::AwaitingRepair,
            reason,
            signature,
            message,
        )
    })
}

/// What an isolated node waits for.
pub fn awaiting(signature: Signature, class: Class) -> (OperationReason, String) {
    if class == Class::Service {
        return (
            OperationReason::ManualRequired,
            format!("{signature}: {}", class.remedy()),
        );
    }
    let message = format!(
        "{signature} is up: {}; the node is released when it has stayed clean",
        class.remedy()
    );
    (OperationReason::FaultPresent, message)
}

fn watching(signature: Signature) -> String {
    format!("{signature} is gone; the node is watched before it is released")
}

fn probation(
    name: &str,
    view: &NodeView,
    operation: &OperationView,
    node: &NodeMemory,
    policy: &Policy,
    now: Timestamp,
) -> Option<Act> {
    if node.worst().is_some() {
        return isolated(name, operation, node, now);
    }
    let clean = node.telemetry.last_good == Some(now)
        && node.clean_samples >= 2
        && node.short_since.is_none();
    let long_enough = operation
        .since
        .is_some_and(|since| now.duration_since(since) >= policy.probation);
    let ready = view.not_ready_since.is_none();
    (clean && long_enough && ready)
        .then(|| release(name, "the node stayed clean for the probation time"))
}

fn release(name: &str, why: &str) -> Act {
    Act::Release {
        node: name.to_owned(),
        phase: OperationPhase::Done,
        reason: OperationReason::Succeeded,
        message: why.to_owned(),
    }
}

fn step(
    name: &str,
    phase: OperationPhase,
    reason: OperationReason,
    signature: Signature,
    message: String,
) -> Act {
    Act::Move {
        node: name.to_owned(),
        phase,
        reason,
        signature,
        message,
    }
}

/// A person wins, and what they decided about is left alone for a while.
fn take_back(
    name: &str,
    operation: &OperationView,
    node: &mut NodeMemory,
    now: Timestamp,
    plan: &mut Plan,
) {
    let mut signatures: Vec<Signature> = node
        .confirmed_fatal()
        .map(|(signature, _)| signature)
        .collect();
    signatures.extend(operation.target.parse::<Signature>());
    for signature in signatures {
        node.silenced.insert(signature, now + Policy::SILENCE);
    }
    plan.overridden.push(name.to_owned());
}

fn taken_back(name: &str, phase: OperationPhase) -> Act {
    let (phase, reason) = if phase == OperationPhase::Probation {
        (OperationPhase::Done, OperationReason::Succeeded)
    } else {
        (OperationPhase::Withdrawn, OperationReason::Requested)
    };
    Act::Release {
        node: name.to_owned(),
        phase,
        reason,
        message: "a person made the node schedulable".to_owned(),
    }
}

/// After a restart, the record of a withdrawn operation still tells that a person took the node back.
pub(super) fn silence(operation: Option<&OperationView>, node: &mut NodeMemory, now: Timestamp) {
    node.silenced.retain(|_, until| now < *until);
    let Some(record) =
        operation.filter(|record| record.ours && record.phase == OperationPhase::Withdrawn)
    else {
        return;
    };
    if let (Some(since), Ok(signature)) = (record.since, record.target.parse::<Signature>())
        && now.duration_since(since) < Policy::SILENCE
        && record.reason == Some(OperationReason::Requested)
    {
        node.silenced
            .entry(signature)
            .or_insert(since + Policy::SILENCE);
    }
}

fn describe(act: &Act) -> String {
    match act {
        Act::Isolate {
            node, signature, ..
        } => format!("go on isolating node {node} because of {signature}"),
        Act::Move { node, phase, .. } => format!("record {phase} for node {node}"),
        Act::Release { node, .. } => format!("release node {node}"),
        Act::Expire { node } => format!("remove the record of node {node}"),
    }
}
