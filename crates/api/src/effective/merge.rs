//! Overlay of one policy over another, at JSON level: objects merge field by field, everything else replaces.

use serde_json::{Map, Value};

/// Fields of one object of which an overlay's choice puts the base's others out of force, and the path of that object.
const ALTERNATIVES: [(&str, &[&str]); 2] = [
    ("devicePlugin.config", &["name", "sharing"]),
    ("devicePlugin.config.sharing", &["timeSlicing", "mps"]),
];

/// `overlay` over `base`. Objects merge, lists and scalars replace. Two points follow from what the fields mean: of alternatives
/// (a ConfigMap or inline sharing, time-slicing or MPS) an overlay's choice removes the base's, and an overlay's complete image
/// reference removes the base's repository and version. Merging the same overlay twice changes nothing.
pub fn merge(base: Value, overlay: &Value) -> Value {
    merge_at("", base, overlay)
}

fn merge_at(path: &str, base: Value, overlay: &Value) -> Value {
    match (base, overlay) {
        (Value::Object(mut base), Value::Object(overlay)) => {
            drop_replaced(path, &mut base, overlay);
            for (key, value) in overlay {
                let below = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let merged = match base.remove(key) {
                    Some(old) => merge_at(&below, old, value),
                    None => value.clone(),
                };
                base.insert(key.clone(), merged);
            }
            Value::Object(base)
        }
        (_, overlay) => overlay.clone(),
    }
}

fn drop_replaced(path: &str, base: &mut Map<String, Value>, overlay: &Map<String, Value>) {
    for (_, keys) in ALTERNATIVES.iter().filter(|(at, _)| *at == path) {
        if keys.iter().any(|key| overlay.contains_key(*key)) {
            base.retain(|key, _| !keys.contains(&key.as_str()) || overlay.contains_key(key));
        }
    }
    let complete = |image: &Value| image.as_str().is_some_and(|text| text.contains([':', '@']));
    if overlay.get("image").is_some_and(complete) {
        base.retain(|key, _| {
            !matches!(key.as_str(), "repository" | "version") || overlay.contains_key(key)
        });
    }
}
