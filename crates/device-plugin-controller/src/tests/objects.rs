//! Every object that is built, for each sample policy.

use super::samples::{
    DEFAULTS, EVERYTHING, INPUT, MINIMAL, MPS, NAMESPACE, VALUES, maps, policy, spec,
};
use crate::build::build;
use crate::validate::validate;
use serde_json::Value;
use std::fmt::Write;
use std::sync::Arc;
use tessera_api::EffectivePolicy;
use tessera_runtime::apply::Desired;

fn built(policy: Arc<EffectivePolicy>) -> Desired {
    build(&validate(policy, &maps(), NAMESPACE).unwrap(), NAMESPACE).unwrap()
}

/// Kind and name of each object, then all of them but the long list of layouts.
fn show(desired: &Desired) -> String {
    let mut text = String::new();
    for object in desired.objects() {
        writeln!(text, "# {} {}", object.resource.kind, object.key).unwrap();
        if object.key.name != "default-mig-parted-config" {
            text.push_str(&serde_saphyr::to_string(&object.value).unwrap());
        }
        text.push('\n');
    }
    text
}

fn samples() -> Vec<(&'static str, Arc<EffectivePolicy>)> {
    vec![
        ("defaults", policy(&[DEFAULTS])),
        ("values-and-input", policy(&[VALUES, INPUT])),
        ("everything", policy(&[EVERYTHING])),
        ("mps", policy(&[MPS])),
        (
            "mig-with-shipped-layouts",
            spec(
                "{devicePlugin: {enabled: false}, gfd: {enabled: false}, migManager: {enabled: true}}",
            ),
        ),
        ("minimal", policy(&[MINIMAL])),
    ]
}

#[test]
fn snapshots() {
    for (name, policy) in samples() {
        insta::assert_snapshot!(name, show(&built(policy)));
    }
}

#[test]
fn what_was_removed_from_sharing_leaves_the_config_map_without_the_stanza() {
    let one = spec(
        "{devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}}}}",
    );
    let desired = built(one);
    let map = desired
        .objects()
        .iter()
        .find(|object| object.key.name == "nvidia-device-plugin-config")
        .unwrap();
    assert!(
        !map.value["data"]["config.yaml"]
            .as_str()
            .unwrap()
            .contains("sharing")
    );
}

#[test]
fn every_object_is_labelled_named_shortly_and_built_the_same_twice() {
    for (name, policy) in samples() {
        let desired = built(policy.clone());
        assert_eq!(desired.objects(), built(policy).objects(), "{name}");
        for object in desired.objects() {
            assert!(object.key.name.len() <= 63, "{}", object.key);
            let labels = &object.value["metadata"]["labels"];
            assert!(
                labels["app"].is_string() && labels["app.kubernetes.io/component"].is_string(),
                "{}",
                object.key
            );
            if object.resource.kind == "DaemonSet" {
                let template = &object.value["spec"]["template"]["metadata"];
                assert_eq!(
                    template["labels"]["app.kubernetes.io/managed-by"],
                    "device-plugin-controller"
                );
                assert!(
                    template["annotations"]["aiops.local/config-hash"].is_string(),
                    "{}",
                    object.key
                );
            }
        }
    }
}

fn hashes(desired: &Desired) -> Vec<(String, Value)> {
    let sets = desired
        .objects()
        .iter()
        .filter(|object| object.resource.kind == "DaemonSet");
    let hash = |value: &Value| {
        value["spec"]["template"]["metadata"]["annotations"]["aiops.local/config-hash"].clone()
    };
    sets.map(|object| (object.key.name.clone(), hash(&object.value)))
        .collect()
}

#[test]
fn plugin_feature_discovery_and_mps_follow_a_change_of_the_configuration_together() {
    let sharing = |n: u32| {
        spec(&format!(
            "{{migManager: {{enabled: false}}, devicePlugin: {{config: {{sharing: {{mps: {{resources: [{{name: gpu, replicas: {n}}}]}}}}}}}}}}"
        ))
    };
    let (four, two) = (hashes(&built(sharing(4))), hashes(&built(sharing(2))));
    assert_eq!(four.len(), 3);
    assert!(four.iter().all(|(_, hash)| *hash == four[0].1));
    assert!(four.iter().zip(&two).all(|(a, b)| a.1 != b.1));
}
