//! What an earlier agent told is taken over, so that a restart neither tells it again nor forgets it.

use super::State;
use crate::decide::incident_id;
use crate::memory::{Memory, NodeMemory, OpenBreaker, Opened, Track};
use crate::signature::Signature;
use crate::snapshot::Snapshot;
use crate::xid;
use jiff::Timestamp;
use tessera_api::sreagent::{AgentReport, Incident};

/// Fills an empty memory from the last report. What is about nodes that are gone, or that are other nodes now, is dropped.
pub fn restore(report: &AgentReport, snapshot: &Snapshot, memory: &mut Memory, now: Timestamp) {
    for (name, view) in &snapshot.nodes {
        memory
            .nodes
            .entry(name.clone())
            .or_insert_with(|| NodeMemory {
                uid: view.uid.clone(),
                boot_id: view.boot_id.clone(),
                booted: view.created,
                watched_since: now,
                ..NodeMemory::default()
            });
    }
    for told in &report.incidents {
        if let Some(node) = memory.nodes.get_mut(&told.node) {
            incident(told, node);
        }
    }
    for stale in report
        .telemetry
        .iter()
        .flat_map(|telemetry| &telemetry.stale_nodes)
    {
        if let Some(node) = memory.nodes.get_mut(&stale.node) {
            node.telemetry.stale = Some(stale.cause.clone());
            node.telemetry.told = Some(stale.cause.clone());
        }
    }
    memory.breaker = report.breaker.as_ref().and_then(|told| {
        let reason = ["TooManyUnhealthy", "SameSignature", "Blind"]
            .into_iter()
            .find(|reason| *reason == told.reason)?;
        let since = told.since.as_ref().map_or(now, |since| since.0);
        Some(OpenBreaker {
            reason,
            message: told.message.clone(),
            since,
            last_cause: now,
        })
    });
    memory.breaker_told = memory.breaker.as_ref().map(|breaker| breaker.reason);
}

fn incident(told: &Incident, node: &mut NodeMemory) {
    let (Ok(signature), Some(since)) = (told.signature.parse::<Signature>(), told.since.as_ref())
    else {
        return;
    };
    let since = since.0;
    if told.id != incident_id(&node.uid, signature, since) {
        return;
    }
    node.opened.insert(
        signature,
        Opened {
            id: told.id.clone(),
            since,
            gpus: told.gpu_uuids.iter().cloned().collect(),
            told: Some((told.state.clone(), told.blocked_by.clone())),
        },
    );
    // In probation the signal was gone already.
    if told.state == State::Probation.as_str() {
        return;
    }
    let count = if let Signature::Xid(number) = signature {
        xid::rule(number).min_count
    } else {
        1
    };
    let track = Track {
        first: since,
        samples: 1,
        occurrences: vec![since; count],
        doubtful: told.state == State::Suspect.as_str(),
        restored: told.state != State::Suspect.as_str(),
        ..Track::default()
    };
    let cards = if told.gpu_uuids.is_empty() {
        vec![String::new()]
    } else {
        told.gpu_uuids.clone()
    };
    for card in cards {
        node.tracks.insert((signature, card), track.clone());
    }
}
