//! Events: one for each change of an incident, so that a repeat says nothing.

use super::{State, Told};
use crate::decide::Plan;
use crate::memory::{Memory, NodeMemory};
use crate::signature::Signature;
use crate::snapshot::OperationView;
use crate::xid::Class;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A node, and the SREAgent.
    Node(String),
    /// The SREAgent only.
    Agent,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is about.
    pub about: About,
    /// Whether somebody should look.
    pub warning: bool,
    /// CamelCase.
    pub reason: &'static str,
    /// What was or is done, CamelCase.
    pub action: &'static str,
    /// In words.
    pub note: String,
}

/// Tells of what changed in a node's incidents, and closes those that are over.
pub(super) fn incidents(
    name: &str,
    now: &[Told],
    node: &mut NodeMemory,
    operation: Option<&OperationView>,
    told: &mut Vec<Notice>,
) {
    for (signature, state, _, incident) in now {
        let Some(opened) = node.opened.get_mut(signature) else {
            continue;
        };
        let state_now = (incident.state.clone(), incident.blocked_by.clone());
        if opened.told.as_ref() == Some(&state_now) {
            continue;
        }
        let cards = if incident.gpu_uuids.is_empty() {
            String::new()
        } else {
            format!(" on {}", incident.gpu_uuids.join(", "))
        };
        let what = format!("{signature} (class {}){cards}", incident.class);
        if opened.told.is_none() {
            told.push(of_node(
                name,
                true,
                "GPUFaultDetected",
                "Detect",
                format!("node {name}: {what}"),
            ));
        }
        told.extend(step(
            name,
            *state,
            &what,
            incident.would_do.as_deref(),
            incident.blocked_by.as_deref(),
        ));
        opened.told = Some(state_now);
    }
    let released = operation.is_none_or(|operation| !operation.is_our_work());
    let over: Vec<Signature> = node
        .opened
        .keys()
        .filter(|have| !now.iter().any(|(signature, ..)| signature == *have))
        .copied()
        .collect();
    for signature in over {
        let was_held = node
            .opened
            .remove(&signature)
            .and_then(|opened| opened.told)
            .is_some_and(|(state, _)| {
                [State::Isolated, State::Probation, State::Manual]
                    .iter()
                    .any(|held| held.as_str() == state)
            });
        let (reason, action, text) = if was_held && released {
            (
                "NodeReleased",
                "Uncordon",
                format!("node {name} is released; it was held for {signature}"),
            )
        } else {
            (
                "GPUFaultCleared",
                "Detect",
                format!("node {name}: {signature} is gone"),
            )
        };
        told.push(of_node(name, false, reason, action, text));
    }
}

fn step(
    name: &str,
    state: State,
    what: &str,
    would_do: Option<&str>,
    blocked_by: Option<&str>,
) -> Option<Notice> {
    let notice = |warning, reason, action, note| Some(of_node(name, warning, reason, action, note));
    match (state, blocked_by, would_do) {
        (State::Confirmed, Some(guard), _) => notice(
            true,
            "RepairSkipped",
            "Isolate",
            format!("node {name} is not isolated for {what}: {guard}"),
        ),
        (State::Confirmed, None, Some(plan)) => notice(
            false,
            "ActionPlanned",
            "Isolate",
            format!("autoRepair is false; the agent would {plan}"),
        ),
        (State::Isolated, ..) => notice(
            true,
            "NodeIsolated",
            "Cordon",
            format!("node {name} is cordoned because of {what}"),
        ),
        (State::Manual, ..) => {
            let note = format!(
                "node {name} is cordoned because of {what}: {}",
                Class::Service.remedy()
            );
            notice(true, "ManualActionRequired", "Cordon", note)
        }
        (State::Probation, ..) => notice(
            false,
            "ProbationStarted",
            "Observe",
            format!("node {name}: {what} is gone; the node is watched before it is released"),
        ),
        (State::Watching | State::Suspect | State::Confirmed, ..) => None,
    }
}

/// Tells when a node's telemetry becomes stale, is stale for another reason, or is back.
pub(super) fn stale(name: &str, node: &mut NodeMemory, out: &mut Vec<Notice>) {
    if node.telemetry.told == node.telemetry.stale {
        return;
    }
    out.push(match &node.telemetry.stale {
        Some(cause) => {
            let text = format!("no usable GPU data of node {name}: {cause}; its GPUs count as unknown, not as faulty");
            of_node(name, true, "TelemetryStale", "Scrape", text)
        }
        None => of_node(name, false, "TelemetryRestored", "Scrape", format!("GPU data of node {name} is usable again")),
    });
    node.telemetry.told.clone_from(&node.telemetry.stale);
}

/// Application faults: the pods' owners should know; the node is not touched.
pub(super) fn occurrences(plan: &Plan, told: &mut Vec<Notice>) {
    for (name, occurrence) in plan
        .occurrences
        .iter()
        .filter(|(_, occurrence)| occurrence.class == Class::App)
    {
        let pods = if occurrence.pods.is_empty() {
            "an unknown pod".to_owned()
        } else {
            occurrence.pods.join(", ")
        };
        let note = format!(
            "{} on {} of node {name}, used by {pods}: look at the application",
            occurrence.signature, occurrence.gpu
        );
        told.push(of_node(name, true, "AppFault", "Detect", note));
    }
}

/// Tells when the breaker opens or closes.
pub(super) fn breaker(memory: &mut Memory, told: &mut Vec<Notice>) {
    let open = memory.breaker.as_ref().map(|breaker| breaker.reason);
    if memory.breaker_told == open {
        return;
    }
    let agent = |warning, reason, note| Notice {
        about: About::Agent,
        warning,
        reason,
        action: "Isolate",
        note,
    };
    match &memory.breaker {
        Some(breaker) if memory.breaker_told.is_none() => {
            told.push(agent(
                true,
                "BreakerOpened",
                format!("no further node is isolated: {}", breaker.message),
            ));
        }
        Some(_) => {}
        None => told.push(agent(
            false,
            "BreakerClosed",
            "nodes may be isolated again".to_owned(),
        )),
    }
    memory.breaker_told = open;
}

pub(super) fn overridden(name: &str) -> Notice {
    let note = format!(
        "a person made node {name} schedulable; the agent lets it go and leaves the same fault alone for an hour"
    );
    of_node(name, false, "ManualOverrideSeen", "Release", note)
}

fn of_node(
    name: &str,
    warning: bool,
    reason: &'static str,
    action: &'static str,
    note: String,
) -> Notice {
    Notice {
        about: About::Node(name.to_owned()),
        warning,
        reason,
        action,
        note,
    }
}
