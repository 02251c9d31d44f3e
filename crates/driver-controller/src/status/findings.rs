//! The three conditions.

use super::Failures;
use crate::build::{DRIVER, RUNTIME_CLASS, TOOLKIT, VALIDATOR};
use crate::observe::Rolled;
use crate::validate::{Part, Validated};
use tessera_api::conditions::{ComponentCondition, ConditionStatus, Reason};
use tessera_api::effective::Operand;
use tessera_runtime::operands::{Verdict, name_nodes};
use tessera_runtime::status::{Finding, finding, off_or_invalid};

/// What to do when there is no driver image for a system.
const NO_IMAGE: &str = "; name a driver.version that is published for this operating system and kernel, or a driver.repository that has it";

/// DriverReady. An upgrade knows better than counts why driver pods are not ready.
pub(super) fn driver(
    validated: &Validated<'_>,
    rolled: &Rolled,
    failures: &Failures,
    verdict: Option<&Verdict>,
    upgrade: Option<(Reason, String)>,
) -> Finding {
    let component = ComponentCondition::DriverReady;
    let policy = validated.policy;
    if let Some(early) = early(
        component,
        validated,
        &policy.driver.operand,
        &validated.driver,
        failures.get(DRIVER),
    ) {
        return early;
    }
    let judged = counted(component, rolled, verdict, |verdict| {
        let advice = if verdict.reason == Reason::ImagePullFailed {
            NO_IMAGE
        } else {
            ""
        };
        format!("{}{advice}", verdict.message)
    });
    let judged = judged.unwrap_or_else(|| without_driver(rolled));
    if let Some((reason, message)) = upgrade {
        // Nodes that keep an old driver because the policy says so are as they should be.
        let ready =
            reason == Reason::DriverUpgradePending && judged.status == ConditionStatus::True;
        return finding(component, ready, reason, message);
    }
    first_wrong(
        judged,
        [
            uncovered(component, rolled, verdict, false),
            exception(component, rolled, Reason::UnknownOperatingSystem),
        ],
    )
}

/// ToolkitReady.
pub(super) fn toolkit(
    validated: &Validated<'_>,
    rolled: &Rolled,
    failures: &Failures,
    verdict: Option<&Verdict>,
) -> Finding {
    let component = ComponentCondition::ToolkitReady;
    let operand = &validated.policy.toolkit.operand;
    if let Some(early) = early(
        component,
        validated,
        operand,
        &validated.toolkit,
        failures
            .get(TOOLKIT)
            .or_else(|| failures.get(RUNTIME_CLASS)),
    ) {
        return early;
    }
    let judged = counted(component, rolled, verdict, |verdict| {
        verdict.message.clone()
    })
    .unwrap_or_else(|| {
        finding(
            component,
            true,
            Reason::Ready,
            "no node asks for the toolkit",
        )
    });
    let unsupported = exception(component, rolled, Reason::UnsupportedRuntime);
    let told = validated.policy.driver.operand.enabled;
    first_wrong(
        judged,
        [unsupported, uncovered(component, rolled, verdict, told)],
    )
}

/// ValidatorReady. A check that keeps failing has a reason of its own.
pub(super) fn validator(
    validated: &Validated<'_>,
    rolled: &Rolled,
    failures: &Failures,
    verdict: Option<&Verdict>,
) -> Finding {
    let component = ComponentCondition::ValidatorReady;
    let operand = &validated.policy.validator.operand;
    // RuntimeClasses have no condition of their own; without our toolkit, the validator's pods are the first to need them.
    let classes = failures
        .get(RUNTIME_CLASS)
        .filter(|_| !validated.policy.toolkit.operand.enabled);
    if let Some(early) = early(
        component,
        validated,
        operand,
        &validated.validator,
        failures.get(VALIDATOR).or(classes),
    ) {
        return early;
    }
    let mut judged = counted(component, rolled, verdict, |verdict| {
        verdict.message.clone()
    })
    .unwrap_or_else(|| {
        finding(
            component,
            false,
            Reason::RollingOut,
            "the validator is being created",
        )
    });
    if judged.reason == Reason::CrashLooping {
        judged.reason = Reason::ValidationFailed;
        judged.message.push_str("; the log of that container says what fails: kubectl logs -l app=nvidia-operator-validator -c <container>");
    }
    let policy = validated.policy;
    let told = policy.driver.operand.enabled || policy.toolkit.operand.enabled;
    first_wrong(judged, [uncovered(component, rolled, verdict, told)])
}

/// What is known without looking at pods.
fn early<T>(
    component: ComponentCondition,
    validated: &Validated<'_>,
    operand: &Operand,
    part: &Part<T>,
    failure: Option<&(Reason, String)>,
) -> Option<Finding> {
    if let Some(found) = off_or_invalid(component, validated.policy, operand.invalid.as_deref()) {
        return Some(found);
    }
    if let Part::Unusable { reason, message } = part {
        return Some(finding(
            component,
            false,
            *reason,
            format!("{message}; what ran before keeps running"),
        ));
    }
    failure.map(|(reason, message)| {
        finding(
            component,
            false,
            *reason,
            format!("{message}; it is tried again"),
        )
    })
}

/// What the counts say; `None` without a DaemonSet although there are GPU nodes.
fn counted(
    component: ComponentCondition,
    rolled: &Rolled,
    verdict: Option<&Verdict>,
    message: impl Fn(&Verdict) -> String,
) -> Option<Finding> {
    if rolled.census.gpu_nodes == 0 {
        let message = "no node has a GPU: it starts as soon as one joins";
        return Some(finding(component, true, Reason::NoGPUNodes, message));
    }
    let verdict = verdict?;
    // There are GPU nodes, only none that this DaemonSet counts: not labelled yet, switched off, or tainted.
    let labelled_soon = verdict.reason == Reason::NoGPUNodes && rolled.census.exceptions.is_empty();
    if labelled_soon {
        return Some(finding(
            component,
            false,
            Reason::RollingOut,
            format!("{} yet", verdict.message),
        ));
    }
    let reason = if verdict.reason == Reason::NoGPUNodes {
        Reason::Ready
    } else {
        verdict.reason
    };
    Some(finding(component, verdict.ready, reason, message(verdict)))
}

/// GPU nodes, but no driver pool.
fn without_driver(rolled: &Rolled) -> Finding {
    let component = ComponentCondition::DriverReady;
    let (host, nodes) = (rolled.census.host_driver.len(), rolled.census.gpu_nodes);
    if host > 0 {
        let message =
            format!("{host} of {nodes} GPU nodes bring their own driver; no other node wants one");
        return finding(component, true, Reason::NodesWithHostDriver, message);
    }
    finding(
        component,
        true,
        Reason::Ready,
        format!("none of {nodes} GPU nodes wants a driver from here"),
    )
}

/// Nodes that no operand reaches because of a taint. Where a component before this one has `told` of them, they are told
/// again only if the DaemonSet runs nowhere.
fn uncovered(
    component: ComponentCondition,
    rolled: &Rolled,
    verdict: Option<&Verdict>,
    told: bool,
) -> Option<Finding> {
    let nowhere = verdict.is_some_and(|verdict| verdict.rollout.desired == 0);
    if told && !nowhere {
        return None;
    }
    exception(component, rolled, Reason::TaintsNotTolerated)
}

fn exception(component: ComponentCondition, rolled: &Rolled, reason: Reason) -> Option<Finding> {
    let (nodes, message) = rolled.census.with(reason);
    let text = message?;
    let all = rolled.census.gpu_nodes;
    let message = format!(
        "{} of {all} GPU nodes not covered: on {}: {text}",
        nodes.len(),
        name_nodes(&nodes, nodes.len())
    );
    Some(finding(component, false, reason, message))
}

/// The first that is not True, else the first.
fn first_wrong<const N: usize>(judged: Finding, others: [Option<Finding>; N]) -> Finding {
    if judged.status != ConditionStatus::True {
        return judged;
    }
    others.into_iter().flatten().next().unwrap_or(judged)
}
