//! ConfigMaps that a policy names: whether they and their keys are there (a warning: the order in which things are applied must not
//! matter), and whether what they say can be used (a refusal: it would not be).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{MapFacts, Severity, case::Case, json::some_of, layouts};
use crate::{
    effective::{EffectivePolicy, Operand, PluginConfig},
    names::{config_map, label},
    plugin_file,
    quote::quoted,
};

/// The entries of a ConfigMap.
type Data = Arc<BTreeMap<String, String>>;

/// A ConfigMap by name in a policy.
struct Reference {
    path: &'static str,
    /// Key that must be there.
    key: Option<&'static str>,
    operand: fn(&EffectivePolicy) -> &Operand,
}

const REFERENCES: [Reference; 7] = [
    Reference {
        path: "migManager.config.name",
        key: Some(config_map::CONFIG_KEY),
        operand: |policy| &policy.mig_manager.operand,
    },
    Reference {
        path: "migManager.gpuClientsConfig.name",
        key: Some(config_map::GPU_CLIENTS_KEY),
        operand: |policy| &policy.mig_manager.operand,
    },
    Reference {
        path: "dcgmExporter.config.name",
        key: Some(config_map::DCGM_METRICS_KEY),
        operand: |policy| &policy.dcgm_exporter.operand,
    },
    Reference {
        path: "driver.repoConfig.configMapName",
        key: None,
        operand: |policy| &policy.driver.operand,
    },
    Reference {
        path: "driver.certConfig.name",
        key: None,
        operand: |policy| &policy.driver.operand,
    },
    Reference {
        path: "driver.kernelModuleConfig.name",
        key: None,
        operand: |policy| &policy.driver.operand,
    },
    Reference {
        path: "driver.virtualTopology.config",
        key: None,
        operand: |policy| &policy.driver.operand,
    },
];

/// Path of the device plugin's ConfigMap.
const PLUGIN: &str = "devicePlugin.config.name";
const PLUGIN_DEFAULT: &str = "devicePlugin.config.default";

pub(super) fn judge(case: &mut Case<'_>) {
    for reference in &REFERENCES {
        let Some(name) = case.text(reference.path).map(str::to_owned) else {
            continue;
        };
        if !(reference.operand)(&case.effective).enabled {
            continue;
        }
        let Some(data) = present(case, reference.path, &name) else {
            continue;
        };
        if let Some(key) = reference.key
            && !data.contains_key(key)
        {
            let why = no_key(case, &name, key, &data);
            case.warn((reference.path, &[]), why, "add the key");
        }
        if reference.path == "migManager.config.name"
            && let Some(text) = data.get(config_map::CONFIG_KEY)
        {
            layout_file(case, reference.path, &name, text);
        }
    }
    plugin(case);
}

/// Names of the ConfigMaps that this policy refers to.
pub(super) fn names(case: &Case<'_>) -> BTreeSet<String> {
    let in_use = REFERENCES
        .iter()
        .filter(|one| (one.operand)(&case.effective).enabled);
    let paths = in_use.map(|one| one.path).chain([PLUGIN]);
    paths
        .filter_map(|path| case.text(path).map(str::to_owned))
        .collect()
}

/// The content of a ConfigMap, if it is known; says so if it is known not to exist.
fn present(case: &mut Case<'_>, path: &str, name: &str) -> Option<Data> {
    match case.facts.config_maps.get(name) {
        Some(MapFacts::Present(data)) => Some(data.clone()),
        Some(MapFacts::Absent) => {
            let why = format!(
                "names a ConfigMap that does not exist in namespace {}",
                case.facts.namespace
            );
            case.warn((path, &[]), why, "create it, or correct the name");
            None
        }
        Some(MapFacts::Unknown) | None => None,
    }
}

fn no_key(case: &Case<'_>, name: &str, key: &str, data: &Data) -> String {
    let known: Vec<String> = data.keys().cloned().collect();
    let known = if known.is_empty() {
        "no key at all".to_owned()
    } else {
        format!("only {}", some_of(&known))
    };
    format!(
        "asks for key {} of ConfigMap {}/{name}, which has {known}",
        quoted(key),
        case.facts.namespace
    )
}

/// What the MIG manager would make of its file.
fn layout_file(case: &mut Case<'_>, path: &str, name: &str, text: &str) {
    for (severity, mistake) in layouts::check(text) {
        let why = format!(
            "names a ConfigMap whose key {} is wrong: {} {}",
            config_map::CONFIG_KEY,
            mistake.path,
            mistake.why
        );
        let remedy = format!(
            "{} in ConfigMap {}/{name}",
            mistake.remedy, case.facts.namespace
        );
        match severity {
            Severity::Refuse => case.refuse((path, &[]), why, remedy),
            Severity::Warn => case.warn((path, &[]), why, remedy),
        }
    }
}

fn plugin(case: &mut Case<'_>) {
    let PluginConfig::ConfigMap { name, default } = case.effective.device_plugin.config.clone()
    else {
        return;
    };
    let is_read =
        case.effective.device_plugin.operand.enabled || case.effective.gfd.operand.enabled;
    if !is_read {
        return;
    }
    let Some(data) = present(case, PLUGIN, &name) else {
        return;
    };
    if data.is_empty() {
        let why = "names a ConfigMap without any entry";
        case.warn(
            (PLUGIN, &[]),
            why,
            "add an entry, whose key nodes can choose",
        );
    }
    if let Some(key) = default.filter(|key| !data.contains_key(key)) {
        let why = no_key(case, &name, &key, &data);
        case.warn(
            (PLUGIN_DEFAULT, &[PLUGIN]),
            why,
            "add the key, or write one that is there",
        );
    }
    chosen(case, &name, &data);
    for (key, text) in data.iter() {
        let file = plugin_file::parse(text, case.effective.mig.strategy);
        let place = format!("in ConfigMap {}/{name}", case.facts.namespace);
        let others: &[&str] = &["mig.strategy", "migManager.enabled"];
        for problem in file.problems {
            let (what, remedy) = problem.split_once(": ").unwrap_or((&problem, "correct it"));
            let why = format!("names a ConfigMap whose key {key} cannot be used: {what}");
            case.refuse((PLUGIN, others), why, format!("{remedy} ({place})"));
        }
        for note in file.notes {
            let (what, remedy) = note.split_once(": ").unwrap_or((&note, "remove it"));
            let why = format!("names a ConfigMap in whose key {key} {what}");
            case.warn((PLUGIN, others), why, format!("{remedy} ({place})"));
        }
    }
}

/// Nodes whose label names a key that is not there.
fn chosen(case: &mut Case<'_>, name: &str, data: &Data) {
    let unknown: Vec<String> = case
        .facts
        .nodes
        .iter()
        .filter_map(|node| {
            let key = node.label(label::DEVICE_PLUGIN_CONFIG)?;
            (!key.is_empty() && !data.contains_key(key)).then(|| format!("{} ({key})", node.name))
        })
        .collect();
    if !unknown.is_empty() {
        let why = format!(
            "names ConfigMap {name}, and nodes choose keys by label {} that it does not have: {}",
            label::DEVICE_PLUGIN_CONFIG,
            some_of(&unknown)
        );
        case.warn((PLUGIN, &[]), why, "add the keys, or correct the labels");
    }
}
