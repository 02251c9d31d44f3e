//! An operand's pod, cut to what its controller reads, and the plain reason why it is not ready.

mod trouble;

pub use trouble::{Trouble, TroubleKind};

use k8s_openapi::api::core::v1::Pod;
use tessera_api::names::label;
use trouble::{condition, statuses};

/// What is kept of an operand's pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// UID: the same name may come back as another pod.
    pub uid: String,
    /// Name.
    pub name: String,
    /// The node it runs on, or will; empty while unscheduled.
    pub node: String,
    /// Label `app`.
    pub app: String,
    /// Label `app.kubernetes.io/component`.
    pub component: String,
    /// Label `controller-revision-hash`: which template of its DaemonSet it was made from.
    pub revision: String,
    /// Annotation `aiops.local/config-hash` of its template.
    pub config_hash: String,
    /// Whether it is Ready and not going away.
    pub ready: bool,
    /// Whether it is going away.
    pub deleting: bool,
    /// Pod IP; empty until it has one.
    pub ip: String,
    /// Sum of all containers' restarts.
    pub restarts: i32,
    /// When the API server created it, in seconds since 1970: one clock for all pods.
    pub created: i64,
    /// Why it is not ready; `None` when it is.
    pub trouble: Option<Trouble>,
}

impl PodFacts {
    /// Reads a pod.
    pub fn from_pod(pod: Pod) -> Self {
        let labels = pod.metadata.labels.unwrap_or_default();
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let text = |name: &str| labels.get(name).cloned().unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        let node = pod
            .spec
            .and_then(|spec| spec.node_name.clone().or_else(|| pinned_node(&spec)))
            .unwrap_or_default();
        let deleting = pod.metadata.deletion_timestamp.is_some();
        let ready = condition(&status, "Ready") == Some(true) && !deleting;
        let trouble = (!ready).then(|| trouble::of(&status, deleting));
        let restarts = statuses(&status)
            .map(|(_, container)| container.restart_count)
            .sum();
        Self {
            uid: pod.metadata.uid.unwrap_or_default(),
            name: pod.metadata.name.unwrap_or_default(),
            node,
            app: text(label::APP),
            component: text(label::COMPONENT),
            revision: text("controller-revision-hash"),
            config_hash: annotations
                .get(tessera_api::names::annotation::CONFIG_HASH)
                .cloned()
                .unwrap_or_default(),
            ready,
            deleting,
            ip: status.pod_ip.clone().unwrap_or_default(),
            restarts,
            created: pod
                .metadata
                .creation_timestamp
                .map_or(0, |time| time.0.as_second()),
            trouble,
        }
    }
}

/// The DaemonSet controller pins an unscheduled pod to its node by an affinity on `metadata.name`.
fn pinned_node(spec: &k8s_openapi::api::core::v1::PodSpec) -> Option<String> {
    let required = spec
        .affinity
        .as_ref()?
        .node_affinity
        .as_ref()?
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten())
        .find(|field| field.key == "metadata.name")?
        .values
        .as_ref()?
        .first()
        .cloned()
}
