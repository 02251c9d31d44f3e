//! What can be wrong with a GPU or a node, as stable names.

use crate::xid::{self, Class};
use std::fmt;
use std::str::FromStr;

/// NVML's recovery action (`nvmlDeviceGpuRecoveryAction_t`): the driver's own verdict, and the best single signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recovery {
    /// 1.
    GpuReset,
    /// 2.
    NodeReboot,
    /// 3: drain peer-to-peer traffic.
    DrainP2p,
    /// 4.
    DrainAndReset,
    /// 5: reset of the IMEX domain.
    ImexDomain,
    /// 6.
    BusReset,
    /// 7.
    SystemReboot,
    /// A value that this version does not know.
    Unknown,
}

const RECOVERIES: [(u32, Recovery, &str); 7] = [
    (1, Recovery::GpuReset, "gpu-reset"),
    (2, Recovery::NodeReboot, "node-reboot"),
    (3, Recovery::DrainP2p, "drain-p2p"),
    (4, Recovery::DrainAndReset, "drain-and-reset"),
    (5, Recovery::ImexDomain, "imex-domain-reset"),
    (6, Recovery::BusReset, "bus-reset"),
    (7, Recovery::SystemReboot, "system-reboot"),
];

impl Recovery {
    /// Of NVML's value; 0 is none.
    pub fn of(value: u32) -> Option<Self> {
        let known = RECOVERIES
            .iter()
            .find(|(number, _, _)| *number == value)
            .map(|(_, action, _)| *action);
        (value != 0).then_some(known.unwrap_or(Self::Unknown))
    }

    fn word(self) -> &'static str {
        RECOVERIES
            .iter()
            .find(|(_, action, _)| *action == self)
            .map_or("unknown", |(_, _, word)| word)
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signature {
    /// An XID, by its number. A rise of the double-bit error counter is XID 48.
    Xid(u32),
    /// The driver asks for a repair.
    Recovery(Recovery),
    /// A memory row could not be remapped: latched in the card for life.
    RowRemapFailed,
    /// A memory row waits for a reset; running work is not affected.
    RowRemapPending,
    /// A GPU that was there is gone.
    MissingGpu,
    /// Too hot for minutes.
    Temperature,
    /// The kubelet has said nothing good for minutes.
    NodeNotReady,
}

impl Signature {
    /// Its class at the first confirmed occurrence.
    pub fn class(self) -> Class {
        match self {
            Self::Xid(number) => xid::rule(number).class,
            Self::Recovery(action) => match action {
                Recovery::GpuReset | Recovery::DrainAndReset | Recovery::BusReset => Class::Reset,
                Recovery::NodeReboot | Recovery::SystemReboot => Class::Reboot,
                Recovery::DrainP2p | Recovery::ImexDomain | Recovery::Unknown => Class::Watch,
            },
            Self::RowRemapFailed => Class::Service,
            Self::MissingGpu => Class::Reboot,
            Self::RowRemapPending | Self::Temperature | Self::NodeNotReady => Class::Watch,
        }
    }

    /// Whether one sample is enough: hardware or driver keep the signal up until something is done.
    pub fn is_latched(self) -> bool {
        match self {
            Self::Xid(number) => xid::rule(number).latched,
            Self::Recovery(_) | Self::RowRemapFailed | Self::RowRemapPending => true,
            // These three have waited for their time already when they become signals.
            #[expect(clippy::match_same_arms, reason = "for another reason")]
            Self::MissingGpu | Self::Temperature | Self::NodeNotReady => true,
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(number) => write!(f, "xid-{number}"),
            Self::Recovery(action) => write!(f, "recovery-{}", action.word()),
            Self::RowRemapFailed => f.write_str("row-remap-failed"),
            Self::RowRemapPending => f.write_str("row-remap-pending"),
            Self::MissingGpu => f.write_str("missing-gpu"),
            Self::Temperature => f.write_str("temperature"),
            Self::NodeNotReady => f.write_str("node-not-ready"),
        }
    }
}

/// Not a signature of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSignature;

impl FromStr for Signature {
    type Err = UnknownSignature;

    fn from_str(text: &str) -> Result<Self, UnknownSignature> {
        if let Some(number) = text.strip_prefix("xid-") {
            return number.parse().map(Self::Xid).map_err(|_| UnknownSignature);
        }
        if let Some(word) = text.strip_prefix("recovery-") {
            let known = RECOVERIES
                .iter()
                .find(|(_, _, have)| *have == word)
                .map(|(_, action, _)| *action);
            return Ok(Self::Recovery(known.unwrap_or(Recovery::Unknown)));
        }
        let plain = [
            Self::RowRemapFailed,
            Self::RowRemapPending,
            Self::MissingGpu,
            Self::Temperature,
            Self::NodeNotReady,
        ];
        plain
            .into_iter()
            .find(|signature| signature.to_string() == text)
            .ok_or(UnknownSignature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let mut all = vec![
            Signature::Xid(79),
            Signature::RowRemapFailed,
            Signature::RowRemapPending,
            Signature::MissingGpu,
            Signature::Temperature,
            Signature::NodeNotReady,
        ];
        all.extend((1..9).filter_map(Recovery::of).map(Signature::Recovery));
        for signature in all {
            assert_eq!(signature.to_string().parse(), Ok(signature));
        }
        assert_eq!("xid-x".parse::<Signature>(), Err(UnknownSignature));
    }

    #[test]
    fn the_drivers_verdict_has_the_class_of_its_remedy() {
        use Class::{Reboot, Reset, Watch};
        let classes: Vec<Class> = (1..=8)
            .filter_map(Recovery::of)
            .map(|a| Signature::Recovery(a).class())
            .collect();
        assert_eq!(
            classes,
            [Reset, Reboot, Watch, Reset, Watch, Reset, Reboot, Watch]
        );
        assert_eq!(Recovery::of(0), None);
    }
}
