//! Nodes and DaemonSets in, conditions out.

use super::samples::{INPUT, NAMESPACE, VALUES, map, policy, spec};
use crate::index::{Index, Summary};
use crate::observe::{Maps, Observed};
use crate::status::report;
use crate::validate::{Validated, validate};
use crate::verdict::Asked;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_api::conditions::{ConditionStatus, Reason};
use tessera_api::{EffectivePolicy, NodeFacts};
use tessera_runtime::Outcome;
use tessera_runtime::operands::Rollout;
use tessera_runtime::status::Finding;
use tessera_runtime::watch::{Change, ObjectKey, Store};

const READY: Rollout = Rollout {
    desired: 3,
    ready: 3,
    updated: 3,
    observed: true,
    leaving: false,
};

pub(super) fn node(name: &str, extra: &[(&str, &str)], capacity: u32) -> NodeFacts {
    let base = [
        ("gpu", "true"),
        ("pool", "gpu"),
        ("nvidia.com/gpu.present", "true"),
        ("nvidia.com/gpu.deploy.device-plugin", "true"),
        ("nvidia.com/gpu.deploy.mig-manager", "true"),
        ("nvidia.com/gpu.count", "8"),
    ];
    let labels = base
        .iter()
        .chain(extra)
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    NodeFacts {
        name: name.to_owned(),
        labels,
        capacity: BTreeMap::from([("nvidia.com/gpu".to_owned(), capacity)]),
        ..NodeFacts::default()
    }
}

pub(super) fn validated(policy: Arc<EffectivePolicy>, maps: &Maps) -> Validated {
    validate(policy, maps, NAMESPACE).unwrap()
}

fn asked(validated: &Validated) -> Asked {
    Asked {
        policy: validated.policy.clone(),
        configs: validated.configs.clone(),
        layouts: validated.layouts.clone(),
    }
}

fn summary(validated: &Validated, nodes: Vec<NodeFacts>) -> Summary {
    let store = Store::new("Node", |_| {});
    for node in nodes {
        store.observe(ObjectKey::cluster(&node.name), 1, node);
    }
    let index = Index::default();
    index.ask(Some(asked(validated)), &store);
    index.summary(&BTreeSet::new())
}

fn all_ready(nodes: Summary) -> Observed {
    let n = i32::try_from(nodes.expected.plugin).unwrap().max(3);
    let ready = Rollout {
        desired: n,
        ready: n,
        updated: n,
        ..READY
    };
    let names = [
        "nvidia-device-plugin-daemonset",
        "gpu-feature-discovery",
        "nvidia-mig-manager",
        "nvidia-device-plugin-mps-control-daemon",
    ];
    Observed {
        rollouts: names.into_iter().map(|name| (name, ready)).collect(),
        troubled: vec![],
        nodes,
    }
}

fn find<'a>(findings: &'a [Finding], type_: &str) -> &'a Finding {
    findings
        .iter()
        .find(|finding| finding.component.as_str() == type_)
        .unwrap()
}

fn line(finding: &Finding) -> String {
    format!(
        "{} {}: {}",
        finding.status.as_str(),
        finding.reason,
        finding.message
    )
}

pub(super) fn sharing(validated: &Validated, nodes: Vec<NodeFacts>) -> String {
    let report = report(validated, &all_ready(summary(validated, nodes)), &[]);
    line(find(&report.slice.findings, "SharingApplied"))
}

#[test]
fn all_is_well() {
    let validated = validated(policy(&[VALUES, INPUT]), &Maps::new());
    let nodes = (1..=3)
        .map(|n| node(&format!("gpu-{n}"), &[], 32))
        .collect();
    let report = report(&validated, &all_ready(summary(&validated, nodes)), &[]);
    assert_eq!(report.outcome, Outcome::Ready);
    let lines: Vec<String> = report.slice.findings.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "True Ready: DaemonSet nvidia-device-plugin-daemonset: 3 of 3 pods ready",
            "True Ready: DaemonSet gpu-feature-discovery: 3 of 3 pods ready",
            "True SharingApplied: nvidia.com/gpu with 4 shares each",
            "True Disabled: the policy turns it off",
        ]
    );
    let component = report.slice.component;
    assert_eq!(component.summary.as_deref(), Some("3/3"));
    assert_eq!(
        (component.version.as_deref(), component.exceptions.len()),
        (Some("v0.20.0"), 0)
    );
}

#[test]
fn nodes_that_differ_are_named_with_what_differs() {
    let validated = validated(policy(&[VALUES, INPUT]), &Maps::new());
    let nodes = vec![
        node("gpu-1", &[], 32),
        node("gpu-2", &[], 8),
        node("cpu-1", &[("gpu", "false")], 0),
    ];
    assert_eq!(
        sharing(&validated, nodes),
        "False SharingMismatch: 1 node is not as asked: gpu-2: nvidia.com/gpu is 8, asked for 32 (8 cards, 4 shares each)"
    );
    let many = (0..9).map(|n| node(&format!("gpu-{n}"), &[], 8)).collect();
    assert_eq!(
        sharing(&validated, many),
        "False SharingMismatch: 9 nodes are not as asked: gpu-0, gpu-1, gpu-2, gpu-3, gpu-4 and 4 more: nvidia.com/gpu is 8, asked for 32 (8 cards, 4 shares each)"
    );
}

#[test]
fn nodes_that_nobody_serves_are_exceptions_and_no_mismatch() {
    let validated = validated(policy(&[VALUES, INPUT]), &Maps::new());
    let mut tainted = node("gpu-1", &[], 8);
    tainted.taints.push(
        serde_json::from_value(
            serde_json::json!({"key": "x", "value": "y", "effect": "NoSchedule"}),
        )
        .unwrap(),
    );
    let paused = node(
        "gpu-2",
        &[(
            "nvidia.com/gpu.deploy.device-plugin",
            "paused-for-driver-upgrade",
        )],
        8,
    );
    let off = node(
        "gpu-3",
        &[("nvidia.com/gpu.deploy.device-plugin", "false")],
        8,
    );
    let summary = summary(&validated, vec![tainted, paused, off]);
    let report = report(&validated, &all_ready(summary), &[]);
    assert_eq!(
        find(&report.slice.findings, "SharingApplied").status,
        ConditionStatus::True
    );
    let exceptions: Vec<String> = report
        .slice
        .component
        .exceptions
        .iter()
        .map(|e| format!("{} {:?} {}", e.reason, e.nodes, e.message.clone().unwrap()))
        .collect();
    assert_eq!(
        exceptions,
        [
            "TaintsNotTolerated [\"gpu-1\"] taint x=y:NoSchedule is not tolerated: add it to spec.daemonsets.tolerations, or remove it",
            "NodePaused [\"gpu-2\"] label nvidia.com/gpu.deploy.device-plugin is paused-for-driver-upgrade",
        ]
    );
}

#[test]
fn where_every_node_is_tainted_each_operand_names_the_taint() {
    let validated = validated(spec("{migManager: {enabled: true}}"), &Maps::new());
    let mut tainted = node("gpu-1", &[], 8);
    tainted.taints.push(
        serde_json::from_value(serde_json::json!({"key": "x", "effect": "NoSchedule"})).unwrap(),
    );
    let mut off = tainted.clone();
    off.name = "gpu-2".to_owned();
    off.labels.insert(
        "nvidia.com/gpu.deploy.operands".to_owned(),
        "false".to_owned(),
    );
    let mut observed = all_ready(summary(&validated, vec![tainted, off.clone()]));
    let nowhere = Rollout {
        observed: true,
        ..Rollout::default()
    };
    for rollout in observed.rollouts.values_mut() {
        *rollout = nowhere;
    }
    let slice = report(&validated, &observed, &[]).slice;
    for condition in ["DevicePluginReady", "FeatureDiscoveryReady", "MigReady"] {
        assert_eq!(
            line(find(&slice.findings, condition)),
            "False TaintsNotTolerated: 1 of 2 GPU nodes not covered: on gpu-1: taint x:NoSchedule is not tolerated: \
             add it to spec.daemonsets.tolerations, or remove it",
            "{condition}"
        );
    }
    // A node that is switched off needs no toleration.
    observed.nodes = summary(&validated, vec![off]);
    let slice = report(&validated, &observed, &[]).slice;
    let plugin = find(&slice.findings, "DevicePluginReady");
    assert_eq!(
        (plugin.status, plugin.reason),
        (ConditionStatus::True, Reason::NoGPUNodes)
    );
}

#[test]
fn while_pods_roll_out_sharing_is_on_its_way() {
    let validated = validated(policy(&[VALUES, INPUT]), &Maps::new());
    let mut observed = all_ready(summary(&validated, vec![node("gpu-1", &[], 8)]));
    observed.rollouts.insert(
        "nvidia-device-plugin-daemonset",
        Rollout {
            updated: 1,
            ..READY
        },
    );
    let report = report(&validated, &observed, &[]);
    assert!(
        line(find(&report.slice.findings, "SharingApplied"))
            .starts_with("False RollingOut: nodes follow")
    );
    assert!(matches!(report.outcome, Outcome::Progressing { .. }));
}

#[test]
fn nodes_that_choose_a_key_that_is_not_there_are_named() {
    let maps = Maps::from([(
        "c".to_owned(),
        map(&[
            ("a", ""),
            (
                "b",
                "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}",
            ),
        ]),
    )]);
    let validated = validated(
        spec("{nodeSelector: {gpu: 'true'}, devicePlugin: {config: {name: c, default: a}}}"),
        &maps,
    );
    let choose = |name: &str, key, capacity| {
        node(name, &[("nvidia.com/device-plugin.config", key)], capacity)
    };
    let good = vec![node("gpu-1", &[], 8), choose("gpu-2", "b", 16)];
    assert_eq!(
        sharing(&validated, good),
        "True SharingApplied: b: nvidia.com/gpu with 2 shares each"
    );
    assert_eq!(
        sharing(&validated, vec![choose("gpu-3", "x", 8)]),
        "False NodeConfigUnknown: gpu-3: label nvidia.com/device-plugin.config is x, and ConfigMap c has only a, b; the plugin does not start there"
    );
}

#[test]
fn mig_nodes_are_told_by_name() {
    let validated = validated(
        spec("{nodeSelector: {gpu: 'true'}, migManager: {enabled: true}}"),
        &Maps::new(),
    );
    let asks = |name: &str, state| {
        node(
            name,
            &[
                ("nvidia.com/mig.config", "all-1g.10gb"),
                ("nvidia.com/mig.config.state", state),
            ],
            8,
        )
    };
    let mig = |nodes| {
        let report = report(&validated, &all_ready(summary(&validated, nodes)), &[]);
        line(find(&report.slice.findings, "MigReady"))
    };
    assert_eq!(
        mig(vec![asks("gpu-1", "success")]),
        "True Ready: DaemonSet nvidia-mig-manager: 3 of 3 pods ready"
    );
    assert_eq!(
        mig(vec![asks("gpu-1", "pending")]),
        "False MigPending: gpu-1: layout all-1g.10gb is being applied"
    );
    assert!(
        mig(vec![asks("gpu-1", "pending"), asks("gpu-2", "failed")])
            .starts_with("False MigFailed: gpu-2: layout all-1g.10gb could not be applied")
    );
}

#[test]
fn the_index_says_the_same_as_judging_all_nodes_anew_and_wakes_only_for_news() {
    let validated = validated(policy(&[VALUES, INPUT]), &Maps::new());
    let store: Store<NodeFacts> = Store::new("Node", |_| {});
    let index = Index::default();
    assert!(index.ask(Some(asked(&validated)), &store));
    assert!(
        !index.ask(Some(asked(&validated)), &store),
        "the same question"
    );
    let change = |name: &str, new: Option<NodeFacts>| Change {
        key: ObjectKey::cluster(name),
        old: None,
        new: new.map(Arc::new),
    };
    assert!(index.changed(&change("gpu-1", Some(node("gpu-1", &[], 8)))));
    assert!(!index.changed(&change(
        "gpu-1",
        Some(node("gpu-1", &[("unrelated", "x")], 8))
    )));
    assert!(
        index.changed(&change("gpu-2", Some(node("gpu-2", &[], 32)))),
        "one more node to serve"
    );
    assert_eq!(
        index.summary(&BTreeSet::new()),
        summary(
            &validated,
            vec![node("gpu-1", &[], 8), node("gpu-2", &[], 32)]
        )
    );
    assert!(index.changed(&change("gpu-1", None)));
    assert!(!index.changed(&change("gpu-1", None)));
    assert_eq!(
        index.summary(&BTreeSet::new()),
        summary(&validated, vec![node("gpu-2", &[], 32)])
    );
}

#[test]
fn labels_that_are_not_written_yet_are_not_the_absence_of_gpus() {
    let validated = validated(
        spec("{nodeSelector: {gpu: 'true'}, migManager: {enabled: true}}"),
        &Maps::new(),
    );
    let mut fresh = node("gpu-1", &[], 0);
    fresh
        .labels
        .retain(|key, _| !key.starts_with("nvidia.com/"));
    let mut observed = all_ready(summary(&validated, vec![fresh.clone()]));
    let none = Rollout {
        desired: 0,
        ready: 0,
        updated: 0,
        ..READY
    };
    observed
        .rollouts
        .values_mut()
        .for_each(|rollout| *rollout = none);
    let lines = |observed: &Observed| {
        let findings = report(&validated, observed, &[]).slice.findings;
        ["DevicePluginReady", "MigReady"].map(|type_| line(find(&findings, type_)))
    };
    assert_eq!(
        lines(&observed),
        [
            "False RollingOut: DaemonSet nvidia-device-plugin-daemonset: 0 of 1 nodes have been given a pod",
            "False Progressing: feature discovery has yet to say on 1 nodes whether their cards can do MIG",
        ]
    );
    let mut paused = fresh.clone();
    paused.labels.insert(
        "nvidia.com/gpu.deploy.device-plugin".to_owned(),
        "paused-for-driver-upgrade".to_owned(),
    );
    observed.nodes = summary(&validated, vec![paused]);
    assert_eq!(
        lines(&observed)[0],
        "False RollingOut: DaemonSet nvidia-device-plugin-daemonset: paused on gpu-1: label nvidia.com/gpu.deploy.device-plugin is paused-for-driver-upgrade",
    );
    fresh
        .labels
        .insert("nvidia.com/mig.capable".to_owned(), "false".to_owned());
    fresh.labels.insert("gpu".to_owned(), "false".to_owned());
    observed.nodes = summary(&validated, vec![fresh]);
    assert_eq!(
        lines(&observed),
        [
            "True NoGPUNodes: DaemonSet nvidia-device-plugin-daemonset: no node asks for it",
            "True NoCapableNodes: no node has cards that can do MIG",
        ]
    );
}

#[test]
fn a_mig_change_that_takes_too_long_has_failed_until_it_moves() {
    let validated = validated(
        spec("{nodeSelector: {gpu: 'true'}, migManager: {enabled: true}}"),
        &Maps::new(),
    );
    let store: Store<NodeFacts> = Store::new("Node", |_| {});
    let pending = node(
        "gpu-1",
        &[
            ("nvidia.com/mig.config", "all-1g.10gb"),
            ("nvidia.com/mig.config.state", "pending"),
        ],
        8,
    );
    store.observe(ObjectKey::cluster("gpu-1"), 1, pending);
    let index = Index::default();
    index.ask(Some(asked(&validated)), &store);
    let mig = || {
        let findings = report(&validated, &all_ready(index.summary(&BTreeSet::new())), &[])
            .slice
            .findings;
        line(find(&findings, "MigReady"))
    };
    assert!(mig().starts_with("False MigPending"));
    assert!(index.overdue("gpu-1", true) && !index.overdue("gpu-1", true));
    assert!(mig().starts_with(
        "False MigFailed: gpu-1: layout all-1g.10gb is being applied, and takes too long"
    ));
    assert!(index.overdue("gpu-1", false));
    assert!(mig().starts_with("False MigPending"));
}

#[test]
fn a_node_without_a_ready_plugin_is_no_mismatch_and_no_news_for_sharing() {
    let validated = validated(policy(&[VALUES, INPUT]), &Maps::new());
    let store: Store<NodeFacts> = Store::new("Node", |_| {});
    for (name, capacity) in [("gpu-1", 32), ("gpu-2", 0)] {
        store.observe(ObjectKey::cluster(name), 1, node(name, &[], capacity));
    }
    let index = Index::default();
    index.ask(Some(asked(&validated)), &store);
    let sharing = |unready: &[&str]| {
        let observed = all_ready(index.summary(&unready.iter().copied().collect()));
        line(find(
            &report(&validated, &observed, &[]).slice.findings,
            "SharingApplied",
        ))
    };
    assert!(sharing(&[]).starts_with("False SharingMismatch: 1 node is not as asked: gpu-2"));
    assert_eq!(
        sharing(&["gpu-2"]),
        "True SharingApplied: nvidia.com/gpu with 4 shares each; 1 node is to follow when the plugin is ready"
    );
    store.observe(ObjectKey::cluster("gpu-1"), 2, node("gpu-1", &[], 0));
    index.ask(None, &store);
    index.ask(Some(asked(&validated)), &store);
    assert!(
        sharing(&["gpu-1", "gpu-2"]).starts_with("False RollingOut"),
        "a first roll-out"
    );
}
