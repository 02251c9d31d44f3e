//! A NodeOperation as the holders keep it, and how its status is written: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use std::time::Duration;
use tessera_api::NodeOperation;
use tessera_api::nodeoperation::{
    Blocker, Found, NodeOperationStatus, OperationKind, OperationPhase, OperationReason, Undo,
};

/// How many blockers a status may name (the schema's limit).
pub const BLOCKERS: usize = 20;

/// How long an ended operation stays as the record of what happened.
pub const RECORD: Duration = Duration::from_secs(24 * 3600);

/// A NodeOperation, cut to what decisions and compare-and-swap writes need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// The node, which is also the object's name.
    pub node: String,
    /// UID of the object.
    pub uid: String,
    /// Resource version: every write of the status is made against it.
    pub version: String,
    /// UID of the Node that owns it; another Node of the same name has another.
    pub node_uid: String,
    /// Who holds it; empty when nobody can tell.
    pub holder: String,
    /// Its status. Without one it is tentative.
    pub status: NodeOperationStatus,
}

impl Operation {
    /// Reads a NodeOperation. One that cannot be decoded counts as somebody's tentative operation: it holds its node
    /// and takes room in the budget until a person removes it.
    pub fn project(object: DeserializeGuard<NodeOperation>) -> Option<Self> {
        let object = object.0.unwrap_or_else(|invalid| {
            let mut object =
                NodeOperation::new("", tessera_api::nodeoperation::NodeOperationSpec {});
            object.metadata = invalid.metadata;
            object
        });
        Some(Self::of(&object))
    }

    /// Reads a NodeOperation.
    pub fn of(object: &NodeOperation) -> Self {
        let owner = object
            .owner_references()
            .iter()
            .find(|owner| owner.kind == "Node");
        Self {
            node: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            version: object.resource_version().unwrap_or_default(),
            node_uid: owner.map(|owner| owner.uid.clone()).unwrap_or_default(),
            holder: object.holder().unwrap_or_default().to_owned(),
            status: object.status.clone().unwrap_or_default(),
        }
    }

    /// How far it is: one without status is tentative.
    pub fn phase(&self) -> OperationPhase {
        self.status.phase.unwrap_or(OperationPhase::Tentative)
    }

    /// Whether it is over, so that its object may be taken over.
    pub fn is_ended(&self) -> bool {
        self.phase().is_ended()
    }

    /// What is done; `None` between creation and the first status.
    pub fn kind(&self) -> Option<OperationKind> {
        self.status.operation
    }

    /// Whether `holder` works on it now.
    pub fn runs_for(&self, holder: &str) -> bool {
        self.holder == holder && !self.is_ended()
    }

    /// When its phase is given up, if ever.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.status.deadline.as_ref().map(|time| time.0)
    }

    /// Whether a deadline was set and has passed.
    pub fn is_late(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }

    /// How long it has been in its phase.
    pub fn in_phase_for(&self, now: Timestamp) -> Duration {
        let since = self.status.since.as_ref().map_or(now, |time| time.0);
        Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
    }

    /// Whether it ended longer ago than records are kept. Whether a failed one may go is for its holder to say: not
    /// while the node is still cordoned because of it.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.is_ended() && self.in_phase_for(now) >= RECORD
    }

    /// For sentences: `gpu-3 (DriverUpgrade by driver-controller)`.
    pub fn describe(&self) -> String {
        let kind = self.kind().map_or("operation", OperationKind::as_str);
        let holder = if self.holder.is_empty() {
            "somebody unknown"
        } else {
            &self.holder
        };
        format!("{} ({kind} by {holder})", self.node)
    }
}

/// What a holder says next about its operation. What is not set stays as it was; a deadline and blockers belong to a
/// phase, so they are cleared when they are not set.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// How far it is.
    pub phase: OperationPhase,
    /// Why it is there.
    pub reason: OperationReason,
    /// In words: cause and next step. No clocks and counters in it: an equal status is not written.
    pub message: String,
    /// When the phase is given up.
    pub deadline: Option<Timestamp>,
    /// What it waits for; cut to [`BLOCKERS`].
    pub blockers: Vec<Blocker>,
    /// What it leads to.
    pub target: Option<String>,
    /// How the node was found.
    pub found: Option<Found>,
    /// What must be undone before it ends.
    pub undo: Option<Vec<Undo>>,
}

impl Progress {
    /// To `phase`, because of `reason`.
    pub fn to(phase: OperationPhase, reason: OperationReason, message: impl Into<String>) -> Self {
        Self {
            phase,
            reason,
            message: message.into(),
            deadline: None,
            blockers: Vec::new(),
            target: None,
            found: None,
            undo: None,
        }
    }

    /// Given up at `deadline`.
    #[must_use]
    pub fn until(mut self, deadline: Option<Timestamp>) -> Self {
        self.deadline = deadline;
        self
    }

    /// Waiting for `blockers`.
    #[must_use]
    pub fn blocked_by(mut self, blockers: Vec<Blocker>) -> Self {
        self.blockers = blockers;
        self
    }

    /// Leading to `target`.
    #[must_use]
    pub fn leading_to(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// With `undo` to be undone before the end.
    #[must_use]
    pub fn undoing(mut self, undo: Vec<Undo>) -> Self {
        self.undo = Some(undo);
        self
    }
}

/// The status after `progress`. The time of a phase stays while the phase does.
pub fn next_status(
    old: &NodeOperationStatus,
    progress: &Progress,
    now: Timestamp,
) -> NodeOperationStatus {
    let now = whole_second(now);
    let same_phase = old.phase == Some(progress.phase);
    let mut blockers = progress.blockers.clone();
    blockers.sort();
    blockers.truncate(BLOCKERS);
    NodeOperationStatus {
        operation: old.operation,
        holder: old.holder.clone(),
        phase: Some(progress.phase),
        reason: Some(progress.reason),
        message: Some(progress.message.clone()),
        target: progress.target.clone().or_else(|| old.target.clone()),
        started: old.started.clone().or(Some(Time(now))),
        since: old.since.clone().filter(|_| same_phase).or(Some(Time(now))),
        deadline: progress.deadline.map(|at| Time(whole_second(at))),
        attempts: old.attempts,
        blockers,
        found: progress.found.clone().or_else(|| old.found.clone()),
        undo: progress.undo.clone().unwrap_or_else(|| old.undo.clone()),
    }
}

/// The first status of an operation of `holder` that takes the place of `old`. An attempt at the same target is counted
/// as another one; a new target begins with attempt 1.
pub fn first_status(
    old: &NodeOperationStatus,
    kind: OperationKind,
    holder: &str,
    progress: &Progress,
    now: Timestamp,
) -> NodeOperationStatus {
    let again = old.operation == Some(kind)
        && old.holder.as_deref() == Some(holder)
        && old.target == progress.target;
    // A withdrawn try never acted, so it was no attempt.
    let tried = i32::from(old.phase != Some(OperationPhase::Withdrawn));
    let attempts = if again {
        old.attempts.unwrap_or(1).saturating_add(tried)
    } else {
        1
    };
    let blank = NodeOperationStatus {
        operation: Some(kind),
        holder: Some(holder.to_owned()),
        attempts: Some(attempts),
        ..NodeOperationStatus::default()
    };
    next_status(&blank, progress, now)
}

/// `time` and `after` later.
pub fn later(time: Timestamp, after: Duration) -> Timestamp {
    SignedDuration::try_from(after)
        .ok()
        .and_then(|after| time.checked_add(after).ok())
        .unwrap_or(Timestamp::MAX)
}

/// Times are stored in whole seconds: what was read back must compare equal.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn progress(phase: OperationPhase) -> Progress {
        Progress::to(phase, OperationReason::InProgress, "m").leading_to("v2")
    }

    #[test]
    fn the_time_of_a_phase_stays_while_the_phase_does() {
        let first = first_status(
            &NodeOperationStatus::default(),
            OperationKind::DriverUpgrade,
            "me",
            &progress(OperationPhase::Active),
            at(10),
        );
        let second = next_status(&first, &progress(OperationPhase::Active), at(20));
        assert_eq!(first, second);
        let third = next_status(
            &second,
            &progress(OperationPhase::Validating).until(Some(at(99))),
            at(30),
        );
        assert_eq!(
            (third.started, third.since),
            (Some(Time(at(10))), Some(Time(at(30))))
        );
        let fourth = next_status(&second, &progress(OperationPhase::Uncordoning), at(40));
        assert_eq!(fourth.deadline, None);
    }

    #[test]
    fn attempts_count_per_target_and_not_for_withdrawals() {
        let begin = |old: &NodeOperationStatus, target: &str| {
            let progress = progress(OperationPhase::Tentative).leading_to(target);
            first_status(old, OperationKind::DriverUpgrade, "me", &progress, at(1))
        };
        let one = begin(&NodeOperationStatus::default(), "v1");
        let ended = |status: &NodeOperationStatus, phase| NodeOperationStatus {
            phase: Some(phase),
            ..status.clone()
        };
        let two = begin(&ended(&one, OperationPhase::Failed), "v1");
        let withdrawn = begin(&ended(&two, OperationPhase::Withdrawn), "v1");
        let other = begin(&ended(&two, OperationPhase::Failed), "v2");
        assert_eq!(
            [
                one.attempts,
                two.attempts,
                withdrawn.attempts,
                other.attempts
            ],
            [Some(1), Some(2), Some(2), Some(1)]
        );
    }

    #[test]
    fn an_object_that_cannot_be_decoded_still_holds_its_node() {
        let object = serde_json::json!({
            "apiVersion": "aiops.local/v1alpha1", "kind": "NodeOperation",
            "metadata": {"name": "gpu-1", "uid": "u", "resourceVersion": "7"},
            "status": {"attempts": "many"},
        });
        let operation = Operation::project(serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!(
            (operation.node.as_str(), operation.phase()),
            ("gpu-1", OperationPhase::Tentative)
        );
        assert!(!operation.runs_for("driver-controller"));
    }

    #[test]
    fn records_expire_a_day_after_the_end() {
        let mut operation = Operation::default();
        operation.status = next_status(&operation.status, &progress(OperationPhase::Done), at(0));
        assert!(!operation.is_expired(at(86_399)));
        assert!(operation.is_expired(at(86_400)));
        operation.status.phase = Some(OperationPhase::Validating);
        assert!(!operation.is_expired(at(86_400)));
    }
}
