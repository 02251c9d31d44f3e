//! ConfigMaps that a policy names.

use std::collections::BTreeSet;

use tessera_api::judge::{self, Facts, MapFacts};

use super::{facts, node, said, texts, with_map};
use crate::policy;

fn absent(name: &str) -> Facts {
    let mut facts = facts(&[]);
    facts.config_maps.insert(name.to_owned(), MapFacts::Absent);
    facts
}

const SPECS: [(&str, &str, Option<&str>); 8] = [
    (
        "devicePlugin: {config: {name: m}}",
        "devicePlugin.config.name",
        None,
    ),
    (
        "migManager: {config: {name: m}}",
        "migManager.config.name",
        Some("config.yaml"),
    ),
    (
        "migManager: {gpuClientsConfig: {name: m}}",
        "migManager.gpuClientsConfig.name",
        Some("clients.yaml"),
    ),
    (
        "dcgmExporter: {config: {name: m}}",
        "dcgmExporter.config.name",
        Some("dcgm-metrics.csv"),
    ),
    (
        "driver: {repoConfig: {configMapName: m}}",
        "driver.repoConfig.configMapName",
        None,
    ),
    (
        "driver: {certConfig: {name: m}}",
        "driver.certConfig.name",
        None,
    ),
    (
        "driver: {kernelModuleConfig: {name: m}}",
        "driver.kernelModuleConfig.name",
        None,
    ),
    (
        "driver: {virtualTopology: {config: m}}",
        "driver.virtualTopology.config",
        None,
    ),
];

#[test]
fn names_and_keys() {
    for (spec, path, key) in SPECS {
        let want = format!(
            "warn: spec.{path}: `m` names a ConfigMap that does not exist in namespace gpu-operator; create it, or correct the name"
        );
        assert_eq!(said(spec, &absent("m")), [want]);
        assert_eq!(
            said(spec, &facts(&[])),
            Vec::<String>::new(),
            "unknown is not absent"
        );
        let asked = judge::config_maps(&policy("mine", 1, spec), &facts(&[]));
        assert_eq!(asked, BTreeSet::from(["m".to_owned()]));
        let found = said(spec, &with_map(facts(&[]), "m", &[("a", ""), ("b", "")]));
        match key {
            None => assert_eq!(found, Vec::<String>::new(), "{spec}"),
            Some(key) => {
                let want = format!(
                    "warn: spec.{path}: `m` asks for key {key} of ConfigMap gpu-operator/m, which has only a, b; add the key"
                );
                assert_eq!(found, [want]);
            }
        }
    }
    assert_eq!(
        said("dcgm: {exporter: {config: {name: m}}}", &absent("m")).len(),
        1
    );
    let off = "migManager: {enabled: false, config: {name: m}}";
    assert_eq!(said(off, &absent("m")), Vec::<String>::new());
    let key = said(
        "devicePlugin: {config: {name: m, default: x}}",
        &with_map(facts(&[]), "m", &[("a", "")]),
    );
    assert_eq!(
        key,
        [
            "warn: spec.devicePlugin.config.default: `x` asks for key x of ConfigMap gpu-operator/m, which has only a; add the key, or write one that is there"
        ]
    );
    let empty = said(
        "devicePlugin: {config: {name: m}}",
        &with_map(facts(&[]), "m", &[]),
    );
    assert_eq!(
        empty,
        [
            "warn: spec.devicePlugin.config.name: `m` names a ConfigMap without any entry; add an entry, whose key nodes can choose"
        ]
    );
}

#[test]
fn the_device_plugins_file_is_read_strictly() {
    let name = "spec.devicePlugin.config.name: `m` names a ConfigMap";
    let place = "(in ConfigMap gpu-operator/m)";
    for (text, want) in [
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}",
            None,
        ),
        (
            "sharing: {timeSlicing: {replicas: 4, resources: [{name: gpu, replicas: 4}]}}",
            Some(format!(
                "refuse: {name} whose key a cannot be used: sharing.timeSlicing.replicas is not a setting here and would be ignored; it belongs at \
                 sharing.timeSlicing.resources[].replicas {place}"
            )),
        ),
        (
            "flags: {migStrateegy: none}",
            Some(format!(
                "refuse: {name} whose key a cannot be used: flags.migStrateegy is not a setting of the device plugin and would be ignored; remove it {place}"
            )),
        ),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0]}]}}",
            Some(format!(
                "warn: {name} in whose key a sharing.timeSlicing.resources[0].devices has no effect; the plugin ignores it and shares all devices: \
                 replicas cannot differ by card of one node {place}"
            )),
        ),
    ] {
        let found = said(
            "devicePlugin: {config: {name: m}}",
            &with_map(facts(&[]), "m", &[("a", text)]),
        );
        assert_eq!(found, want.into_iter().collect::<Vec<_>>(), "{text}");
    }
    // P6: whichever comes last.
    let mps = with_map(
        facts(&[]),
        "m",
        &[(
            "a",
            "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}",
        )],
    );
    let old = policy(
        "mine",
        1,
        "mig: {strategy: none}\ndevicePlugin: {config: {name: m}}",
    );
    let new = policy(
        "mine",
        1,
        "mig: {strategy: mixed}\ndevicePlugin: {config: {name: m}}",
    );
    let found = texts(&new, Some(&old), &mps);
    assert!(
        found.len() == 1
            && found[0].starts_with("refuse")
            && found[0].contains("sharing.mps cannot share MIG instances"),
        "{found:#?}"
    );
}

#[test]
fn nodes_that_choose_a_key_that_is_not_there() {
    let nodes = facts(&[
        node("x", &[("device-plugin.config", "b")]),
        node("y", &[("device-plugin.config", "a")]),
    ]);
    let found = said(
        "devicePlugin: {config: {name: m}}",
        &with_map(nodes, "m", &[("a", "")]),
    );
    assert_eq!(
        found,
        [
            "warn: spec.devicePlugin.config.name: `m` names ConfigMap m, and nodes choose keys by label nvidia.com/device-plugin.config that it does not \
          have: x (b); add the keys, or correct the labels"
        ]
    );
}

#[test]
fn layouts_are_refused_when_no_card_can_hold_them() {
    let file = |devices: &str| {
        format!(
            "{{version: v1, mig-configs: {{mine: [{{devices: all, mig-enabled: true, mig-devices: {{{devices}}}}}]}}}}"
        )
    };
    let judged = |text: &str| {
        said(
            "migManager: {config: {name: m}}",
            &with_map(facts(&[]), "m", &[("config.yaml", text)]),
        )
    };
    assert_eq!(
        judged(&file("4g.20gb: 1, 3g.20gb: 1")),
        Vec::<String>::new()
    );
    assert_eq!(
        judged(&file("4g.20gb: 2")),
        [
            "refuse: spec.migManager.config.name: `m` names a ConfigMap whose key config.yaml is wrong: mig-configs.mine[0].mig-devices asks for 4g.20gb x2, which \
          do not fit together on one card (A100 40 GB); ask for fewer or smaller instances in ConfigMap gpu-operator/m"
        ]
    );
    let unknown = judged(&file("1g.999gb: 1"));
    assert!(
        unknown.len() == 1 && unknown[0].starts_with("warn"),
        "{unknown:#?}"
    );
    let strict = judged("{version: v1, mig-configs: {a: [{devices: all, enabled: true}]}}");
    assert!(
        strict.iter().all(|text| text.starts_with("refuse"))
            && strict
                .iter()
                .any(|text| text.contains("mig-configs.a[0].enabled is not a setting")),
        "{strict:#?}"
    );
}
