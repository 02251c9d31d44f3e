//! Whether an exporter's answer can be used. Telemetry that is lost is never a fault of a GPU.

use crate::dcgm::Sample;
use crate::memory::{Frozen, NodeMemory};
use crate::policy::Policy;
use crate::snapshot::Telemetry;
use jiff::Timestamp;

/// The sample, if it can be used; keeps account of how long there was none and why.
pub(super) fn usable<'a>(
    telemetry: Option<&'a Telemetry>,
    memory: &mut NodeMemory,
    policy: &Policy,
    now: Timestamp,
) -> Option<&'a Sample> {
    let since = memory.telemetry.last_good.unwrap_or(memory.watched_since);
    let late = now.duration_since(since) >= policy.stale_after();
    let (malformed, cause) = match telemetry {
        Some(Telemetry::Good(sample)) if sample.is_empty() => {
            (true, "the exporter names no GPU".to_owned())
        }
        Some(Telemetry::Good(sample)) => {
            memory.telemetry.malformed = 0;
            if is_frozen(sample, memory, now) {
                memory.telemetry.stale =
                    Some("the exporter repeats old values: no GPU's energy counter has moved for minutes".to_owned());
                return None;
            }
            memory.telemetry.last_good = Some(now);
            memory.telemetry.stale = None;
            memory.telemetry.last_cause = None;
            return Some(sample);
        }
        Some(Telemetry::Malformed(cause)) => (true, cause.clone()),
        Some(Telemetry::Unreachable(cause)) => (false, cause.clone()),
        None => (false, "no exporter pod runs on the node".to_owned()),
    };
    memory.telemetry.last_cause = Some(cause.clone());
    memory.telemetry.malformed = if malformed {
        memory.telemetry.malformed.saturating_add(1)
    } else {
        0
    };
    if late
        || memory.telemetry.stale.is_some()
        || memory.telemetry.malformed >= Policy::MALFORMED_AFTER
    {
        memory.telemetry.stale = Some(cause);
    }
    None
}

/// Even an idle GPU uses energy, so counters that stand still are copies (gpu-monitoring-tools #188).
fn is_frozen(sample: &Sample, memory: &mut NodeMemory, now: Timestamp) -> bool {
    let Some(energies) = sample.energies() else {
        memory.telemetry.frozen = None;
        return false;
    };
    match &mut memory.telemetry.frozen {
        Some(frozen) if frozen.energies == energies => {
            frozen.samples = frozen.samples.saturating_add(1);
            frozen.samples >= 3 && now.duration_since(frozen.since) >= Policy::FROZEN_AFTER
        }
        other => {
            *other = Some(Frozen {
                energies,
                since: now,
                samples: 1,
            });
            false
        }
    }
}
