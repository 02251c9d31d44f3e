//! The short dialect becomes NVIDIA's fields, before policies are merged: so an overlay in one dialect wins over a base in the other.

use serde_json::{Map, Value};

use super::{Component, Problem};
use crate::quote::quoted;

/// A setting that both dialects have (DESIGN section 2.1).
struct Row {
    short: &'static str,
    full: &'static str,
    /// Whose problem it is when both are given and differ.
    component: Component,
}

const ROWS: [Row; 4] = [
    Row {
        short: "containerRuntime.enabled",
        full: "toolkit.enabled",
        component: Component::Toolkit,
    },
    Row {
        short: "containerRuntime.cdi.enabled",
        full: "cdi.enabled",
        component: Component::Toolkit,
    },
    Row {
        short: "driver.repo",
        full: "driver.repository",
        component: Component::Driver,
    },
    Row {
        short: "dcgm.exporter",
        full: "dcgmExporter",
        component: Component::DcgmExporter,
    },
];

/// Moves every short path to NVIDIA's. Where both are given and differ NVIDIA's wins and a problem says so: the schema refuses that,
/// so it is met only in objects from before the rule.
pub(super) fn normalise(spec: Value, problems: &mut Vec<Problem>) -> Value {
    let Value::Object(mut spec) = spec else {
        return spec;
    };
    for row in &ROWS {
        if let Some(value) = take(&mut spec, row.short) {
            fill(&mut spec, nested(row.full, value), "", row, problems);
        }
    }
    spec.remove("containerRuntime");
    Value::Object(spec)
}

/// The path in the short dialect of a path in NVIDIA's fields, if there is one.
pub(crate) fn short_path(full: &str) -> Option<String> {
    ROWS.iter().find_map(|row| {
        let below = full.strip_prefix(row.full)?;
        (below.is_empty() || below.starts_with(['.', '['])).then(|| format!("{}{below}", row.short))
    })
}

/// Puts what is missing in `target` into it, and reports what differs.
fn fill(
    target: &mut Map<String, Value>,
    source: Map<String, Value>,
    at: &str,
    row: &Row,
    problems: &mut Vec<Problem>,
) {
    for (key, value) in source {
        let path = if at.is_empty() {
            key.clone()
        } else {
            format!("{at}.{key}")
        };
        match (target.get_mut(&key), value) {
            (None, value) => {
                target.insert(key, value);
            }
            (Some(Value::Object(target)), Value::Object(source)) => {
                fill(target, source, &path, row, problems);
            }
            (Some(given), value) if *given == value => {}
            (Some(given), value) => {
                let short = path.replacen(row.full, row.short, 1);
                let message = format!(
                    "is `{}` but {short}, the same setting, is `{}`: remove one of them",
                    bare(given),
                    bare(&value)
                );
                problems.push(Problem {
                    component: row.component,
                    path,
                    message,
                });
            }
        }
    }
}

/// A text without quotes, anything else as JSON.
fn bare(value: &Value) -> String {
    match value.as_str() {
        Some(text) => quoted(text).into_owned(),
        None => quoted(&value.to_string()).into_owned(),
    }
}

/// An object with a value at a path and nothing else.
fn nested(path: &str, value: Value) -> Map<String, Value> {
    let (key, value) = match path.split_once('.') {
        None => (path, value),
        Some((key, rest)) => (key, Value::Object(nested(rest, value))),
    };
    Map::from_iter([(key.to_owned(), value)])
}

/// Removes and returns what is at a path.
fn take(object: &mut Map<String, Value>, path: &str) -> Option<Value> {
    match path.split_once('.') {
        None => object.remove(path),
        Some((key, rest)) => take(object.get_mut(key)?.as_object_mut()?, rest),
    }
}
