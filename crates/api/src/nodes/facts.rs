//! The part of a Node that matters here.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta},
    jiff::Timestamp,
};
use kube::ResourceExt;

use crate::{
    image::OsRelease,
    names::{NODE_LABELS_MANAGER, label},
    units,
};

/// Prefixes of the labels that are dropped: NFD describes a CPU in fifty of them.
const DROPPED_LABELS: [&str; 8] = [
    "feature.node.kubernetes.io/cpu",
    "feature.node.kubernetes.io/kernel-config",
    "feature.node.kubernetes.io/kernel-selinux",
    "feature.node.kubernetes.io/memory",
    "feature.node.kubernetes.io/network",
    "feature.node.kubernetes.io/storage",
    "feature.node.kubernetes.io/usb",
    "beta.kubernetes.io/",
];

/// Prefixes of the annotations that are kept: ours, NVIDIA's, and those by which other healers say that they work on the node.
const KEPT_ANNOTATIONS: [&str; 4] = [
    "aiops.local/",
    "nvidia.com/",
    "weave.works/kured",
    "remediation.medik8s.io/",
];

/// Prefix of the resources that are kept.
const KEPT_RESOURCES: &str = "nvidia.com/";

/// A container runtime as the kubelet reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerRuntime {
    /// `containerd`, `cri-o`, `docker`; empty when not reported.
    pub name: String,
    /// Its version, e.g. `1.7.27`, `1.7.23-k3s2`.
    pub version: String,
}

/// A node, cut to what the controllers need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version, for guarded writes.
    pub resource_version: String,
    /// Labels, without those about CPU, memory and the like.
    pub labels: BTreeMap<String, String>,
    /// Annotations of ours and of NVIDIA's.
    pub annotations: BTreeMap<String, String>,
    /// Labels that our shared field manager owns.
    pub owned_labels: BTreeSet<String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Condition Ready is True.
    pub ready: bool,
    /// Since when condition Ready has been as it is, if it is told.
    pub ready_since: Option<Timestamp>,
    /// When the Node object was made.
    pub created: Option<Timestamp>,
    /// Being deleted.
    pub deleting: bool,
    /// Operating system in words, e.g. `Ubuntu 22.04.4 LTS`.
    pub os_image: String,
    /// Operating system as driver images name it: NFD's labels, else read from `os_image`; none when neither tells.
    pub os: Option<OsRelease>,
    /// Kernel release.
    pub kernel: String,
    /// Container runtime.
    pub runtime: ContainerRuntime,
    /// Kubelet version, e.g. `v1.33.1+k3s1`.
    pub kubelet_version: String,
    /// Changes when the node boots.
    pub boot_id: String,
    /// `nvidia.com/*` resources that exist.
    pub capacity: BTreeMap<String, u32>,
    /// `nvidia.com/*` resources that pods can get.
    pub allocatable: BTreeMap<String, u32>,
}

impl NodeFacts {
    /// Reads a node, of which the rest may have been skipped.
    pub fn from_node(node: &Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.clone().unwrap_or_default();
        let info = status.node_info.unwrap_or_default();
        let mut labels = node.labels().clone();
        labels.retain(|key, _| keep_label(key));
        let mut annotations = node.annotations().clone();
        annotations.retain(|key, _| keep_annotation(key));
        let condition = status
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == "Ready");
        let ready = condition.is_some_and(|c| c.status == "True");
        let ready_since = condition
            .and_then(|c| c.last_transition_time.as_ref())
            .map(|time| time.0);
        let (runtime, version) = info
            .container_runtime_version
            .split_once("://")
            .unwrap_or_default();
        let kernel = labels
            .get(label::NFD_KERNEL)
            .filter(|k| !k.is_empty())
            .cloned();
        let resources = |list: Option<BTreeMap<String, _>>| {
            let list = list
                .unwrap_or_default()
                .into_iter()
                .filter(|(name, _)| name.starts_with(KEPT_RESOURCES));
            list.filter_map(|(name, quantity)| Some((name, units::count(&quantity)?)))
                .collect()
        };
        Self {
            name: node.name_any(),
            uid: node.uid().unwrap_or_default(),
            resource_version: node.resource_version().unwrap_or_default(),
            owned_labels: owned_labels(node.managed_fields()),
            taints: spec.taints.unwrap_or_default(),
            unschedulable: spec.unschedulable.unwrap_or(false),
            ready,
            ready_since,
            created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleting: node.metadata.deletion_timestamp.is_some(),
            os: os_release(&labels, &info.os_image),
            os_image: info.os_image,
            kernel: if info.kernel_version.is_empty() {
                kernel.unwrap_or_default()
            } else {
                info.kernel_version
            },
            runtime: ContainerRuntime {
                name: runtime.to_owned(),
                version: version.to_owned(),
            },
            kubelet_version: info.kubelet_version,
            boot_id: info.boot_id,
            capacity: resources(status.capacity),
            allocatable: resources(status.allocatable),
            labels,
            annotations,
        }
    }

    /// Reads what a node's metadata tells: labels and annotations; the rest is unknown.
    pub fn from_metadata(metadata: &ObjectMeta) -> Self {
        Self::from_node(&Node {
            metadata: metadata.clone(),
            ..Node::default()
        })
    }

    /// Whether nothing but the resource version differs: a heartbeat, or a change of what is not read.
    pub fn same_but_version(&self, other: &Self) -> bool {
        // Without `..`: a new field must be compared too.
        let Self {
            resource_version: _,
            name,
            uid,
            labels,
            annotations,
            owned_labels,
            taints,
            unschedulable,
            ready,
            ready_since,
            created,
            deleting,
            os_image,
            os,
            kernel,
            runtime,
            kubelet_version,
            boot_id,
            capacity,
            allocatable,
        } = self;
        *name == other.name
            && *uid == other.uid
            && *labels == other.labels
            && *annotations == other.annotations
            && *owned_labels == other.owned_labels
            && *taints == other.taints
            && *unschedulable == other.unschedulable
            && *ready == other.ready
            && *ready_since == other.ready_since
            && *created == other.created
            && *deleting == other.deleting
            && *os_image == other.os_image
            && *os == other.os
            && *kernel == other.kernel
            && *runtime == other.runtime
            && *kubelet_version == other.kubelet_version
            && *boot_id == other.boot_id
            && *capacity == other.capacity
            && *allocatable == other.allocatable
    }

    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// Whether labels with this key are known of a node.
pub fn keep_label(key: &str) -> bool {
    !DROPPED_LABELS.iter().any(|prefix| key.starts_with(prefix))
}

fn keep_annotation(key: &str) -> bool {
    KEPT_ANNOTATIONS
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(NODE_LABELS_MANAGER)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.is_none()
}

/// Keys of the labels that our shared field manager owns by server-side apply.
pub fn owned_labels(managed_fields: &[ManagedFieldsEntry]) -> BTreeSet<String> {
    let entries = managed_fields
        .iter()
        .filter(|entry| is_ours(entry))
        .filter_map(|entry| entry.fields_v1.as_ref());
    let labels =
        entries.filter_map(|fields| fields.0.get("f:metadata")?.get("f:labels")?.as_object());
    labels
        .flat_map(|labels| labels.keys())
        .filter_map(|key| key.strip_prefix("f:"))
        .map(str::to_owned)
        .collect()
}

/// NFD's labels first; else what `osImage` says.
fn os_release(labels: &BTreeMap<String, String>, os_image: &str) -> Option<OsRelease> {
    let label = |key: &str| labels.get(key).filter(|value| !value.is_empty());
    match (label(label::NFD_OS_ID), label(label::NFD_OS_VERSION)) {
        (Some(id), Some(version)) => Some(OsRelease {
            // As image tags and names of objects spell it: two spellings would be two pools of one name.
            id: id.to_ascii_lowercase(),
            version: version.to_ascii_lowercase(),
        }),
        _ => parse_os_image(os_image),
    }
}

/// Reads `PRETTY_NAME` of the distributions for which NVIDIA builds driver images.
fn parse_os_image(os_image: &str) -> Option<OsRelease> {
    const KNOWN: [(&str, &str); 12] = [
        ("Ubuntu", "ubuntu"),
        ("Red Hat Enterprise Linux CoreOS", "rhcos"),
        ("Red Hat Enterprise Linux", "rhel"),
        ("Rocky Linux", "rocky"),
        ("Oracle Linux", "ol"),
        ("CentOS", "centos"),
        ("AlmaLinux", "almalinux"),
        ("SUSE Linux Enterprise Server", "sles"),
        ("SUSE Linux Enterprise Micro", "sl-micro"),
        ("Debian GNU/Linux", "debian"),
        ("Fedora", "fedora"),
        ("Amazon Linux", "amzn"),
    ];
    let (name, id) = KNOWN
        .into_iter()
        .find(|(name, _)| os_image.starts_with(name))?;
    let rest = os_image.get(name.len()..)?;
    let version = rest
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    // Ubuntu's point releases (22.04.4) share the release's images; SLES writes `15 SP5`.
    let parts: Vec<&str> = version.split('.').take(2).collect();
    let mut version = parts.join(".");
    if let Some(pack) = rest
        .split_whitespace()
        .find_map(|word| word.strip_prefix("SP"))
    {
        version = format!("{version}.{pack}");
    }
    Some(OsRelease {
        id: id.to_owned(),
        version,
    })
}
