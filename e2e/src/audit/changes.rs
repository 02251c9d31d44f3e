//! What one JSON value has other than another.

use serde_json::Value;

/// A line for each place that differs: its path, the value before and the value after.
pub(super) fn between(before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", before, after, &mut found);
    found
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let gone = old.keys().filter(|key| !new.contains_key(*key));
            for key in new.keys().chain(gone) {
                let side = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                let (old, new) = (side(old).unwrap_or_default(), side(new).unwrap_or_default());
                compare(&format!("{path}/{key}"), &old, &new, found);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                let side = |list: &[Value]| list.get(index).cloned().unwrap_or_default();
                compare(&format!("{path}/{index}"), &side(old), &side(new), found);
            }
        }
        _ if before == after => {}
        _ => found.push(format!("{path}: {before} -> {after}")),
    }
}
