//! The status of an operand pod, as a kubelet would report it.

use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};

use super::pod::{Sim, Stage};

/// What of a stage shows in the status: equal views need no write.
pub(super) fn view(sim: &Sim) -> (Stage, i32) {
    let mut stage = sim.stage.clone();
    // Whether the gate is open shows nowhere.
    if let Stage::Init { open, .. } = &mut stage {
        *open = None;
    }
    (stage, sim.restarts)
}

/// Whether the stage normally passes by itself within a moment.
pub(super) fn passing(sim: &Sim) -> bool {
    matches!(sim.stage, Stage::Init { .. } | Stage::Starting)
}

/// The whole status.
pub(super) fn render(sim: &Sim) -> Value {
    let ready = sim.stage == Stage::Running { ready: true };
    let initialized = !matches!(sim.stage, Stage::Init { .. });
    let running = !matches!(sim.stage, Stage::Init { .. } | Stage::PullFailed);
    let since = if ready { &sim.entered } else { &sim.seen };
    json!({
        "phase": if running { "Running" } else { "Pending" },
        "hostIP": "127.0.0.1",
        "hostIPs": [{ "ip": "127.0.0.1" }],
        "podIP": sim.ip,
        "podIPs": [{ "ip": sim.ip }],
        "startTime": sim.seen.to_string(),
        "conditions": [
            condition("PodReadyToStartContainers", true, &sim.seen, ""),
            condition("Initialized", initialized, &sim.seen, "ContainersNotInitialized"),
            condition("ContainersReady", ready, since, "ContainersNotReady"),
            condition("Ready", ready, since, "ContainersNotReady"),
        ],
        "initContainerStatuses": init_statuses(sim),
        "containerStatuses": sim.containers().iter().enumerate().map(|(at, container)| main_status(sim, container, at == 0)).collect::<Vec<_>>(),
    })
}

fn condition(kind: &str, value: bool, since: &jiff::Timestamp, reason: &str) -> Value {
    let mut condition = json!({ "type": kind, "status": if value { "True" } else { "False" }, "lastTransitionTime": since.to_string() });
    if let (false, Some(object)) = (value, condition.as_object_mut()) {
        object.insert("reason".to_owned(), json!(reason));
    }
    condition
}

fn init_statuses(sim: &Sim) -> Vec<Value> {
    let current = match sim.stage {
        Stage::Init { index, .. } => index,
        Stage::PullFailed | Stage::Starting | Stage::Running { .. } | Stage::BackOff { .. } => {
            usize::MAX
        }
    };
    let one = |(at, container): (usize, &Container)| {
        let state = match at.cmp(&current) {
            std::cmp::Ordering::Less => json!({ "terminated": {
                "exitCode": 0, "reason": "Completed", "startedAt": sim.seen.to_string(), "finishedAt": sim.entered.to_string(),
            }}),
            std::cmp::Ordering::Equal => {
                json!({ "running": { "startedAt": sim.entered.to_string() } })
            }
            std::cmp::Ordering::Greater => json!({ "waiting": { "reason": "PodInitializing" } }),
        };
        status(
            container,
            at < current,
            at == current,
            0,
            &state,
            &json!({}),
        )
    };
    sim.init_containers().iter().enumerate().map(one).collect()
}

/// Only the first container fails; the others are sidecars.
fn main_status(sim: &Sim, container: &Container, first: bool) -> Value {
    let running = json!({ "running": { "startedAt": sim.entered.to_string() } });
    let image = container.image.as_deref().unwrap_or_default();
    match &sim.stage {
        Stage::Init { .. } => status(
            container,
            false,
            false,
            0,
            &json!({ "waiting": { "reason": "PodInitializing" } }),
            &json!({}),
        ),
        Stage::PullFailed if first => {
            let message =
                format!("Back-off pulling image \"{image}\": ErrImagePull: {image}: not found");
            let state = json!({ "waiting": { "reason": "ImagePullBackOff", "message": message } });
            status(container, false, false, 0, &state, &json!({}))
        }
        Stage::BackOff { reason, .. } if first => {
            let message = format!("back-off restarting failed container={}", container.name);
            let state = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": message } });
            let end = json!({ "terminated": {
                "exitCode": 1, "reason": "Error", "message": reason, "startedAt": sim.entered.to_string(), "finishedAt": sim.entered.to_string(),
            }});
            status(container, false, false, sim.restarts, &state, &end)
        }
        Stage::Starting if first => {
            status(container, false, false, sim.restarts, &running, &json!({}))
        }
        Stage::Running { ready } if first => {
            status(container, *ready, true, sim.restarts, &running, &json!({}))
        }
        Stage::PullFailed | Stage::BackOff { .. } | Stage::Starting | Stage::Running { .. } => {
            status(container, true, true, 0, &running, &json!({}))
        }
    }
}

fn status(
    container: &Container,
    ready: bool,
    started: bool,
    restarts: i32,
    state: &Value,
    last: &Value,
) -> Value {
    let image = container.image.as_deref().unwrap_or_default();
    json!({
        "name": container.name,
        "image": image,
        "imageID": format!("sim://{image}"),
        "ready": ready,
        "started": started,
        "restartCount": restarts,
        "state": state,
        "lastState": last,
    })
}
