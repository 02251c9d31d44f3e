//! From samples to signals that are up: edges and levels, what is doubtful, and what ends a signal. Pure.
//!
//! The XID gauge is the last error, not the present one: only its edges and the rise of windowed counts are occurrences,
//! and a value that was there before the agent looked proves nothing alone. Absence of data ends no signal.

mod gpu;
mod telemetry;

use crate::memory::{DAY, GpuMemory, NodeMemory, TelemetryMemory, Track};
use crate::policy::Policy;
use crate::signature::Signature;
use crate::snapshot::{NodeView, Telemetry};
use crate::xid::Class;
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Something that occurred just now, for events and counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// What.
    pub signature: Signature,
    /// Its class now.
    pub class: Class,
    /// Which card; empty for the node.
    pub gpu: String,
    /// Pods on it, `namespace/name`.
    pub pods: Vec<String>,
}

/// Takes what one check sees of one node into its memory.
pub fn update(
    view: &NodeView,
    telemetry: Option<&Telemetry>,
    memory: &mut NodeMemory,
    policy: &Policy,
    now: Timestamp,
) -> Vec<Occurrence> {
    boot(view, memory, now);
    let mut occurred = Vec::new();
    readiness(view, memory, now);
    if policy.watch_gpus {
        if let Some(sample) = telemetry::usable(telemetry, memory, policy, now) {
            for (uuid, gpu) in &sample.gpus {
                gpu::update(
                    uuid,
                    gpu,
                    view,
                    memory,
                    (now, policy.interval / 2),
                    &mut occurred,
                );
            }
            missing(view, sample.gpus.keys(), memory, now);
            memory.clean_samples = if memory.has_fatal() {
                0
            } else {
                memory.clean_samples.saturating_add(1)
            };
        }
    } else {
        memory.telemetry = TelemetryMemory::default();
        memory.clean_samples = 0;
        memory
            .tracks
            .retain(|(signature, _), _| *signature == Signature::NodeNotReady);
    }
    fade(memory, now);
    occurred
}

/// Another boot: what a reset or a reboot repairs is over, and what is seen from now on is new.
fn boot(view: &NodeView, memory: &mut NodeMemory, now: Timestamp) {
    if memory.uid.is_empty() {
        memory.uid.clone_from(&view.uid);
        memory.boot_id.clone_from(&view.boot_id);
        memory.watched_since = now;
        memory.booted = view.created;
        return;
    }
    if memory.boot_id == view.boot_id || view.boot_id.is_empty() {
        return;
    }
    // A Node object may exist before its kubelet has told its boot: then nothing has ended.
    if !memory.boot_id.is_empty() {
        memory.booted = Some(now);
        memory
            .tracks
            .retain(|(signature, _), track| track.class(*signature) == Class::Service);
        memory.short_since = None;
        memory.clean_samples = 0;
        for gpu in memory.gpus.values_mut() {
            *gpu = GpuMemory {
                xid: Some(0),
                ..GpuMemory::default()
            };
        }
    }
    memory.boot_id.clone_from(&view.boot_id);
}

fn readiness(view: &NodeView, memory: &mut NodeMemory, now: Timestamp) {
    let key = (Signature::NodeNotReady, String::new());
    let late = view
        .not_ready_since
        .filter(|since| now.duration_since(*since) >= Policy::NOT_READY_AFTER);
    match late {
        Some(since) => level(memory, key, true, since),
        None => level(memory, key, false, now),
    }
}

/// GPUs that were there and are not, when a second source agrees.
fn missing<'a>(
    view: &NodeView,
    seen: impl Iterator<Item = &'a String>,
    memory: &mut NodeMemory,
    now: Timestamp,
) {
    let seen: BTreeSet<&String> = seen.collect();
    memory.complete = memory.complete.max(seen.len());
    for (uuid, gpu) in &mut memory.gpus {
        let gone = (!seen.contains(uuid)).then(|| gpu.missing_since.unwrap_or(now));
        gpu.missing_since = gone;
    }
    let expected = memory.complete.max(
        view.labelled
            .map_or(0, |count| usize::try_from(count).unwrap_or(0)),
    );
    if seen.len() >= expected {
        // All there, perhaps as other cards: those that are gone were exchanged.
        memory.gpus.retain(|_, gpu| gpu.missing_since.is_none());
        memory.short_since = None;
        memory
            .tracks
            .retain(|(signature, _), _| *signature != Signature::MissingGpu);
        return;
    }
    let since = *memory.short_since.get_or_insert(now);
    let offered = view
        .capacity
        .map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    // None at all means that the plugin has not registered, which says nothing about cards.
    let agreed = offered.is_some_and(|count| count > 0 && count < expected)
        || memory.confirmed_fatal().next().is_some();
    if !agreed || now.duration_since(since) < Policy::MISSING_AFTER {
        return;
    }
    let gone = memory
        .gpus
        .iter()
        .filter(|(_, gpu)| gpu.missing_since.is_some())
        .map(|(uuid, _)| uuid.clone());
    let mut gone: Vec<String> = gone.collect();
    if gone.is_empty() {
        // Never seen: only their number is known.
        gone.push(String::new());
    }
    for uuid in gone {
        level(memory, (Signature::MissingGpu, uuid), true, since);
    }
}

/// A signal that is either up or not; `since` is when it came up, if it is new.
fn level(memory: &mut NodeMemory, key: (Signature, String), up: bool, since: Timestamp) {
    if !up {
        memory.tracks.remove(&key);
        return;
    }
    let track = memory.tracks.entry(key).or_insert_with(|| Track {
        first: since,
        ..Track::default()
    });
    track.samples = track.samples.saturating_add(1);
}

/// A sticky gauge is not believed for ever: what is not fatal is over a day after it last occurred.
fn fade(memory: &mut NodeMemory, now: Timestamp) {
    memory.tracks.retain(|(signature, _), track| {
        let fades = matches!(signature, Signature::Xid(_)) && !track.class(*signature).is_fatal();
        let last = track.occurrences.last().copied().unwrap_or(track.first);
        !fades || now.duration_since(last) < DAY
    });
}
