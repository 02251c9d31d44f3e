//! The plain reason why a pod is not ready: one for each situation, so that it does not change while the situation lasts.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodStatus};

/// A container that failed after fewer seconds of running may be in a crash loop.
const CRASH_RUN: i64 = 600;

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
    /// It was ready, or has been restarted, and is not ready.
    NotReady,
    /// An init container waits for another operand on the node.
    Dependency,
    /// It is on its way: its image, its init containers, its first start.
    Starting,
    /// It is going away.
    Terminating,
}

pub(super) fn condition(status: &PodStatus, type_: &str) -> Option<bool> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == type_)
        .map(|c| c.status == "True")
}

/// Init containers first, each with whether it is one.
pub(super) fn statuses(status: &PodStatus) -> impl Iterator<Item = (bool, &ContainerStatus)> {
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

/// The trouble of a pod that is not ready.
pub(super) fn of(status: &PodStatus, deleting: bool) -> Trouble {
    let make = |kind, message: String| Trouble { kind, message };
    if deleting {
        return make(
            TroubleKind::Terminating,
            "the pod is being deleted".to_owned(),
        );
    }
    if status.phase.as_deref() == Some("Failed") {
        let reason = status.reason.as_deref().unwrap_or("Failed");
        let message = status.message.as_deref().unwrap_or("no message");
        return make(
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
        return make(
            TroubleKind::Unschedulable,
            format!("no node takes the pod: {}", first_line(why)),
        );
    }
    if status.phase.as_deref() == Some("Running") {
        return not_ready(status);
    }
    make(TroubleKind::Starting, "the pod is starting".to_owned())
}

/// A pod whose containers all run, some not ready: on its way to ready for the first time, or fallen back from it.
fn not_ready(status: &PodStatus) -> Trouble {
    let mut unready = status.container_statuses.iter().flatten();
    let unready = unready.find(|container| !container.ready);
    let name = unready.map_or("a container", |container| container.name.as_str());
    let again = unready.is_some_and(|container| {
        container.restart_count > 0 || was_ready(status, container).unwrap_or_default()
    });
    let kind = if again {
        TroubleKind::NotReady
    } else {
        TroubleKind::Starting
    };
    Trouble {
        kind,
        message: format!("container {name} runs but is not ready"),
    }
}

/// A pod is not Ready from its creation, before any container runs; only one that was ready became it later.
fn was_ready(status: &PodStatus, container: &ContainerStatus) -> Option<bool> {
    let started = container
        .state
        .as_ref()?
        .running
        .as_ref()?
        .started_at
        .as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.find(|c| c.type_ == "Ready")?;
    Some(ready.last_transition_time.as_ref()?.0 > started.0)
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
    if let Some(ended) = state.terminated {
        let failed = ended.exit_code != 0;
        return failed.then(|| crashed(name, container.restart_count > 0, &ended));
    }
    let last = container.last_state.as_ref();
    let last = last.and_then(|last| last.terminated.as_ref());
    if let Some(last) = last.filter(|last| !container.ready && is_crash(last)) {
        return Some(crashed(name, true, last));
    }
    let running = init && state.running.is_some() && !container.ready;
    running.then(|| match awaited(name) {
        Some(what) => Trouble {
            kind: TroubleKind::Dependency,
            message: format!("init container {name} waits for {what}"),
        },
        None => Trouble {
            kind: TroubleKind::Starting,
            message: format!("init container {name} is at work"),
        },
    })
}

/// What an init container waits for, where its name tells (NVIDIA's names): the files that the validator leaves, or the
/// resource that the device plugin advertises. `cuda-validation` waits for nothing: it checks.
fn awaited(init_container: &str) -> Option<&'static str> {
    match init_container {
        "driver-validation" => Some("the driver on its node (see DriverReady)"),
        "toolkit-validation" => {
            Some("the container toolkit on its node (see ToolkitReady and ValidatorReady)")
        }
        "plugin-validation" => Some("the device plugin on its node (see DevicePluginReady)"),
        _ => None,
    }
}

/// Whether a container that runs again may end like that again: as the kubelet sees it, which forgets failures after ten
/// minutes of running (its `MaxContainerBackOff`, and twice that before it resets).
fn is_crash(last: &ContainerStateTerminated) -> bool {
    let ran = last.started_at.as_ref().zip(last.finished_at.as_ref());
    let ran = ran.map(|(from, to)| to.0.as_second() - from.0.as_second());
    last.exit_code != 0 && ran.is_some_and(|seconds| seconds < CRASH_RUN)
}

/// The same words whether the container has just ended, waits for its next start, or runs again, so that the reason is
/// one and the same until it is ready.
fn crashed(name: &str, again: bool, ended: &ContainerStateTerminated) -> Trouble {
    let verb = if again { "keeps ending" } else { "has ended" };
    Trouble {
        kind: TroubleKind::Crash,
        message: format!("container {name} {verb}{}", exit(ended)),
    }
}

fn last_exit(container: &ContainerStatus) -> String {
    let last = container.last_state.as_ref();
    let ended = last.and_then(|state| state.terminated.as_ref());
    ended.map_or_else(String::new, exit)
}

fn exit(ended: &ContainerStateTerminated) -> String {
    let message = ended.message.as_deref().map(first_line);
    let why = message.filter(|text| !text.is_empty());
    let why = why.or_else(|| ended.reason.clone()).unwrap_or_default();
    let why = if why.is_empty() {
        why
    } else {
        format!(" ({why})")
    };
    format!(": exit code {}{why}", ended.exit_code)
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
mod tests;
