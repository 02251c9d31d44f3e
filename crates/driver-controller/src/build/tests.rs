use super::*;
use crate::fleet::{Fleet, Placement};
use crate::testing::{all_configs, everything, inputs, labelled, minimal, node, policy};
use crate::validate::validate;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tessera_api::names::{annotation, label};
use tessera_api::nodes::ContainerRuntime;
use tessera_api::{EffectivePolicy, NodeFacts};

fn built(policy: &EffectivePolicy, nodes: &[NodeFacts]) -> Vec<Value> {
    let mut fleet = Fleet::default();
    fleet.rebuild(
        nodes
            .iter()
            .filter_map(|node| Some((node.name.clone(), Placement::of(node, policy)?))),
    );
    let validated = validate(policy, "gpu-operator", fleet.census(), &all_configs());
    let desired = build(&validated, "gpu-operator").desired().unwrap();
    desired
        .objects()
        .iter()
        .map(|object| object.value.clone())
        .collect()
}

fn mixed() -> Vec<NodeFacts> {
    let mut k3s = labelled("b", label::NFD_OS_VERSION, "24.04");
    k3s.os.as_mut().unwrap().version = "24.04".to_owned();
    k3s.kubelet_version = "v1.33.1+k3s1".to_owned();
    k3s.runtime.version = "2.0.5-k3s1".to_owned();
    let mut rhel = node("c");
    rhel.os.as_mut().unwrap().id = "rhel".to_owned();
    rhel.os.as_mut().unwrap().version = "9.4".to_owned();
    rhel.runtime = ContainerRuntime {
        name: "cri-o".to_owned(),
        version: "1.33.0".to_owned(),
    };
    vec![node("a"), k3s, rhel]
}

#[test]
fn snapshots() {
    insta::assert_yaml_snapshot!("defaults", built(&policy(json!({})), &[node("a")]));
    insta::assert_yaml_snapshot!("inputs", built(&inputs(), &[node("a")]));
    insta::assert_yaml_snapshot!("everything_on_mixed_nodes", built(&everything(), &mixed()));
    insta::assert_yaml_snapshot!("minimal", built(&minimal(), &[node("a")]));
}

#[test]
fn precompiled_drivers_have_a_pool_a_kernel() {
    let objects = built(
        &policy(json!({"driver": {"usePrecompiled": true, "version": "535"}})),
        &[node("a")],
    );
    let driver = objects
        .iter()
        .find(|object| {
            object["kind"] == "DaemonSet"
                && object["metadata"]["labels"]["app"] == "nvidia-driver-daemonset"
        })
        .unwrap();
    assert_eq!(
        driver["metadata"]["name"],
        "nvidia-driver-daemonset-ubuntu22.04-5.15.0-117-generic"
    );
    assert_eq!(
        driver["spec"]["template"]["spec"]["containers"][0]["image"],
        "nvcr.io/nvidia/driver:535-5.15.0-117-generic-ubuntu22.04"
    );
}

/// The hash by which a running driver counts as outdated.
fn digest(spec: Value) -> String {
    let objects = built(&policy(spec), &[node("a")]);
    let driver = objects
        .iter()
        .find(|object| object["metadata"]["name"] == "nvidia-driver-daemonset-ubuntu22.04")
        .unwrap();
    let template = &driver["spec"]["template"];
    let hash = template["metadata"]["annotations"][annotation::CONFIG_HASH]
        .as_str()
        .unwrap()
        .to_owned();
    let env = template["spec"]["containers"][0]["env"].as_array().unwrap();
    assert!(
        env.iter()
            .any(|var| var["name"] == "DRIVER_CONFIG_DIGEST" && var["value"] == hash.as_str())
    );
    hash
}

#[test]
fn a_driver_is_outdated_only_by_what_it_is_made_from() {
    let same = digest(json!({}));
    let kept = [
        json!({"daemonsets": {"tolerations": [{"operator": "Exists"}], "labels": {"a": "b"}, "priorityClassName": "p"}}),
        json!({"driver": {"startupProbe": {"initialDelaySeconds": 1}}}),
        json!({"driver": {"upgradePolicy": {"autoUpgrade": false}}}),
        json!({"driver": {"imagePullPolicy": "Always", "manager": {"version": "v9"}}}),
        json!({"toolkit": {"version": "v9"}, "validator": {"version": "v9"}}),
    ];
    for spec in kept {
        assert_eq!(digest(spec.clone()), same, "{spec}");
    }
    let changed = [
        json!({"driver": {"version": "999"}}),
        json!({"driver": {"kernelModuleType": "open"}}),
        json!({"driver": {"env": [{"name": "A", "value": "b"}]}}),
        json!({"driver": {"rdma": {"enabled": true}}}),
        json!({"driver": {"kernelModuleConfig": {"name": "modules"}}}),
        json!({"driver": {"resources": {"limits": {"memory": "1Gi"}}}}),
    ];
    for spec in changed {
        assert_ne!(digest(spec.clone()), same, "{spec}");
    }
}

#[test]
fn driver_manager_evicts_only_where_nobody_else_does() {
    let evicts = |upgrade: Value, env: Value| {
        let spec = json!({"driver": {"upgradePolicy": upgrade, "manager": {"env": env}}});
        let objects = built(&policy(spec), &[node("a")]);
        let driver = objects
            .iter()
            .find(|object| object["metadata"]["name"] == "nvidia-driver-daemonset-ubuntu22.04")
            .unwrap();
        let manager = &driver["spec"]["template"]["spec"]["initContainers"][0];
        let env = manager["env"].as_array().unwrap();
        ["ENABLE_GPU_POD_EVICTION", "ENABLE_AUTO_DRAIN"].map(|name| {
            let found = env.iter().find(|variable| variable["name"] == name);
            found.unwrap()["value"] == "true"
        })
    };
    let both = json!([{"name": "ENABLE_GPU_POD_EVICTION", "value": "true"}, {"name": "ENABLE_AUTO_DRAIN", "value": "true"}]);
    let (auto, manual) = (json!({"autoUpgrade": true}), json!({"autoUpgrade": false}));
    let cases = [
        (json!({}), json!([]), [false, false]),
        (auto.clone(), json!([]), [false, false]),
        (auto, both.clone(), [false, false]),
        (manual.clone(), json!([]), [true, false]),
        (manual, both, [true, true]),
    ];
    for (upgrade, env, want) in cases {
        assert_eq!(
            evicts(upgrade.clone(), env.clone()),
            want,
            "{upgrade} {env}"
        );
    }
}

#[test]
fn an_unusable_part_keeps_what_runs() {
    let policy = policy(json!({"driver": {"repoConfig": {"configMapName": "missing"}}}));
    let mut fleet = Fleet::default();
    fleet.set("a", Placement::of(&node("a"), &policy));
    let validated = validate(&policy, "ns", fleet.census(), &BTreeMap::new());
    let desired = build(&validated, "ns").desired().unwrap();
    assert!(desired.keeps(DRIVER) && !desired.keeps(TOOLKIT));
}

#[test]
fn every_object_is_well_formed() {
    let defaults = || policy(json!({}));
    let policies: [&dyn Fn() -> EffectivePolicy; 4] = [&defaults, &inputs, &everything, &minimal];
    for make in policies {
        let policy = make();
        let objects = built(&policy, &mixed());
        assert_eq!(objects, built(&policy, &mixed()), "not deterministic");
        for object in &objects {
            let meta = &object["metadata"];
            let name = meta["name"].as_str().unwrap();
            assert!(name.len() <= 63, "{name}");
            assert!(meta["labels"][label::COMPONENT].is_string(), "{name}");
            if object["kind"] != "DaemonSet" {
                continue;
            }
            let (selector, template) = (
                &object["spec"]["selector"]["matchLabels"],
                &object["spec"]["template"],
            );
            for (key, value) in selector.as_object().unwrap() {
                assert_eq!(&template["metadata"]["labels"][key], value, "{name}");
            }
            assert_eq!(
                template["metadata"]["labels"][label::MANAGED_BY],
                "driver-controller"
            );
            let volumes: Vec<&str> = names(&template["spec"]["volumes"]);
            let containers = [
                &template["spec"]["initContainers"],
                &template["spec"]["containers"],
            ];
            for container in containers
                .iter()
                .flat_map(|list| list.as_array().into_iter().flatten())
            {
                let mounts = names(&container["volumeMounts"]);
                assert!(
                    mounts.iter().all(|mount| volumes.contains(mount)),
                    "{name}: {mounts:?} of {volumes:?}"
                );
                let variables = names(&container["env"]);
                let unique: std::collections::BTreeSet<_> = variables.iter().collect();
                assert_eq!(unique.len(), variables.len(), "{name}: {variables:?}");
            }
            let used: Vec<&str> = containers
                .iter()
                .flat_map(|list| list.as_array().into_iter().flatten())
                .flat_map(|container| names(&container["volumeMounts"]))
                .collect();
            assert!(
                volumes.iter().all(|volume| used.contains(volume)),
                "{name}: a volume that nobody mounts: {volumes:?}"
            );
        }
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["name"].as_str())
        .collect()
}
