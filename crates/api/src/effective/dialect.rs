//! The short dialect becomes NVIDIA's fields, before policies are merged: so an overlay in one dialect wins over a base in the other.

use serde_json::{Map, Value};

use super::{Component, Problem};

/// Short path, NVIDIA's path, and whose problem it is when both are given and differ (DESIGN section 2.1).
const ROWS: [(&str, &str, Component); 4] = [
    (
        "containerRuntime.enabled",
        "toolkit.enabled",
        Component::Toolkit,
    ),
    (
        "containerRuntime.cdi.enabled",
        "cdi.enabled",
        Component::Toolkit,
    ),
    ("driver.repo", "driver.repository", Component::Driver),
    ("dcgm.exporter", "dcgmExporter", Component::DcgmExporter),
];

/// Moves every short path to NVIDIA's. Where both are given and differ NVIDIA's wins and a problem says so: the schema refuses that,
/// so it is met only in objects from before the rule.
pub(super) fn normalise(spec: Value, problems: &mut Vec<Problem>) -> Value {
    let Value::Object(mut spec) = spec else {
        return spec;
    };
    for (short, full, component) in ROWS {
        if let Some(value) = take(&mut spec, short) {
            fill(
                slot(&mut spec, full),
                value,
                short,
                full,
                component,
                problems,
            );
        }
    }
    spec.remove("containerRuntime");
    Value::Object(spec)
}

fn fill(
    target: &mut Value,
    value: Value,
    short: &str,
    full: &str,
    component: Component,
    problems: &mut Vec<Problem>,
) {
    match (target, value) {
        (target @ Value::Null, value) => *target = value,
        (Value::Object(target), Value::Object(value)) => {
            for (key, value) in value {
                let (short, full) = (format!("{short}.{key}"), format!("{full}.{key}"));
                fill(
                    target.entry(key).or_insert(Value::Null),
                    value,
                    &short,
                    &full,
                    component,
                    problems,
                );
            }
        }
        (target, value) if *target == value => {}
        (target, value) => problems.push(Problem {
            component,
            path: full.to_owned(),
            message: format!(
                "is {target} but {short}, the same setting, is {value}: remove one of them"
            ),
        }),
    }
}

/// Removes and returns what is at a path.
fn take(object: &mut Map<String, Value>, path: &str) -> Option<Value> {
    match path.split_once('.') {
        None => object.remove(path),
        Some((key, rest)) => take(object.get_mut(key)?.as_object_mut()?, rest),
    }
}

/// The place of a path, made if it is not there (as null).
fn slot<'a>(object: &'a mut Map<String, Value>, path: &str) -> &'a mut Value {
    match path.split_once('.') {
        None => object.entry(path).or_insert(Value::Null),
        Some((key, rest)) => {
            let below = object
                .entry(key)
                .or_insert_with(|| Value::Object(Map::new()));
            if !below.is_object() {
                *below = Value::Object(Map::new());
            }
            match below {
                Value::Object(map) => slot(map, rest),
                other => other,
            }
        }
    }
}
