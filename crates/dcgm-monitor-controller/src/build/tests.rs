//! Snapshots of every object for sample policies, and properties of all of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tessera_api::{ClusterPolicy, DefaultImages, EffectivePolicy, names, resolve};

use super::*;
use crate::{
    metrics_source::{MetricsFile, UserMap},
    validate::{Facts, validate},
};

/// What the umbrella chart makes of `inputs/values-gpu.yaml`, as far as it concerns this controller and its pods.
fn base() -> Value {
    json!({
        "driver": {"enabled": true, "repository": "nvcr.io/nvidia", "image": "nvidia-driver", "version": "535.104.05"},
        "toolkit": {"enabled": true},
        "cdi": {"enabled": true},
        "devicePlugin": {"enabled": true, "config": {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}},
        "migManager": {"enabled": false},
        "dcgm": {"enabled": true},
        "dcgmExporter": {"enabled": true, "serviceMonitor": {"enabled": true}},
    })
}

fn everything() -> Value {
    json!({
        "operator": {"runtimeClass": "nvidia-special"},
        "daemonsets": {
            "labels": {"team": "gpu"}, "annotations": {"note": "x"}, "priorityClassName": "critical",
            "tolerations": [{"operator": "Exists"}], "rollingUpdate": {"maxUnavailable": "10%"},
        },
        "hostPaths": {"kubeletRootDir": "/data/kubelet/", "rootFS": "/host-root"},
        "devicePlugin": {"config": {"sharing": {"mps": {"renameByDefault": true, "resources": [{"name": "nvidia.com/gpu", "replicas": 2}]}}}},
        "mig": {"strategy": "none"},
        "dcgm": {"enabled": true, "imagePullSecrets": ["regcred"], "args": ["-f", "-"], "hostNetwork": true},
        "dcgmExporter": {
            "repository": "example.org:5000/mirror", "image": "dcgm-exporter", "version": "3.3.9-3.6.1-ubuntu22.04",
            "imagePullPolicy": "Always", "imagePullSecrets": ["z", "regcred"],
            "resources": {"limits": {"memory": "1Gi"}},
            "env": [{"name": "DCGM_EXPORTER_INTERVAL", "value": "1000"}, {"name": "MINE", "value": "1"}],
            "config": {"name": "my-metrics"},
            "service": {"type": "NodePort", "internalTrafficPolicy": "Local"},
            "hostPID": false, "annotations": {"a": "1"}, "podAnnotations": {"p": "1"}, "podLabels": {"l": "1"},
            "hpcJobMapping": {"enabled": true}, "enablePodLabels": true, "enablePodUID": true,
            "podLabelAllowlistRegex": ["^app$", "^team$"],
            "serviceMonitor": {
                "enabled": true, "interval": "1m", "scrapeTimeout": "30s", "honorLabels": true,
                "additionalLabels": {"release": "prometheus", "app": "ignored"},
                "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "pod_name"}],
                "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": "DCGM_FI_PROF_.*", "action": "drop"}],
            },
        },
        "nodeStatusExporter": {"enabled": true},
    })
}

fn policy(name: &str, spec: &Value, labels: &Value) -> ClusterPolicy {
    let object = json!({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
        "metadata": {"name": name, "uid": name, "labels": labels}, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn resolved(policies: &[ClusterPolicy]) -> EffectivePolicy {
    let active = resolve(policies, &DefaultImages::builtin()).active.unwrap();
    EffectivePolicy::clone(&active.effective)
}

fn of(spec: &Value) -> EffectivePolicy {
    resolved(&[policy("p", spec, &json!({}))])
}

fn inputs() -> EffectivePolicy {
    let user = include_str!("../../../../e2e/inputs/cluster-policy.yaml");
    let user: ClusterPolicy = serde_saphyr::from_str(user).unwrap();
    resolved(&[
        policy(
            "cluster-policy",
            &base(),
            &json!({"aiops.local/policy-role": "base"}),
        ),
        user,
    ])
}

fn built(policy: &EffectivePolicy, monitors: bool) -> Objects {
    let user = UserMap {
        keys: BTreeSet::new(),
        csv: Some("DCGM_FI_DEV_GPU_TEMP,gauge,t\n".to_owned()),
    };
    let facts = Facts {
        namespace: "gpu-operator",
        user_metrics: Some(&user),
        last_metrics: None,
        engine_exists: false,
        monitor_usable: monitors,
        monitor_present: monitors,
    };
    build(&validate(policy, facts))
}

fn samples() -> Vec<(&'static str, EffectivePolicy)> {
    vec![
        ("defaults", of(&json!({}))),
        ("inputs", inputs()),
        ("everything", of(&everything())),
        (
            "nri",
            of(
                &json!({"cdi": {"nriPluginEnabled": true}, "dcgm": {"enabled": true}, "validator": {"enabled": false}}),
            ),
        ),
        (
            "off",
            of(&json!({"dcgm": {"enabled": false}, "dcgmExporter": {"enabled": false}})),
        ),
    ]
}

/// Every object with the labels that the engine adds, as YAML documents; the built-in metrics file is shown once.
fn render(objects: Objects, show_metrics: bool) -> String {
    let mut text = String::new();
    for object in objects.into_desired().unwrap().objects() {
        let mut value = object.value.clone();
        if !show_metrics && let Some(csv) = value.pointer_mut("/data/dcgm-metrics.csv") {
            *csv = json!(format!("{} bytes", csv.as_str().unwrap_or_default().len()));
        }
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&value).unwrap());
    }
    text
}

#[test]
fn snapshots() {
    for (name, policy) in samples() {
        insta::assert_snapshot!(name, render(built(&policy, true), name == "defaults"));
    }
}

#[test]
fn every_object_is_deterministic_labelled_and_well_named() {
    for (sample, policy) in samples() {
        let objects = built(&policy, true);
        assert_eq!(objects, built(&policy, true), "{sample}");
        let desired = objects.into_desired().unwrap();
        let mut seen = BTreeSet::new();
        for object in desired.objects() {
            let at = |pointer: &str| {
                object
                    .value
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            assert!(
                seen.insert((object.resource.kind.clone(), object.key.clone())),
                "{sample}: twice {}",
                object.key
            );
            assert!(
                (1..=63).contains(&object.key.name.len()),
                "{sample}: {}",
                object.key
            );
            assert_eq!(object.key.namespace, "gpu-operator", "{sample}");
            assert!(
                !at("/metadata/labels/app.kubernetes.io~1component").is_empty(),
                "{sample}: {}",
                object.key
            );
            if object.resource.kind == "DaemonSet" {
                assert_eq!(at("/spec/template/metadata/labels/app"), object.key.name);
                assert_eq!(
                    at("/spec/template/metadata/labels/app.kubernetes.io~1managed-by"),
                    names::controller::DCGM_MONITOR
                );
            }
        }
    }
}

#[test]
fn the_monitor_selects_exactly_one_service_by_a_port_that_it_has() {
    for (sample, policy) in samples() {
        let objects = built(&policy, true);
        for monitor in &objects.monitors {
            let wanted = &monitor.spec.selector.match_labels;
            let selected: Vec<&Service> = objects
                .services
                .iter()
                .filter(|service| {
                    wanted
                        .iter()
                        .all(|(k, v)| service.metadata.labels.as_ref().unwrap().get(k) == Some(v))
                })
                .collect();
            assert_eq!(selected.len(), 1, "{sample}");
            let ports: Vec<_> = selected[0]
                .spec
                .as_ref()
                .unwrap()
                .ports
                .iter()
                .flatten()
                .map(|p| p.name.clone().unwrap())
                .collect();
            assert_eq!(ports, [monitor.spec.endpoints[0].port.clone()], "{sample}");
        }
    }
}

#[test]
fn the_monitor_comes_and_goes_with_its_kind() {
    let policy = inputs();
    assert_eq!(built(&policy, false).monitors, []);
    let monitors = built(&policy, true).monitors;
    assert_eq!(
        (
            monitors[0].spec.endpoints[0].interval.as_str(),
            monitors[0].spec.endpoints[0].scrape_timeout.as_str()
        ),
        ("15s", "10s")
    );
    let short = of(&json!({"dcgmExporter": {"serviceMonitor": {"interval": "5s"}}}));
    assert_eq!(
        built(&short, true).monitors[0].spec.endpoints[0].scrape_timeout,
        "5s"
    );
}

#[test]
fn a_users_own_monitor_finds_its_service() {
    let objects = built(&inputs(), false);
    let own = objects
        .services
        .iter()
        .find(|s| s.metadata.name.as_deref() == Some("dcgm-exporter"))
        .unwrap();
    assert_eq!(
        own.metadata.labels.as_ref().unwrap()["app"],
        "dcgm-exporter"
    );
    assert_eq!(
        own.spec.as_ref().unwrap().ports.as_ref().unwrap()[0]
            .name
            .as_deref(),
        Some("metrics")
    );
    assert_eq!(
        own.spec.as_ref().unwrap().selector.as_ref().unwrap()["app"],
        "nvidia-dcgm-exporter"
    );
}

#[test]
fn an_unusable_part_leaves_its_objects_and_no_others() {
    let spec = json!({"dcgm": {"enabled": true}, "dcgmExporter": {"image": "a:1", "version": "2", "serviceMonitor": {}}});
    let objects = built(&of(&spec), true);
    assert_eq!(objects.keep, [component::EXPORTER, component::MONITOR]);
    assert_eq!(objects.daemon_sets.len(), 1);
    let desired = objects.into_desired().unwrap();
    assert!(desired.keeps(component::EXPORTER) && !desired.keeps(component::ENGINE));
}

#[test]
fn a_monitor_is_not_removed_before_it_is_known() {
    let facts = Facts {
        namespace: "n",
        user_metrics: None,
        last_metrics: None,
        engine_exists: false,
        monitor_usable: false,
        monitor_present: true,
    };
    let objects = build(&validate(&inputs(), facts));
    assert!(objects.monitors.is_empty());
    assert_eq!(objects.keep, [component::MONITOR]);
}

#[test]
fn other_metrics_make_other_pods_and_the_same_metrics_the_same() {
    let policy = of(&json!({"dcgmExporter": {"config": {"name": "mine"}}}));
    let hash = |csv: &str, last: Option<&MetricsFile>| {
        let user = UserMap {
            keys: BTreeSet::new(),
            csv: Some(csv.to_owned()),
        };
        let facts = Facts {
            namespace: "n",
            user_metrics: Some(&user),
            last_metrics: last,
            engine_exists: false,
            monitor_usable: false,
            monitor_present: false,
        };
        let set = build(&validate(&policy, facts)).daemon_sets.remove(0);
        let annotations = set
            .spec
            .unwrap()
            .template
            .metadata
            .unwrap()
            .annotations
            .unwrap();
        annotations[names::annotation::CONFIG_HASH].clone()
    };
    let good = "DCGM_FI_DEV_GPU_TEMP,gauge,t";
    let last = MetricsFile {
        csv: good.to_owned(),
        source: "mine".to_owned(),
    };
    assert_eq!(hash(good, None), hash(good, Some(&last)));
    assert_eq!(hash("garbage", Some(&last)), hash(good, None));
    assert_ne!(
        hash("DCGM_FI_DEV_GPU_TEMP,gauge,other", None),
        hash(good, None)
    );
}
