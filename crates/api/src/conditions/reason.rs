//! The vocabulary of reasons: conditions, events and exceptions use nothing else.

use std::{fmt, str::FromStr};

macro_rules! reasons {
    ($( $(#[$doc:meta])* $name:ident, )*) => {
        /// Why something is as it is. The name of the variant is the text in the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $( $(#[$doc])* $name, )* }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )* ];

            /// The text in the API.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }
        }
    };
}

reasons! {
    /// As wanted.
    Ready,
    /// The policy turns it off.
    Disabled,
    /// No node has a GPU, so there is nothing to run.
    NoGPUNodes,
    /// No node can do it (for example MIG).
    NoCapableNodes,
    /// First roll-out is under way.
    Progressing,
    /// A change is being rolled out.
    RollingOut,
    /// Pods are not ready for a reason that has no name of its own.
    PodsNotReady,
    /// A pod waits for another operand on its node.
    WaitingForDependency,
    /// An image cannot be pulled.
    ImagePullFailed,
    /// A container keeps crashing.
    CrashLooping,
    /// A container cannot be created (for example a missing ConfigMap or Secret).
    ContainerConfigError,
    /// A probe fails.
    ProbeFailing,
    /// The scheduler finds no place.
    Unschedulable,
    /// Nodes have taints that the operands do not tolerate.
    TaintsNotTolerated,
    /// A pod was refused by the node or by admission.
    PodRejected,
    /// A node is not Ready.
    NodeNotReady,
    /// A node is paused or switched off by its labels.
    NodePaused,
    /// The driver is being upgraded.
    DriverUpgradeInProgress,
    /// Nodes wait for an upgrade that nobody has started (autoUpgrade is off).
    DriverUpgradePending,
    /// An upgrade failed.
    UpgradeFailed,
    /// The upgrade was halted by its failure budget.
    UpgradeHalted,
    /// Nodes bring their own driver.
    NodesWithHostDriver,
    /// The operating system of nodes is not known, so no driver image fits.
    UnknownOperatingSystem,
    /// The container runtime of nodes is not supported.
    UnsupportedRuntime,
    /// A check of the validator fails.
    ValidationFailed,
    /// A ConfigMap that the policy names is not there.
    ConfigMapNotFound,
    /// A ConfigMap lacks the key.
    ConfigKeyNotFound,
    /// A configuration cannot be used.
    ConfigInvalid,
    /// Nodes choose a configuration that does not exist.
    NodeConfigUnknown,
    /// Nodes advertise something else than was asked for.
    SharingMismatch,
    /// Nodes do as the policy's sharing says.
    SharingApplied,
    /// The policy shares nothing.
    NotShared,
    /// A MIG layout is being applied.
    MigPending,
    /// A MIG layout could not be applied.
    MigFailed,
    /// A MIG layout does not fit a card.
    MigLayoutInvalid,
    /// The monitor's CRD is not installed.
    CRDNotInstalled,
    /// The monitor is in place.
    ServiceMonitorApplied,
    /// No Prometheus selects the monitor.
    MonitoringNotSelected,
    /// A write or read failed; it is tried again.
    ReconcileFailed,
    /// A right is missing.
    Forbidden,
    /// Another field manager holds a field that is ours.
    FieldConflict,
    /// No controller has ever reported this component.
    NoController,
    /// The controller has not seen the latest generation yet.
    NotObserved,
    /// An older policy is active.
    OlderPolicyActive,
    /// A user's policy lies over this base.
    OverlaidBase,
    /// Fields that are accepted but not acted on.
    UnsupportedFields,
    /// A part of the spec is invalid.
    InvalidSpec,
    /// Every field is acted on.
    AllSupported,
    /// The agent's pod is available.
    AgentAvailable,
    /// The agent's pod is not available.
    AgentNotAvailable,
    /// Repairs are allowed.
    RepairsAllowed,
    /// Repairs are off: autoRepair is false.
    DryRun,
    /// Repairs are not allowed in this namespace.
    RepairNotPermitted,
    /// Suspended by the spec.
    Suspended,
    /// Telemetry is complete.
    TelemetryHealthy,
    /// Telemetry is stale or missing.
    TelemetryStale,
    /// No node has an incident.
    NodesHealthy,
    /// Nodes have incidents.
    NodesUnhealthy,
    /// Too many nodes are unhealthy.
    BreakerOpen,
    /// Another agent watches the same nodes.
    Conflict,
    /// An object was created.
    Created,
    /// An object was changed.
    Updated,
    /// An object was deleted.
    Deleted,
    /// An edit or deletion by others was undone.
    DriftRepaired,
}

impl Reason {
    /// Whether a condition that is not True for this reason leaves the policy ready: nothing is wanted there, or it depends on
    /// something that the cluster does not have to have.
    pub const fn is_neutral(self) -> bool {
        matches!(
            self,
            Self::Disabled
                | Self::NoGPUNodes
                | Self::NoCapableNodes
                | Self::CRDNotInstalled
                | Self::NotShared
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Reason {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.as_str() == text)
            .ok_or(())
    }
}
