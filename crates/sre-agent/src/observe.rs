//! Stores -> [`Snapshot`]: the only reads of a check, beside the scrapes.

use crate::context::Context;
use crate::scrape::Target;
use crate::snapshot::{NodeView, OperationView, Snapshot};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::core::{DeserializeGuard, Selector, SelectorExt};
use std::collections::BTreeMap;
use tessera_api::names::{GPU_RESOURCE, MIG_RESOURCE_PREFIX, annotation, label};
use tessera_api::nodeoperation::OperationKind;
use tessera_api::sreagent::{AgentReport, SREAgentReason, SREAgentSpec};
use tessera_api::{NodeFacts, SREAgent};
use tessera_runtime::drain::is_marked;
use tessera_runtime::operation::Operation;

/// Default port of dcgm-exporter.
const EXPORTER_PORT: u16 = 9400;

/// The SREAgent that this agent works for.
#[derive(Clone, Debug, PartialEq)]
pub struct Own {
    /// UID.
    pub uid: String,
    /// What it should do.
    pub spec: SREAgentSpec,
    /// Whether the right to repair is given, as the controller says; `None` until it has said so of this very spec.
    pub has_rights: Option<bool>,
    /// What was reported last.
    pub report: Option<AgentReport>,
}

impl Own {
    /// Reads it; `None` if it cannot be decoded, which the controller reports.
    pub fn project(object: DeserializeGuard<SREAgent>) -> Option<Self> {
        let object = object.0.ok()?;
        let status = object.status.clone().unwrap_or_default();
        let allowed = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "RepairsAllowed");
        let current =
            allowed.filter(|condition| condition.observed_generation == object.metadata.generation);
        let reason = current.and_then(|condition| {
            serde_json::from_value::<SREAgentReason>(serde_json::Value::String(
                condition.reason.clone(),
            ))
            .ok()
        });
        let settled = reason.filter(|reason| *reason != SREAgentReason::BindingPending);
        Some(Self {
            uid: object.uid().unwrap_or_default(),
            spec: object.spec,
            has_rights: settled.map(SREAgentReason::has_rights),
            report: status.agent,
        })
    }
}

/// An exporter's pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Exporter {
    /// Its node.
    pub node: String,
    /// Where it listens.
    pub target: Target,
    /// When it started: of two on a node, the younger one counts.
    pub started: Option<Timestamp>,
}

impl Exporter {
    /// Reads a pod that runs and has an address.
    pub fn project(pod: Pod) -> Option<Self> {
        let (spec, status) = (pod.spec?, pod.status?);
        let runs =
            status.phase.as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none();
        let ports = spec
            .containers
            .iter()
            .flat_map(|container| container.ports.iter().flatten());
        let named = ports
            .filter(|port| port.name.as_deref() == Some("metrics"))
            .map(|port| port.container_port)
            .next();
        let port = named
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(EXPORTER_PORT);
        let target = Target {
            ip: status.pod_ip?.parse().ok()?,
            port,
        };
        runs.then_some(Self {
            node: spec.node_name?,
            target,
            started: status.start_time.map(|time| time.0),
        })
    }
}

/// What the stores hold now; telemetry comes with the scrapes.
pub fn observe(context: &Context, own: &Own) -> Snapshot {
    let selector = selector(&own.spec);
    let operations: BTreeMap<String, OperationView> = context
        .operations
        .store()
        .values()
        .iter()
        .map(|operation| {
            (
                operation.node.clone(),
                operation_view(operation, context.operations.holder()),
            )
        })
        .collect();
    let held = |name: &str| operations.get(name).is_some_and(|operation| operation.ours);
    let nodes = context.nodes.values().into_iter().filter_map(|facts| {
        let selected = selector.matches(&facts.labels);
        (selected || held(&facts.name)).then(|| (facts.name.clone(), node_view(&facts, selected)))
    });
    let nodes = nodes.collect();
    let troubles = [
        context.nodes.trouble(),
        context.operations.store().trouble(),
    ];
    // A watch that ended as watches do starts again where it was; one that cannot be started leaves us blind.
    let blind = troubles
        .into_iter()
        .flatten()
        .find(|text| text.starts_with("cannot watch"));
    Snapshot {
        nodes,
        telemetry: BTreeMap::new(),
        operations,
        blind,
    }
}

/// The exporters of the snapshot's nodes.
pub fn targets(context: &Context, snapshot: &Snapshot) -> BTreeMap<String, Target> {
    let mut exporters = context.exporters.values();
    exporters.sort_by_key(|exporter| exporter.started);
    let wanted = exporters
        .iter()
        .filter(|exporter| snapshot.nodes.contains_key(&exporter.node));
    wanted
        .map(|exporter| (exporter.node.clone(), exporter.target))
        .collect()
}

fn selector(spec: &SREAgentSpec) -> Selector {
    let asked = spec
        .node_selector
        .clone()
        .and_then(|selector| Selector::try_from(selector).ok());
    asked.unwrap_or_else(|| {
        Selector::from_iter([(label::GPU_PRESENT.to_owned(), "true".to_owned())])
    })
}

fn operation_view(operation: &Operation, me: &str) -> OperationView {
    OperationView {
        ours: operation.holder == me
            && operation
                .kind()
                .is_none_or(|kind| kind == OperationKind::Repair),
        holder: if operation.holder.is_empty() {
            "somebody unknown".to_owned()
        } else {
            operation.holder.clone()
        },
        phase: operation.phase(),
        reason: operation.status.reason,
        since: operation.status.since.as_ref().map(|time| time.0),
        target: operation.status.target.clone().unwrap_or_default(),
        attempts: operation.status.attempts.unwrap_or(1),
    }
}

fn node_view(facts: &NodeFacts, selected: bool) -> NodeView {
    let not_ready = (!facts.ready).then(|| {
        facts
            .ready_since
            .or(facts.created)
            .unwrap_or(Timestamp::UNIX_EPOCH)
    });
    let mig = facts
        .capacity
        .iter()
        .any(|(name, count)| name.starts_with(MIG_RESOURCE_PREFIX) && *count > 0)
        || facts
            .label(label::MIG_STRATEGY)
            .is_some_and(|strategy| !matches!(strategy, "" | "none"));
    let replicas = facts
        .label(label::GPU_REPLICAS)
        .and_then(|text| text.parse::<u32>().ok())
        .unwrap_or(1)
        .max(1);
    let cards = |list: &BTreeMap<String, u32>| {
        list.get(GPU_RESOURCE)
            .filter(|_| !mig)
            .map(|count| count / replicas)
    };
    let labelled = facts
        .label(label::GPU_COUNT)
        .and_then(|text| text.parse().ok());
    NodeView {
        uid: facts.uid.clone(),
        selected,
        boot_id: facts.boot_id.clone(),
        created: facts.created,
        not_ready_since: not_ready,
        unschedulable: facts.unschedulable,
        marked: is_marked(facts, OperationKind::Repair),
        skip: facts
            .annotations
            .get(annotation::SKIP)
            .is_some_and(|value| value == "true"),
        control_plane: ["control-plane", "master"].iter().any(|role| {
            facts
                .labels
                .contains_key(&format!("node-role.kubernetes.io/{role}"))
        }),
        foreign: foreign(facts),
        capacity: cards(&facts.capacity),
        allocatable: cards(&facts.allocatable),
        labelled: labelled.filter(|_| !mig),
    }
}

/// Marks of autoscalers and other healers (`reference/self-healing.md` section 3): hands off.
fn foreign(facts: &NodeFacts) -> Option<String> {
    if facts.deleting {
        return Some("the node is being deleted".to_owned());
    }
    let taints = ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"];
    if let Some(taint) = facts
        .taints
        .iter()
        .find(|taint| taints.contains(&taint.key.as_str()))
    {
        return Some(format!("taint {}", taint.key));
    }
    if facts
        .label("dgxc.nvidia.com/nvsentinel-state")
        .is_some_and(|state| !state.is_empty())
    {
        return Some("label dgxc.nvidia.com/nvsentinel-state".to_owned());
    }
    let healer = |key: &&String| {
        key.starts_with("remediation.medik8s.io/") || *key == "weave.works/kured-reboot-in-progress"
    };
    if let Some(key) = facts.annotations.keys().find(healer) {
        return Some(format!("annotation {key}"));
    }
    // NVIDIA's upgrade machine at work; what only waits, is done or has failed is not.
    let idle = ["", "upgrade-done", "upgrade-required", "upgrade-failed"];
    let state = facts
        .label(label::UPGRADE_STATE)
        .filter(|state| !idle.contains(state))?;
    Some(format!("driver upgrade, {state}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(value: serde_json::Value) -> NodeFacts {
        NodeFacts::from_node(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn cards_are_counted_without_sharing_and_not_with_mig() {
        let node = |labels: serde_json::Value, capacity: serde_json::Value| {
            let view = node_view(
                &facts(
                    json!({"metadata": {"name": "a", "labels": labels}, "status": {
                "capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}}),
                ),
                true,
            );
            (view.capacity, view.labelled)
        };
        let count = |extra: (&str, &str)| json!({"nvidia.com/gpu.count": "8", extra.0: extra.1});
        assert_eq!(
            node(count(("x", "")), json!({"nvidia.com/gpu": "8"})),
            (Some(8), Some(8))
        );
        assert_eq!(
            node(
                count(("nvidia.com/gpu.replicas", "4")),
                json!({"nvidia.com/gpu": "32"})
            ),
            (Some(8), Some(8))
        );
        assert_eq!(
            node(
                count(("nvidia.com/mig.strategy", "single")),
                json!({"nvidia.com/gpu": "56"})
            ),
            (None, None)
        );
        assert_eq!(
            node(
                count(("x", "")),
                json!({"nvidia.com/mig-1g.5gb": "7", "nvidia.com/gpu": "0"})
            ),
            (None, None)
        );
        assert_eq!(node(json!({}), json!({})), (None, None));
    }

    #[test]
    fn other_healers_are_respected() {
        let cases = [
            (
                json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                "the node is being deleted",
            ),
            (
                json!({"metadata": {"name": "a"}, "spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}}),
                "taint karpenter.sh/disrupted",
            ),
            (
                json!({"metadata": {"name": "a", "labels": {"dgxc.nvidia.com/nvsentinel-state": "draining"}}}),
                "label dgxc.nvidia.com/nvsentinel-state",
            ),
            (
                json!({"metadata": {"name": "a", "annotations": {"weave.works/kured-reboot-in-progress": "x"}}}),
                "annotation weave.works/kured-reboot-in-progress",
            ),
            (
                json!({"metadata": {"name": "a", "labels": {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}}}),
                "driver upgrade, drain-required",
            ),
        ];
        for (node, want) in cases {
            assert_eq!(foreign(&facts(node)).as_deref(), Some(want));
        }
        let calm = json!({"metadata": {"name": "a", "labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}}});
        assert_eq!(foreign(&facts(calm)), None);
    }

    #[test]
    fn only_running_exporters_are_asked_on_their_named_port() {
        let pod = |phase: &str, ip: serde_json::Value| {
            Exporter::project(serde_json::from_value(json!({
                "metadata": {"name": "e"},
                "spec": {"nodeName": "n", "containers": [{"name": "e", "ports": [{"name": "metrics", "containerPort": 9500}]}]},
                "status": {"phase": phase, "podIP": ip}})).unwrap())
        };
        assert_eq!(
            pod("Running", json!("10.0.0.1")).unwrap().target,
            Target {
                ip: "10.0.0.1".parse().unwrap(),
                port: 9500
            }
        );
        assert_eq!(pod("Pending", json!("10.0.0.1")), None);
        assert_eq!(pod("Running", json!(null)), None);
    }

    #[test]
    fn rights_are_what_the_controller_says() {
        let own = |reason: &str, generation: i64| {
            let object = json!({"apiVersion": "aiops.local/v1", "kind": "SREAgent",
                "metadata": {"name": "a", "uid": "u", "generation": 2}, "spec": {},
                "status": {"conditions": [{"type": "RepairsAllowed", "status": "True", "reason": reason, "message": "",
                    "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
            Own::project(serde_json::from_value(object).unwrap())
                .unwrap()
                .has_rights
        };
        assert_eq!(
            (own("Allowed", 2), own("Suspended", 2)),
            (Some(true), Some(true))
        );
        assert_eq!(own("RepairNotPermitted", 2), Some(false));
        // Said of an earlier spec, or not yet decided.
        assert_eq!((own("Allowed", 1), own("BindingPending", 2)), (None, None));
    }
}
