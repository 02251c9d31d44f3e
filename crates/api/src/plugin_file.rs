//! Reads a user's configuration file for the device plugin, strictly: every key that the plugin would drop or ignore is
//! named by its path, and every value that keeps it from starting.

mod configs;
mod schema;

use serde_json::Value;

pub use self::configs::{Chosen, Configs, Shares};
use self::schema::{FILE, Shape, place_of};
use crate::{
    names::MIG_RESOURCE_PREFIX,
    policy::MigStrategy,
    quote::quoted,
    shares::{MAX_MPS_CLIENTS, shared_name},
};

/// What a file means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// What keeps it from being used: `path: what is wrong and what to do`.
    pub problems: Vec<String>,
    /// What has no effect although it is written.
    pub notes: Vec<String>,
    /// What nodes that use it should advertise.
    pub shares: Shares,
}

/// Reads `text` under the policy's MIG strategy.
pub fn parse(text: &str, strategy: MigStrategy) -> Parsed {
    let mut parsed = Parsed {
        problems: Vec::new(),
        notes: Vec::new(),
        shares: Shares::none(strategy),
    };
    let value: Value = match serde_saphyr::from_str::<Option<Value>>(text) {
        // An empty file is how NVIDIA writes "no special configuration".
        Ok(value) => value.unwrap_or_default(),
        Err(error) => {
            let text = error.to_string();
            let first = quoted(text.lines().next().unwrap_or_default());
            parsed.problems.push(format!("it is not YAML: {first}"));
            return parsed;
        }
    };
    if !value.is_null() {
        walk(&value, &FILE, "", &mut parsed);
        version(&value, &mut parsed);
        flags(&value, strategy, &mut parsed);
        sharing(&value, strategy, &mut parsed);
    }
    parsed
}

fn walk(value: &Value, shape: &Shape, path: &str, parsed: &mut Parsed) {
    match (shape, value) {
        (_, Value::Null) | (Shape::Leaf, _) => {}
        (Shape::Ignored(why), _) => parsed.notes.push(format!("{path} has no effect: {why}")),
        (Shape::Map(known), Value::Object(entries)) => {
            for (key, inner) in entries {
                let key_shown = quoted(key);
                let here = if path.is_empty() {
                    key_shown.into_owned()
                } else {
                    format!("{path}.{key_shown}")
                };
                match known.iter().find(|(name, _)| name == key) {
                    Some((_, shape)) => walk(inner, shape, &here, parsed),
                    None => parsed.problems.push(unknown(&here, key)),
                }
            }
        }
        (Shape::List(shape), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, shape, &format!("{path}[{index}]"), parsed);
            }
        }
        (Shape::Map(_), _) => parsed
            .problems
            .push(format!("{} is not a map", named(path))),
        (Shape::List(_), _) => parsed
            .problems
            .push(format!("{} is not a list", named(path))),
    }
}

fn named(path: &str) -> &str {
    if path.is_empty() { "the file" } else { path }
}

fn unknown(path: &str, key: &str) -> String {
    match place_of(key) {
        Some(place) => {
            format!("{path} is not a setting here and would be ignored: it belongs at {place}")
        }
        None => {
            format!("{path} is not a setting of the device plugin and would be ignored: remove it")
        }
    }
}

fn version(value: &Value, parsed: &mut Parsed) {
    let version = value.get("version").filter(|version| !version.is_null());
    if version.is_some_and(|version| !matches!(version.as_str(), Some("v1" | ""))) {
        parsed
            .problems
            .push("version is not v1, the only one that the device plugin knows".to_owned());
    }
}

/// The policy decides the MIG strategy, for the plugin and for feature discovery alike, by environment variables that win over the
/// file.
fn flags(value: &Value, strategy: MigStrategy, parsed: &mut Parsed) {
    let given = value.pointer("/flags/migStrategy").and_then(Value::as_str);
    if let Some(given) = given.filter(|given| *given != strategy.as_str()) {
        let note = format!(
            "flags.migStrategy {} has no effect: spec.mig.strategy of the policy is {strategy}; set it there",
            quoted(given)
        );
        parsed.notes.push(note);
    }
}

fn sharing(value: &Value, strategy: MigStrategy, parsed: &mut Parsed) {
    let stanza = |kind: &str| {
        value
            .get("sharing")?
            .get(kind)
            .filter(|stanza| !stanza.is_null())
    };
    match (stanza("timeSlicing"), stanza("mps")) {
        (Some(_), Some(_)) => {
            let text = "sharing has both timeSlicing and mps, and a card can be shared in one way only: remove one of them";
            parsed.problems.push(text.to_owned());
        }
        (Some(slicing), None) => shared(slicing, "sharing.timeSlicing", parsed),
        (None, Some(mps)) => {
            if strategy != MigStrategy::None {
                let text = format!(
                    "sharing.mps cannot share MIG instances, and spec.mig.strategy of the policy is {strategy}"
                );
                parsed.problems.push(text);
            }
            parsed.shares.mps = true;
            shared(mps, "sharing.mps", parsed);
        }
        (None, None) => {}
    }
}

fn shared(stanza: &Value, path: &str, parsed: &mut Parsed) {
    let is_set = |key: &str| stanza.get(key).and_then(Value::as_bool);
    parsed.shares.renamed = is_set("renameByDefault").unwrap_or(false);
    let one_each = is_set("failRequestsGreaterThanOne").unwrap_or(parsed.shares.mps);
    parsed.shares.one_each = one_each;
    let resources = stanza
        .get("resources")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    if resources.is_empty() {
        parsed.problems.push(format!("{path}.resources is empty, which the device plugin refuses: name a resource or remove {path}"));
    }
    for (index, resource) in resources.iter().enumerate() {
        let here = format!("{path}.resources[{index}]");
        match entry(resource, parsed.shares.strategy) {
            Ok((name, replicas)) => {
                if parsed.shares.mps && replicas > MAX_MPS_CLIENTS {
                    parsed.problems.push(format!(
                        "{here}.replicas is {replicas}, and an MPS server has {MAX_MPS_CLIENTS} clients at most: write a number from 2 to \
                         {MAX_MPS_CLIENTS}"
                    ));
                }
                if parsed
                    .shares
                    .shared
                    .insert(name.clone(), replicas)
                    .is_some()
                {
                    parsed
                        .problems
                        .push(format!("{here} names {name} a second time: keep one entry"));
                }
            }
            Err(why) => parsed.problems.push(format!("{here}: {why}")),
        }
    }
}

fn entry(resource: &Value, strategy: MigStrategy) -> Result<(String, u32), String> {
    let name = resource
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let full = shared_name(name).map_err(|error| format!("name {error}"))?;
    if full.starts_with(MIG_RESOURCE_PREFIX) && strategy != MigStrategy::Mixed {
        return Err(format!(
            "{full} exists only with spec.mig.strategy mixed, and the policy says {strategy}"
        ));
    }
    let replicas = resource
        .get("replicas")
        .and_then(Value::as_u64)
        .and_then(|n| u32::try_from(n).ok());
    match replicas {
        Some(replicas) if replicas >= 2 => Ok((full, replicas)),
        _ => Err(format!(
            "replicas of {full} must be 2 or more, or the device plugin does not start: raise it or remove the entry"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const GOOD: &str = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n";

    #[test]
    fn a_good_file() {
        let parsed = parse(GOOD, MigStrategy::None);
        assert_eq!(
            (parsed.problems.len(), parsed.notes.len()),
            (0, 0),
            "{parsed:?}"
        );
        assert_eq!(
            parsed.shares.shared,
            BTreeMap::from([("nvidia.com/gpu".to_owned(), 4)])
        );
        for empty in ["", "# nothing\n", "version: v1\n", "flags:\n"] {
            assert_eq!(
                parse(empty, MigStrategy::None).problems,
                Vec::<String>::new(),
                "{empty}"
            );
        }
    }

    #[test]
    fn every_mistake_is_named_by_its_path() {
        let cases = [
            ("sharing: [", "it is not YAML"),
            ("- a", "the file is not a map"),
            ("version: v2", "version is not v1"),
            (
                "timeSlicing: {}",
                "timeSlicing is not a setting here and would be ignored: it belongs at sharing.timeSlicing",
            ),
            (
                "sharing: {timeSlicing: {replicas: 4}}",
                "sharing.timeSlicing.replicas is not a setting here and would be ignored: it belongs at sharing.timeSlicing.resources[].replicas",
            ),
            (
                "flags: {plugins: {}}",
                "flags.plugins is not a setting of the device plugin",
            ),
            (
                "sharing: {timeSlicing: {resources: []}}",
                "sharing.timeSlicing.resources is empty",
            ),
            (
                "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}",
                "replicas of nvidia.com/gpu must be 2 or more",
            ),
            (
                "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}, {name: nvidia.com/gpu, replicas: 2}]}}",
                "a second time",
            ),
            (
                "sharing: {timeSlicing: {resources: [{name: amd.com/gpu, replicas: 4}]}}",
                "cannot be shared",
            ),
            (
                "sharing: {timeSlicing: {resources: [{name: gpu.shared, replicas: 4}]}}",
                "cannot be shared",
            ),
            (
                "sharing: {timeSlicing: {resources: [{name: mig-1g.5gb, replicas: 4}]}}",
                "only with spec.mig.strategy mixed",
            ),
            (
                "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}, mps: {resources: [{name: gpu, replicas: 2}]}}",
                "both timeSlicing and mps",
            ),
        ];
        for (text, want) in cases {
            let parsed = parse(text, MigStrategy::None);
            assert!(
                parsed.problems.iter().any(|problem| problem.contains(want)),
                "{text}: {parsed:?}"
            );
        }
        let mps = parse(
            "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}",
            MigStrategy::Mixed,
        );
        assert!(mps.problems[0].contains("cannot share MIG instances"));
        let many = "sharing: {mps: {resources: [{name: gpu, replicas: 49}]}}";
        let problems = parse(many, MigStrategy::None).problems;
        assert!(
            problems[0].starts_with("sharing.mps.resources[0].replicas is 49"),
            "{problems:?}"
        );
    }

    #[test]
    fn what_the_plugin_ignores_is_said() {
        let cases = [
            (
                "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0]}]}}",
                "sharing.timeSlicing.resources[0].devices has no effect",
            ),
            ("resources: {gpus: []}", "resources has no effect"),
            (
                "flags: {migStrategy: single}",
                "flags.migStrategy single has no effect",
            ),
        ];
        for (text, want) in cases {
            let parsed = parse(text, MigStrategy::None);
            assert_eq!(parsed.problems, Vec::<String>::new());
            assert!(
                parsed.notes.iter().any(|note| note.contains(want)),
                "{text}: {parsed:?}"
            );
        }
    }
}
