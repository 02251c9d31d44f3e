//! The first half of the machine: the node is cordoned; wait for jobs, then get the GPU pods off it.

use super::{Act, Moment, Step, again, replace, wait};
use std::time::Duration;
use tessera_api::nodeoperation::{OperationPhase, OperationReason};
use tessera_runtime::drain::Remaining;
use tessera_runtime::operation::{Operation, Progress};

/// Longest time between two looks at pods that should leave.
const LOOK_EVICTED: Duration = Duration::from_secs(30);
/// Longest time between two looks at jobs, which may take days.
const LOOK_JOBS: Duration = Duration::from_secs(60);

pub(super) fn jobs(at: &Moment<'_>, operation: &Operation) -> Step {
    if at.rules.jobs.is_empty() {
        return evict(at, operation);
    }
    let Some(jobs) = &at.looked.jobs else {
        return again(Act::LookForJobs);
    };
    let phase = OperationPhase::WaitingForJobs;
    if jobs.is_empty() || is_late(at, operation, phase) {
        return evict(at, operation);
    }
    let message = format!(
        "waiting for {} to end (waitForCompletion)",
        count(jobs.len(), "job pod")
    );
    let progress =
        Progress::to(phase, OperationReason::JobsRunning, message).blocked_by(jobs.clone());
    wait(
        at,
        operation,
        progress,
        at.rules.jobs_limit,
        Some(LOOK_JOBS),
    )
}

pub(super) fn evict(at: &Moment<'_>, operation: &Operation) -> Step {
    let Some(remaining) = &at.looked.gpu else {
        return again(Act::EvictGpuPods);
    };
    let phase = OperationPhase::EvictingPods;
    if remaining.is_clear() {
        return replace::restart(at);
    }
    if !is_late(at, operation, phase) {
        let progress = left(phase, remaining, "GPU pod");
        return wait(
            at,
            operation,
            progress,
            at.rules.eviction_limit,
            Some(LOOK_EVICTED),
        );
    }
    if at.rules.drain.is_some() {
        return drain(at, operation);
    }
    overdue(at, remaining, at.rules.eviction_limit, "podDeletion")
}

/// The drain is a means to get the GPU pods off the node: when they are gone it has done its work.
pub(super) fn drain(at: &Moment<'_>, operation: &Operation) -> Step {
    let Some(gpu) = &at.looked.gpu else {
        return again(Act::EvictGpuPods);
    };
    if gpu.is_clear() {
        return replace::restart(at);
    }
    let Some(rules) = &at.rules.drain else {
        return evict(at, operation);
    };
    let Some(remaining) = &at.looked.drain else {
        return again(Act::DrainPods);
    };
    let phase = OperationPhase::Draining;
    let remaining = if remaining.is_clear() { gpu } else { remaining };
    if is_late(at, operation, phase) {
        return overdue(at, remaining, rules.limit, "drain");
    }
    wait(
        at,
        operation,
        left(phase, remaining, "pod"),
        rules.limit,
        Some(LOOK_EVICTED),
    )
}

fn left(phase: OperationPhase, remaining: &Remaining, what: &str) -> Progress {
    let reason = remaining.reason.unwrap_or(OperationReason::PodsTerminating);
    let message = format!(
        "{} still on the node: {}",
        count(remaining.pods, what),
        why(reason)
    );
    Progress::to(phase, reason, message).blocked_by(remaining.blockers.clone())
}

fn overdue(at: &Moment<'_>, remaining: &Remaining, limit: Option<Duration>, field: &str) -> Step {
    let reason = remaining
        .reason
        .unwrap_or(OperationReason::DeadlineExceeded);
    // What protects a pod says more than the pod.
    let telling = remaining
        .blockers
        .iter()
        .find(|blocker| blocker.kind != "Pod");
    let first = telling
        .or(remaining.blockers.first())
        .map_or_else(String::new, |blocker| {
            format!(
                ", the first is {} {}/{}",
                blocker.kind, blocker.namespace, blocker.name
            )
        });
    let message = format!(
        "{} left within {} s (driver.upgradePolicy.{field}.timeoutSeconds): {}{first}. The old driver still runs",
        if remaining.pods == 1 {
            "1 pod has not".to_owned()
        } else {
            format!("{} pods have not", remaining.pods)
        },
        limit.unwrap_or_default().as_secs(),
        why(reason),
    );
    replace::fail(at, reason, &message)
}

fn why(reason: OperationReason) -> &'static str {
    if reason == OperationReason::PodNotEvictable {
        "some may not be evicted, see the blockers"
    } else if reason == OperationReason::DisruptionBudget {
        "a PodDisruptionBudget allows no eviction now"
    } else {
        "evicted, and ending"
    }
}

fn is_late(at: &Moment<'_>, operation: &Operation, phase: OperationPhase) -> bool {
    operation.phase() == phase && operation.is_late(at.now)
}

fn count(number: usize, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}
