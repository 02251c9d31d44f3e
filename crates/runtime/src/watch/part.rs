//! Objects of which only a part is decoded.
//!
//! Most of a Pod or Node is of no interest here, and the managed fields alone, a tree of maps, cost more to decode than all the
//! rest. What is skipped as the text is read costs next to nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Pod, PodSpec, PodStatus,
    Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    FieldsV1, ManagedFieldsEntry, ObjectMeta, Time,
};
use kube::core::Resource;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use tessera_api::names::NODE_LABELS_MANAGER;

/// A kind that can be decoded in part.
pub trait InPart: Resource<DynamicType = ()> + Sized {
    /// The part that is decoded.
    type Part: for<'de> Deserialize<'de> + Into<Self>;
}

/// An object whose other fields were skipped: what they hold is unknown, whatever the type says.
#[derive(Clone, Debug)]
pub struct Part<K>(pub K);

impl<'de, K: InPart> Deserialize<'de> for Part<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        K::Part::deserialize(deserializer).map(|part| Self(part.into()))
    }
}

impl<K: Resource> Resource for Part<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }
    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }
    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }
    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }
    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// Metadata, with our own entry of the managed fields only.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaPart {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    managed_fields: Vec<Managed>,
}

impl From<MetaPart> for ObjectMeta {
    fn from(part: MetaPart) -> Self {
        let ours = part.managed_fields.into_iter().filter_map(|entry| entry.0);
        let ours: Vec<ManagedFieldsEntry> = ours.collect();
        Self {
            name: part.name,
            namespace: part.namespace,
            uid: part.uid,
            resource_version: part.resource_version,
            generation: part.generation,
            labels: part.labels,
            annotations: part.annotations,
            creation_timestamp: part.creation_timestamp,
            deletion_timestamp: part.deletion_timestamp,
            managed_fields: (!ours.is_empty()).then_some(ours),
            ..Self::default()
        }
    }
}

/// An entry of the managed fields; `None` if it is another manager's.
struct Managed(Option<ManagedFieldsEntry>);

impl<'de> Deserialize<'de> for Managed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ManagedVisitor)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Manager,
    Operation,
    Subresource,
    FieldsV1,
    #[serde(other)]
    Other,
}

struct ManagedVisitor;

impl<'de> Visitor<'de> for ManagedVisitor {
    type Value = Managed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entry of the managed fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Managed, A::Error> {
        let mut entry = ManagedFieldsEntry::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::Manager => entry.manager = map.next_value()?,
                Key::Operation => entry.operation = map.next_value()?,
                Key::Subresource => entry.subresource = map.next_value()?,
                // The API server writes the manager first; should it ever not, the fields are read before they are known to be foreign.
                Key::FieldsV1 if !is_foreign(&entry) => {
                    entry.fields_v1 = Some(FieldsV1(map.next_value()?));
                }
                Key::FieldsV1 | Key::Other => map.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(Managed((!is_foreign(&entry)).then_some(entry)))
    }
}

fn is_foreign(entry: &ManagedFieldsEntry) -> bool {
    entry
        .manager
        .as_deref()
        .is_some_and(|manager| manager != NODE_LABELS_MANAGER)
}

/// What [`crate::operands::pod::PodFacts`] reads.
#[derive(Deserialize)]
pub struct PodPart {
    metadata: MetaPart,
    spec: Option<PodSpecPart>,
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpecPart {
    node_name: Option<String>,
    affinity: Option<Affinity>,
}

impl InPart for Pod {
    type Part = PodPart;
}

impl From<PodPart> for Pod {
    fn from(part: PodPart) -> Self {
        let spec = part.spec.map(|spec| PodSpec {
            node_name: spec.node_name,
            affinity: spec.affinity,
            ..PodSpec::default()
        });
        Self {
            metadata: part.metadata.into(),
            spec,
            status: part.status,
        }
    }
}

/// What [`tessera_api::NodeFacts`] reads.
#[derive(Deserialize)]
pub struct NodePart {
    metadata: MetaPart,
    spec: Option<NodeSpecPart>,
    status: Option<NodeStatusPart>,
}

#[derive(Deserialize)]
struct NodeSpecPart {
    taints: Option<Vec<Taint>>,
    unschedulable: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatusPart {
    conditions: Option<Vec<NodeCondition>>,
    node_info: Option<NodeSystemInfo>,
    capacity: Option<BTreeMap<String, Quantity>>,
    allocatable: Option<BTreeMap<String, Quantity>>,
}

impl InPart for Node {
    type Part = NodePart;
}

impl From<NodePart> for Node {
    fn from(part: NodePart) -> Self {
        let spec = part.spec.map(|spec| NodeSpec {
            taints: spec.taints,
            unschedulable: spec.unschedulable,
            ..NodeSpec::default()
        });
        let status = part.status.map(|status| NodeStatus {
            conditions: status.conditions,
            node_info: status.node_info,
            capacity: status.capacity,
            allocatable: status.allocatable,
            ..NodeStatus::default()
        });
        Self {
            metadata: part.metadata.into(),
            spec,
            status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operands::pod::PodFacts;
    use serde_json::json;
    use tessera_api::NodeFacts;

    /// Nothing that is kept of an object may depend on what is skipped.
    fn same<K, T>(object: &serde_json::Value, keep: impl Fn(K) -> T)
    where
        K: InPart + for<'de> Deserialize<'de>,
        T: PartialEq + fmt::Debug,
    {
        let text = object.to_string();
        let whole: K = serde_json::from_str(&text).unwrap();
        let Part(part): Part<K> = serde_json::from_str(&text).unwrap();
        assert_eq!(keep(part), keep(whole));
    }

    fn metadata() -> serde_json::Value {
        let fields = |label: &str| json!({"f:metadata": {"f:labels": {format!("f:{label}"): {}}}});
        json!({
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
            "labels": {"app": "x", "nvidia.com/gpu.present": "true", "app.kubernetes.io/component": "c", "controller-revision-hash": "r"},
            "annotations": {"aiops.local/config-hash": "h", "nvidia.com/x": "y"},
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "ownerReferences": [],
            "managedFields": [
                {"manager": "kubelet", "operation": "Update", "fieldsV1": fields("kubernetes.io/arch"), "subresource": "status"},
                {"manager": NODE_LABELS_MANAGER, "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                    "fieldsType": "FieldsV1", "fieldsV1": fields("nvidia.com/gpu.present")},
                {"fieldsV1": fields("nvidia.com/late"), "operation": "Apply", "manager": "somebody"},
                {"manager": NODE_LABELS_MANAGER, "operation": "Update", "fieldsV1": fields("nvidia.com/other")},
            ],
        })
    }

    #[test]
    fn a_pod() {
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}}});
        let waiting = json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]);
        for spec in [json!({"nodeName": "node-2"}), json!({"affinity": affinity})] {
            let mut spec = spec;
            spec["containers"] = json!([{"name": "c", "image": "i"}]);
            let status = json!({"phase": "Pending", "podIP": "10.0.0.1", "containerStatuses": waiting.clone(),
                "conditions": [{"type": "Ready", "status": "False"}]});
            for status in [status, serde_json::Value::Null] {
                let pod = json!({"metadata": metadata(), "spec": spec, "status": status});
                same(&pod, PodFacts::from_pod);
            }
        }
    }

    #[test]
    fn a_node() {
        let node = json!({
            "metadata": metadata(),
            "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "DiskPressure", "status": "False"}],
                "nodeInfo": {"architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "containerd://1.7.27", "kernelVersion": "6.8",
                    "kubeProxyVersion": "", "kubeletVersion": "v1.33.1+k3s1", "machineID": "", "operatingSystem": "linux",
                    "osImage": "Ubuntu 22.04.4 LTS", "systemUUID": ""},
                "capacity": {"nvidia.com/gpu": "8", "cpu": "4"}, "allocatable": {"nvidia.com/gpu": "7"},
                "images": [{"names": ["a"], "sizeBytes": 1}],
            },
        });
        same(&node, |node: Node| NodeFacts::from_node(&node));
        let Part(part): Part<Node> = serde_json::from_value(node).unwrap();
        let managers = part.metadata.managed_fields.iter().flatten();
        let managers: Vec<_> = managers
            .filter_map(|entry| entry.manager.as_deref())
            .collect();
        assert_eq!(managers, [NODE_LABELS_MANAGER; 2]);
        let owned = NodeFacts::from_node(&part).owned_labels;
        assert_eq!(
            owned.into_iter().collect::<Vec<_>>(),
            ["nvidia.com/gpu.present"]
        );
    }
}
