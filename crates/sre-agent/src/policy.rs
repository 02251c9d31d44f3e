//! The rules' numbers, in one place. Their sources are in `reference/self-healing.md` sections 2.4 and 4.2.

use jiff::SignedDuration;

/// What decisions depend on, beside what is seen.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the SREAgent")]
pub struct Policy {
    /// Whether GPUs are watched.
    pub watch_gpus: bool,
    /// Whether nodes may be changed: `autoRepair`, and the rights have been given.
    pub may_act: bool,
    /// Whether people want repairs; without rights they are told what is missing.
    pub auto_repair: bool,
    /// Whether no new plan starts.
    pub suspended: bool,
    /// Time between two checks.
    pub interval: SignedDuration,
    /// Clean time before a node is released.
    pub probation: SignedDuration,
    /// After a node was made or booted: it may still be setting itself up.
    pub boot_grace: SignedDuration,
}

impl Policy {
    /// Without an answer for so long (and at least for two intervals), telemetry is stale. An exporter that is rolled out or
    /// restarted is back before.
    pub const STALE_AFTER: SignedDuration = SignedDuration::from_secs(180);
    /// So many unusable answers in a row are no accident.
    pub const MALFORMED_AFTER: u32 = 2;
    /// A GPU that no sample names for so long is missing, if a second source agrees: one under load may lose most samples.
    pub const MISSING_AFTER: SignedDuration = SignedDuration::from_secs(300);
    /// Too hot for so long.
    pub const HOT_AFTER: SignedDuration = SignedDuration::from_secs(300);
    /// Degrees that it must cool down below the limit, so that the incident does not flicker.
    pub const HYSTERESIS: f64 = 3.0;
    /// Degrees below the slow-down temperature at which a GPU is too hot.
    pub const SLOWDOWN_MARGIN: f64 = 5.0;
    /// Limit for GPUs that do not tell their slow-down temperature.
    pub const HOT: f64 = 87.0;
    /// Least margin to the limit, for GPUs that tell it: all of them slow down from 2 degrees above it.
    pub const MARGIN: f64 = 0.0;
    /// Energy that has not moved for so long, and in at least three samples, means that the exporter repeats itself: it
    /// collects every 30 s.
    pub const FROZEN_AFTER: SignedDuration = SignedDuration::from_secs(95);
    /// A node that is not Ready for so long; NodeHealthCheck's default.
    pub const NOT_READY_AFTER: SignedDuration = SignedDuration::from_secs(300);
    /// A node that is isolated so often for the same fault within a day stays isolated until a person looks.
    pub const MAX_ATTEMPTS: i32 = 3;
    /// How long a person's uncordon is respected.
    pub const SILENCE: SignedDuration = SignedDuration::from_hours(1);
    /// Share of nodes that may be unhealthy at once, percent, rounded up.
    pub const MAX_UNHEALTHY_PERCENT: usize = 20;
    /// Below so many nodes the share means little, and [`Policy::SMALL_POOL_MAX`] counts.
    pub const SMALL_POOL: usize = 5;
    /// Nodes of a small pool that may be unhealthy at once.
    pub const SMALL_POOL_MAX: usize = 2;
    /// Share of nodes that must stay schedulable, percent, rounded up.
    pub const MIN_SCHEDULABLE_PERCENT: usize = 50;
    /// Nodes with the same signature within [`Policy::SAME_SIGNATURE_WINDOW`] that mean a common cause; or 1 %, if more.
    pub const SAME_SIGNATURE: usize = 3;
    /// See [`Policy::SAME_SIGNATURE`].
    pub const SAME_SIGNATURE_WINDOW: SignedDuration = SignedDuration::from_secs(600);
    /// How long the breaker stays open after its cause has gone.
    pub const BREAKER_COOLDOWN: SignedDuration = SignedDuration::from_secs(900);

    /// When telemetry is stale.
    pub fn stale_after(&self) -> SignedDuration {
        Self::STALE_AFTER.max(self.interval * 2)
    }
}
