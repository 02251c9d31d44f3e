//! Values to the base ClusterPolicy.

use crate::helm::{COMPONENTS, find, policy, render, values_gpu, yaml};
use serde_json::{Value, json};
use tessera_api::{ClusterPolicy, DefaultImages, ownership, resolve};

#[test]
fn the_users_values_make_the_base_policy() {
    let want = yaml(
        "
driver:
  enabled: true
  repository: nvcr.io/nvidia
  image: nvidia-driver
  version: 535.104.05
  upgradePolicy: {autoUpgrade: true}
toolkit: {enabled: true}
cdi: {enabled: true}
devicePlugin:
  enabled: true
  config: {sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}}
migManager: {enabled: false}
dcgm: {enabled: true}
dcgmExporter: {enabled: true, serviceMonitor: {enabled: true}}
nodeStatusExporter: {enabled: false}
",
    );
    assert_eq!(policy(&values_gpu()), want);
    let objects = render("gpu-operator", &values_gpu());
    let base = find(&objects, "ClusterPolicy", "cluster-policy").unwrap();
    assert_eq!(
        base["metadata"]["labels"]["aiops.local/policy-role"],
        "base"
    );
    assert!(
        base["metadata"]["annotations"]
            .get("helm.sh/hook")
            .is_none(),
        "helm must own the base policy as a normal object"
    );
}

#[test]
fn without_values_nothing_is_asked_for_that_the_controllers_do_not_do_anyway() {
    let want = yaml(
        "{driver: {upgradePolicy: {autoUpgrade: true}}, dcgm: {enabled: false}, nodeStatusExporter: {enabled: false}}",
    );
    assert_eq!(policy(""), want);
}

#[test]
fn upgrade_policy_is_a_word_or_an_object() {
    let upgrade = |values: &str| policy(values)["driver"]["upgradePolicy"].clone();
    assert_eq!(
        upgrade("driver: {upgradePolicy: manual}"),
        json!({"autoUpgrade": false})
    );
    assert_eq!(
        upgrade("driver: {upgradePolicy: rolling}"),
        json!({"autoUpgrade": true})
    );
    let object = "driver: {upgradePolicy: {maxParallelUpgrades: 2, maxUnavailable: 50%, gpuPodDeletion: {force: true}}}";
    let want = json!({"autoUpgrade": true, "maxParallelUpgrades": 2, "maxUnavailable": "50%", "podDeletion": {"force": true}});
    assert_eq!(upgrade(object), want);
}

#[test]
fn short_names_reach_their_parts() {
    let got = policy(
        "
containerRuntime: {enabled: false, cdi: {enabled: false}}
devicePlugin:
  sharing: {mps: {enabled: true, replicas: 3, renameByDefault: true}, timeSlicing: {enabled: false, replicas: 9}}
  migManager: {enabled: true, config: {name: layouts}}
dcgm: {exporter: {version: 4.6.0, serviceMonitor: {interval: 15s}}}
gfd: {enabled: false}
nodeSelector: {gpu: 'true', example.com/pool: ''}
",
    );
    assert_eq!(got["toolkit"], json!({"enabled": false}));
    assert_eq!(got["cdi"], json!({"enabled": false}));
    let mps =
        json!({"renameByDefault": true, "resources": [{"name": "nvidia.com/gpu", "replicas": 3}]});
    assert_eq!(
        got["devicePlugin"],
        json!({"config": {"sharing": {"mps": mps}}})
    );
    assert_eq!(
        got["migManager"],
        json!({"enabled": true, "config": {"name": "layouts"}})
    );
    assert_eq!(
        got["dcgmExporter"],
        json!({"version": "4.6.0", "serviceMonitor": {"interval": "15s"}})
    );
    assert_eq!(got["gfd"], json!({"enabled": false}));
    assert_eq!(
        got["nodeSelector"],
        json!({"gpu": "true", "example.com/pool": ""})
    );
}

#[test]
fn validator_enabled_is_the_webhook_and_the_rest_the_operand() {
    let got = policy(
        "validator: {enabled: true, version: v26.7.0, env: [{name: WITH_WORKLOAD, value: 'true'}], plugin: {env: [{name: A, value: ''}]}}",
    );
    let want = json!({"version": "v26.7.0", "env": [{"name": "WITH_WORKLOAD", "value": "true"}], "plugin": {"env": [{"name": "A", "value": ""}]}});
    assert_eq!(got["validator"], want);
}

/// As NVIDIA's chart (v26.7) writes its defaults, with its empty keys; and what users of it set most.
const NVIDIA_VALUES: &str = include_str!("nvidia-values.yaml");

#[test]
fn values_of_nvidias_chart_pass_through() {
    let objects = render("gpu-operator", NVIDIA_VALUES);
    let got = find(&objects, "ClusterPolicy", "cluster-policy").unwrap()["spec"].clone();
    assert_eq!(got["driver"]["manager"]["version"], "v0.12.0");
    assert_eq!(got["driver"]["upgradePolicy"]["maxUnavailable"], "25%");
    assert_eq!(got["driver"].get("nvidiaDriverCRD"), None);
    assert_eq!(
        got["driver"].get("resources"),
        None,
        "an empty key must not become a null"
    );
    assert_eq!(
        got["daemonsets"]["rollingUpdate"],
        json!({"maxUnavailable": "1"})
    );
    assert_eq!(got["daemonsets"].get("labels"), None);
    assert_eq!(got["operator"], json!({"runtimeClass": "nvidia"}));
    assert_eq!(got["mig"], json!({"strategy": "mixed"}));
    assert_eq!(got["toolkit"]["env"][0]["name"], "CONTAINERD_SOCKET");
    assert_eq!(
        got["devicePlugin"]["config"],
        json!({"name": "time-slicing", "default": "any"})
    );
    assert_eq!(got["psa"], json!({"enabled": false}));
    let config =
        find(&objects, "ConfigMap", "time-slicing").expect("config.create makes the ConfigMap");
    assert_eq!(config["data"], json!({"any": "version: v1"}));
}

#[test]
fn a_component_left_out_has_its_operands_off_and_every_subset_renders() {
    // Everything on that has a switch, so that whatever is off then was turned off by the chart.
    let all_on = "
devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}}}
dcgmExporter: {serviceMonitor: {enabled: true}}
migManager: {enabled: true}
dcgm: {enabled: true}
nodeStatusExporter: {enabled: true}
";
    for subset in 0..1_u32 << COMPONENTS.len() {
        let installed = |index: usize| subset & (1 << index) != 0;
        let mut values = all_on.to_owned();
        for (index, (key, _)) in COMPONENTS.iter().enumerate() {
            values.push_str(&format!("{key}: {{enabled: {}}}\n", installed(index)));
        }
        let objects = render("gpu-operator", &values);
        for (index, (key, chart)) in COMPONENTS.iter().enumerate() {
            for kind in ["Deployment", "ServiceAccount"] {
                assert_eq!(
                    find(&objects, kind, chart).is_some(),
                    installed(index),
                    "{kind} of {key} in subset {subset:05b}"
                );
            }
        }
        assert_conditions_have_a_controller(&objects, installed);
    }
}

/// The base policy asks for exactly those conditions whose owner is installed: no condition may wait for a controller that
/// nobody runs. The owners are read from the ownership table.
fn assert_conditions_have_a_controller(objects: &[Value], installed: impl Fn(usize) -> bool) {
    let base = find(objects, "ClusterPolicy", "cluster-policy").unwrap();
    let mut base: ClusterPolicy = serde_json::from_value(base.clone()).unwrap();
    base.metadata.uid = Some("u".to_owned());
    let policy = resolve(&[base], &DefaultImages::builtin())
        .active
        .unwrap()
        .effective;
    for (index, (key, chart)) in COMPONENTS.iter().enumerate() {
        for condition in ownership::of(chart).unwrap().conditions {
            assert_eq!(
                condition.is_enabled(&policy),
                installed(index),
                "{condition} where {key} is installed: {}",
                installed(index)
            );
        }
    }
}

#[test]
fn the_base_policy_can_be_left_out() {
    let objects = render("gpu-operator", "clusterPolicy: {enabled: false}");
    assert!(
        objects
            .iter()
            .all(|object| object["kind"] != "ClusterPolicy")
    );
}
