//! What the status says in each situation.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use serde_json::{Value, json};
use tessera_api::{ClusterPolicy, DefaultImages, NodeFacts, resolve};
use tessera_runtime::operands::{
    Rollout,
    pod::{PodFacts, Trouble, TroubleKind},
};

use super::*;
use crate::{
    expected::Expected,
    metrics_source::UserMap,
    observe::Monitor,
    validate::{Facts, validate},
};

fn policy(spec: &Value) -> EffectivePolicy {
    let object = json!({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": spec});
    let policy: ClusterPolicy = serde_json::from_value(object).unwrap();
    let active = resolve([&policy], &DefaultImages::builtin())
        .active
        .unwrap();
    EffectivePolicy::clone(&active.effective)
}

fn nodes(labels: &[Value], taint: Option<&str>) -> Vec<Arc<NodeFacts>> {
    let node = |(index, labels): (usize, &Value)| {
        let taints: Vec<Value> = taint
            .map(|key| json!({"key": key, "effect": "NoSchedule"}))
            .into_iter()
            .collect();
        let object = json!({
            "metadata": {"name": format!("gpu-{index}"), "labels": labels, "uid": index.to_string()}, "spec": {"taints": taints},
        });
        Arc::new(NodeFacts::from_node(
            &serde_json::from_value(object).unwrap(),
        ))
    };
    labels.iter().enumerate().map(node).collect()
}

/// One situation; the rest is a healthy one with the kind ServiceMonitor.
struct Situation {
    spec: Value,
    nodes: Vec<Arc<NodeFacts>>,
    rollouts: BTreeMap<&'static str, Rollout>,
    pods: Vec<(&'static str, &'static str, Trouble)>,
    user_metrics: Option<UserMap>,
    monitor: Monitor,
    before: Vec<Condition>,
    failed: Vec<WriteError>,
}

const ALL_ON: [(&str, &str); 2] = [
    ("nvidia.com/gpu.deploy.dcgm-exporter", "true"),
    ("gpu", "true"),
];

fn labelled() -> Value {
    json!(ALL_ON.into_iter().collect::<BTreeMap<_, _>>())
}

fn counts(desired: i32, ready: i32) -> Rollout {
    Rollout {
        desired,
        ready,
        updated: desired,
        observed: true,
        leaving: false,
    }
}

impl Default for Situation {
    fn default() -> Self {
        Self {
            spec: json!({"nodeSelector": {"gpu": "true"}, "dcgmExporter": {"serviceMonitor": {}}}),
            nodes: nodes(&[labelled(), labelled(), labelled()], None),
            rollouts: BTreeMap::from([(component::EXPORTER, counts(3, 3))]),
            pods: Vec::new(),
            user_metrics: None,
            monitor: Monitor::Live,
            before: Vec::new(),
            failed: Vec::new(),
        }
    }
}

impl Situation {
    fn slice(self) -> Slice {
        let policy = policy(&self.spec);
        let present = self.monitor != Monitor::NoKind;
        let facts = Facts {
            namespace: "gpu-operator",
            user_metrics: self.user_metrics.as_ref(),
            last_metrics: None,
            engine_exists: false,
            monitor_usable: present,
            monitor_present: present,
        };
        let wanted = validate(&policy, facts);
        let mut pods: BTreeMap<String, Vec<Arc<PodFacts>>> = BTreeMap::new();
        for (component, node, trouble) in self.pods {
            let object = json!({"metadata": {"name": node, "uid": node}, "spec": {"nodeName": node, "containers": []}});
            let mut pod = PodFacts::from_pod(serde_json::from_value(object).unwrap());
            pod.trouble = Some(trouble);
            pods.entry(component.to_owned())
                .or_default()
                .push(Arc::new(pod));
        }
        let progress = Progress {
            rollouts: self.rollouts,
            pods,
            expected: Expected::of(self.nodes.iter().map(AsRef::as_ref), &policy),
            monitor: self.monitor,
        };
        slice(&policy, &wanted, &self.before, &progress, &self.failed)
    }

    fn says(self) -> String {
        let slice = self.slice();
        let mut text = String::new();
        for finding in &slice.findings {
            let Finding {
                component,
                status,
                reason,
                message,
            } = finding;
            let status = status.as_str();
            let _ = writeln!(text, "{component}={status} {reason}: {message}");
        }
        text.push_str(&serde_saphyr::to_string(&slice.component).unwrap());
        text
    }
}

fn refused(component: &str, code: u16) -> WriteError {
    let status = json!({"status": "Failure", "code": code, "message": "servicemonitors is forbidden", "reason": "Forbidden"});
    WriteError {
        verb: "apply",
        object: "ServiceMonitor gpu-operator/nvidia-dcgm-exporter".to_owned(),
        component: Some(component.to_owned()),
        source: kube::Error::Api(Box::new(serde_json::from_value(status).unwrap())),
    }
}

fn said(status: bool, reason: Reason) -> Condition {
    let now = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
    let message = "what was said before";
    tessera_api::conditions::condition(
        &[],
        MonitoringReady.as_str(),
        status.into(),
        reason,
        message,
        1,
        now,
    )
}

fn image_trouble() -> Trouble {
    Trouble {
        kind: TroubleKind::ImagePull,
        message: "container c cannot get its image i: not found".to_owned(),
    }
}

#[test]
fn situations() {
    let everything = json!({
        "nodeSelector": {"gpu": "true"}, "dcgm": {"enabled": true}, "nodeStatusExporter": {"enabled": true},
        "dcgmExporter": {"serviceMonitor": {"interval": "30s"}},
    });
    let own_metrics = json!({"nodeSelector": {"gpu": "true"}, "dcgmExporter": {"config": {"name": "mine"}, "serviceMonitor": {}}});
    let bad = UserMap {
        keys: ["dcgm-metrics.csv".to_owned()].into(),
        csv: Some("DCGM_FI_DEV_GPU_TEMP, guage, t".to_owned()),
    };
    let cases: Vec<(&str, Situation)> = vec![
        ("healthy", Situation::default()),
        (
            "no_crd",
            Situation {
                monitor: Monitor::NoKind,
                ..Situation::default()
            },
        ),
        (
            "kind_just_installed",
            Situation {
                monitor: Monitor::Unknown,
                before: vec![said(true, Reason::CRDNotInstalled)],
                ..Situation::default()
            },
        ),
        (
            "process_just_started",
            Situation {
                monitor: Monitor::Unknown,
                before: vec![said(true, Reason::ServiceMonitorApplied)],
                ..Situation::default()
            },
        ),
        (
            "first_look_at_the_kind",
            Situation {
                monitor: Monitor::Unknown,
                ..Situation::default()
            },
        ),
        (
            "monitors_not_listable",
            Situation {
                monitor: Monitor::Forbidden,
                ..Situation::default()
            },
        ),
        (
            "monitor_not_made_yet",
            Situation {
                monitor: Monitor::Missing,
                ..Situation::default()
            },
        ),
        (
            "monitor_forbidden",
            Situation {
                monitor: Monitor::Missing,
                failed: vec![refused(component::MONITOR, 403)],
                ..Situation::default()
            },
        ),
        (
            "daemonset_refused",
            Situation {
                failed: vec![refused(component::EXPORTER, 422)],
                ..Situation::default()
            },
        ),
        (
            "no_daemonset_yet",
            Situation {
                rollouts: BTreeMap::new(),
                ..Situation::default()
            },
        ),
        (
            "no_gpu_nodes",
            Situation {
                nodes: Vec::new(),
                rollouts: BTreeMap::from([(component::EXPORTER, counts(0, 0))]),
                ..Situation::default()
            },
        ),
        (
            "not_labelled_yet",
            Situation {
                nodes: nodes(&[json!({"gpu": "true"})], None),
                rollouts: BTreeMap::from([(component::EXPORTER, counts(0, 0))]),
                ..Situation::default()
            },
        ),
        (
            "labelled_but_not_counted",
            Situation {
                rollouts: BTreeMap::from([(component::EXPORTER, counts(0, 0))]),
                ..Situation::default()
            },
        ),
        (
            "paused_while_the_driver_is_replaced",
            Situation {
                nodes: nodes(
                    &[
                        json!({"gpu": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-driver-upgrade"}),
                    ],
                    None,
                ),
                rollouts: BTreeMap::from([(component::EXPORTER, counts(0, 0))]),
                ..Situation::default()
            },
        ),
        (
            "all_tainted",
            Situation {
                nodes: nodes(&[labelled(), labelled()], Some("mine")),
                rollouts: BTreeMap::from([(component::EXPORTER, counts(0, 0))]),
                ..Situation::default()
            },
        ),
        (
            "switched_off_on_the_node",
            Situation {
                nodes: nodes(
                    &[json!({"gpu": "true", "nvidia.com/gpu.deploy.dcgm-exporter": "false"})],
                    None,
                ),
                rollouts: BTreeMap::from([(component::EXPORTER, counts(0, 0))]),
                ..Situation::default()
            },
        ),
        (
            "image_cannot_be_pulled",
            Situation {
                rollouts: BTreeMap::from([(component::EXPORTER, counts(3, 1))]),
                pods: vec![
                    (component::EXPORTER, "gpu-1", image_trouble()),
                    (component::EXPORTER, "gpu-0", image_trouble()),
                ],
                ..Situation::default()
            },
        ),
        (
            "killed_for_its_memory",
            Situation {
                rollouts: BTreeMap::from([(component::EXPORTER, counts(3, 2))]),
                pods: vec![(
                    component::EXPORTER,
                    "gpu-1",
                    Trouble {
                        kind: TroubleKind::Crash,
                        message:
                            "container nvidia-dcgm-exporter keeps ending: exit code 137 (OOMKilled)"
                                .to_owned(),
                    },
                )],
                ..Situation::default()
            },
        ),
        (
            "everything_with_one_open",
            Situation {
                spec: everything,
                rollouts: BTreeMap::from([
                    (component::EXPORTER, counts(3, 3)),
                    (component::ENGINE, counts(3, 2)),
                    (component::NODE_STATUS, counts(3, 3)),
                ]),
                ..Situation::default()
            },
        ),
        (
            "bad_metrics",
            Situation {
                spec: own_metrics.clone(),
                user_metrics: Some(bad),
                ..Situation::default()
            },
        ),
        (
            "no_metrics_map",
            Situation {
                spec: own_metrics,
                ..Situation::default()
            },
        ),
        (
            "off",
            Situation {
                spec: json!({"dcgmExporter": {"enabled": false}}),
                rollouts: BTreeMap::new(),
                ..Situation::default()
            },
        ),
        (
            "invalid",
            Situation {
                spec: json!({"dcgmExporter": {"image": "a:1", "version": "2", "serviceMonitor": {}}}),
                ..Situation::default()
            },
        ),
    ];
    for (name, situation) in cases {
        insta::assert_snapshot!(name, situation.says());
    }
}

#[test]
fn the_outcome_follows_the_findings() {
    assert_eq!(outcome(&Situation::default().slice(), None), Outcome::Ready);
    let waits = outcome(&Situation::default().slice(), Some(Duration::from_secs(1)));
    assert!(matches!(
        waits,
        Outcome::Progressing {
            requeue: Some(_),
            ..
        }
    ));
    let invalid = Situation {
        spec: json!({"dcgmExporter": {"image": "a:1", "version": "2"}}),
        ..Situation::default()
    };
    assert!(matches!(
        outcome(&invalid.slice(), None),
        Outcome::Blocked { .. }
    ));
    let pulling = Situation {
        rollouts: BTreeMap::from([(component::EXPORTER, counts(3, 1))]),
        ..Situation::default()
    };
    assert!(matches!(
        outcome(&pulling.slice(), None),
        Outcome::Progressing { requeue: None, .. }
    ));
}
