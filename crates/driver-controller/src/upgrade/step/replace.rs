//! The second half of the machine: the node is clear; replace its driver, validate, give it back.

use super::super::facts::{Cordon, MAX_RESTARTS, state};
use super::{Act, Moment, Rest, Step, Then, again, wait};
use std::time::Duration;
use tessera_api::names::annotation;
use tessera_api::nodeoperation::{Blocker, OperationPhase, OperationReason};
use tessera_runtime::operands::pod::{PodFacts, TroubleKind};
use tessera_runtime::operation::{Operation, Progress, later};

/// Begins to replace the driver pod. Its name is persisted before it is deleted, so that a pod of another name is known
/// to be its successor even if both are made from the same template.
pub(super) fn restart(at: &Moment<'_>) -> Step {
    let old = at.facts.driver.as_deref();
    let message = match old {
        Some(pod) => format!("driver pod {} is replaced", pod.name),
        None => "the driver pod is awaited".to_owned(),
    };
    let blocker = |pod: &PodFacts| Blocker {
        kind: "Pod".to_owned(),
        name: pod.name.clone(),
        message: "the old driver".to_owned(),
        ..Blocker::default()
    };
    let progress = Progress::to(
        OperationPhase::RestartingDriver,
        OperationReason::DriverNotReady,
        message,
    )
    .blocked_by(old.map(blocker).into_iter().collect())
    .until(Some(later(at.now, at.rules.restart_limit)))
    .leading_to(at.facts.target());
    again(Act::Persist(progress))
}

pub(super) fn restarting(at: &Moment<'_>, operation: &Operation) -> Step {
    let facts = at.facts;
    if facts.requested {
        return again(Act::ClearRequest);
    }
    if facts.driverless {
        return finish(at);
    }
    let Some(driver) = facts.driver.as_deref() else {
        return stay(
            at,
            operation,
            OperationReason::DriverNotReady,
            "the DaemonSet has not made a driver pod yet",
        );
    };
    if driver.deleting {
        let message = format!("driver pod {} has not ended yet", driver.name);
        return stay(at, operation, OperationReason::DriverNotReady, &message);
    }
    if operation
        .status
        .blockers
        .iter()
        .any(|old| old.name == driver.name)
    {
        return delete(
            at,
            operation,
            driver,
            OperationReason::DriverNotReady,
            "the old driver pod is deleted",
        );
    }
    if at.rules.auto && facts.outdated() {
        return restart(at);
    }
    if driver.ready {
        return validating(at, operation);
    }
    let trouble = driver.trouble.as_ref();
    let message = trouble.map_or("the new driver is not ready yet", |trouble| {
        trouble.message.as_str()
    });
    let reason = match trouble.map(|trouble| trouble.kind) {
        Some(TroubleKind::ImagePull) => OperationReason::ImagePullFailed,
        Some(TroubleKind::Crash) => OperationReason::CrashLooping,
        _ => OperationReason::DriverNotReady,
    };
    if driver.restarts > MAX_RESTARTS {
        let message =
            format!("the new driver has restarted more than {MAX_RESTARTS} times: {message}");
        return fail(at, OperationReason::CrashLooping, &message);
    }
    stay(at, operation, reason, message)
}

/// The gate: only a driver that is ready, and a validator that has run since that driver was made, give a node back.
///
/// A validator pod checks once, in its init containers, and then sleeps; so one that is older than the driver pod has
/// seen the old driver. NVIDIA's driver-manager usually restarts it; where it has not, we delete it. Both ages are
/// creation times given by the API server.
pub(super) fn validating(at: &Moment<'_>, operation: &Operation) -> Step {
    let facts = at.facts;
    if facts.driverless {
        return finish(at);
    }
    if at.rules.auto && facts.outdated() {
        return restart(at);
    }
    let Some(driver) = facts.driver.as_deref().filter(|driver| driver.ready) else {
        let message = tell(facts.driver.as_deref(), "the driver");
        return validate(at, operation, OperationReason::DriverNotReady, &message);
    };
    if !facts.validated {
        return finish(at);
    }
    let Some(validator) = facts
        .validator
        .as_deref()
        .filter(|validator| !validator.deleting)
    else {
        return validate(
            at,
            operation,
            OperationReason::ValidatorNotReady,
            "the validator pod has not been made yet",
        );
    };
    if validator.created <= driver.created {
        if operation.phase() != OperationPhase::Validating {
            let mut step = validate(
                at,
                operation,
                OperationReason::ValidatorNotReady,
                "the validator checks the new driver",
            );
            step.then = Then::Again;
            return step;
        }
        return delete(
            at,
            operation,
            validator,
            OperationReason::ValidatorNotReady,
            "the validator starts afresh",
        );
    }
    if validator.ready {
        return finish(at);
    }
    let message = tell(Some(validator), "the validator");
    validate(at, operation, OperationReason::ValidatorNotReady, &message)
}

/// In words: why a pod is not ready.
fn tell(pod: Option<&PodFacts>, what: &str) -> String {
    let trouble = pod.and_then(|pod| pod.trouble.as_ref());
    trouble.map_or_else(
        || format!("{what} is not ready"),
        |trouble| format!("{what} is not ready: {}", trouble.message),
    )
}

/// Waits in Validating, or fails at its deadline. The status tells what is waited for, not every change of it on the
/// way; that is in the pods, and at the end in the failure.
fn validate(
    at: &Moment<'_>,
    operation: &Operation,
    reason: OperationReason,
    message: &str,
) -> Step {
    let phase = OperationPhase::Validating;
    if operation.phase() == phase && operation.is_late(at.now) {
        let seconds = at.rules.validation_limit.as_secs();
        return fail(
            at,
            reason,
            &format!("not validated within {seconds} s: {message}"),
        );
    }
    let progress = Progress::to(
        phase,
        OperationReason::ValidatorNotReady,
        "waiting until driver and validator are ready",
    );
    wait(
        at,
        operation,
        progress,
        Some(at.rules.validation_limit),
        None,
    )
}

/// Waits in RestartingDriver, or fails at its deadline. Only a trouble that a person can help with is written on the
/// way, and it stays: a crashing container is "starting" every other second.
fn stay(at: &Moment<'_>, operation: &Operation, reason: OperationReason, message: &str) -> Step {
    if operation.is_late(at.now) {
        let minutes = at.rules.restart_limit.as_secs() / 60;
        return fail(
            at,
            reason,
            &format!("the driver is not ready after {minutes} min: {message}"),
        );
    }
    let told = operation.status.reason;
    let news = reason != OperationReason::DriverNotReady && told != Some(reason);
    let left = operation
        .deadline()
        .map(|deadline| deadline.duration_since(at.now));
    let again = left.map(|left| {
        Duration::try_from(left)
            .unwrap_or_default()
            .max(Duration::from_millis(100))
    });
    let rest = Then::Rest(Rest::Waiting {
        reason: format!("RestartingDriver: {message}"),
        again,
    });
    if !news {
        return Step {
            acts: Vec::new(),
            then: rest,
        };
    }
    let progress = Progress::to(OperationPhase::RestartingDriver, reason, message)
        .until(operation.deadline())
        .blocked_by(operation.status.blockers.clone());
    Step {
        acts: vec![Act::Persist(progress)],
        then: rest,
    }
}

/// Deletes a pod and waits for its successor. A pod that cannot be deleted in time fails the operation too.
fn delete(
    at: &Moment<'_>,
    operation: &Operation,
    pod: &PodFacts,
    reason: OperationReason,
    what: &str,
) -> Step {
    if operation.is_late(at.now) {
        return fail(
            at,
            reason,
            &format!("pod {} could not be replaced in time", pod.name),
        );
    }
    let act = Act::DeletePod {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
    };
    let left = operation
        .deadline()
        .map(|deadline| deadline.duration_since(at.now));
    let again = left.map(|left| {
        Duration::try_from(left)
            .unwrap_or_default()
            .max(Duration::from_millis(100))
    });
    let reason = format!("{}: {what}", operation.phase());
    Step {
        acts: vec![act],
        then: Then::Rest(Rest::Waiting { reason, again }),
    }
}

/// Gives the node back and ends the operation, in this order: a node that is Done is in service.
fn finish(at: &Moment<'_>) -> Step {
    let facts = at.facts;
    let (reason, mut message) = match &facts.wanted {
        Some(wanted) => (
            OperationReason::Succeeded,
            format!("driver {} is ready and validated", wanted.version),
        ),
        None => (
            OperationReason::NoLongerNeeded,
            "the node needs no driver from us any more".to_owned(),
        ),
    };
    if facts.cordon == Cordon::Foreign {
        message.push_str("; the node stays cordoned, because the cordon is not ours");
    }
    let done = Progress::to(OperationPhase::Done, reason, message)
        .leading_to(facts.target())
        .undoing(Vec::new());
    let uncordon = (facts.cordon == Cordon::Ours).then_some(Act::Uncordon);
    let acts = uncordon.into_iter().chain([Act::Persist(done)]).collect();
    Step {
        acts,
        then: Then::Rest(Rest::Quiet),
    }
}

/// Ends the operation badly. A cordon stays: the node is not fit for work, or nobody knows.
pub(super) fn fail(at: &Moment<'_>, reason: OperationReason, message: &str) -> Step {
    let facts = at.facts;
    let message = if facts.cordon == Cordon::Ours {
        format!(
            "{message}. The node stays cordoned: remove the cause, then set annotation {}=true on it, or change the driver",
            annotation::UPGRADE_REQUESTED
        )
    } else {
        message.to_owned()
    };
    let labelled = facts.state.as_deref() == Some(state::FAILED) || facts.cordon != Cordon::Ours;
    let mark = (facts.requested || !labelled).then_some(Act::MarkFailed);
    let failed =
        Progress::to(OperationPhase::Failed, reason, message.clone()).leading_to(facts.target());
    let acts = mark.into_iter().chain([Act::Persist(failed)]).collect();
    Step {
        acts,
        then: Then::Rest(Rest::Failed { reason: message }),
    }
}
