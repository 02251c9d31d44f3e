//! What is reported: the four conditions and the sub-object `status.devicePlugin`. Pure.

mod mig;
mod sharing;

use crate::build::component;
use crate::index::{Expected, Group, Summary};
use crate::observe::Observed;
use crate::validate::{Fault, Plan, Validated};
use crate::verdict::Topic;
use std::sync::Arc;
use tessera_api::conditions::{ComponentCondition, Reason};
use tessera_api::effective::Operand;
use tessera_api::names::app;
use tessera_api::policy::{ComponentStatus, NodeExceptions, OperandStatus};
use tessera_runtime::Outcome;
use tessera_runtime::apply::WriteError;
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::operands::{NotCovered, Rollout, Verdict, judge, name_nodes};
use tessera_runtime::status::{Finding, Slice, finding};

/// What a reconcile leaves behind.
#[derive(Clone, Debug)]
pub struct Report {
    /// For the policy's status.
    pub slice: Slice,
    /// For the work loop.
    pub outcome: Outcome,
}

/// Everything to report.
pub fn report(validated: &Validated, observed: &Observed, failed: &[WriteError]) -> Report {
    let (policy, nodes, view) = (
        &validated.policy,
        &observed.nodes,
        View { observed, failed },
    );
    let plugin = view.plugin(validated);
    let gfd = off_or(
        &validated.gfd,
        ComponentCondition::FeatureDiscoveryReady,
        || {
            view.operand(
                ComponentCondition::FeatureDiscoveryReady,
                app::GFD,
                component::GFD,
                |nodes| nodes.gfd,
            )
        },
    );
    let sharing = sharing::finding(validated, view.rollout(app::DEVICE_PLUGIN), nodes);
    let mig = off_or(&validated.mig, ComponentCondition::MigReady, || {
        let finding = view.operand(
            ComponentCondition::MigReady,
            app::MIG_MANAGER,
            component::MIG_MANAGER,
            |nodes| nodes.mig,
        );
        mig::finding(finding, nodes)
    });
    // While pods roll out, nodes differ as a matter of course.
    let is_mismatch = sharing.reason == Reason::SharingMismatch;
    let findings = vec![plugin, gfd, sharing, mig];
    let outcome = outcome(&findings);
    let operands = [
        (app::DEVICE_PLUGIN, &policy.device_plugin.operand),
        (app::MPS, &policy.device_plugin.operand),
        (app::GFD, &policy.gfd.operand),
        (app::MIG_MANAGER, &policy.mig_manager.operand),
    ];
    let main = view
        .rollout(app::DEVICE_PLUGIN)
        .filter(|_| policy.device_plugin.operand.enabled);
    let component = ComponentStatus {
        summary: Some(main.map_or_else(
            || absent(&validated.plugin).to_owned(),
            |main| format!("{}/{}", main.ready, main.desired),
        )),
        desired: main.map(|main| main.desired),
        ready: main.map(|main| main.ready),
        updated: main.map(|main| main.updated),
        version: main
            .map(|_| policy.device_plugin.operand.image.version().to_owned())
            .filter(|version| !version.is_empty()),
        operands: operands
            .iter()
            .filter_map(|(name, operand)| view.operand_status(name, operand))
            .collect(),
        exceptions: exceptions(observed, is_mismatch),
        upgrade: None,
    };
    Report {
        slice: Slice {
            findings,
            component,
        },
        outcome,
    }
}

fn absent<T>(plan: &Plan<T>) -> &'static str {
    match plan {
        Plan::Off => "disabled",
        Plan::Keep(_) => "invalid",
        Plan::Run(_) => "starting",
    }
}

struct View<'a> {
    observed: &'a Observed,
    failed: &'a [WriteError],
}

impl View<'_> {
    fn rollout(&self, name: &str) -> Option<Rollout> {
        self.observed.rollouts.get(name).copied()
    }

    /// The device plugin, with the MPS daemon where there is one.
    fn plugin(&self, validated: &Validated) -> Finding {
        let type_ = ComponentCondition::DevicePluginReady;
        off_or(&validated.plugin, type_, || {
            let plugin = self.operand(
                type_,
                app::DEVICE_PLUGIN,
                component::DEVICE_PLUGIN,
                |nodes| nodes.plugin,
            );
            let is_mps = matches!(&validated.plugin, Plan::Run(config) if config.mps);
            if is_mps && plugin.reason == Reason::Ready {
                let mps = self.operand(type_, app::MPS, component::MPS, |_| 0);
                if mps.status != plugin.status {
                    return mps;
                }
            }
            plugin
        })
    }

    /// One DaemonSet: failed writes first, then its pods. It is not ready before all nodes that are to run it count in it.
    fn operand(
        &self,
        type_: ComponentCondition,
        name: &str,
        component: &str,
        nodes: impl Fn(&Expected) -> usize,
    ) -> Finding {
        if let Some(error) = self
            .failed
            .iter()
            .find(|error| error.component.as_deref() == Some(component))
        {
            return finding(
                type_,
                false,
                failure(error),
                format!("{error}; it is tried again"),
            );
        }
        let summary = &self.observed.nodes;
        let (expected, denied) = (nodes(&summary.expected), nodes(&summary.denied));
        match self.verdict(name) {
            Some(verdict)
                if verdict.reason == Reason::NoGPUNodes && expected == 0 && denied > 0 =>
            {
                self.not_covered(type_).unwrap_or_else(|| {
                    finding(type_, verdict.ready, verdict.reason, verdict.message)
                })
            }
            Some(verdict)
                if verdict.reason == Reason::NoGPUNodes
                    && let Some(paused) = group(summary, Topic::Paused) =>
            {
                let text = format!("DaemonSet {name}: paused on {}", tell(paused));
                finding(type_, false, Reason::RollingOut, text)
            }
            Some(verdict) if verdict.ready && count(expected) > verdict.rollout.desired => {
                let text = format!(
                    "DaemonSet {name}: {} of {expected} nodes have been given a pod",
                    verdict.rollout.desired
                );
                finding(type_, false, Reason::RollingOut, text)
            }
            Some(verdict) => finding(type_, verdict.ready, verdict.reason, verdict.message),
            None => finding(
                type_,
                false,
                Reason::RollingOut,
                format!("DaemonSet {name} is being created"),
            ),
        }
    }

    /// All nodes that it is for have taints: as the other operands' conditions say it.
    fn not_covered(&self, type_: ComponentCondition) -> Option<Finding> {
        let summary = &self.observed.nodes;
        let tainted = group(summary, Topic::Taint)?;
        let not_covered = NotCovered {
            count: tainted.count,
            nodes: tainted.first.iter().map(|(node, _)| node.clone()).collect(),
            sentence: tainted.first.first()?.1.clone(),
        };
        let (reason, message) = not_covered.told(summary.expected.gpu + summary.denied.gpu);
        Some(finding(type_, false, reason, message))
    }

    fn verdict(&self, name: &str) -> Option<Verdict> {
        let rollout = self.rollout(name)?;
        let pods: Vec<Arc<PodFacts>> = self
            .observed
            .troubled
            .iter()
            .filter(|pod| pod.app == name)
            .cloned()
            .collect();
        Some(judge(name, rollout, &pods, true))
    }

    fn operand_status(&self, name: &str, operand: &Operand) -> Option<OperandStatus> {
        let rollout = self.rollout(name)?;
        let version = operand.image.version();
        Some(OperandStatus {
            name: name.to_owned(),
            desired: rollout.desired,
            ready: rollout.ready,
            updated: rollout.updated,
            version: (!version.is_empty()).then(|| version.to_owned()),
        })
    }
}

fn failure(error: &WriteError) -> Reason {
    use tessera_runtime::{Class, Classify};
    match error.class() {
        Class::Forbidden => Reason::Forbidden,
        Class::Conflict
        | Class::Invalid
        | Class::Transient
        | Class::LostLeadership
        | Class::Bug => Reason::ReconcileFailed,
    }
}

/// The finding of a component that is off or cannot be used; else what `run` says.
fn off_or<T>(plan: &Plan<T>, type_: ComponentCondition, run: impl FnOnce() -> Finding) -> Finding {
    match plan {
        Plan::Off => finding(type_, true, Reason::Disabled, "the policy turns it off"),
        Plan::Keep(Fault { reason, message }) => finding(type_, false, *reason, message.clone()),
        Plan::Run(_) => run(),
    }
}

/// Pods by trouble, then nodes by topic.
fn exceptions(observed: &Observed, is_mismatch: bool) -> Vec<NodeExceptions> {
    let mut list = Vec::new();
    for exception in tessera_runtime::operands::group(&observed.troubled) {
        // Pods that are on their way are no exception.
        if !matches!(
            exception.reason,
            Reason::RollingOut | Reason::WaitingForDependency
        ) {
            list.push(NodeExceptions {
                reason: exception.reason.to_string(),
                count: count(exception.count),
                nodes: exception.nodes,
                message: Some(exception.message),
            });
        }
    }
    let differ = is_mismatch.then_some((&Topic::Sharing, &observed.nodes.advertising.differ));
    for (topic, group) in observed.nodes.groups.iter().chain(differ) {
        if let Some(reason) = topic.reason() {
            list.push(NodeExceptions {
                reason: reason.to_string(),
                count: count(group.count),
                nodes: group.first.iter().map(|(node, _)| node.clone()).collect(),
                message: group.first.first().map(|(_, text)| text.clone()),
            });
        }
    }
    list
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// A group of the summary that is not empty.
fn group(nodes: &Summary, topic: Topic) -> Option<&Group> {
    nodes.groups.get(&topic).filter(|group| group.count > 0)
}

/// `gpu-1: nvidia.com/gpu is 8, asked for 32; gpu-2: ...; and 3 more`, or names only where all say the same.
fn tell(group: &Group) -> String {
    let texts: Vec<&String> = group.first.iter().map(|(_, text)| text).collect();
    let same = texts
        .windows(2)
        .all(|pair| matches!(pair, [a, b] if a == b));
    let names: Vec<String> = group.first.iter().map(|(node, _)| node.clone()).collect();
    match texts.first() {
        Some(text) if same => format!("{}: {text}", name_nodes(&names, group.count)),
        _ => {
            let list = group
                .first
                .iter()
                .map(|(node, text)| format!("{node}: {text}"))
                .collect::<Vec<_>>()
                .join("; ");
            match group.count.saturating_sub(group.first.len()) {
                0 => list,
                more => format!("{list}; and {more} more"),
            }
        }
    }
}

/// A fault of the user blocks, everything else is on its way.
fn outcome(findings: &[Finding]) -> Outcome {
    use tessera_api::conditions::ConditionStatus;
    let bad = |finding: &&Finding| finding.status != ConditionStatus::True;
    let needs_person = |reason: Reason| {
        matches!(
            reason,
            Reason::InvalidSpec
                | Reason::ConfigMapNotFound
                | Reason::ConfigKeyNotFound
                | Reason::ConfigInvalid
                | Reason::NodeConfigUnknown
        )
    };
    if let Some(finding) = findings
        .iter()
        .filter(bad)
        .find(|finding| needs_person(finding.reason))
    {
        return Outcome::Blocked {
            reason: format!("{}: {}", finding.component, finding.message),
        };
    }
    match findings.iter().find(bad) {
        Some(finding) => Outcome::Progressing {
            reason: format!("{}: {}", finding.component, finding.reason),
            requeue: None,
        },
        None => Outcome::Ready,
    }
}
