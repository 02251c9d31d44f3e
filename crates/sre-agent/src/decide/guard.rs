//! Guard rails of a new isolation, in a fixed order: the first that stops is told (`reference/self-healing.md` section
//! 4.7; windows, hourly budgets and attempts come with the steps that need them).

use super::{Act, Plan};
use crate::memory::{Memory, NodeMemory};
use crate::policy::Policy;
use crate::signature::Signature;
use crate::snapshot::{NodeView, Snapshot};
use jiff::Timestamp;
use std::fmt;

/// What stops an isolation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// `spec.suspend`.
    Suspended,
    /// autoRepair is set, but the rights are not there.
    NotPermitted,
    /// Somebody else's operation is under way.
    HeldBy(String),
    /// Annotation `aiops.local/skip=true`.
    Skip,
    /// Another healer or autoscaler works on the node.
    ForeignOwner(String),
    /// Somebody cordoned it before us: it takes no new work already, and is left alone.
    ForeignCordon,
    /// It runs the control plane.
    ControlPlane,
    /// It was made or booted a short time ago.
    BootGrace,
    /// What is known may be old.
    StaleInputs(String),
    /// A person took the node back a short time ago.
    Override,
    /// Too much is wrong at once.
    Breaker(String),
    /// Too few nodes would stay schedulable.
    MinSchedulable,
    /// Another isolation begins now.
    Concurrency,
    /// The cluster's budget, which other holders share, has no room.
    Budget,
}

impl Stop {
    /// Its name: a metric label and the head of its sentence.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Suspended => "Suspended",
            Self::NotPermitted => "NotPermitted",
            Self::HeldBy(_) => "HeldByOther",
            Self::Skip => "Skip",
            Self::ForeignOwner(_) => "ForeignOwner",
            Self::ForeignCordon => "ForeignCordon",
            Self::ControlPlane => "ControlPlane",
            Self::BootGrace => "BootGrace",
            Self::StaleInputs(_) => "StaleInputs",
            Self::Override => "ManualOverride",
            Self::Breaker(_) => "CircuitBreaker",
            Self::MinSchedulable => "MinSchedulable",
            Self::Concurrency => "Concurrency",
            Self::Budget => "Budget",
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.reason())?;
        match self {
            Self::Suspended => f.write_str("spec.suspend is true"),
            Self::NotPermitted => f.write_str("autoRepair is true, but the right to repair is not given; see condition RepairsAllowed"),
            Self::HeldBy(holder) => write!(f, "{holder} works on the node"),
            Self::Skip => f.write_str("the node has annotation aiops.local/skip=true"),
            Self::ForeignOwner(mark) => write!(f, "somebody else works on the node ({mark})"),
            Self::ForeignCordon => f.write_str("somebody else cordoned the node; it is left as it is"),
            Self::ControlPlane => f.write_str("the node runs the control plane"),
            Self::BootGrace => f.write_str("the node was made or booted a short time ago and may still be setting itself up"),
            Self::StaleInputs(why) => write!(f, "what is known may be old ({why})"),
            Self::Override => f.write_str("a person made the node schedulable less than an hour ago"),
            Self::Breaker(why) => write!(f, "{why}"),
            Self::MinSchedulable => write!(f, "fewer than {} % of the GPU nodes would stay schedulable", Policy::MIN_SCHEDULABLE_PERCENT),
            Self::Concurrency => f.write_str("another node is being isolated right now"),
            Self::Budget => f.write_str("too many GPU nodes are out of service already, whoever works on them"),
        }
    }
}

/// The first guard rail that stops an isolation, if any. All of them are looked at in a dry run too, so that it shows
/// what would have been stopped.
#[allow(clippy::too_many_arguments)] // the whole of what a decision may depend on, and used once
pub(super) fn first_stop(
    name: &str,
    node: &NodeMemory,
    signature: Signature,
    snapshot: &Snapshot,
    memory: &Memory,
    policy: &Policy,
    plan: &Plan,
    now: Timestamp,
) -> Option<Stop> {
    let view = snapshot.nodes.get(name)?;
    if policy.suspended {
        return Some(Stop::Suspended);
    }
    if policy.auto_repair && !policy.may_act {
        return Some(Stop::NotPermitted);
    }
    let other = snapshot
        .operations
        .get(name)
        .filter(|operation| !operation.ours && !operation.phase.is_ended());
    if let Some(operation) = other {
        return Some(Stop::HeldBy(operation.holder.clone()));
    }
    if let Some(stop) = of_the_node(view) {
        return Some(stop);
    }
    if node
        .booted
        .is_some_and(|at| now.duration_since(at) < policy.boot_grace)
    {
        return Some(Stop::BootGrace);
    }
    if let Some(why) = &snapshot.blind {
        return Some(Stop::StaleInputs(why.clone()));
    }
    if let Some(why) = &node.telemetry.stale {
        return Some(Stop::StaleInputs(why.clone()));
    }
    if node
        .silenced
        .get(&signature)
        .is_some_and(|until| now < *until)
    {
        return Some(Stop::Override);
    }
    if let Some(open) = &memory.breaker {
        return Some(Stop::Breaker(open.message.clone()));
    }
    if !leaves_enough(name, snapshot, plan) {
        return Some(Stop::MinSchedulable);
    }
    let starting = policy.may_act
        && plan
            .acts
            .iter()
            .any(|act| matches!(act, Act::Isolate { .. }));
    starting.then_some(Stop::Concurrency)
}

fn of_the_node(view: &NodeView) -> Option<Stop> {
    if view.skip {
        return Some(Stop::Skip);
    }
    if let Some(mark) = &view.foreign {
        return Some(Stop::ForeignOwner(mark.clone()));
    }
    if view.unschedulable && !view.marked {
        return Some(Stop::ForeignCordon);
    }
    view.control_plane.then_some(Stop::ControlPlane)
}

/// Whether enough nodes stay schedulable without this one, other people's cordons and NotReady nodes counted.
fn leaves_enough(name: &str, snapshot: &Snapshot, plan: &Plan) -> bool {
    let watched = || snapshot.nodes.iter().filter(|(_, view)| view.selected);
    let planned = |node: &str| {
        plan.acts
            .iter()
            .any(|act| matches!(act, Act::Isolate { .. }) && act.node() == node)
    };
    let stay = watched().filter(|(other, view)| {
        other.as_str() != name
            && !view.unschedulable
            && view.not_ready_since.is_none()
            && !planned(other)
    });
    stay.count() >= percent(watched().count(), Policy::MIN_SCHEDULABLE_PERCENT)
}

/// How many nodes of `total` may be held for repair at once: what the breaker allows.
pub fn most_held(total: usize) -> usize {
    if total < Policy::SMALL_POOL {
        Policy::SMALL_POOL_MAX
    } else {
        percent(total, Policy::MAX_UNHEALTHY_PERCENT)
    }
}

/// How many nodes of `total` may be out of service at once, whoever took them out.
pub fn most_out_of_service(total: usize) -> usize {
    total.saturating_sub(percent(total, Policy::MIN_SCHEDULABLE_PERCENT))
}

/// `share` percent of `total`, rounded up.
pub(super) fn percent(total: usize, share: usize) -> usize {
    (total * share).div_ceil(100)
}
