//! Does a live object already have everything that we want of it?
//!
//! The answer must agree with what server-side apply would do: fields that we do not name are other people's and are
//! left alone, lists that the API merges by key are compared by key, all other lists and the API's atomic maps as a
//! whole. Values that the API server writes in another form (quantities, dropped empty values) count as equal.

use serde_json::{Map, Value};
use tessera_api::units::parse_quantity;

/// Keys of the lists that Kubernetes merges by key (`x-kubernetes-list-map-keys` in the published OpenAPI), by field
/// name, for the kinds that we write.
fn merge_keys(field: &str) -> Option<&'static [&'static str]> {
    Some(match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets" => &["name"],
        "volumeMounts" => &["mountPath"],
        "hostAliases" => &["ip"],
        "ownerReferences" => &["uid"],
        "conditions" => &["type"],
        // Container ports and Service ports; `protocol` has the default TCP.
        "ports" => &["containerPort", "port", "protocol"],
        "topologySpreadConstraints" => &["topologyKey", "whenUnsatisfiable"],
        _ => return None,
    })
}

/// Maps that belong to one owner as a whole (`x-kubernetes-map-type: atomic`).
fn is_atomic_map(field: &str) -> bool {
    matches!(
        field,
        "nodeSelector"
            | "selector"
            | "labelSelector"
            | "namespaceSelector"
            | "resourceFieldRef"
            | "fieldRef"
            | "configMapKeyRef"
            | "secretKeyRef"
            | "overhead"
    )
}

/// Whether `live` has every field of `desired` with its value.
pub fn covers(desired: &Value, live: &Value) -> bool {
    value_covers("", desired, Some(live), false)
}

/// `exact` forbids fields beyond the desired ones (within atomic values).
fn value_covers(field: &str, desired: &Value, live: Option<&Value>, exact: bool) -> bool {
    let Some(live) = live else {
        return is_unset(field, desired);
    };
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            map_covers(field, desired, live, exact || is_atomic_map(field))
        }
        (Value::Array(desired), Value::Array(live)) => match merge_keys(field) {
            Some(keys) if !exact => desired.iter().all(|item| {
                let found = live.iter().find(|other| same_key(keys, item, other));
                value_covers("", item, found, false)
            }),
            _ => {
                desired.len() == live.len()
                    && desired
                        .iter()
                        .zip(live)
                        .all(|(desired, live)| value_covers("", desired, Some(live), false))
            }
        },
        (Value::Null, other) => is_unset(field, other),
        (Value::String(desired), Value::String(live)) => {
            desired == live || same_quantity(field, desired, live)
        }
        (Value::Number(desired), Value::Number(live)) => {
            desired == live || desired.as_f64() == live.as_f64()
        }
        (desired, live) => desired == live,
    }
}

fn map_covers(
    field: &str,
    desired: &Map<String, Value>,
    live: &Map<String, Value>,
    exact: bool,
) -> bool {
    // Entries of `limits` and `requests` are quantities whatever their name.
    let inner = |key: &str| {
        if matches!(field, "limits" | "requests") {
            "quantity".to_owned()
        } else {
            key.to_owned()
        }
    };
    let may_stay = |key: &String, value: &Value| {
        desired.contains_key(key) || is_unset(key, value) || is_default(field, key, value)
    };
    desired
        .iter()
        .all(|(key, value)| value_covers(&inner(key), value, live.get(key), exact))
        && (!exact || live.iter().all(|(key, value)| may_stay(key, value)))
}

/// What the API server adds to an atomic map by itself.
fn is_default(field: &str, key: &str, value: &Value) -> bool {
    field == "fieldRef" && key == "apiVersion" && value == "v1"
}

/// Two list items stand for the same thing when all merge keys that the desired one names agree.
fn same_key(keys: &[&str], desired: &Value, live: &Value) -> bool {
    let mut named = keys
        .iter()
        .filter(|key| desired.get(**key).is_some())
        .peekable();
    named.peek().is_some() && named.all(|key| desired.get(*key) == live.get(*key))
}

/// The API server does not store empty values of optional fields. `false` it does store (absence may mean true, as for
/// `automountServiceAccountToken`), but for the fields that are no pointers in Kubernetes' types.
fn is_unset(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(false) => matches!(
            field,
            "hostNetwork"
                | "hostPID"
                | "hostIPC"
                | "readOnly"
                | "stdin"
                | "stdinOnce"
                | "tty"
                | "publishNotReadyAddresses"
        ),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.iter().all(|(key, value)| is_unset(key, value)),
        Value::Number(_) | Value::Bool(true) => false,
    }
}

fn same_quantity(field: &str, desired: &str, live: &str) -> bool {
    matches!(field, "quantity" | "sizeLimit" | "divisor")
        && match (parse_quantity(desired), parse_quantity(live)) {
            (Ok(a), Ok(b)) => (a - b).abs() <= a.abs() * 1e-9,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn table() {
        let pod = |spec: Value| json!({"spec": spec});
        let cases: Vec<(&str, Value, Value, bool)> = vec![
            ("same", json!({"a": 1}), json!({"a": 1}), true),
            (
                "foreign field stays",
                json!({"a": 1}),
                json!({"a": 1, "b": 2}),
                true,
            ),
            ("edited", json!({"a": 1}), json!({"a": 2}), false),
            ("missing", json!({"a": 1}), json!({}), false),
            (
                "empty values are not stored",
                json!({"a": [], "b": {}, "hostPID": false, "d": "", "e": null}),
                json!({}),
                true,
            ),
            (
                "where absence means true, a removed false is an edit",
                json!({"automountServiceAccountToken": false}),
                json!({}),
                false,
            ),
            (
                "also deep inside",
                json!({"securityContext": {"allowPrivilegeEscalation": false}}),
                json!({}),
                false,
            ),
            (
                "defaults are added by the server",
                pod(json!({"containers": [{"name": "c", "image": "i"}]})),
                pod(
                    json!({"containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always"}]}),
                ),
                true,
            ),
            (
                "a foreign sidecar stays",
                pod(json!({"containers": [{"name": "c"}]})),
                pod(json!({"containers": [{"name": "x"}, {"name": "c"}]})),
                true,
            ),
            (
                "a foreign env stays",
                json!({"env": [{"name": "A", "value": "1"}]}),
                json!({"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]}),
                true,
            ),
            (
                "env edited",
                json!({"env": [{"name": "A", "value": "1"}]}),
                json!({"env": [{"name": "A", "value": "2"}]}),
                false,
            ),
            (
                "args are atomic",
                json!({"args": ["a"]}),
                json!({"args": ["a", "b"]}),
                false,
            ),
            (
                "tolerations are atomic",
                json!({"tolerations": [{"key": "a"}]}),
                json!({"tolerations": [{"key": "a"}, {"key": "b"}]}),
                false,
            ),
            (
                "node selector is atomic",
                json!({"nodeSelector": {"a": "1"}}),
                json!({"nodeSelector": {"a": "1", "b": "2"}}),
                false,
            ),
            (
                "service selector is atomic",
                json!({"selector": {"app": "x"}}),
                json!({"selector": {"app": "x", "y": "z"}}),
                false,
            ),
            (
                "a field reference gets its version",
                json!({"fieldRef": {"fieldPath": "a"}}),
                json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "a"}}),
                true,
            ),
            (
                "another field",
                json!({"fieldRef": {"fieldPath": "a"}}),
                json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "b"}}),
                false,
            ),
            (
                "labels are shared",
                json!({"labels": {"a": "1"}}),
                json!({"labels": {"a": "1", "b": "2"}}),
                true,
            ),
            (
                "quantities in another form",
                json!({"limits": {"cpu": "1000m", "memory": "1Gi"}}),
                json!({"limits": {"cpu": "1", "memory": "1024Mi"}}),
                true,
            ),
            (
                "another quantity",
                json!({"limits": {"cpu": "2"}}),
                json!({"limits": {"cpu": "1"}}),
                false,
            ),
            (
                "a name that looks like a quantity",
                json!({"value": "1000m"}),
                json!({"value": "1"}),
                false,
            ),
            (
                "service port by port",
                json!({"ports": [{"port": 9400, "name": "metrics"}]}),
                json!({"ports": [{"port": 9400, "name": "metrics", "protocol": "TCP", "targetPort": 9400}]}),
                true,
            ),
            (
                "container port by number",
                json!({"ports": [{"containerPort": 9400, "name": "m"}]}),
                json!({"ports": [{"containerPort": 9400, "name": "x"}]}),
                false,
            ),
            (
                "type changed",
                json!({"a": {"b": 1}}),
                json!({"a": "b"}),
                false,
            ),
        ];
        for (name, desired, live, want) in cases {
            assert_eq!(covers(&desired, &live), want, "{name}");
        }
    }
}
