//! What a user may have got wrong, and what is said about it.

use super::samples::{NAMESPACE, SHARED, map, maps, spec};
use crate::build::build;
use crate::observe::{Maps, referenced};
use crate::referenced::MapState;
use crate::validate::{Plan, validate};
use std::collections::BTreeMap;
use tessera_api::Reason;

fn with(name: &str, state: MapState) -> Maps {
    BTreeMap::from([(name.to_owned(), state)])
}

#[test]
fn faults_of_the_plugins_config_map() {
    let cases = [
        (
            "{name: c}",
            MapState::Absent,
            Reason::ConfigMapNotFound,
            "ConfigMap gpu-operator/c, named by spec.devicePlugin.config.name, does not exist",
        ),
        (
            "{name: c, default: x}",
            map(&[("a", ""), ("b", "")]),
            Reason::ConfigKeyNotFound,
            "has no key x (spec.devicePlugin.config.default); it has only a, b",
        ),
        (
            "{name: c}",
            map(&[]),
            Reason::ConfigKeyNotFound,
            "has no entry",
        ),
        (
            "{name: c}",
            map(&[("a", "shareing: {}")]),
            Reason::ConfigInvalid,
            "key a: shareing is not a setting of the device plugin",
        ),
        (
            "{name: c}",
            map(&[("a", "replicas: 3")]),
            Reason::ConfigInvalid,
            "it belongs at sharing.timeSlicing.resources[].replicas",
        ),
    ];
    for (config, state, reason, text) in cases {
        let policy = spec(&format!("{{devicePlugin: {{config: {config}}}}}"));
        assert_eq!(referenced(&policy).into_iter().collect::<Vec<_>>(), ["c"]);
        let validated = validate(policy, &with("c", state), NAMESPACE).unwrap();
        let fault = validated.plugin.fault().expect(text);
        assert_eq!(fault.reason, reason);
        assert!(fault.message.contains(text), "{}", fault.message);
        assert_eq!(
            validated.gfd.fault(),
            Some(fault),
            "feature discovery reads the same configuration"
        );
        let desired = build(&validated, NAMESPACE).unwrap();
        assert!(
            desired.keeps("device-plugin") && desired.keeps("gpu-feature-discovery"),
            "the last good state stays"
        );
        let component = |value: &serde_json::Value| {
            value["metadata"]["labels"]["app.kubernetes.io/component"].clone()
        };
        assert!(
            desired
                .objects()
                .iter()
                .all(|object| component(&object.value) == "mig-manager")
        );
    }
}

#[test]
fn nothing_is_decided_before_a_config_map_has_been_read() {
    let policy = spec("{devicePlugin: {config: {name: c}}}");
    assert_eq!(
        validate(policy, &with("c", MapState::Loading), NAMESPACE),
        Err("c".to_owned())
    );
}

#[test]
fn faults_of_the_mig_manager_leave_the_plugin_alone() {
    let cases = [
        (
            MapState::Absent,
            Reason::ConfigMapNotFound,
            "spec.migManager.config.name",
        ),
        (
            map(&[("layouts", "")]),
            Reason::ConfigKeyNotFound,
            "has no key config.yaml",
        ),
        (
            map(&[("config.yaml", "version: v1")]),
            Reason::ConfigInvalid,
            "mig-configs is no map of layouts, which the MIG manager needs",
        ),
        (
            map(&[(
                "config.yaml",
                "{version: v1, mig-configs: {a: [{devices: all, enabled: true}]}}",
            )]),
            Reason::ConfigInvalid,
            "mig-configs.a[0].enabled is not a setting of the MIG manager",
        ),
        (
            map(&[(
                "config.yaml",
                "{version: v1, mig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {4g.20gb: 2}}]}}",
            )]),
            Reason::ConfigInvalid,
            "asks for 4g.20gb x2, which do not fit together on one card (A100 40 GB)",
        ),
    ];
    for (state, reason, text) in cases {
        let policy = spec("{migManager: {enabled: true, config: {name: c}}}");
        let validated = validate(policy, &with("c", state), NAMESPACE).unwrap();
        let fault = validated.mig.fault().expect(text);
        assert_eq!(fault.reason, reason);
        assert!(fault.message.contains(text), "{}", fault.message);
        assert!(matches!(validated.plugin, Plan::Run(_)));
    }
}

#[test]
fn a_bad_configuration_keeps_all_who_read_it_and_nothing_else() {
    let policy = spec(
        "{devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1000}]}}}}}",
    );
    let validated = validate(policy, &Maps::new(), NAMESPACE).unwrap();
    assert_eq!(
        validated.plugin.fault().map(|fault| fault.reason),
        Some(Reason::InvalidSpec)
    );
    assert_eq!(
        validated.gfd.fault().map(|fault| fault.reason),
        Some(Reason::InvalidSpec),
        "feature discovery would be rolled out with what is left of the configuration"
    );
    assert!(!matches!(validated.mig, Plan::Keep(_)));
}

#[test]
fn what_has_no_effect_is_a_note_and_stops_nothing() {
    let policy = spec("{mig: {strategy: mixed}, devicePlugin: {config: {name: plugin-configs}}}");
    let text = format!("flags: {{migStrategy: single}}\n{SHARED}");
    let mut maps = maps();
    maps.insert("plugin-configs".to_owned(), map(&[("a", &text)]));
    let validated = validate(policy, &maps, NAMESPACE).unwrap();
    let Plan::Run(config) = validated.plugin else {
        panic!()
    };
    assert!(
        config.notes[0]
            .starts_with("ConfigMap plugin-configs, key a: flags.migStrategy single has no effect"),
        "{:?}",
        config.notes
    );
}
