//! Fields that nobody has. The API server prunes them before admission sees an object; kubectl's record of what was applied still has
//! them.

use std::{collections::BTreeMap, sync::LazyLock};

use kube::{CustomResourceExt, Resource};
use serde_json::{Map, Value};

use super::{Finding, Severity, json::show};
use crate::{policy::ClusterPolicy, quote::quoted, sreagent::SREAgent};

/// Where `kubectl apply` keeps the object as it was given.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Nobody reads more findings than this, and each costs a search.
const MOST: usize = 100;

static POLICY: LazyLock<Value> = LazyLock::new(|| schema(&ClusterPolicy::crd()));
static AGENT: LazyLock<Value> = LazyLock::new(|| schema(&SREAgent::crd()));

fn schema(crd: &impl serde::Serialize) -> Value {
    // A CRD of ours always serialises and has a schema; without one nothing would be unknown.
    let crd = serde_json::to_value(crd).unwrap_or_default();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema")
        .cloned()
        .unwrap_or_default()
}

pub(super) fn policy(new: &ClusterPolicy, old: Option<&ClusterPolicy>) -> Vec<Finding> {
    new_ones(new, old, &POLICY)
}

pub(super) fn agent(new: &SREAgent, old: Option<&SREAgent>) -> Vec<Finding> {
    new_ones(new, old, &AGENT)
}

/// What the object has and the older one had not.
fn new_ones<K: Resource>(new: &K, old: Option<&K>, schema: &Value) -> Vec<Finding> {
    let known = old.map(|old| unknown(old, schema)).unwrap_or_default();
    let mut found = unknown(new, schema);
    found.retain(|finding| !known.contains(finding));
    found
}

fn unknown<K: Resource>(object: &K, schema: &Value) -> Vec<Finding> {
    let annotations = object.meta().annotations.as_ref();
    let text = annotations.and_then(|all| all.get(LAST_APPLIED));
    let applied = text.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let mut found = Vec::new();
    if let Some(Value::Object(applied)) = applied {
        let top = schema.get("properties").and_then(Value::as_object);
        for (key, value) in &applied {
            if found.len() >= MOST {
                break;
            }
            let inner = top.and_then(|known| known.get(key));
            match (key.as_str(), inner) {
                ("apiVersion" | "kind" | "metadata" | "status", _) => {}
                (_, Some(inner)) => walk(value, inner, key, schema, &mut found),
                (_, None) => found.push(finding(key, value, top, schema, "")),
            }
        }
    }
    found
}

fn walk(value: &Value, schema: &Value, path: &str, root: &Value, found: &mut Vec<Finding>) {
    match value {
        Value::Object(entries) => {
            let known = schema.get("properties").and_then(Value::as_object);
            let others = schema.get("additionalProperties");
            let kept =
                schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
            for (key, value) in entries {
                if found.len() >= MOST {
                    return;
                }
                let here = format!("{path}.{}", quoted(key));
                match (known.and_then(|known| known.get(key)), others) {
                    (Some(inner), _) | (None, Some(inner)) => {
                        walk(value, inner, &here, root, found);
                    }
                    (None, None) if kept || known.is_none() => {}
                    (None, None) => found.push(finding(key, value, known, root, path)),
                }
            }
        }
        Value::Array(items) => {
            let inner = schema.get("items").unwrap_or(&Value::Null);
            for (index, item) in items.iter().enumerate() {
                walk(item, inner, &format!("{path}[{index}]"), root, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn finding(
    key: &str,
    value: &Value,
    beside: Option<&Map<String, Value>>,
    root: &Value,
    path: &str,
) -> Finding {
    let names = beside.into_iter().flat_map(Map::keys).map(String::as_str);
    let here = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    let remedy = match nearest(key, names) {
        Some(near) => format!("did you mean {}?", here(near)),
        None => match elsewhere(root).get(&key.to_ascii_lowercase()) {
            Some(place) => format!("did you mean {place}?"),
            None => "remove it".to_owned(),
        },
    };
    Finding {
        severity: Severity::Warn,
        path: here(&quoted(key)),
        value: show(value),
        why: "is not stored, as there is no field of this name".to_owned(),
        remedy,
    }
}

/// The shortest path to a field of each name, in lower case.
fn elsewhere(root: &Value) -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    if let Some(spec) = root.pointer("/properties/spec") {
        collect(spec, "spec", &mut places);
    }
    places
}

fn collect(schema: &Value, path: &str, places: &mut BTreeMap<String, String>) {
    for (key, inner) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let here = format!("{path}.{key}");
        let shortest = places
            .entry(key.to_ascii_lowercase())
            .or_insert_with(|| here.clone());
        if here.split('.').count() < shortest.split('.').count() {
            shortest.clone_from(&here);
        }
        collect(inner, &here, places);
    }
    if let Some(items) = schema.get("items") {
        collect(items, &format!("{path}[]"), places);
    }
}

/// The name that is most like `key`: at most a third of its letters differ, and case does not count.
fn nearest<'a>(key: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = key.to_lowercase();
    let length = wanted.chars().count();
    let most = (length / 3).max(1);
    names
        .filter(|name| name.chars().count().abs_diff(length) <= most)
        .map(|name| (distance(&wanted, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein's distance. (Twelve lines; a crate for it would be one more thing to audit.)
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for ((other, above_left), above) in b.iter().zip(&row).zip(row.iter().skip(1)) {
            let left = next.last().copied().unwrap_or_default();
            let replaced = above_left + usize::from(letter != *other);
            next.push(replaced.min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_of_thousands_of_fields() {
        let fields: Map<String, Value> = (0..1000)
            .map(|number| (format!("field{number}"), Value::Null))
            .collect();
        for applied in [
            serde_json::json!({"spec": fields}),
            Value::Object(fields.clone()),
        ] {
            let mut policy =
                ClusterPolicy::new("mine", crate::policy::ClusterPolicySpec::default());
            let annotation = (LAST_APPLIED.to_owned(), applied.to_string());
            policy.metadata.annotations = Some([annotation].into());
            assert_eq!(super::policy(&policy, None).len(), MOST);
        }
    }

    #[test]
    fn distances() {
        for (a, b, want) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("driver", "drivr", 1),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(a, b), want, "{a} {b}");
        }
        assert_eq!(
            nearest("drivr", ["toolkit", "driver"].into_iter()),
            Some("driver")
        );
        assert_eq!(nearest("Enabled", ["enabled"].into_iter()), Some("enabled"));
        assert_eq!(nearest("x", ["toolkit", "driver"].into_iter()), None);
    }
}
