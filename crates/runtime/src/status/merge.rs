//! What a status should be: the controller's slice laid over what is stored, the summary computed from all of it, and how
//! much a reader gains by the difference.

use super::pacing::Difference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tessera_api::conditions::{
    ComponentCondition, ConditionStatus, Reason, computed, condition, set_condition,
};
use tessera_api::effective::{Ignored, IgnoredWhy};
use tessera_api::names;
use tessera_api::policy::{ClusterPolicyStatus, ComponentStatus, State};
use tessera_api::{ClusterPolicy, EffectivePolicy};

/// One condition as a controller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which condition.
    pub component: ComponentCondition,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Why.
    pub reason: Reason,
    /// Object, cause, next step; nothing volatile.
    pub message: String,
}

/// A controller's slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Its conditions: exactly those that it owns.
    pub findings: Vec<Finding>,
    /// Its sub-object.
    pub component: ComponentStatus,
}

/// Whose slice is laid over which policy.
pub(super) struct About<'a> {
    /// The controller.
    pub(super) controller: &'static str,
    /// Where it runs.
    pub(super) namespace: &'a str,
    /// What the policy asks for.
    pub(super) effective: &'a EffectivePolicy,
    /// The hash of that.
    pub(super) hash: &'a str,
    /// The policy's generation that this is about.
    pub(super) generation: i64,
}

/// The whole status as it should be: `current` with our slice, and what is computed from all of it.
pub(super) fn merge(
    current: &ClusterPolicyStatus,
    slice: &Slice,
    about: &About<'_>,
    wall: Timestamp,
) -> ClusterPolicyStatus {
    let mut status = current.clone();
    for finding in &slice.findings {
        let new = condition(
            &status.conditions,
            finding.component.as_str(),
            finding.status,
            finding.reason,
            finding.message.clone(),
            about.generation,
            wall,
        );
        set_condition(&mut status.conditions, new);
    }
    let component = Some(slice.component.clone());
    match about.controller {
        names::controller::DRIVER => status.driver = component,
        names::controller::DEVICE_PLUGIN => status.device_plugin = component,
        _ => status.dcgm = component,
    }
    status.namespace = Some(about.namespace.to_owned());
    status.effective = Some(tessera_api::policy::EffectiveStatus {
        hash: about.hash.to_owned(),
        images: about.effective.images(),
    });
    let (state, conditions) = computed(status.conditions, about.effective, about.generation, wall);
    status.state = Some(state);
    status.conditions = conditions;
    status
}

pub(super) fn is_own(type_: &str, controller: &str) -> bool {
    ComponentCondition::owner(type_) == Some(controller)
}

/// What `controller` applies of a status.
pub(super) fn part(status: &ClusterPolicyStatus, controller: &str) -> Value {
    let is_computed = |type_: &str| {
        [ComponentCondition::Ready, ComponentCondition::Supported]
            .iter()
            .any(|c| c.as_str() == type_)
    };
    let conditions: Vec<&Condition> = status
        .conditions
        .iter()
        .filter(|c| is_own(&c.type_, controller) || is_computed(&c.type_))
        .collect();
    let mut value = json!({
        "conditions": conditions,
        "state": status.state,
        "namespace": status.namespace,
        "effective": status.effective,
    });
    let (field, component) = match controller {
        names::controller::DRIVER => ("driver", &status.driver),
        names::controller::DEVICE_PLUGIN => ("devicePlugin", &status.device_plugin),
        _ => ("dcgm", &status.dcgm),
    };
    if let Some(map) = value.as_object_mut() {
        map.insert(field.to_owned(), json!(component));
        map.retain(|_, value| !value.is_null());
    }
    value
}

/// What `controller` reads back to see whether somebody has tampered with its part.
pub(crate) fn own_part(policy: &ClusterPolicy, controller: &str) -> Value {
    part(&policy.status.clone().unwrap_or_default(), controller)
        .as_object_mut()
        .map(|map| {
            let own: Vec<Value> = map
                .get("conditions")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter(|c| {
                    c.get("type")
                        .and_then(Value::as_str)
                        .is_some_and(|type_| is_own(type_, controller))
                })
                .cloned()
                .collect();
            map.insert("conditions".to_owned(), Value::Array(own));
            map.remove("state");
            map.remove("effective");
            map.remove("namespace");
            Value::Object(std::mem::take(map))
        })
        .unwrap_or_default()
}

/// How `new` differs from `old` in what `controller` writes.
pub(super) fn difference(
    old: &ClusterPolicyStatus,
    new: &ClusterPolicyStatus,
    slice: &Slice,
    controller: &str,
) -> Difference {
    if part(old, controller) == part(new, controller) {
        return Difference::None;
    }
    let own = |status: &ClusterPolicyStatus| -> BTreeMap<String, (bool, Reason, Option<i64>)> {
        let ours = status
            .conditions
            .iter()
            .filter(|c| is_own(&c.type_, controller));
        ours.map(|c| {
            let reason = c.reason.parse().unwrap_or(Reason::PodsNotReady);
            // Steps on the way to ready are one and the same to a reader.
            let reason = if c.status != "True" && is_on_its_way(reason) {
                Reason::RollingOut
            } else {
                reason
            };
            (
                c.type_.clone(),
                (c.status == "True", reason, c.observed_generation),
            )
        })
        .collect()
    };
    let (before, after) = (own(old), own(new));
    let same_policy = old.effective == new.effective;
    if before == after && same_policy && old.state == new.state {
        return Difference::Detail;
    }
    let well = slice
        .findings
        .iter()
        .all(|finding| finding.status == ConditionStatus::True || finding.reason.is_neutral());
    if well {
        return Difference::Recovered;
    }
    let settles =
        |(type_, (ready, reason, generation)): (&String, &(bool, Reason, Option<i64>))| {
            before
                .get(type_)
                .is_some_and(|(was_ready, old_reason, seen)| {
                    let passes = is_on_its_way(*reason) || *reason == Reason::SharingMismatch;
                    seen == generation
                        && ((was_ready, old_reason) == (ready, reason)
                            || *was_ready && !ready && passes)
                })
        };
    if same_policy && after.iter().all(settles) {
        Difference::Settling
    } else {
        Difference::Matters
    }
}

/// Whether pods are just being started, with nothing known to be wrong.
fn is_on_its_way(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::RollingOut
            | Reason::Progressing
            | Reason::WaitingForDependency
            | Reason::PodsNotReady
    )
}

/// The status of a policy that is not active: only the word, and why.
pub(super) fn mark(policy: &Ignored, now: k8s_openapi::jiff::Timestamp) -> ClusterPolicyStatus {
    let (reason, message) = match policy.why {
        IgnoredWhy::OverlaidBase => (
            Reason::OverlaidBase,
            format!(
                "ClusterPolicy {} lies over this base and shows the status of both",
                policy.active
            ),
        ),
        IgnoredWhy::OlderPolicyActive => (
            Reason::OlderPolicyActive,
            format!(
                "ClusterPolicy {} is older and so the active one; delete it to make this one active",
                policy.active
            ),
        ),
    };
    let mut status = policy.status.clone();
    let ready = condition(
        &status.conditions,
        ComponentCondition::Ready.as_str(),
        ConditionStatus::False,
        reason,
        message,
        policy.generation,
        k8s_openapi::jiff::Timestamp::from_second(now.as_second()).unwrap_or(now),
    );
    set_condition(&mut status.conditions, ready);
    status.state = Some(State::Ignored);
    status
}

/// A finding.
pub fn finding(
    component: ComponentCondition,
    status: impl Into<ConditionStatus>,
    reason: Reason,
    message: impl Into<String>,
) -> Finding {
    Finding {
        component,
        status: status.into(),
        reason,
        message: message.into(),
    }
}

/// The finding of a component that the policy turns off, or cannot be used; `None` when it is on and usable.
pub fn off_or_invalid(
    component: ComponentCondition,
    policy: &EffectivePolicy,
    invalid: Option<&str>,
) -> Option<Finding> {
    if !component.is_enabled(policy) {
        return Some(finding(
            component,
            true,
            Reason::Disabled,
            "the policy turns it off",
        ));
    }
    invalid.map(|why| {
        let message = format!("{why}; what ran before keeps running");
        finding(component, false, Reason::InvalidSpec, message)
    })
}
