//! What the agent remembers between two checks. Nothing here is needed to undo what was done: that is in the
//! NodeOperation; what people were told is in the status. So a restart only makes the agent more careful.

use crate::signature::Signature;
use crate::xid::{self, Class};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A day: the window in which repeated XIDs are counted, and how long a sticky gauge is believed for what is only watched.
pub const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Most occurrences that are remembered of one signal.
const MAX_OCCURRENCES: usize = 16;

/// Of all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// By node name.
    pub nodes: BTreeMap<String, NodeMemory>,
    /// Since when the breaker is open, why, and when its cause was last seen.
    pub breaker: Option<OpenBreaker>,
    /// What people were told of the breaker: its reason while it is open.
    pub breaker_told: Option<&'static str>,
}

/// An open breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBreaker {
    /// TooManyUnhealthy, SameSignature or Blind.
    pub reason: &'static str,
    /// In words.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
    /// When the cause was last seen.
    pub last_cause: Timestamp,
}

/// Of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMemory {
    /// Its UID.
    pub uid: String,
    /// Its boot.
    pub boot_id: String,
    /// When it was seen to have booted, or to have been made.
    pub booted: Option<Timestamp>,
    /// When watching began.
    pub watched_since: Timestamp,
    /// GPUs ever seen since the last complete sight.
    pub gpus: BTreeMap<String, GpuMemory>,
    /// Most GPUs ever seen at once.
    pub complete: usize,
    /// Fewer GPUs than expected, since when.
    pub short_since: Option<Timestamp>,
    /// Signals that are up.
    pub tracks: BTreeMap<(Signature, String), Track>,
    /// Incidents that people have been told of.
    pub opened: BTreeMap<Signature, Opened>,
    /// Telemetry.
    pub telemetry: TelemetryMemory,
    /// Good samples in a row without a fatal signal.
    pub clean_samples: u32,
    /// A person made the node schedulable while it was isolated: these signatures are left alone until then.
    pub silenced: BTreeMap<Signature, Timestamp>,
}

/// Of one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuMemory {
    /// The gauge's last value.
    pub xid: Option<u32>,
    /// The window's last counts.
    pub counts: BTreeMap<u32, f64>,
    /// The counter's last value.
    pub double_bit_errors: Option<f64>,
    /// Since when it is missing from good samples.
    pub missing_since: Option<Timestamp>,
    /// Since when it is too hot.
    pub hot_since: Option<Timestamp>,
}

/// An incident that people have been told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its id.
    pub id: String,
    /// Since when.
    pub since: Timestamp,
    /// The cards.
    pub gpus: BTreeSet<String>,
    /// What was last told: state and what holds it back.
    pub told: Option<(String, Option<String>)>,
}

/// Of an exporter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TelemetryMemory {
    /// The last usable sample.
    pub last_good: Option<Timestamp>,
    /// Unusable answers in a row.
    pub malformed: u32,
    /// Why the last answer could not be used; the log tells each cause once.
    pub last_cause: Option<String>,
    /// Energy that does not move, since when, and in how many samples.
    pub frozen: Option<Frozen>,
    /// Why the data cannot be used now, once that has lasted long enough to be told.
    pub stale: Option<String>,
    /// What people were told last.
    pub told: Option<String>,
}

/// Energy counters that stand still.
#[derive(Clone, Debug, PartialEq)]
pub struct Frozen {
    /// The counters.
    pub energies: Vec<f64>,
    /// Since when.
    pub since: Timestamp,
    /// Samples.
    pub samples: u32,
}

/// One signal of one GPU that is up.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each set and read alone"
)]
pub struct Track {
    /// When it was first seen.
    pub first: Timestamp,
    /// In how many good samples it was seen, half an interval or more apart.
    pub samples: u32,
    /// When the last of them was counted.
    pub counted: Option<Timestamp>,
    /// When it occurred, the last ones.
    pub occurrences: Vec<Timestamp>,
    /// The gauge was up before the agent looked, so its age is unknown, and nothing else agrees.
    pub doubtful: bool,
    /// Something else agrees.
    pub corroborated: bool,
    /// The driver asked for a repair meanwhile: when it no longer does, that was the repair.
    pub action_seen: bool,
    /// Only a boot or the driver's verdict ends it, not a gauge that falls to zero.
    pub pinned: bool,
    /// Known from before a restart.
    pub restored: bool,
}

impl Track {
    /// Counts a sample, unless one was counted a moment ago: a check that is repeated at once sees nothing new.
    pub fn count(&mut self, now: Timestamp, apart: SignedDuration) {
        if self
            .counted
            .is_none_or(|last| now.duration_since(last) >= apart)
        {
            self.samples = self.samples.saturating_add(1);
            self.counted = Some(now);
        }
    }

    /// Adds an occurrence.
    pub fn occurred(&mut self, now: Timestamp) {
        self.occurrences.retain(|at| now.duration_since(*at) < DAY);
        if self.occurrences.len() >= MAX_OCCURRENCES {
            self.occurrences.remove(0);
        }
        self.occurrences.push(now);
    }

    /// Its class now: some XIDs mean more when they come again or when something else agrees.
    pub fn class(&self, signature: Signature) -> Class {
        let Signature::Xid(number) = signature else {
            return signature.class();
        };
        let rule = xid::rule(number);
        let enough = self.occurrences.len() >= rule.min_count;
        match rule.repeated {
            Some(repeated) if enough || (repeated.is_fatal() && self.corroborated) => repeated,
            _ => rule.class,
        }
    }

    /// Whether it may be acted on.
    pub fn is_confirmed(&self, signature: Signature) -> bool {
        !self.doubtful
            && (self.restored || signature.is_latched() || self.corroborated || self.samples >= 2)
    }
}

impl NodeMemory {
    /// The fatal signals that may be acted on.
    pub fn confirmed_fatal(&self) -> impl Iterator<Item = (Signature, Class)> {
        let tracks = self.tracks.iter().filter(|((signature, _), track)| {
            track.class(*signature).is_fatal() && track.is_confirmed(*signature)
        });
        tracks.map(|((signature, _), track)| (*signature, track.class(*signature)))
    }

    /// The worst of them; of equals the first by name.
    pub fn worst(&self) -> Option<(Signature, Class)> {
        self.confirmed_fatal()
            .reduce(|worst, next| if next.1 > worst.1 { next } else { worst })
    }

    /// Whether any fatal signal is up, confirmed or not.
    pub fn has_fatal(&self) -> bool {
        self.tracks
            .iter()
            .any(|((signature, _), track)| track.class(*signature).is_fatal())
    }
}
