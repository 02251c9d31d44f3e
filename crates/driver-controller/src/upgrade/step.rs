//! The upgrade machine of one node: facts and persisted state in, acts out. Pure.
//!
//! It is run again and again until it rests; every act may be the last one that this process does, so each decision is
//! made from what is persisted (NodeOperation, node mark, pods) and never from what was done before in memory.

mod clear;
mod replace;
#[cfg(test)]
mod tests;

use super::facts::{Cordon, Facts, Rules};
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;
use tessera_api::names::annotation;
use tessera_api::nodeoperation::{Blocker, OperationPhase, OperationReason};
use tessera_runtime::drain::{Remaining, look_again};
use tessera_runtime::operation::{Operation, Progress, later};

/// One thing to do. Each is safe to do again.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// List the jobs to wait for.
    LookForJobs,
    /// List the GPU pods and evict them.
    EvictGpuPods,
    /// List the pods of the drain and evict them.
    DrainPods,
    /// Read the node anew: its watch may lag behind that of the NodeOperations.
    ReadNode,
    /// Cordon with our mark.
    Cordon,
    /// Take our cordon and our mark away.
    Uncordon,
    /// Take a mark away whose cordon somebody else has undone: a later cordon of theirs must not be taken for ours.
    Unmark,
    /// Take the request for an upgrade off the node.
    ClearRequest,
    /// Put NVIDIA's state label to failed, and take a request off.
    MarkFailed,
    /// Delete a pod of ours.
    DeletePod {
        /// Name.
        name: String,
        /// UID: no other pod of that name.
        uid: String,
    },
    /// Write how far the operation is.
    Persist(Progress),
    /// Remove the record of an ended operation.
    RemoveRecord,
}

/// What happens after the acts.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// Decide again: the acts have changed the facts.
    Again,
    /// Nothing more until something changes, or a time has come.
    Rest(Rest),
}

/// Why a node's machine rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing is to be done.
    Quiet,
    /// An operation runs and waits.
    Waiting {
        /// For what.
        reason: String,
        /// When to look again although nothing has changed.
        again: Option<Duration>,
    },
    /// A person is needed.
    Failed {
        /// Why.
        reason: String,
    },
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What to do, in this order; the first failure ends it.
    pub acts: Vec<Act>,
    /// And then.
    pub then: Then,
}

/// What has been looked at in this run.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Jobs that still run.
    pub jobs: Option<Vec<Blocker>>,
    /// GPU pods that still have to leave.
    pub gpu: Option<Remaining>,
    /// Pods of the drain that still have to leave.
    pub drain: Option<Remaining>,
    /// The node was read anew.
    pub node: bool,
}

/// Everything that a decision is made from, but the operation.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The node.
    pub facts: &'a Facts,
    /// What has been looked at.
    pub looked: &'a Looked,
    /// The policy.
    pub rules: &'a Rules,
    /// The time.
    pub now: Timestamp,
}

/// What to do on a node whose operation is `operation` (whoever's; `None`: it has none), as the controller `holder`.
///
/// Operations are begun elsewhere ([`super::survey`]): it takes a look at the whole cluster.
pub fn step(at: &Moment<'_>, operation: Option<&Operation>, holder: &str) -> Step {
    match operation {
        Some(operation) if operation.runs_for(holder) => running(at, operation),
        // Somebody else works on the node.
        Some(operation) if !operation.is_ended() => quiet(),
        ended => idle(at, ended, holder),
    }
}

fn idle(at: &Moment<'_>, ended: Option<&Operation>, holder: &str) -> Step {
    if at.facts.marked && at.facts.cordon == Cordon::None {
        return again(Act::Unmark);
    }
    let Some(ended) = ended.filter(|operation| operation.holder == holder) else {
        return quiet();
    };
    let failed = ended.phase() == OperationPhase::Failed && at.facts.cordon == Cordon::Ours;
    if failed {
        let reason = ended.status.message.clone().unwrap_or_default();
        return Step {
            acts: Vec::new(),
            then: Then::Rest(Rest::Failed { reason }),
        };
    }
    if ended.is_expired(at.now) {
        return Step {
            acts: vec![Act::RemoveRecord],
            then: Then::Rest(Rest::Quiet),
        };
    }
    quiet()
}

fn running(at: &Moment<'_>, operation: &Operation) -> Step {
    if at.facts.marked
        && at.facts.cordon == Cordon::None
        && operation.phase() != OperationPhase::Tentative
    {
        return again(Act::Unmark);
    }
    if at.facts.wanted.is_none() && !at.facts.driverless {
        return waiting("the driver's DaemonSet is not there", None);
    }
    match operation.phase() {
        OperationPhase::Tentative => waiting("its operation waits for the budget", None),
        OperationPhase::Active | OperationPhase::Cordoned => admitted(at, operation),
        OperationPhase::WaitingForJobs
        | OperationPhase::EvictingPods
        | OperationPhase::Draining => leaving(at, operation),
        OperationPhase::RestartingDriver => replace::restarting(at, operation),
        OperationPhase::Validating | OperationPhase::Uncordoning => {
            replace::validating(at, operation)
        }
        OperationPhase::ApplyingLayout
        | OperationPhase::AwaitingRepair
        | OperationPhase::Probation
        | OperationPhase::Done
        | OperationPhase::Failed
        | OperationPhase::Withdrawn
        | OperationPhase::Unrecognised => {
            let message = "the operation is in a phase that this version does not know";
            replace::fail(at, OperationReason::ManualRequired, message)
        }
    }
}

/// Whether the driver is to be restarted. Without autoUpgrade never: an operation that is under way gives the node back.
fn restarts(at: &Moment<'_>) -> bool {
    at.rules.auto && at.facts.needs_restart()
}

fn admitted(at: &Moment<'_>, operation: &Operation) -> Step {
    match at.facts.cordon {
        Cordon::Ours if restarts(at) => clear::jobs(at, operation),
        // Our cordon is left from an operation that is gone: give the node back when it works.
        Cordon::Ours => replace::validating(at, operation),
        Cordon::Foreign => {
            let message =
                "somebody else has cordoned the node; it is left alone until that is undone";
            withdraw(OperationReason::ForeignCordon, message)
        }
        Cordon::None if restarts(at) && !at.facts.skip => again(Act::Cordon),
        Cordon::None => withdraw(
            OperationReason::NoLongerNeeded,
            "the driver need not be replaced any more",
        ),
    }
}

fn leaving(at: &Moment<'_>, operation: &Operation) -> Step {
    if at.facts.cordon != Cordon::Ours {
        if !at.looked.node {
            return again(Act::ReadNode);
        }
        let message = format!(
            "somebody took our cordon away before the driver was replaced, so it was left as it is; to try again, set annotation {}=true on the node",
            annotation::UPGRADE_REQUESTED
        );
        return replace::fail(at, OperationReason::ManualRequired, &message);
    }
    if !restarts(at) {
        return replace::validating(at, operation);
    }
    if operation.phase() == OperationPhase::Draining {
        clear::drain(at, operation)
    } else if operation.phase() == OperationPhase::EvictingPods {
        clear::evict(at, operation)
    } else {
        clear::jobs(at, operation)
    }
}

/// Persists `progress` and rests until the deadline of its phase, or the next look at what is not watched.
fn wait(
    at: &Moment<'_>,
    operation: &Operation,
    progress: Progress,
    limit: Option<Duration>,
    look: Option<Duration>,
) -> Step {
    let same = operation.phase() == progress.phase;
    let deadline = if same {
        operation.deadline()
    } else {
        limit.map(|limit| later(at.now, limit))
    };
    let waited = if same {
        operation.in_phase_for(at.now)
    } else {
        Duration::ZERO
    };
    let left = deadline
        .map(|deadline| Duration::try_from(deadline.duration_since(at.now)).unwrap_or_default());
    let look = look.map(|longest| look_again(waited, longest));
    // A deadline is met when its second has begun.
    let left = left.map(|left| left.max(Duration::from_millis(100)));
    let reason = format!("{}: {}", progress.phase, progress.message);
    let again = left.into_iter().chain(look).min();
    let progress = progress.until(deadline).leading_to(at.facts.target());
    Step {
        acts: vec![Act::Persist(progress)],
        then: Then::Rest(Rest::Waiting { reason, again }),
    }
}

fn withdraw(reason: OperationReason, message: &str) -> Step {
    let progress = Progress::to(OperationPhase::Withdrawn, reason, message);
    Step {
        acts: vec![Act::Persist(progress)],
        then: Then::Rest(Rest::Quiet),
    }
}

fn again(act: Act) -> Step {
    Step {
        acts: vec![act],
        then: Then::Again,
    }
}

fn quiet() -> Step {
    Step {
        acts: Vec::new(),
        then: Then::Rest(Rest::Quiet),
    }
}

fn waiting(reason: &str, again: Option<Duration>) -> Step {
    Step {
        acts: Vec::new(),
        then: Then::Rest(Rest::Waiting {
            reason: reason.to_owned(),
            again,
        }),
    }
}
