//! Snapshots of every object, and what must hold for all of them.

use super::*;
use crate::validate::validate;
use serde_json::json;
use tessera_api::SREAgent;

fn built(spec: &serde_json::Value) -> Vec<serde_json::Value> {
    built_with(spec, &[])
}

fn built_with(spec: &serde_json::Value, pull_secrets: &[&str]) -> Vec<serde_json::Value> {
    let object: SREAgent = serde_json::from_value(json!({
        "apiVersion": "aiops.local/v1", "kind": "SREAgent",
        "metadata": {"name": "gpu-monitor-agent", "namespace": "gpu-operator", "uid": "0f7b"}, "spec": spec}))
    .unwrap();
    let settings = Settings {
        image: "ghcr.io/tessera-gpu/tessera/sre-agent:test".into(),
        pull_secrets: pull_secrets.iter().map(ToString::to_string).collect(),
        log_level: "info".into(),
        log_format: "json",
        ..Settings::default()
    };
    let objects = objects(&validate(&object, &settings).unwrap(), &settings).unwrap();
    let all = objects
        .cluster
        .objects()
        .iter()
        .chain(objects.namespaced.objects());
    all.map(|object| object.value.clone()).collect()
}

#[test]
fn of_the_input() {
    insta::assert_yaml_snapshot!(built(
        &json!({"gpuEnable": true, "autoRepair": true, "monitorInterval": 15})
    ));
}

#[test]
fn of_an_agent_that_only_watches_with_a_pod_of_its_own() {
    insta::assert_yaml_snapshot!(built(&json!({"agent": {
        "image": "r.example/sre-agent:v2",
        "resources": {"limits": {"memory": "1Gi"}},
        "tolerations": [{"key": "infra", "operator": "Exists"}]}})));
}

#[test]
fn agents_pull_with_the_secrets_of_the_install() {
    let secrets = |names: &[&str]| {
        let objects = built_with(&json!({}), names);
        let mut kinds = objects.iter();
        let deployment = kinds.find(|object| object["kind"] == "Deployment").unwrap();
        deployment["spec"]["template"]["spec"]["imagePullSecrets"].clone()
    };
    let both = json!([{"name": "one"}, {"name": "two"}]);
    assert_eq!(secrets(&["one", "two"]), both);
    assert_eq!(secrets(&[]), json!(null));
}

#[test]
fn all_are_labelled_and_only_repair_depends_on_autorepair() {
    let (with, without) = (built(&json!({"autoRepair": true})), built(&json!({})));
    assert_eq!(with.len(), without.len() + 1);
    for object in with {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels[label::COMPONENT], COMPONENT);
        assert_eq!(
            object["metadata"]["annotations"][SREAGENT],
            "gpu-operator/gpu-monitor-agent"
        );
        let pod = &object["spec"]["template"]["metadata"]["labels"];
        assert!(object["kind"] != "Deployment" || pod[label::MANAGED_BY] == crate::NAME);
    }
}
