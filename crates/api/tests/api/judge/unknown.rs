//! Fields that nobody has.

use serde_json::json;
use tessera_api::{ClusterPolicy, SREAgent, judge};

use super::{facts, texts};
use crate::policy;

/// A policy as `kubectl apply` stores it: known fields in the spec, all of them in the record.
fn applied(spec: &serde_json::Value) -> ClusterPolicy {
    let mut policy = policy("mine", 1, "{}");
    let record = json!({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "mine", "labels": {"x": "y"}}, "spec": spec});
    policy.metadata.annotations = Some(
        [(
            "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
            record.to_string(),
        )]
        .into(),
    );
    policy
}

#[test]
fn each_is_named_with_the_nearest_known_one() {
    let why = "is not stored, as there is no field of this name";
    for (spec, want) in [
        (
            json!({"drivr": {"version": "1"}}),
            format!("spec.drivr: `{{\"version\":\"1\"}}` {why}; did you mean spec.driver?"),
        ),
        (
            json!({"driver": {"verison": "1"}}),
            format!("spec.driver.verison: `1` {why}; did you mean spec.driver.version?"),
        ),
        (
            json!({"driver": {"Version": "1"}}),
            format!("spec.driver.Version: `1` {why}; did you mean spec.driver.version?"),
        ),
        (
            json!({"timeSlicing": {"resources": []}}),
            format!(
                "spec.timeSlicing: `{{\"resources\":[]}}` {why}; did you mean spec.devicePlugin.config.sharing.timeSlicing?"
            ),
        ),
        (
            json!({"devicePlugin": {"config": {"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 2, "replica": 4}]}}}}}),
            format!(
                "spec.devicePlugin.config.sharing.timeSlicing.resources[0].replica: `4` {why}; did you mean spec.devicePlugin.config.sharing.timeSlicing.resources[0].replicas?"
            ),
        ),
        (
            json!({"zzzzzzzzzz": 1}),
            format!("spec.zzzzzzzzzz: `1` {why}; remove it"),
        ),
    ] {
        let found = texts(&applied(&spec), None, &facts(&[]));
        assert_eq!(found, [format!("warn: {want}")], "{spec}");
    }
}

#[test]
fn known_and_free_fields_are_not_named() {
    let spec = json!({
        "nodeSelector": {"any": "thing"},
        "daemonsets": {"labels": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}], "podSecurityContext": {"fsGroup": 1}},
        "driver": {"resources": {"limits": {"cpu": "1", "nvidia.com/x": 1}}, "upgradePolicy": {"maxUnavailable": "25%"}},
        "operator": {"use_ocp_driver_toolkit": false},
    });
    assert_eq!(
        texts(&applied(&spec), None, &facts(&[])),
        Vec::<String>::new()
    );
    let mut garbled = policy("mine", 1, "{}");
    garbled.metadata.annotations = Some(
        [(
            "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
            "{not json".to_owned(),
        )]
        .into(),
    );
    assert_eq!(texts(&garbled, None, &facts(&[])), Vec::<String>::new());
}

#[test]
fn the_accepted_examples_have_none() {
    let text = include_str!("../../accepted/nvidia-chart.yaml");
    let value: serde_json::Value = serde_saphyr::from_str(text).expect("the example");
    assert_eq!(
        texts(&applied(&value["spec"]), None, &facts(&[])),
        Vec::<String>::new()
    );
}

#[test]
fn what_was_told_once_is_not_told_again() {
    let (old, mut new) = (applied(&json!({"drivr": 1})), applied(&json!({"drivr": 1})));
    new.spec.psp = None;
    assert_eq!(texts(&new, Some(&old), &facts(&[])), Vec::<String>::new());
    let more = applied(&json!({"drivr": 1, "toolkt": 2}));
    let found = texts(&more, Some(&old), &facts(&[]));
    assert!(
        found.len() == 1 && found[0].contains("did you mean spec.toolkit?"),
        "{found:#?}"
    );
}

#[test]
fn agents_too() {
    let record = json!({"spec": {"autoRepar": true}}).to_string();
    let mut agent = SREAgent::new("a", tessera_api::sreagent::SREAgentSpec::default());
    agent.metadata.annotations = Some(
        [(
            "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
            record,
        )]
        .into(),
    );
    let found = judge::agent(&agent, None, &facts(&[]));
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "spec.autoRepar: `true` is not stored, as there is no field of this name; did you mean spec.autoRepair?"
        ]
    );
}
