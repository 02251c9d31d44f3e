//! Live objects as the engine keeps them.

use crate::queue::Queue;
use crate::watch::Change;
use kube::core::{ApiResource, DynamicObject, ObjectMeta, Resource};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// A live object as the engine keeps it: without managed fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Owned {
    /// UID, for delete preconditions.
    pub uid: String,
    /// Whether somebody has already asked for its deletion.
    pub deleting: bool,
    /// The object.
    pub value: Value,
}

impl Owned {
    /// A label's value.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.value.pointer("/metadata/labels")?.get(name)?.as_str()
    }

    /// Whether another copy of this object differs in nothing but its status, which is not ours to repair.
    pub fn same_but_status(&self, other: &Self) -> bool {
        let (Value::Object(ours), Value::Object(theirs)) = (&self.value, &other.value) else {
            return self == other;
        };
        let rest = |map: &Map<String, Value>| map.keys().filter(|key| *key != "status").count();
        let mut fields = ours.iter().filter(|(key, _)| *key != "status");
        (&self.uid, self.deleting, rest(ours)) == (&other.uid, other.deleting, rest(theirs))
            && fields.all(|(key, value)| theirs.get(key) == Some(value))
    }

    /// The object as a Rust type.
    pub fn decode<K: serde::de::DeserializeOwned>(&self) -> Option<K> {
        serde_json::from_value(self.value.clone()).ok()
    }
}

/// Wakes `key` for a change of an object of ours: at once if it may have to be repaired, soon if only its counts have changed.
pub fn wake<K: Ord + Clone + fmt::Debug>(queue: &Queue<K>, key: K, change: &Change<Owned>) {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) if old.same_but_status(new) => queue.wake_soon(key),
        _ => queue.wake(key),
    }
}

/// An object of any kind as the API server sends it. Its managed fields are skipped, of its metadata as kube sees it there is no
/// more than what a watch and the engine need.
#[derive(Clone, Debug)]
pub struct Live {
    metadata: ObjectMeta,
    value: Value,
}

impl<'de> Deserialize<'de> for Live {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Fields { in_metadata: false }.deserialize(deserializer)?;
        let meta = value.get("metadata");
        let text = |name: &str| Some(meta?.get(name)?.as_str()?.to_owned());
        let deleted = meta.and_then(|meta| meta.get("deletionTimestamp"));
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            deletion_timestamp: deleted
                .map(Deserialize::deserialize)
                .transpose()
                .map_err(serde::de::Error::custom)?,
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, value })
    }
}

/// Reads an object, or its metadata, as a value.
struct Fields {
    in_metadata: bool,
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of the API server")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = match key.as_str() {
                "metadata" if !self.in_metadata => {
                    map.next_value_seed(Fields { in_metadata: true })?
                }
                "managedFields" if self.in_metadata => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => map.next_value()?,
            };
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

impl Resource for Live {
    type DynamicType = ApiResource;
    type Scope = <DynamicObject as Resource>::Scope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(dt)
    }
    fn group(dt: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(dt)
    }
    fn version(dt: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(dt)
    }
    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(dt)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A live object as the engine keeps it.
pub fn project(object: Live) -> Option<Owned> {
    let Live {
        metadata,
        mut value,
    } = object;
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["resourceVersion", "creationTimestamp"] {
            meta.remove(field);
        }
    }
    Some(Owned {
        uid: metadata.uid.unwrap_or_default(),
        deleting: metadata.deletion_timestamp.is_some(),
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_alone_is_nothing_to_repair() {
        let owned = |value: Value| Owned {
            uid: "u".to_owned(),
            deleting: false,
            value,
        };
        let known = owned(json!({"spec": {"a": 1}, "status": {"ready": 1}}));
        let cases = [
            (
                "counts",
                json!({"spec": {"a": 1}, "status": {"ready": 2}}),
                true,
            ),
            ("no status yet", json!({"spec": {"a": 1}}), true),
            (
                "an edit",
                json!({"spec": {"a": 2}, "status": {"ready": 1}}),
                false,
            ),
            (
                "a field more",
                json!({"spec": {"a": 1}, "x": 1, "status": {}}),
                false,
            ),
            ("a field less", json!({"status": {"ready": 1}}), false),
        ];
        for (name, value, want) in cases {
            assert_eq!(known.same_but_status(&owned(value)), want, "{name}");
        }
        let deleting = Owned {
            deleting: true,
            ..known.clone()
        };
        assert!(!known.same_but_status(&deleting));
    }

    #[test]
    fn all_is_kept_but_the_managed_fields_and_what_changes_with_every_write() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"x": "y"},
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "m"}]},
            "data": {"managedFields": "kept", "metadata": "kept"},
        });
        let live: Live = serde_json::from_str(&object.to_string()).unwrap();
        assert_eq!(live.meta().resource_version.as_deref(), Some("7"));
        let owned = project(live).unwrap();
        assert!(owned.deleting);
        assert_eq!(owned.uid, "u");
        assert_eq!(owned.label("x"), Some("y"));
        let want = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"x": "y"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "data": {"managedFields": "kept", "metadata": "kept"},
        });
        assert_eq!(owned.value, want);
    }
}
