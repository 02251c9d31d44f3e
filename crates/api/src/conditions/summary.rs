//! What follows from the component conditions: `state`, `Ready`, `Supported`. Pure, so that whoever writes a component condition can
//! write these too, and they never disagree.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{ComponentCondition, ConditionStatus, Reason, condition, find, set_condition};
use crate::{effective::EffectivePolicy, policy::State};

/// How one component counts.
enum Verdict {
    Ready,
    NoNodes,
    Wrong { reason: Reason, message: String },
}

fn verdict(component: ComponentCondition, conditions: &[Condition], generation: i64) -> Verdict {
    let Some(found) = find(conditions, component.as_str()) else {
        let owner = component.controller().unwrap_or_default();
        let message = format!(
            "{component}: {owner} has not reported yet: it may be starting; if `kubectl get deployments -A` does not show it, install it or turn the component off in the policy"
        );
        return Verdict::Wrong {
            reason: Reason::NoController,
            message,
        };
    };
    let reason = found.reason.parse().unwrap_or(Reason::PodsNotReady);
    if found
        .observed_generation
        .is_some_and(|seen| seen < generation)
    {
        let owner = component.controller().unwrap_or_default();
        let message = format!("{component}: {owner} has not seen generation {generation} yet");
        return Verdict::Wrong {
            reason: Reason::NotObserved,
            message,
        };
    }
    match found.status.as_str() {
        _ if reason == Reason::NoGPUNodes => Verdict::NoNodes,
        "True" => Verdict::Ready,
        _ if reason.is_neutral() => Verdict::Ready,
        _ => Verdict::Wrong {
            reason,
            message: format!("{component}: {}", found.message),
        },
    }
}

/// `state` and condition `Ready` of the active policy, from its component conditions of the same revision.
///
/// Components that the policy disables do not count. An enabled one without a condition has no controller. With no GPU node the policy
/// is ready. The reason is that of the first component that is not ready, in bring-up order; the message names up to three of them.
pub fn summary(
    conditions: &[Condition],
    policy: &EffectivePolicy,
    generation: i64,
    now: Timestamp,
) -> (State, Condition) {
    let enabled = ComponentCondition::COMPONENTS
        .into_iter()
        .filter(|component| component.is_enabled(policy));
    let (mut wrong, mut total, mut no_nodes) = (Vec::new(), 0_usize, false);
    for component in enabled {
        total += 1;
        match verdict(component, conditions, generation) {
            Verdict::Ready => {}
            Verdict::NoNodes => no_nodes = true,
            Verdict::Wrong { reason, message } => wrong.push((reason, message)),
        }
    }
    let (state, status, reason, message) = match wrong.first() {
        Some((reason, _)) => {
            let named: Vec<&str> = wrong
                .iter()
                .take(3)
                .map(|(_, message)| message.as_str())
                .collect();
            let more = if wrong.len() > 3 {
                format!("; and {} more", wrong.len() - 3)
            } else {
                String::new()
            };
            let message = format!(
                "{} of {total} not ready: {}{more}",
                wrong.len(),
                named.join("; ")
            );
            (State::NotReady, ConditionStatus::False, *reason, message)
        }
        None if total == 0 => (
            State::Ready,
            ConditionStatus::True,
            Reason::Disabled,
            "the policy turns every component off".to_owned(),
        ),
        None if no_nodes => {
            let message = "no node has a GPU: operands start as soon as one joins".to_owned();
            (
                State::Ready,
                ConditionStatus::True,
                Reason::NoGPUNodes,
                message,
            )
        }
        None => (
            State::Ready,
            ConditionStatus::True,
            Reason::Ready,
            format!("all {total} enabled components are ready"),
        ),
    };
    let ready = condition(
        conditions,
        ComponentCondition::Ready.as_str(),
        status,
        reason,
        message,
        generation,
        now,
    );
    (state, ready)
}

/// Condition `Supported` of the active policy: False when fields are accepted but not acted on, or parts are invalid.
pub fn supported(
    conditions: &[Condition],
    policy: &EffectivePolicy,
    generation: i64,
    now: Timestamp,
) -> Condition {
    let problems: Vec<String> = policy.problems.iter().map(ToString::to_string).collect();
    let (status, reason, message) = if !problems.is_empty() {
        (
            ConditionStatus::False,
            Reason::InvalidSpec,
            problems.join("; "),
        )
    } else if policy.unsupported.is_empty() {
        (
            ConditionStatus::True,
            Reason::AllSupported,
            "every field of the policy is acted on".to_owned(),
        )
    } else {
        let message = format!(
            "accepted, but not acted on: {}",
            policy.unsupported.join(", ")
        );
        (ConditionStatus::False, Reason::UnsupportedFields, message)
    };
    condition(
        conditions,
        ComponentCondition::Supported.as_str(),
        status,
        reason,
        message,
        generation,
        now,
    )
}

/// The conditions with `Ready` and `Supported` brought up to date, and the state.
pub fn computed(
    mut conditions: Vec<Condition>,
    policy: &EffectivePolicy,
    generation: i64,
    now: Timestamp,
) -> (State, Vec<Condition>) {
    let supported = supported(&conditions, policy, generation, now);
    set_condition(&mut conditions, supported);
    let (state, ready) = summary(&conditions, policy, generation, now);
    set_condition(&mut conditions, ready);
    (state, conditions)
}
