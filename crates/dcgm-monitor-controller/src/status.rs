//! The slice of the policy's status: pure.

mod memory;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use tessera_api::{
    ComponentCondition, EffectivePolicy, Reason,
    conditions::{ConditionStatus, find},
    effective,
    names::service,
    policy::{ComponentStatus, NodeExceptions, OperandStatus},
};
use tessera_runtime::{
    Classify, Outcome,
    apply::WriteError,
    operands::{NotCovered, Verdict, judge},
    status::{Finding, Slice, finding, off_or_invalid},
};

use crate::{
    build::component,
    expected::OPERANDS,
    observe::{Monitor, Progress},
    service_monitor,
    validate::{Validated, Wanted},
};

use ComponentCondition::{ExporterReady, MonitoringReady};

/// One operand that is on, judged.
struct Judged<'a> {
    component: &'static str,
    name: &'static str,
    operand: &'a effective::Operand,
    verdict: Verdict,
    exists: bool,
}

/// Everything that this controller says about a policy; `before` are the conditions that it has.
pub fn slice(
    policy: &EffectivePolicy,
    wanted: &Validated,
    before: &[Condition],
    progress: &Progress,
    failed: &[WriteError],
) -> Slice {
    let judged = judged(policy, wanted, progress);
    Slice {
        findings: vec![
            exporter_ready(policy, wanted, &judged, progress, failed),
            monitoring_ready(policy, wanted, before, progress, failed),
        ],
        component: component_status(policy, wanted, &judged, progress),
    }
}

/// What the log says, and when to look again.
pub fn outcome(slice: &Slice, requeue: Option<Duration>) -> Outcome {
    let open = slice
        .findings
        .iter()
        .find(|finding| finding.status != ConditionStatus::True);
    match open {
        None if requeue.is_none() => Outcome::Ready,
        None => Outcome::Progressing {
            reason: "the report waits for its turn".to_owned(),
            requeue,
        },
        Some(finding) if finding.reason == Reason::InvalidSpec && requeue.is_none() => {
            Outcome::Blocked {
                reason: finding.message.clone(),
            }
        }
        Some(finding) => Outcome::Progressing {
            reason: format!("{}: {}", finding.component, finding.reason),
            requeue,
        },
    }
}

fn judged<'a>(
    policy: &'a EffectivePolicy,
    wanted: &Validated,
    progress: &Progress,
) -> Vec<Judged<'a>> {
    let on = |component: &str| match component {
        component::EXPORTER => (
            matches!(wanted.exporter, Wanted::On(_)),
            &policy.dcgm_exporter.operand,
        ),
        component::ENGINE => (matches!(wanted.engine, Wanted::On(_)), &policy.dcgm.operand),
        _ => (
            matches!(wanted.node_status, Wanted::On(_)),
            &policy.node_status_exporter.operand,
        ),
    };
    let mut judged = Vec::new();
    for (component, _, name) in OPERANDS {
        let (true, operand) = on(component) else {
            continue;
        };
        let rollout = progress.rollouts.get(component);
        let pods = progress
            .pods
            .get(component)
            .map(Vec::as_slice)
            .unwrap_or_default();
        // A pod of an OnDelete DaemonSet is old until somebody deletes it: that is what the user asked for.
        let wait = policy.daemonsets.update_strategy != effective::UpdateStrategy::OnDelete;
        let verdict = judge(name, rollout.copied().unwrap_or_default(), pods, wait);
        let verdict = with_nodes(component, name, verdict, progress);
        let verdict = match component {
            component::EXPORTER => memory::with_advice(verdict, operand),
            _ => verdict,
        };
        judged.push(Judged {
            component,
            name,
            operand,
            verdict,
            exists: rollout.is_some(),
        });
    }
    judged
}

/// A DaemonSet that no node asks for is ready only if no node is about to ask.
fn with_nodes(component: &str, name: &str, verdict: Verdict, progress: &Progress) -> Verdict {
    let expected = &progress.expected;
    let count = |map: &std::collections::BTreeMap<&'static str, usize>| {
        map.get(component).copied().unwrap_or(0)
    };
    let (unlabelled, labelled) = (count(&expected.unlabelled), count(&expected.labelled));
    let not_ready = |reason, message| Verdict {
        ready: false,
        reason,
        message,
        ..verdict.clone()
    };
    if verdict.ready && unlabelled > 0 {
        let message = format!(
            "DaemonSet {name}: {unlabelled} of {} GPU nodes are about to be labelled for it",
            expected.gpu_nodes
        );
        return not_ready(Reason::RollingOut, message);
    }
    if verdict.reason == Reason::NoGPUNodes && labelled > 0 {
        let tainted = expected.tainted.iter();
        let tainted = tainted.map(|(node, sentence)| (node.as_str(), sentence.as_str()));
        return match NotCovered::of(tainted).filter(|tainted| tainted.count >= labelled) {
            Some(tainted) => {
                let (reason, message) = tainted.told(expected.gpu_nodes);
                not_ready(reason, message)
            }
            None => not_ready(
                Reason::RollingOut,
                format!("DaemonSet {name}: {labelled} nodes are about to get its pods"),
            ),
        };
    }
    if verdict.reason == Reason::NoGPUNodes && expected.gpu_nodes == 0 {
        return Verdict {
            message: "no node has a GPU".to_owned(),
            ..verdict
        };
    }
    verdict
}

fn exporter_ready(
    policy: &EffectivePolicy,
    wanted: &Validated,
    judged: &[Judged<'_>],
    progress: &Progress,
    failed: &[WriteError],
) -> Finding {
    let unusable: Vec<&str> = [
        wanted.exporter.unusable(),
        wanted.engine.unusable(),
        wanted.node_status.unusable(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let invalid = (!unusable.is_empty()).then(|| unusable.join("; "));
    if let Some(finding) = off_or_invalid(ExporterReady, policy, invalid.as_deref()) {
        return finding;
    }
    if let Some(finding) = write_failed(ExporterReady, failed, |component| {
        component != Some(component::MONITOR)
    }) {
        return finding;
    }
    if let Some(problem) = &wanted.metrics_problem {
        return finding(
            ExporterReady,
            false,
            problem.reason,
            problem.message.clone(),
        );
    }
    let mut open = judged.iter().filter(|one| !one.verdict.ready).peekable();
    if let Some(first) = open.peek() {
        let reason = first.verdict.reason;
        let messages: Vec<&str> = open.map(|one| one.verdict.message.as_str()).collect();
        return finding(ExporterReady, false, reason, messages.join("; "));
    }
    if progress.expected.gpu_nodes == 0
        && judged
            .iter()
            .any(|one| one.verdict.reason == Reason::NoGPUNodes)
    {
        return finding(
            ExporterReady,
            true,
            Reason::NoGPUNodes,
            "no node has a GPU: pods start as soon as one joins",
        );
    }
    let messages: Vec<&str> = judged
        .iter()
        .map(|one| one.verdict.message.as_str())
        .collect();
    finding(ExporterReady, true, Reason::Ready, messages.join("; "))
}

fn monitoring_ready(
    policy: &EffectivePolicy,
    wanted: &Validated,
    before: &[Condition],
    progress: &Progress,
    failed: &[WriteError],
) -> Finding {
    if let Some(finding) = off_or_invalid(MonitoringReady, policy, wanted.exporter.unusable()) {
        return finding;
    }
    let name = service::NVIDIA_DCGM_EXPORTER;
    let monitor = format!("ServiceMonitor {}/{name}", wanted.common.namespace);
    let failure = write_failed(MonitoringReady, failed, |component| {
        component == Some(component::MONITOR)
    });
    match progress.monitor {
        Monitor::NoKind => {
            let message = format!(
                "{monitor} is made as soon as the Prometheus operator's CRD {} is installed; until then metrics are at Service {}, port metrics",
                service_monitor::CRD,
                service::DCGM_EXPORTER
            );
            finding(MonitoringReady, true, Reason::CRDNotInstalled, message)
        }
        Monitor::Forbidden => {
            let message = format!(
                "{monitor} cannot be made: the controller may not list servicemonitors in namespace {}; its Role lacks that right",
                wanted.common.namespace
            );
            finding(MonitoringReady, false, Reason::Forbidden, message)
        }
        // A moment later it is known: what was said before is not taken back for that.
        Monitor::Unknown => as_before(before).unwrap_or_else(|| about_to_be_made(&monitor)),
        Monitor::Missing => failure.unwrap_or_else(|| about_to_be_made(&monitor)),
        Monitor::Live => failure.unwrap_or_else(|| {
            let interval =
                service_monitor::duration(&policy.dcgm_exporter.service_monitor.interval);
            let message =
                format!("{monitor} asks Prometheus to scrape Service {name} every {interval}");
            finding(
                MonitoringReady,
                true,
                Reason::ServiceMonitorApplied,
                message,
            )
        }),
    }
}

fn about_to_be_made(monitor: &str) -> Finding {
    finding(
        MonitoringReady,
        false,
        Reason::Progressing,
        format!("{monitor} is about to be made"),
    )
}

fn as_before(before: &[Condition]) -> Option<Finding> {
    let known = find(before, MonitoringReady.as_str())?;
    let reason = known.reason.parse().ok()?;
    Some(finding(
        MonitoringReady,
        known.status == "True",
        reason,
        known.message.clone(),
    ))
}

fn write_failed(
    condition: ComponentCondition,
    failed: &[WriteError],
    about: impl Fn(Option<&str>) -> bool,
) -> Option<Finding> {
    let error = failed
        .iter()
        .find(|error| about(error.component.as_deref()))?;
    let reason = if error.class() == tessera_runtime::Class::Forbidden {
        Reason::Forbidden
    } else {
        Reason::ReconcileFailed
    };
    Some(finding(condition, false, reason, error.to_string()))
}

fn component_status(
    policy: &EffectivePolicy,
    wanted: &Validated,
    judged: &[Judged<'_>],
    progress: &Progress,
) -> ComponentStatus {
    let main = judged
        .iter()
        .find(|one| one.component == component::EXPORTER);
    let summary = match (&wanted.exporter, main) {
        (Wanted::Unusable(_), _) => "invalid".to_owned(),
        (_, Some(main)) => format!(
            "{}/{}",
            main.verdict.rollout.ready, main.verdict.rollout.desired
        ),
        _ => "disabled".to_owned(),
    };
    let operands = judged
        .iter()
        .filter(|one| one.exists)
        .map(|one| OperandStatus {
            name: one.name.to_owned(),
            desired: one.verdict.rollout.desired,
            ready: one.verdict.rollout.ready,
            updated: one.verdict.rollout.updated,
            version: Some(one.operand.image.version().to_owned())
                .filter(|version| !version.is_empty()),
        });
    ComponentStatus {
        summary: Some(summary),
        desired: main.map(|main| main.verdict.rollout.desired),
        ready: main.map(|main| main.verdict.rollout.ready),
        updated: main.map(|main| main.verdict.rollout.updated),
        version: main
            .map(|_| policy.dcgm_exporter.operand.image.version().to_owned())
            .filter(|version| !version.is_empty()),
        operands: operands.collect(),
        exceptions: exceptions(judged, progress),
        upgrade: None,
    }
}

fn exceptions(judged: &[Judged<'_>], progress: &Progress) -> Vec<NodeExceptions> {
    let pods = judged.iter().flat_map(|one| {
        one.verdict
            .exceptions
            .iter()
            .map(|exception| NodeExceptions {
                reason: exception.reason.to_string(),
                count: i32::try_from(exception.count).unwrap_or(i32::MAX),
                nodes: exception.nodes.clone(),
                message: Some(format!("{}: {}", one.name, exception.message)),
            })
    });
    let tainted = progress
        .expected
        .tainted
        .iter()
        .filter(|_| !judged.is_empty());
    let tainted = tainted
        .map(|(node, sentence)| (Reason::TaintsNotTolerated, node.clone(), sentence.clone()));
    pods.chain(NodeExceptions::group(tainted)).collect()
}

#[cfg(test)]
mod tests;
