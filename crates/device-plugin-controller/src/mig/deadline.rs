//! NVIDIA's MIG manager may end in the middle of a change, or after a failed one, and leave a node's operands paused for
//! ever. This decides when that has taken too long. Pure.

use super::protocol::is_paused;
use std::time::Duration;
use tessera_api::names::label;
use tessera_api::nodes::NodeFacts;

/// Longest time that a layout may be `pending`. The manager itself waits up to 5 min for each operand's pod to go.
pub const PENDING: Duration = Duration::from_secs(15 * 60);
/// Longest time of a reboot with a layout change.
pub const REBOOTING: Duration = Duration::from_secs(30 * 60);
/// Longest time between the end of a change and the restored labels.
pub const RESTORING: Duration = Duration::from_secs(2 * 60);

/// What a node is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The manager says that it applies a layout.
    Pending,
    /// The node reboots for a layout.
    Rebooting,
    /// Nothing is being applied, and operands are paused still.
    Paused,
}

impl Stage {
    /// Of a node; none when it is in the middle of nothing.
    pub fn of(node: &NodeFacts) -> Option<Self> {
        match node.label(label::MIG_CONFIG_STATE) {
            Some("pending") => Some(Self::Pending),
            Some("rebooting") => Some(Self::Rebooting),
            Some(_) | None => is_paused(node).then_some(Self::Paused),
        }
    }

    /// How long it may last.
    pub fn limit(self) -> Duration {
        match self {
            Self::Pending => PENDING,
            Self::Rebooting => REBOOTING,
            Self::Paused => RESTORING,
        }
    }
}

/// What to do about a node that has been in a stage for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Look again after this time.
    Wait(Duration),
    /// Say that it takes too long.
    Report,
    /// Say so, and give the operands back to the node.
    Restore,
}

/// Decides.
pub fn decide(node: &NodeFacts, stage: Stage, lasted: Duration) -> Act {
    let left = stage.limit().saturating_sub(lasted);
    if !left.is_zero() {
        Act::Wait(left)
    } else if is_paused(node) {
        Act::Restore
    } else {
        Act::Report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)]) -> NodeFacts {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        NodeFacts {
            labels,
            ..NodeFacts::default()
        }
    }

    const PAUSED: (&str, &str) = (
        "nvidia.com/gpu.deploy.device-plugin",
        "paused-for-mig-change",
    );

    #[test]
    fn only_what_takes_too_long_is_touched() {
        let state = |state: &'static str| ("nvidia.com/mig.config.state", state);
        let minute = Duration::from_secs(60);
        let cases = [
            (node(&[state("success")]), None, 1, None),
            (
                node(&[state("pending"), PAUSED]),
                Some(Stage::Pending),
                14,
                Some(Act::Wait(minute)),
            ),
            (
                node(&[state("pending"), PAUSED]),
                Some(Stage::Pending),
                15,
                Some(Act::Restore),
            ),
            (
                node(&[state("pending")]),
                Some(Stage::Pending),
                16,
                Some(Act::Report),
            ),
            (
                node(&[state("rebooting"), PAUSED]),
                Some(Stage::Rebooting),
                20,
                Some(Act::Wait(10 * minute)),
            ),
            (
                node(&[state("failed"), PAUSED]),
                Some(Stage::Paused),
                1,
                Some(Act::Wait(minute)),
            ),
            (
                node(&[state("failed"), PAUSED]),
                Some(Stage::Paused),
                2,
                Some(Act::Restore),
            ),
        ];
        for (node, stage, minutes, act) in cases {
            assert_eq!(Stage::of(&node), stage, "{:?}", node.labels);
            assert_eq!(
                stage.map(|stage| decide(&node, stage, minute * minutes)),
                act,
                "{:?}",
                node.labels
            );
        }
    }
}
