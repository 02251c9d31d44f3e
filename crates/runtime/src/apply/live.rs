//! Live objects as the engine keeps them.

use kube::ResourceExt;
use kube::core::DynamicObject;
use serde_json::Value;

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

    /// The object as a Rust type.
    pub fn decode<K: serde::de::DeserializeOwned>(&self) -> Option<K> {
        serde_json::from_value(self.value.clone()).ok()
    }
}

/// A live object as the engine keeps it.
pub fn project(object: DynamicObject) -> Option<Owned> {
    let (uid, deleting) = (
        object.uid().unwrap_or_default(),
        object.metadata.deletion_timestamp.is_some(),
    );
    let mut value = serde_json::to_value(object).ok()?;
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["managedFields", "resourceVersion", "creationTimestamp"] {
            meta.remove(field);
        }
    }
    Some(Owned {
        uid,
        deleting,
        value,
    })
}
