use super::*;
use crate::fleet::{Fleet, Placement};
use crate::testing::{all_configs, configs, everything, node, policy};
use serde_json::json;
use tessera_api::image::OsRelease;

fn census(policy: &EffectivePolicy, os: (&str, &str)) -> Census {
    let mut node = node("a");
    node.os = Some(OsRelease {
        id: os.0.to_owned(),
        version: os.1.to_owned(),
    });
    let mut fleet = Fleet::default();
    fleet.set("a", Placement::of(&node, policy));
    fleet.census().clone()
}

const UBUNTU: (&str, &str) = ("ubuntu", "22.04");

#[test]
fn what_is_named_must_exist() {
    let named = |spec: serde_json::Value| policy(json!({"driver": spec}));
    let cases = vec![
        (
            named(json!({"repoConfig": {"configMapName": "x"}})),
            UBUNTU,
            Reason::ConfigMapNotFound,
            "ConfigMap ns/x, named by spec.driver.repoConfig.configMapName, does not exist",
        ),
        (
            named(json!({"kernelModuleConfig": {"name": "y"}})),
            UBUNTU,
            Reason::ConfigMapNotFound,
            "ConfigMap ns/y, named by spec.driver.kernelModuleConfig.name",
        ),
        (
            named(json!({"virtualTopology": {"config": "repo"}})),
            UBUNTU,
            Reason::ConfigKeyNotFound,
            "ConfigMap ns/repo, named by spec.driver.virtualTopology.config, has no key nvidia-topologyd.conf (it has: a, b)",
        ),
        (
            named(json!({"certConfig": {"name": "repo"}})),
            ("flatcar", "1"),
            Reason::ConfigInvalid,
            "spec.driver.certConfig.name: where flatcar1 keeps",
        ),
    ];
    for (policy, os, reason, text) in cases {
        let validated = validate(
            &policy,
            "ns",
            &census(&policy, os),
            &configs(&[("repo", &["a", "b"])]),
        );
        let Part::Unusable {
            reason: got,
            message,
        } = validated.driver
        else {
            panic!("{:?}", validated.driver)
        };
        assert_eq!(got, reason);
        assert!(message.starts_with(text), "{message}");
        // One bad part stops no other.
        assert!(validated.toolkit.plan().is_some() && validated.validator.plan().is_some());
    }
}

#[test]
fn precompiled_drivers_install_nothing() {
    let policy =
        policy(json!({"driver": {"usePrecompiled": true, "repoConfig": {"configMapName": "x"}}}));
    let validated = validate(&policy, "ns", &census(&policy, UBUNTU), &configs(&[]));
    assert_eq!(validated.driver.plan().unwrap().repo, None);
}

#[test]
fn off_and_invalid_and_on() {
    let policy =
        policy(json!({"driver": {"enabled": false}, "toolkit": {"image": "x:1", "version": "2"}}));
    let validated = validate(&policy, "ns", &census(&policy, UBUNTU), &configs(&[]));
    assert_eq!(validated.driver, Part::Off);
    assert!(
        matches!(
            validated.toolkit,
            Part::Unusable {
                reason: Reason::InvalidSpec,
                ..
            }
        ),
        "{:?}",
        validated.toolkit
    );
    let everything = everything();
    let validated = validate(
        &everything,
        "ns",
        &census(&everything, UBUNTU),
        &all_configs(),
    );
    assert_eq!(validated.driver.plan().unwrap().pools.len(), 1);
}
