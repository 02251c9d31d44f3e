//! The status of a pod, as a kubelet would report it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// The end of a container's run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting {
        reason: &'static str,
        message: String,
    },
    Running {
        since: Timestamp,
    },
    Terminated(Ended),
}

/// A container as its status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) state: State,
    pub(super) last: Option<Ended>,
    pub(super) restarts: i32,
    pub(super) ready: bool,
    pub(super) started: bool,
}

impl Status {
    fn new(reason: &'static str) -> Self {
        Self {
            state: State::Waiting {
                reason,
                message: String::new(),
            },
            last: None,
            restarts: 0,
            ready: false,
            started: false,
        }
    }

    fn has_run(&self) -> bool {
        self.last.is_some() || !matches!(self.state, State::Waiting { .. })
    }
}

/// The status of all containers of a pod, shared by the tasks that run them.
#[derive(Debug)]
pub(super) struct Board {
    inner: Mutex<Inner>,
    /// Signalled at each change.
    pub(super) changed: Notify,
}

#[derive(Debug)]
struct Inner {
    ip: String,
    since: Timestamp,
    init: BTreeMap<String, Status>,
    main: BTreeMap<String, Status>,
    initialized: bool,
    /// Last status of each condition and when it became that.
    conditions: BTreeMap<&'static str, (bool, Timestamp)>,
}

impl Board {
    /// Everything is still waiting.
    pub(super) fn new(pod: &Pod, ip: String) -> Self {
        let init: Vec<&Container> = pod
            .spec
            .iter()
            .flat_map(|spec| spec.init_containers.iter().flatten())
            .collect();
        let waits = if init.is_empty() {
            "ContainerCreating"
        } else {
            "PodInitializing"
        };
        let main = pod.spec.iter().flat_map(|spec| &spec.containers);
        Self {
            inner: Mutex::new(Inner {
                ip,
                since: Timestamp::now(),
                initialized: init.is_empty(),
                init: init
                    .into_iter()
                    .map(|container| (container.name.clone(), Status::new("PodInitializing")))
                    .collect(),
                main: main
                    .map(|container| (container.name.clone(), Status::new(waits)))
                    .collect(),
                conditions: BTreeMap::new(),
            }),
            changed: Notify::new(),
        }
    }

    /// Changes the status of a container.
    pub(super) fn update(&self, container: &str, change: impl FnOnce(&mut Status)) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        if let Some(status) = inner
            .main
            .get_mut(container)
            .or_else(|| inner.init.get_mut(container))
        {
            let before = status.clone();
            change(status);
            if before == *status {
                return;
            }
        }
        drop(guard);
        self.changed.notify_one();
    }

    /// A reason why no container can start yet.
    pub(super) fn wait(&self, message: &str) {
        let mut inner = self.inner.lock();
        for status in inner.main.values_mut() {
            status.state = State::Waiting {
                reason: "ContainerCreating",
                message: message.to_owned(),
            };
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// All init containers have succeeded.
    pub(super) fn initialized(&self) {
        self.inner.lock().initialized = true;
        self.changed.notify_one();
    }

    /// The status to write; `ended` is the final phase, if it is final.
    pub(super) fn render(&self, pod: &Pod, ended: Option<bool>) -> Value {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let spec = pod.spec.as_ref();
        let all_ready =
            ended.is_none() && inner.initialized && inner.main.values().all(|status| status.ready);
        let phase = match ended {
            Some(true) => "Succeeded",
            Some(false) => "Failed",
            None if inner.initialized && inner.main.values().any(Status::has_run) => "Running",
            None => "Pending",
        };
        let now = Timestamp::now();
        let mut conditions = Vec::new();
        for (kind, value) in [
            ("PodReadyToStartContainers", true),
            ("Initialized", inner.initialized),
            ("ContainersReady", all_ready),
            ("Ready", all_ready),
        ] {
            let entry = inner.conditions.entry(kind).or_insert((value, now));
            if entry.0 != value {
                *entry = (value, now);
            }
            conditions.push(condition(kind, value, entry.1, ended, inner));
        }
        json!({
            "phase": phase,
            "hostIP": "127.0.0.1",
            "hostIPs": [{ "ip": "127.0.0.1" }],
            "podIP": inner.ip,
            "podIPs": [{ "ip": inner.ip }],
            "startTime": inner.since.to_string(),
            "conditions": conditions,
            "initContainerStatuses": statuses(spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default(), &inner.init, true),
            "containerStatuses": statuses(spec.map(|spec| spec.containers.as_slice()).unwrap_or_default(), &inner.main, false),
        })
    }
}

fn condition(
    kind: &str,
    value: bool,
    since: Timestamp,
    ended: Option<bool>,
    inner: &ConditionFacts,
) -> Value {
    let mut condition = json!({ "type": kind, "status": if value { "True" } else { "False" }, "lastTransitionTime": since.to_string() });
    if let (false, Some(object)) = (value, condition.as_object_mut()) {
        let names = |map: &BTreeMap<String, Status>, ok: fn(&Status) -> bool| {
            map.iter()
                .filter(|(_, status)| !ok(status))
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let (reason, message) = match (ended, kind) {
            (Some(_), _) => ("PodCompleted", String::new()),
            (None, "Initialized") => (
                "ContainersNotInitialized",
                format!(
                    "containers with incomplete status: [{}]",
                    names(
                        &inner.init,
                        |status| matches!(&status.state, State::Terminated(end) if end.code == 0)
                    )
                ),
            ),
            (None, _) => (
                "ContainersNotReady",
                format!(
                    "containers with unready status: [{}]",
                    names(&inner.main, |status| status.ready)
                ),
            ),
        };
        object.insert("reason".to_owned(), json!(reason));
        object.insert("message".to_owned(), json!(message));
    }
    condition
}

type ConditionFacts = Inner;

/// In the order of the specification, as the API server wants them.
fn statuses(containers: &[Container], board: &BTreeMap<String, Status>, init: bool) -> Vec<Value> {
    let with_status = containers
        .iter()
        .filter_map(|container| Some((container, board.get(&container.name)?)));
    with_status
        .map(|(container, status)| container_status(container, status, init))
        .collect()
}

fn container_status(container: &Container, status: &Status, init: bool) -> Value {
    let image = container.image.clone().unwrap_or_default();
    let done = matches!(&status.state, State::Terminated(end) if end.code == 0);
    json!({
        "name": container.name,
        "image": image,
        "imageID": if status.has_run() { format!("lab://{image}") } else { String::new() },
        "containerID": if status.has_run() { format!("lab://{}-{}", container.name, status.restarts) } else { String::new() },
        "ready": if init { done } else { status.ready },
        "started": status.started,
        "restartCount": status.restarts,
        "state": state(&status.state),
        "lastState": status.last.as_ref().map_or_else(|| json!({}), |end| json!({ "terminated": terminated(end) })),
    })
}

fn state(state: &State) -> Value {
    match state {
        State::Waiting { reason, message } if message.is_empty() => {
            json!({ "waiting": { "reason": reason } })
        }
        State::Waiting { reason, message } => {
            json!({ "waiting": { "reason": reason, "message": message } })
        }
        State::Running { since } => json!({ "running": { "startedAt": since.to_string() } }),
        State::Terminated(end) => json!({ "terminated": terminated(end) }),
    }
}

fn terminated(end: &Ended) -> Value {
    json!({
        "exitCode": end.code,
        "reason": end.reason,
        "message": end.message,
        "startedAt": end.started.to_string(),
        "finishedAt": end.finished.to_string(),
    })
}
