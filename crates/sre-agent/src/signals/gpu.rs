//! The signals of one GPU.

use super::{Occurrence, level};
use crate::dcgm::Gpu;
use crate::memory::{GpuMemory, NodeMemory, Track};
use crate::policy::Policy;
use crate::signature::{Recovery, Signature};
use crate::snapshot::NodeView;
use crate::xid::{self, Class};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// Health verdict "fail" of DCGM (`dcgm_structs.h`, DCGM_HEALTH_RESULT_FAIL).
const HEALTH_FAIL: f64 = 20.0;

pub(super) fn update(
    uuid: &str,
    gpu: &Gpu,
    view: &NodeView,
    memory: &mut NodeMemory,
    (now, apart): (Timestamp, SignedDuration),
    occurred: &mut Vec<Occurrence>,
) {
    let before = memory.gpus.get(uuid).cloned();
    let fresh = fresh_xids(gpu, before.as_ref());
    let first_sight = before.as_ref().is_none_or(|known| known.xid.is_none());
    for (number, pinned) in fresh
        .iter()
        .filter(|(number, _)| xid::rule(**number).class != Class::Ignore)
    {
        let track = track(memory, Signature::Xid(*number), uuid, now);
        track.occurred(now);
        track.pinned |= pinned;
        // What was doubtful is now certain.
        track.doubtful = false;
    }
    // The gauge was up before we looked: nobody knows since when.
    if let (true, Some(number)) = (first_sight, gpu.xid.filter(|number| *number != 0)) {
        let known = memory
            .tracks
            .contains_key(&(Signature::Xid(number), uuid.to_owned()));
        if !known && xid::rule(number).class != Class::Ignore {
            track(memory, Signature::Xid(number), uuid, now).doubtful = true;
        }
    }
    settle_xids(uuid, gpu, view, memory, (now, apart));
    levels(uuid, gpu, memory, now);
    report(uuid, gpu, &fresh, memory, occurred);
    let entry = memory.gpus.entry(uuid.to_owned()).or_default();
    // What is not told now keeps its last value: the gauge may come back unchanged.
    entry.xid = gpu.xid.or(entry.xid);
    entry.counts.clone_from(&gpu.xid_counts);
    entry.double_bit_errors = gpu.double_bit_errors.or(entry.double_bit_errors);
}

/// XIDs that occurred since the last sample; true where only the error counter told of it.
fn fresh_xids(gpu: &Gpu, before: Option<&GpuMemory>) -> BTreeMap<u32, bool> {
    let mut fresh = BTreeMap::new();
    for (number, count) in &gpu.xid_counts {
        // A count is of the last minutes, so at first sight it is recent too.
        let old = before
            .and_then(|known| known.counts.get(number))
            .copied()
            .unwrap_or(0.0);
        if *count > old {
            fresh.insert(*number, false);
        }
    }
    let Some(before) = before else { return fresh };
    if let Some(number) = gpu
        .xid
        .filter(|number| *number != 0 && before.xid != Some(*number))
    {
        // Not told before is as unknown as not seen before.
        if before.xid.is_some() {
            fresh.insert(number, false);
        }
    }
    if let (Some(old), Some(new)) = (before.double_bit_errors, gpu.double_bit_errors)
        && new > old
    {
        fresh.entry(48).or_insert(true);
    }
    fresh
}

fn track<'a>(
    memory: &'a mut NodeMemory,
    signature: Signature,
    uuid: &str,
    now: Timestamp,
) -> &'a mut Track {
    let key = (signature, uuid.to_owned());
    memory.tracks.entry(key).or_insert_with(|| Track {
        first: now,
        ..Track::default()
    })
}

/// Ends, keeps or confirms the XIDs that are up on this GPU.
fn settle_xids(
    uuid: &str,
    gpu: &Gpu,
    view: &NodeView,
    memory: &mut NodeMemory,
    (now, apart): (Timestamp, SignedDuration),
) {
    let action = gpu.recovery_action;
    let fails = action.is_some_and(|value| value != 0)
        || gpu.health.is_some_and(|verdict| verdict >= HEALTH_FAIL)
        || gpu.remap_failed == Some(true)
        || matches!((view.allocatable, view.capacity), (Some(can), Some(has)) if can < has);
    memory.tracks.retain(|(signature, on), track| {
        let Signature::Xid(number) = signature else {
            return true;
        };
        if on != uuid {
            return true;
        }
        let counted = gpu.xid_counts.get(number).is_some_and(|count| *count > 0.0);
        let repaired = track.action_seen && action == Some(0) && !counted;
        // Another XID in the gauge hides this one; a missing gauge tells nothing.
        let over = gpu.xid == Some(0) && !counted && !track.pinned;
        if repaired || over {
            return false;
        }
        track.count(now, apart);
        track.action_seen |= action.is_some_and(|value| value != 0);
        if fails {
            track.corroborated = true;
            track.doubtful = false;
        }
        true
    });
}

fn levels(uuid: &str, gpu: &Gpu, memory: &mut NodeMemory, now: Timestamp) {
    let key = |signature| (signature, uuid.to_owned());
    for (signature, value) in [
        (Signature::RowRemapFailed, gpu.remap_failed),
        (Signature::RowRemapPending, gpu.remap_pending),
    ] {
        if let Some(up) = value {
            level(memory, key(signature), up, now);
        }
    }
    if let Some(value) = gpu.recovery_action {
        let wanted = Recovery::of(value).map(Signature::Recovery);
        memory.tracks.retain(|(signature, on), _| {
            !matches!(signature, Signature::Recovery(_)) || on != uuid || Some(*signature) == wanted
        });
        if let Some(signature) = wanted {
            level(memory, key(signature), true, now);
        }
    }
    temperature(uuid, gpu, memory, now);
}

fn temperature(uuid: &str, gpu: &Gpu, memory: &mut NodeMemory, now: Timestamp) {
    let key = (Signature::Temperature, uuid.to_owned());
    let known = memory.gpus.entry(uuid.to_owned()).or_default();
    let slack = if known.hot_since.is_some() {
        Policy::HYSTERESIS
    } else {
        0.0
    };
    let limit = gpu
        .slowdown
        .map_or(Policy::HOT, |slowdown| slowdown - Policy::SLOWDOWN_MARGIN);
    let by_limit = gpu.temperature.map(|degrees| degrees >= limit - slack);
    let by_margin = gpu.margin.map(|margin| margin <= Policy::MARGIN + slack);
    if by_limit.is_none() && by_margin.is_none() {
        return;
    }
    if by_limit == Some(true) || by_margin == Some(true) {
        let since = *known.hot_since.get_or_insert(now);
        if now.duration_since(since) >= Policy::HOT_AFTER {
            level(memory, key, true, since);
        }
    } else {
        known.hot_since = None;
        level(memory, key, false, now);
    }
}

/// Tells what occurred, with the pods that the exporter knows on the card.
fn report(
    uuid: &str,
    gpu: &Gpu,
    fresh: &BTreeMap<u32, bool>,
    memory: &NodeMemory,
    occurred: &mut Vec<Occurrence>,
) {
    for number in fresh.keys() {
        let signature = Signature::Xid(*number);
        let class = memory
            .tracks
            .get(&(signature, uuid.to_owned()))
            .map_or(Class::Ignore, |t| t.class(signature));
        let pods = gpu
            .pods
            .iter()
            .map(|pod| format!("{}/{}", pod.namespace, pod.name))
            .collect();
        occurred.push(Occurrence {
            signature,
            class,
            gpu: uuid.to_owned(),
            pods,
        });
    }
}
