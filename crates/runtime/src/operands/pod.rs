//! An operand's pod, cut to what its controller reads, and the plain reason why it is not ready.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use tessera_api::names::label;

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

/// A pod's trouble: what kind, and a sentence without volatile parts (times, counters), so that equal troubles of
/// many pods group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trouble {
    /// The kind of trouble.
    pub kind: TroubleKind,
    /// A sentence that names container and cause.
    pub message: String,
}

/// Kinds of trouble, the most telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TroubleKind {
    /// An image cannot be pulled or its name is wrong.
    ImagePull,
    /// A container ends again and again.
    Crash,
    /// A container cannot be made from its configuration (missing ConfigMap, bad mount).
    Config,
    /// The node refused the pod (UnexpectedAdmissionError, Evicted, OutOf...).
    Rejected,
    /// No node takes it.
    Unschedulable,
    /// An init container waits for something on the node.
    Waiting,
    /// It runs but is not Ready.
    NotReady,
    /// It starts.
    Starting,
    /// It is going away.
    Terminating,
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
        let trouble = (!ready).then(|| trouble(&status, deleting));
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

fn condition(status: &PodStatus, type_: &str) -> Option<bool> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == type_)
        .map(|c| c.status == "True")
}

/// Init containers first, each with whether it is one.
fn statuses(status: &PodStatus) -> impl Iterator<Item = (bool, &ContainerStatus)> {
    let init = status
        .init_container_statuses
        .iter()
        .flatten()
        .map(|c| (true, c));
    init.chain(
        status
            .container_statuses
            .iter()
            .flatten()
            .map(|c| (false, c)),
    )
}

fn trouble(status: &PodStatus, deleting: bool) -> Trouble {
    let of = |kind, message: String| Trouble { kind, message };
    if deleting {
        return of(
            TroubleKind::Terminating,
            "the pod is being deleted".to_owned(),
        );
    }
    if status.phase.as_deref() == Some("Failed") {
        let reason = status.reason.as_deref().unwrap_or("Failed");
        let message = status.message.as_deref().unwrap_or("no message");
        return of(
            TroubleKind::Rejected,
            format!(
                "the node refused or ended the pod ({reason}): {}",
                first_line(message)
            ),
        );
    }
    let worst = statuses(status)
        .filter_map(|(init, container)| container_trouble(init, container))
        .min();
    if let Some(worst) = worst {
        return worst;
    }
    let scheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == "PodScheduled");
    if let Some(scheduled) = scheduled.filter(|c| c.status == "False") {
        let why = scheduled.message.as_deref().unwrap_or("no message");
        return of(
            TroubleKind::Unschedulable,
            format!("no node takes the pod: {}", first_line(why)),
        );
    }
    if status.phase.as_deref() == Some("Running") {
        let waiting = status
            .container_statuses
            .iter()
            .flatten()
            .find(|c| !c.ready);
        let name = waiting.map_or("a container", |c| c.name.as_str());
        return of(
            TroubleKind::NotReady,
            format!("container {name} runs but is not ready"),
        );
    }
    of(TroubleKind::Starting, "the pod is starting".to_owned())
}

fn container_trouble(init: bool, container: &ContainerStatus) -> Option<Trouble> {
    let name = &container.name;
    let state = container.state.clone().unwrap_or_default();
    if let Some(waiting) = state.waiting {
        let reason = waiting.reason.unwrap_or_default();
        let detail = waiting
            .message
            .as_deref()
            .map(first_line)
            .unwrap_or_default();
        let (kind, sentence) = match reason.as_str() {
            "ErrImagePull"
            | "ImagePullBackOff"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "RegistryUnavailable" => (
                TroubleKind::ImagePull,
                format!(
                    "container {name} cannot get its image {}: {}",
                    container.image,
                    or(&detail, &reason)
                ),
            ),
            "CrashLoopBackOff" => (
                TroubleKind::Crash,
                format!("container {name} keeps ending{}", last_exit(container)),
            ),
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => (
                TroubleKind::Config,
                format!(
                    "container {name} cannot be started: {}",
                    or(&detail, &reason)
                ),
            ),
            _ => return None,
        };
        return Some(Trouble {
            kind,
            message: sentence,
        });
    }
    if let Some(ended) = state.terminated.filter(|ended| ended.exit_code != 0) {
        let why = ended.reason.unwrap_or_else(|| "Error".to_owned());
        let message = format!(
            "container {name} ended with exit code {} ({why})",
            ended.exit_code
        );
        return Some(Trouble {
            kind: TroubleKind::Crash,
            message,
        });
    }
    let waits = init && state.running.is_some() && container.restart_count == 0;
    waits.then(|| Trouble {
        kind: TroubleKind::Waiting,
        message: format!("init container {name} is waiting"),
    })
}

fn last_exit(container: &ContainerStatus) -> String {
    let ended = container
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    ended.map_or_else(String::new, |ended| {
        let why = ended
            .message
            .as_deref()
            .map(first_line)
            .filter(|m| !m.is_empty());
        let why = why.or_else(|| ended.reason.clone()).unwrap_or_default();
        format!(
            ": exit code {}{}",
            ended.exit_code,
            if why.is_empty() {
                why
            } else {
                format!(" ({why})")
            }
        )
    })
}

fn or(text: &str, other: &str) -> String {
    if text.is_empty() {
        other.to_owned()
    } else {
        text.to_owned()
    }
}

/// The first line, at most 200 characters.
fn first_line(text: &str) -> String {
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(status: serde_json::Value) -> PodFacts {
        let pod = json!({
            "metadata": {"name": "p", "uid": "u", "labels": {"app": "nvidia-dcgm-exporter"}},
            "spec": {"nodeName": "gpu-1", "containers": []},
            "status": status,
        });
        PodFacts::from_pod(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn troubles_are_told_in_a_sentence() {
        let waiting = |reason: &str, message: &str| json!({"name": "c", "image": "r/i:1", "imageID": "", "ready": false, "restartCount": 3, "state": {"waiting": {"reason": reason, "message": message}}, "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}}});
        let cases = [
            (
                json!({"phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff", "not found")]}),
                TroubleKind::ImagePull,
                "container c cannot get its image r/i:1: not found",
            ),
            (
                json!({"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff", "back-off 40s")]}),
                TroubleKind::Crash,
                "container c keeps ending: exit code 2 (Error)",
            ),
            (
                json!({"phase": "Pending", "containerStatuses": [waiting("CreateContainerConfigError", "configmap \"x\" not found")]}),
                TroubleKind::Config,
                "container c cannot be started: configmap \"x\" not found",
            ),
            (
                json!({"phase": "Pending", "initContainerStatuses": [{"name": "toolkit-validation", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"running": {}}}], "containerStatuses": [waiting("PodInitializing", "")]}),
                TroubleKind::Waiting,
                "init container toolkit-validation is waiting",
            ),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}),
                TroubleKind::Unschedulable,
                "no node takes the pod: 0/3 nodes are available",
            ),
            (
                json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"}),
                TroubleKind::Rejected,
                "the node refused or ended the pod (UnexpectedAdmissionError): Allocate failed",
            ),
            (
                json!({"phase": "Running", "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"running": {}}}]}),
                TroubleKind::NotReady,
                "container c runs but is not ready",
            ),
            (
                json!({"phase": "Pending"}),
                TroubleKind::Starting,
                "the pod is starting",
            ),
        ];
        for (status, kind, message) in cases {
            let trouble = facts(status).trouble.unwrap();
            assert_eq!((trouble.kind, trouble.message.as_str()), (kind, message));
        }
    }

    #[test]
    fn a_ready_pod_has_no_trouble() {
        let pod =
            facts(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
        assert!(pod.ready && pod.trouble.is_none());
        assert_eq!(pod.node, "gpu-1");
    }
}
