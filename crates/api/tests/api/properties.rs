//! Properties of merging and resolving.

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::Value;
use tessera_api::{DefaultImages, effective::merge, resolve};

use crate::{base, policy, resolved};

/// One line of a policy each; any subset is a policy.
pub(crate) const LINES: [&str; 16] = [
    "driver: {version: '1', tolerations: [{key: a, operator: Exists}]}",
    "driver: {enabled: false}",
    "driver: {image: 'r.example/driver:2'}",
    "driver: {upgradePolicy: {maxUnavailable: 10%}}",
    "toolkit: {enabled: false}",
    "containerRuntime: {enabled: true, cdi: {enabled: false}}",
    "cdi: {nriPluginEnabled: true}",
    "devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}}}",
    "devicePlugin: {config: {sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}}}",
    "devicePlugin: {config: {name: map}}",
    "mig: {strategy: mixed}",
    "dcgm: {enabled: true, exporter: {serviceMonitor: {interval: 5s}}}",
    "dcgmExporter: {serviceMonitor: {scrapeTimeout: 9s}, env: [{name: A}]}",
    "daemonsets: {tolerations: [], rollingUpdate: {maxUnavailable: lots}}",
    "nodeSelector: {gpu: 'true'}",
    "operator: {runtimeClass: other, labels: {a: b}}",
];

/// The chosen lines as one JSON object; later lines of the same section win.
pub(crate) fn object(lines: &[&str]) -> Value {
    let parse = |line: &&str| serde_saphyr::from_str::<Value>(line).expect("a line");
    lines
        .iter()
        .map(parse)
        .fold(Value::Object(serde_json::Map::new()), |all, line| {
            let (Value::Object(mut all), Value::Object(line)) = (all, line) else {
                unreachable!("lines are objects");
            };
            all.extend(line);
            Value::Object(all)
        })
}

fn lines() -> impl Strategy<Value = Vec<&'static str>> {
    vec(select(LINES.as_slice()), 0..8)
}

proptest! {
    #[test]
    fn merging_an_overlay_twice_is_merging_it_once(under in lines(), over in lines()) {
        let (under, over) = (object(&under), object(&over));
        let once = merge(under, &over);
        prop_assert_eq!(merge(once.clone(), &over), once);
    }

    #[test]
    fn merging_into_itself_changes_nothing(lines in lines()) {
        let object = object(&lines);
        prop_assert_eq!(merge(object.clone(), &object), object);
    }

    #[test]
    fn every_policy_resolves_and_deterministically(under in lines(), over in lines(), swap in any::<bool>()) {
        let (under, over) = (base(&object(&under).to_string()), policy("mine", 1, &object(&over).to_string()));
        let first = resolved(&[under.clone(), over.clone()]);
        let second = if swap { resolved(&[over, under]) } else { resolved(&[under, over]) };
        prop_assert_eq!(&first, &second);
        let hashes = [first, second].map(|r| r.active.map(|a| a.effective.hash()));
        prop_assert_eq!(&hashes[0], &hashes[1]);
    }

    #[test]
    fn any_section_may_be_missing(removed in vec(any::<prop::sample::Index>(), 0..20)) {
        let text = include_str!("../accepted/nvidia-chart.yaml");
        let mut whole: Value = serde_saphyr::from_str(text).expect("the example");
        for index in removed {
            remove(&mut whole["spec"], index);
        }
        let policy = serde_json::from_value(whole).expect("still a policy");
        let active = resolve([&policy], &DefaultImages::builtin()).active;
        prop_assert!(active.is_some_and(|a| a.effective.problems.is_empty()));
    }
}

/// Removes one section, or one field of a section, wherever the index points.
fn remove(spec: &mut Value, index: prop::sample::Index) {
    let Value::Object(sections) = spec else {
        return;
    };
    if sections.is_empty() {
        return;
    }
    let number = index.index(sections.len() * 2);
    let key = sections.keys().nth(number / 2).cloned().unwrap_or_default();
    match sections.get_mut(&key) {
        Some(inner @ Value::Object(_)) if number % 2 == 1 => remove(inner, index),
        _ => {
            sections.remove(&key);
        }
    }
}
