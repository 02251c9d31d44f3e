//! Conditions: types, reasons, and what is computed from them.

mod reason;
mod summary;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub use self::{
    reason::Reason,
    summary::{computed, summary, supported},
};
use crate::{effective::EffectivePolicy, names::controller};

/// Types of a policy's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "DESIGN section 2.3 lists them")]
pub enum ComponentCondition {
    DriverReady,
    ToolkitReady,
    ValidatorReady,
    DevicePluginReady,
    FeatureDiscoveryReady,
    SharingApplied,
    MigReady,
    ExporterReady,
    MonitoringReady,
    /// Computed: whether everything that the policy asks for is acted on.
    Supported,
    /// Computed: whether every enabled component is ready.
    Ready,
}

impl ComponentCondition {
    /// Those that a controller owns, in the order in which a node is brought up.
    pub const COMPONENTS: [Self; 9] = [
        Self::DriverReady,
        Self::ToolkitReady,
        Self::ValidatorReady,
        Self::DevicePluginReady,
        Self::FeatureDiscoveryReady,
        Self::SharingApplied,
        Self::MigReady,
        Self::ExporterReady,
        Self::MonitoringReady,
    ];

    /// The `type` of the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DriverReady => "DriverReady",
            Self::ToolkitReady => "ToolkitReady",
            Self::ValidatorReady => "ValidatorReady",
            Self::DevicePluginReady => "DevicePluginReady",
            Self::FeatureDiscoveryReady => "FeatureDiscoveryReady",
            Self::SharingApplied => "SharingApplied",
            Self::MigReady => "MigReady",
            Self::ExporterReady => "ExporterReady",
            Self::MonitoringReady => "MonitoringReady",
            Self::Supported => "Supported",
            Self::Ready => "Ready",
        }
    }

    /// The controller that owns it; `None` for the computed ones.
    pub const fn controller(self) -> Option<&'static str> {
        match self {
            Self::DriverReady | Self::ToolkitReady | Self::ValidatorReady => {
                Some(controller::DRIVER)
            }
            Self::DevicePluginReady
            | Self::FeatureDiscoveryReady
            | Self::SharingApplied
            | Self::MigReady => Some(controller::DEVICE_PLUGIN),
            Self::ExporterReady | Self::MonitoringReady => Some(controller::DCGM_MONITOR),
            Self::Supported | Self::Ready => None,
        }
    }

    /// The controller that owns the condition of this type; `None` for a computed or an unknown one.
    pub fn owner(type_: &str) -> Option<&'static str> {
        let mut all = Self::COMPONENTS.into_iter();
        all.find(|component| component.as_str() == type_)?
            .controller()
    }

    /// Whether the policy asks for what this condition is about.
    pub fn is_enabled(self, policy: &EffectivePolicy) -> bool {
        match self {
            Self::DriverReady => policy.driver.operand.enabled,
            Self::ToolkitReady => policy.toolkit.operand.enabled,
            Self::ValidatorReady => policy.validator.operand.enabled,
            Self::DevicePluginReady => policy.device_plugin.operand.enabled,
            Self::FeatureDiscoveryReady => policy.gfd.operand.enabled,
            Self::SharingApplied => {
                policy.device_plugin.operand.enabled && policy.device_plugin.config.may_share()
            }
            Self::MigReady => policy.mig_manager.operand.enabled,
            Self::ExporterReady => {
                policy.dcgm_exporter.operand.enabled
                    || policy.dcgm.operand.enabled
                    || policy.node_status_exporter.operand.enabled
            }
            Self::MonitoringReady => {
                policy.dcgm_exporter.operand.enabled && policy.dcgm_exporter.service_monitor.enabled
            }
            Self::Supported | Self::Ready => true,
        }
    }
}

impl std::fmt::Display for ComponentCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "Kubernetes' three values")]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(yes: bool) -> Self {
        if yes { Self::True } else { Self::False }
    }
}

/// A condition; `lastTransitionTime` comes from `previous` (the list that it will be part of) when status and reason are unchanged, so
/// that an unchanged condition is equal byte for byte.
pub fn condition(
    previous: &[Condition],
    type_: &str,
    status: ConditionStatus,
    reason: Reason,
    message: impl Into<String>,
    generation: i64,
    now: Timestamp,
) -> Condition {
    let unchanged = find(previous, type_)
        .filter(|c| c.status == status.as_str() && c.reason == reason.as_str());
    Condition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.as_str().to_owned(),
        message: message.into(),
        observed_generation: Some(generation),
        last_transition_time: unchanged.map_or(Time(now), |c| c.last_transition_time.clone()),
    }
}

/// Puts a condition into a list in place of the one of its type. Returns whether status or reason have changed: a transition, which
/// deserves an event.
pub fn set_condition(conditions: &mut Vec<Condition>, new: Condition) -> bool {
    let Some(old) = conditions.iter_mut().find(|c| c.type_ == new.type_) else {
        conditions.push(new);
        return true;
    };
    let transition = old.status != new.status || old.reason != new.reason;
    *old = new;
    transition
}

/// The condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}
