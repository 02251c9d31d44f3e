//! What people are told: the agent's part of the status, events, and the state of each node. Pure.

mod notices;
mod restore;

pub use notices::{About, Notice};
pub use restore::restore;

use crate::dcgm;
use crate::decide::{Plan, present};
use crate::memory::{Memory, NodeMemory};
use crate::policy::Policy;
use crate::signature::Signature;
use crate::snapshot::{OperationView, Snapshot, Telemetry};
use crate::xid::Class;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::{BTreeMap, BTreeSet};
use tessera_api::nodeoperation::{OperationPhase, OperationReason};
use tessera_api::sreagent::{
    AgentReport, Breaker, Incident, NodeCounts, StaleNode, TelemetryReport,
};

/// Most incidents in a status (the schema's limit).
const INCIDENTS: usize = 50;
/// Most cards of one incident (the schema's limit).
const CARDS: usize = 32;
/// Most stale nodes in a status (the schema's limit).
const STALE: usize = 20;

/// State of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Told only.
    Watching,
    /// A fatal signal that a second one must confirm.
    Suspect,
    /// Confirmed; the node is not isolated.
    Confirmed,
    /// The node is cordoned.
    Isolated,
    /// Clean, watched before release.
    Probation,
    /// A person is needed.
    Manual,
}

impl State {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Watching => "Watching",
            Self::Suspect => "Suspect",
            Self::Confirmed => "Confirmed",
            Self::Isolated => "Isolated",
            Self::Probation => "Probation",
            Self::Manual => "Manual",
        }
    }
}

/// What one check has to tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The agent's part of the status, without the time of the check.
    pub status: AgentReport,
    /// Events.
    pub notices: Vec<Notice>,
    /// State of each node, for metrics: healthy, watching, suspect, confirmed, isolated, probation, manual, unknown.
    pub states: BTreeMap<String, &'static str>,
}

/// Builds the report after the plan was carried out: `snapshot` has the operations as they are now.
pub fn build(
    snapshot: &Snapshot,
    memory: &mut Memory,
    plan: &Plan,
    policy: &Policy,
    now: Timestamp,
) -> Report {
    let mut report = Report::default();
    notices::breaker(memory, &mut report.notices);
    for name in &plan.overridden {
        report.notices.push(notices::overridden(name));
    }
    notices::occurrences(plan, &mut report.notices);
    let mut ranked = Vec::new();
    let mut counts = NodeCounts::default();
    for (name, view) in &snapshot.nodes {
        let Some(node) = memory.nodes.get_mut(name) else {
            continue;
        };
        let operation = snapshot.operations.get(name);
        let incidents = incidents_of(name, operation, node, plan, policy, now);
        notices::incidents(name, &incidents, node, operation, &mut report.notices);
        notices::stale(name, node, &mut report.notices);
        if view.selected {
            let state = count(&incidents, operation, node, &mut counts);
            report.states.insert(name.clone(), state);
        }
        ranked.extend(
            incidents
                .into_iter()
                .map(|(_, state, class, incident)| (class, state, incident)),
        );
    }
    ranked.sort_by(|a, b| {
        let time = |incident: &Incident| incident.since.as_ref().map(|since| since.0);
        b.0.cmp(&a.0)
            .then_with(|| time(&a.2).cmp(&time(&b.2)))
            .then_with(|| a.2.id.cmp(&b.2.id))
    });
    report.status = AgentReport {
        last_check_time: None,
        nodes: Some(counts),
        telemetry: policy.watch_gpus.then(|| telemetry(snapshot, memory)),
        breaker: memory.breaker.as_ref().map(|open| Breaker {
            reason: open.reason.to_owned(),
            message: open.message.clone(),
            since: Some(second(open.since)),
        }),
        open_incidents: i32::try_from(ranked.len()).ok(),
        incidents: ranked
            .into_iter()
            .take(INCIDENTS)
            .map(|(_, _, incident)| incident)
            .collect(),
    };
    report
}

type Told = (Signature, State, Class, Incident);

fn incidents_of(
    name: &str,
    operation: Option<&OperationView>,
    node: &NodeMemory,
    plan: &Plan,
    policy: &Policy,
    now: Timestamp,
) -> Vec<Told> {
    let up = present(operation, node, now);
    let told = up.into_keys().filter_map(|signature| {
        let opened = node.opened.get(&signature)?;
        let class = class_of(signature, node);
        let state = state_of(signature, class, operation, node);
        let confirmed = state == State::Confirmed;
        let incident = Incident {
            id: opened.id.clone(),
            node: name.to_owned(),
            gpu_uuids: opened.gpus.iter().take(CARDS).cloned().collect(),
            signature: signature.to_string(),
            class: class.letter().to_owned(),
            state: state.as_str().to_owned(),
            since: Some(second(opened.since)),
            planned_action: Some(planned(state, class)),
            would_do: plan
                .would
                .get(name)
                .filter(|_| state > State::Suspect && !policy.may_act)
                .cloned(),
            blocked_by: plan
                .stops
                .get(name)
                .filter(|_| confirmed)
                .map(ToString::to_string),
        };
        Some((signature, state, class, incident))
    });
    told.collect()
}

fn class_of(signature: Signature, node: &NodeMemory) -> Class {
    let tracks = node
        .tracks
        .iter()
        .filter(|((have, _), _)| *have == signature);
    tracks
        .map(|(_, track)| track.class(signature))
        .max()
        .unwrap_or_else(|| signature.class())
}

fn state_of(
    signature: Signature,
    class: Class,
    operation: Option<&OperationView>,
    node: &NodeMemory,
) -> State {
    if !class.is_fatal() {
        return State::Watching;
    }
    let confirmed = node.confirmed_fatal().any(|(have, _)| have == signature);
    let up = node.tracks.keys().any(|(have, _)| *have == signature);
    match operation.filter(|operation| operation.is_our_work()) {
        // A doubtful signal beside the one that the node is held for.
        Some(_) if up && !confirmed => State::Suspect,
        Some(held) if held.phase == OperationPhase::Tentative => State::Confirmed,
        Some(held)
            if !confirmed
                && [OperationPhase::Probation, OperationPhase::Uncordoning]
                    .contains(&held.phase) =>
        {
            State::Probation
        }
        Some(held)
            if class == Class::Service || held.reason == Some(OperationReason::ManualRequired) =>
        {
            State::Manual
        }
        Some(_) => State::Isolated,
        None if confirmed => State::Confirmed,
        None => State::Suspect,
    }
}

fn planned(state: State, class: Class) -> String {
    match state {
        State::Watching => format!("none by the agent; {}", class.remedy()),
        State::Suspect => "isolate the node when a second signal agrees".to_owned(),
        State::Confirmed => "isolate the node".to_owned(),
        State::Isolated => format!(
            "wait until somebody has helped ({}), then watch the node and release it",
            class.remedy()
        ),
        State::Probation => {
            "release the node when it has stayed clean for the probation time".to_owned()
        }
        State::Manual => format!("none by the agent: {}", class.remedy()),
    }
}

/// Adds one node to the counts and returns its state.
fn count(
    incidents: &[Told],
    operation: Option<&OperationView>,
    node: &NodeMemory,
    counts: &mut NodeCounts,
) -> &'static str {
    counts.observed += 1;
    let Some(worst) = incidents.iter().map(|(_, state, _, _)| *state).max() else {
        counts.healthy += 1;
        return if node.telemetry.stale.is_some() {
            "unknown"
        } else {
            "healthy"
        };
    };
    counts.unhealthy += 1;
    if operation.is_some_and(|held| held.is_our_work() && held.phase != OperationPhase::Tentative) {
        counts.isolated += 1;
    }
    match worst {
        State::Watching => "watching",
        State::Suspect => {
            counts.suspect += 1;
            "suspect"
        }
        State::Confirmed => "confirmed",
        State::Isolated => {
            counts.awaiting_repair += 1;
            "isolated"
        }
        State::Probation => {
            counts.probation += 1;
            "probation"
        }
        State::Manual => {
            counts.manual += 1;
            "manual"
        }
    }
}

fn telemetry(snapshot: &Snapshot, memory: &Memory) -> TelemetryReport {
    let nodes = memory
        .nodes
        .iter()
        .filter(|(name, _)| snapshot.nodes.get(*name).is_some_and(|view| view.selected));
    let stale: Vec<StaleNode> = nodes
        .clone()
        .filter_map(|(name, node)| {
            Some(StaleNode {
                node: name.clone(),
                cause: node.telemetry.stale.clone()?,
            })
        })
        .collect();
    // A scrape that failed once is no news: it would be written, and written back an interval later.
    let known: BTreeSet<&String> = nodes
        .filter(|(_, node)| node.telemetry.stale.is_none() && node.telemetry.last_good.is_some())
        .map(|(name, _)| name)
        .collect();
    let samples: Vec<&dcgm::Sample> = snapshot
        .telemetry
        .values()
        .filter_map(|telemetry| match telemetry {
            Telemetry::Good(sample) if !sample.is_empty() => Some(sample),
            Telemetry::Good(_) | Telemetry::Unreachable(_) | Telemetry::Malformed(_) => None,
        })
        .collect();
    TelemetryReport {
        scraped: i32::try_from(known.len()).unwrap_or(i32::MAX),
        stale: i32::try_from(stale.len()).unwrap_or(i32::MAX),
        missing_metrics: dcgm::missing(&samples),
        stale_nodes: stale.into_iter().take(STALE).collect(),
    }
}

/// As the API server stores it.
fn second(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
