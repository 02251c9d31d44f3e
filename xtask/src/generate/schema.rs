//! `values.schema.json` of every chart: the sources in `xtask/schemas`, with parts of ClusterPolicy's own schema put in.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value, json};

use super::{COMPONENTS, Outputs, objects};

/// All schemas.
pub(super) fn all(root: &Path) -> anyhow::Result<Outputs> {
    let policy = policy_spec()?;
    let definitions = source(root, "definitions")?;
    let finish = |name: &str, source: Value| -> anyhow::Result<String> {
        let mut schema = expand(source, name, &policy)?;
        let own = schema
            .get("definitions")
            .cloned()
            .unwrap_or_else(|| json!({}));
        let definitions = used(merge(definitions.clone(), own), &schema);
        put(&mut schema, "definitions", definitions);
        Ok(format!("{}\n", serde_json::to_string_pretty(&schema)?))
    };
    let mut outputs = Outputs::new();
    let umbrella = finish("gpu-operator", source(root, "gpu-operator")?)?;
    outputs.insert("charts/gpu-operator/values.schema.json".into(), umbrella);
    outputs.insert(
        objects::chart_file("crds", "values.schema.json"),
        finish("crds", source(root, "crds")?)?,
    );
    for name in COMPONENTS {
        let mut schema = source(root, "controller")?;
        put(
            &mut schema,
            "title",
            json!(format!("Values of the chart {name}")),
        );
        outputs.insert(
            objects::chart_file(name, "values.schema.json"),
            finish(name, schema)?,
        );
    }
    Ok(outputs)
}

fn source(root: &Path, name: &str) -> anyhow::Result<Value> {
    let path = root.join("xtask/schemas").join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("{} is not valid YAML", path.display()))
}

/// The OpenAPI schema of ClusterPolicy's spec.
fn policy_spec() -> anyhow::Result<Value> {
    let crds = tessera_api::crds();
    let policy = crds
        .iter()
        .find(|(_, crd)| crd.spec.names.kind == "ClusterPolicy")
        .map(|(_, crd)| crd);
    let version = policy.and_then(|crd| crd.spec.versions.first());
    let schema = version
        .and_then(|version| version.schema.as_ref())
        .context("ClusterPolicy has no schema")?;
    let schema = serde_json::to_value(schema)?;
    schema
        .pointer("/openAPIV3Schema/properties/spec")
        .cloned()
        .context("ClusterPolicy's schema has no spec")
}

/// Replaces the markers `x-crd`, `x-only`, `x-except` and `x-replace` (see `gpu-operator.yaml`).
fn expand(value: Value, chart: &str, policy: &Value) -> anyhow::Result<Value> {
    match value {
        Value::Object(mut map) => {
            let base = match map.remove("x-crd") {
                Some(path) => Some(part(policy, path.as_str().unwrap_or_default())?),
                None => None,
            };
            map.retain(|_, child| child.get("x-only").is_none_or(|only| only == chart));
            map.retain(|_, child| child.get("x-except").is_none_or(|except| except != chart));
            map.remove("x-only");
            map.remove("x-except");
            let expanded = map
                .into_iter()
                .map(|(key, child)| Ok((key, expand(child, chart, policy)?)));
            let own = Value::Object(expanded.collect::<anyhow::Result<Map<_, _>>>()?);
            let merged = base.map_or(own.clone(), |base| merge(base, own));
            Ok(without_marker(merged))
        }
        Value::Array(items) => items
            .into_iter()
            .map(|item| expand(item, chart, policy))
            .collect::<anyhow::Result<_>>()
            .map(Value::Array),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => Ok(scalar),
    }
}

/// `x-replace` has done its work once the object that holds it was merged; it is kept until then.
fn without_marker(mut value: Value) -> Value {
    if let Some(properties) = value.get_mut("properties").and_then(Value::as_object_mut) {
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            property.remove("x-replace");
        }
    }
    value
}

/// The part of ClusterPolicy's spec at a dotted path, as a JSON schema.
fn part(policy: &Value, path: &str) -> anyhow::Result<Value> {
    let missing = || anyhow!("ClusterPolicy has no spec.{path}, which xtask/schemas names");
    let found = path
        .split('.')
        .try_fold(policy, |schema, key| schema.get("properties")?.get(key))
        .ok_or_else(missing)?;
    Ok(json_schema(found))
}

/// From a structural OpenAPI schema to a JSON schema that refuses unknown keys and allows nulls.
fn json_schema(schema: &Value) -> Value {
    let mut out = Map::new();
    let copy = |out: &mut Map<String, Value>, keys: &[&str]| {
        for key in keys {
            if let Some(value) = schema.get(*key) {
                out.insert((*key).to_owned(), value.clone());
            }
        }
    };
    copy(
        &mut out,
        &[
            "description",
            "pattern",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "required",
        ],
    );
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let null = (!values.contains(&Value::Null)).then_some(Value::Null);
        out.insert("enum".into(), values.iter().cloned().chain(null).collect());
    }
    let int_or_string = schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    let kept = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    match schema.get("type") {
        _ if int_or_string => drop(out.insert("type".into(), json!(["integer", "string", "null"]))),
        Some(kind) => drop(out.insert("type".into(), json!([kind, "null"]))),
        None => {}
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        out.insert(
            "properties".into(),
            properties
                .iter()
                .map(|(key, child)| (key.clone(), json_schema(child)))
                .collect(),
        );
        if !kept {
            out.insert("additionalProperties".into(), json!(false));
        }
    }
    if let Some(child) = schema
        .get("additionalProperties")
        .filter(|child| child.is_object())
    {
        out.insert("additionalProperties".into(), json_schema(child));
    }
    if let Some(child) = schema.get("items") {
        out.insert("items".into(), json_schema(child));
    }
    Value::Object(out)
}

/// `over` merged into `base`, object by object; a child with `x-replace` takes the place of its namesake.
fn merge(base: Value, over: Value) -> Value {
    match (base, over) {
        (Value::Object(mut base), Value::Object(over)) => {
            for (key, value) in over {
                let merged = match base.remove(&key) {
                    Some(old) if value.get("x-replace").is_none() => merge(old, value),
                    _ => value,
                };
                base.insert(key, merged);
            }
            Value::Object(base)
        }
        (_, over) => over,
    }
}

fn put(schema: &mut Value, key: &str, value: Value) {
    if let Some(map) = schema.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

/// The definitions that `schema` refers to, directly or through others.
fn used(all: Value, schema: &Value) -> Value {
    let Value::Object(all) = all else {
        return json!({});
    };
    let mut kept = Map::new();
    let mut text = schema.to_string();
    loop {
        let next = all.iter().find(|(key, _)| {
            !kept.contains_key(*key) && text.contains(&format!("#/definitions/{key}\""))
        });
        let Some((key, value)) = next else {
            return Value::Object(kept);
        };
        text.push_str(&value.to_string());
        kept.insert(key.clone(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crd_parts_refuse_unknown_keys_and_take_nulls() {
        let spec = json!({"properties": {"driver": {"type": "object", "properties": {
            "version": {"type": "string"}, "mode": {"type": "string", "enum": ["a"]}, "max": {"x-kubernetes-int-or-string": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}}}}}});
        let source = json!({"properties": {"driver": {"x-crd": "driver", "properties": {
            "repo": {"type": "string"}, "version": {"x-replace": true, "type": "number"}}}}});
        let got = expand(source, "gpu-operator", &spec).unwrap();
        assert_eq!(
            got,
            json!({"properties": {"driver": {"type": ["object", "null"], "additionalProperties": false, "properties": {
            "version": {"type": "number"}, "repo": {"type": "string"},
            "mode": {"type": ["string", "null"], "enum": ["a", null]}, "max": {"type": ["integer", "string", "null"]},
            "labels": {"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}}}}}})
        );
    }

    #[test]
    fn a_path_that_the_crd_lacks_is_named() {
        let error = expand(
            json!({"x-crd": "driver.nope"}),
            "x",
            &json!({"properties": {"driver": {}}}),
        )
        .unwrap_err();
        assert!(error.to_string().contains("spec.driver.nope"), "{error}");
    }

    #[test]
    fn properties_of_other_charts_are_left_out() {
        let source = json!({"properties": {"a": {"x-only": "one", "type": "string"}, "b": {"type": "string"}}});
        assert_eq!(
            expand(source.clone(), "two", &json!({})).unwrap(),
            json!({"properties": {"b": {"type": "string"}}})
        );
        let one = expand(source, "one", &json!({})).unwrap();
        assert_eq!(
            one,
            json!({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}})
        );
    }
}
