//! The set of objects that a reconcile wants.

use crate::watch::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, Resource};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tessera_api::names;

/// One wanted object.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredObject {
    /// Its kind.
    pub resource: ApiResource,
    /// Its namespace (empty for cluster-scoped kinds) and name.
    pub key: ObjectKey,
    /// Its whole content as we apply it.
    pub value: Value,
}

/// What a reconcile wants: the objects, in the order in which they are applied, and what must be left as it is.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    objects: Vec<DesiredObject>,
    keep: BTreeSet<String>,
}

/// A value that cannot be written as JSON; only possible by a defect.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name} cannot be written as JSON")]
pub struct SerializeError {
    kind: String,
    name: String,
    #[source]
    source: serde_json::Error,
}

impl Desired {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wants `object`. Its status is ignored.
    pub fn add<K: Resource<DynamicType = ()> + Serialize>(
        &mut self,
        object: &K,
    ) -> Result<(), SerializeError> {
        let resource = ApiResource::erase::<K>(&());
        let meta = object.meta();
        let key = ObjectKey {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        };
        let value = serde_json::to_value(object).map_err(|source| SerializeError {
            kind: resource.kind.clone(),
            name: key.to_string(),
            source,
        })?;
        self.add_value(resource, key, value);
        Ok(())
    }

    /// Wants an object of a kind that is not a Rust type.
    pub fn add_value(&mut self, resource: ApiResource, key: ObjectKey, mut value: Value) {
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".to_owned(), json!(resource.api_version));
            map.insert("kind".to_owned(), json!(resource.kind));
            map.remove("status");
        }
        drop_nulls(&mut value);
        self.objects.push(DesiredObject {
            resource,
            key,
            value,
        });
    }

    /// Leaves whatever exists of `component` (label `app.kubernetes.io/component`) as it is: neither changed nor
    /// removed. For a component whose part of the policy cannot be used: its last good state stays.
    pub fn keep(&mut self, component: &str) {
        self.keep.insert(component.to_owned());
    }

    /// Whether the objects of `component` are to be left alone.
    pub fn keeps(&self, component: &str) -> bool {
        self.keep.contains(component)
    }

    /// The objects, in order.
    pub fn objects(&self) -> &[DesiredObject] {
        &self.objects
    }

    /// Puts owners, ownership labels and the content hash on every object. Called by the engine.
    pub(super) fn stamp(
        &mut self,
        controller: &str,
        owners: &[OwnerReference],
        labels: &BTreeMap<String, String>,
    ) {
        let owners = serde_json::to_value(owners).unwrap_or_default();
        for object in &mut self.objects {
            let Some(meta) = object
                .value
                .get_mut("metadata")
                .and_then(Value::as_object_mut)
            else {
                continue;
            };
            if owners.as_array().is_some_and(|list| !list.is_empty()) {
                meta.insert("ownerReferences".to_owned(), owners.clone());
            }
            let ours = [
                (names::label::MANAGED_BY, controller),
                (names::label::PART_OF, names::label::PART_OF_TESSERA),
            ];
            let given = labels
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()));
            for (key, value) in ours.into_iter().chain(given) {
                set(meta, "labels", key, json!(value));
            }
            let hash = super::content_hash(&object.value);
            let meta = object
                .value
                .get_mut("metadata")
                .and_then(Value::as_object_mut);
            if let Some(meta) = meta {
                set(
                    meta,
                    "annotations",
                    names::annotation::APPLIED_HASH,
                    json!(hash),
                );
            }
        }
    }
}

/// Sets one entry of the map `name` in the metadata.
fn set(meta: &mut Map<String, Value>, name: &str, key: &str, value: Value) {
    let map = meta.entry(name).or_insert_with(|| json!({}));
    if let Value::Object(map) = map {
        map.insert(key.to_owned(), value);
    } else {
        *map = json!({key: value});
    }
}

/// Applying a null would claim the field; k8s-openapi writes some for absent values.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
