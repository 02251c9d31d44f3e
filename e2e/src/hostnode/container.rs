//! One container: a process that is started, watched, restarted and stopped.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;
use tokio::process::Child;
use tokio::sync::watch;

use super::environment::{self, Facts};
use super::expand::expand;
use super::status::{Board, Ended, State};
use super::{Context, files, probe};
use crate::process::{self, Identity};

/// What the containers of a pod share.
pub(super) struct Shared {
    pub(super) context: Arc<Context>,
    pub(super) pod: Pod,
    pub(super) ip: String,
    pub(super) dir: PathBuf,
    pub(super) board: Arc<Board>,
    pub(super) kubeconfig: Option<PathBuf>,
}

/// When to restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    Always,
    OnFailure,
    Never,
}

/// `Some` once the container is to stop, with the grace period.
pub(super) type Stop = watch::Receiver<Option<Duration>>;

/// Runs a container until it has ended for good or is stopped. True if its last run succeeded.
pub(super) async fn run(
    shared: Arc<Shared>,
    container: Container,
    restart: Restart,
    mut stop: Stop,
) -> bool {
    let mut crashes = 0_u32;
    loop {
        let begin = Instant::now();
        let end = match start(&shared, &container).await {
            Ok(child) => watch_over(&shared, &container, child, &mut stop).await,
            Err((reason, error)) => {
                tracing::info!(
                    pod = shared.pod.name_any(),
                    container = container.name,
                    "{reason}: {error:#}"
                );
                shared.board.update(&container.name, |status| {
                    status.state = State::Waiting {
                        reason,
                        message: format!("{error:#}"),
                    };
                });
                if pause(Duration::from_secs(1), &mut stop).await {
                    return false;
                }
                continue;
            }
        };
        let success = end.code == 0;
        let again = restart == Restart::Always || (restart == Restart::OnFailure && !success);
        if stop.borrow().is_some() || !again {
            shared.board.update(&container.name, |status| {
                status.state = State::Terminated(end);
                status.ready = false;
                status.started = false;
            });
            return success;
        }
        crashes = if begin.elapsed() > Duration::from_secs(60) {
            0
        } else {
            crashes
        };
        let delay = back_off(crashes);
        crashes += 1;
        crashed(&shared, &container, end, delay);
        if pause(delay, &mut stop).await {
            return false;
        }
    }
}

/// None, 1 s, 2 s, 4 s, ... 30 s.
fn back_off(crashes: u32) -> Duration {
    match crashes {
        0 => Duration::ZERO,
        n => Duration::from_secs(1 << (n - 1).min(5)).min(Duration::from_secs(30)),
    }
}

fn crashed(shared: &Shared, container: &Container, end: Ended, delay: Duration) {
    shared.board.update(&container.name, |status| {
        status.restarts += 1;
        status.ready = false;
        status.started = false;
        status.state = if delay.is_zero() {
            State::Terminated(end.clone())
        } else {
            State::Waiting {
                reason: "CrashLoopBackOff",
                message: format!(
                    "back-off {} s restarting failed container={} pod={}",
                    delay.as_secs(),
                    container.name,
                    shared.pod.name_any()
                ),
            }
        };
        status.last = Some(end);
    });
}

/// Waits; true when told to stop meanwhile.
async fn pause(time: Duration, stop: &mut Stop) -> bool {
    tokio::time::timeout(time, stop.wait_for(Option::is_some))
        .await
        .is_ok()
}

/// Starts the process. The error's first part is the kubelet's waiting reason.
async fn start(
    shared: &Shared,
    container: &Container,
) -> Result<Child, (&'static str, anyhow::Error)> {
    let program = program(&shared.context.settings.images, container)
        .map_err(|error| ("ErrImagePull", error))?;
    let child = spawn(shared, container, &program)
        .await
        .map_err(|error| ("CreateContainerConfigError", error))?;
    shared.board.update(&container.name, |status| {
        status.state = State::Running {
            since: Timestamp::now(),
        }
    });
    Ok(child)
}

async fn spawn(shared: &Shared, container: &Container, program: &Path) -> anyhow::Result<Child> {
    let root = files::root(&shared.dir, container)?;
    let facts = Facts {
        context: &shared.context,
        pod: &shared.pod,
        ip: &shared.ip,
        kubeconfig: shared
            .kubeconfig
            .as_ref()
            .map(|path| path.display().to_string()),
        root: root.display().to_string(),
    };
    let vars = environment::of(&facts, container).await?;
    let words = container
        .command
        .iter()
        .flatten()
        .skip(1)
        .chain(container.args.iter().flatten());
    let shown = |word: &String| files::shown(&expand(word, &vars), &root, container);
    let args: Vec<String> = words.map(shown).collect();
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log_path(shared, container))?;
    let child = process::command(program, &log)?
        .args(args)
        .env_clear()
        .envs(&vars)
        .current_dir(&root)
        .spawn()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    if let Some(identity) = child.id().and_then(Identity::of) {
        identity.save(&pid_path(shared, container))?;
    }
    Ok(child)
}

/// The program that stands for the container's image, or for its command.
fn program(images: &Path, container: &Container) -> anyhow::Result<PathBuf> {
    let image = container.image.as_deref().unwrap_or_default();
    if let Some(command) = container.command.iter().flatten().next() {
        let name = command.rsplit('/').next().unwrap_or(command);
        let candidates = [images.join(name), PathBuf::from(command)];
        let found = candidates
            .into_iter()
            .find(|path| path.is_absolute() && path.is_file());
        return found.with_context(|| {
            format!("command {command} of image {image} is no program of the lab")
        });
    }
    let name = image_name(image);
    let path = images.join(name);
    anyhow::ensure!(
        path.is_file(),
        "failed to pull image \"{image}\": the lab takes it from {}, which is not there",
        path.display()
    );
    Ok(path)
}

/// The last path element of an image reference, without tag and digest.
pub(crate) fn image_name(image: &str) -> &str {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split(['@', ':']).next().unwrap_or(last)
}

fn file_name(shared: &Shared, container: &Container) -> String {
    format!(
        "{}_{}_{}",
        shared.pod.namespace().unwrap_or_default(),
        shared.pod.name_any(),
        container.name
    )
}

fn log_path(shared: &Shared, container: &Container) -> PathBuf {
    shared
        .context
        .settings
        .dir
        .join("log")
        .join("pods")
        .join(format!("{}.log", file_name(shared, container)))
}

fn pid_path(shared: &Shared, container: &Container) -> PathBuf {
    shared
        .context
        .settings
        .dir
        .join("pids")
        .join(file_name(shared, container))
}

/// Waits for the end of the process: by itself, by a failed probe, or by order.
async fn watch_over(
    shared: &Shared,
    container: &Container,
    mut child: Child,
    stop: &mut Stop,
) -> Ended {
    let started = Timestamp::now();
    let mut message = String::new();
    let status = tokio::select! {
        status = child.wait() => status,
        reason = probe::run(&shared.board, container, &shared.ip) => {
            tracing::info!(pod = shared.pod.name_any(), container = container.name, "{reason}: restarting");
            message = reason;
            let grace = shared.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).and_then(|seconds| u64::try_from(seconds).ok());
            terminate(&mut child, Duration::from_secs(grace.unwrap_or(30))).await
        }
        grace = wait_for_stop(stop) => terminate(&mut child, grace).await,
    };
    let _ = std::fs::remove_file(pid_path(shared, container));
    let code = status.map_or(255, exit_code);
    Ended {
        code,
        reason: if code == 0 { "Completed" } else { "Error" },
        message,
        started,
        finished: Timestamp::now(),
    }
}

async fn wait_for_stop(stop: &mut Stop) -> Duration {
    // A dropped sender means that the pod's task is gone: stop at once.
    stop.wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|grace| *grace)
        .unwrap_or_default()
}

/// SIGTERM, and SIGKILL to the whole process group after the grace period.
async fn terminate(
    child: &mut Child,
    grace: Duration,
) -> std::io::Result<std::process::ExitStatus> {
    let identity = child.id().and_then(Identity::of);
    if let Some(identity) = identity {
        identity.signal(rustix::process::Signal::TERM);
        // A process that is frozen gets no SIGTERM until it runs again.
        identity.signal(rustix::process::Signal::CONT);
    }
    if let Ok(status) = tokio::time::timeout(grace, child.wait()).await {
        return status;
    }
    if let Some(identity) = identity {
        identity.signal_group(rustix::process::Signal::KILL);
    }
    child.wait().await
}

/// As a shell has it: 128 and the signal's number for a process that a signal ended.
fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_name_programs() {
        for (image, name) in [
            (
                "ghcr.io/tessera-gpu/tessera/driver-controller:0.1.0",
                "driver-controller",
            ),
            ("localhost:5000/sre-agent", "sre-agent"),
            ("sre-agent@sha256:abc", "sre-agent"),
            ("x/kubectl-tessera:v1@sha256:abc", "kubectl-tessera"),
        ] {
            assert_eq!(image_name(image), name);
        }
    }

    #[test]
    fn the_first_restart_is_immediate_and_the_delay_is_capped() {
        let delays: Vec<u64> = (0..8).map(|n| back_off(n).as_secs()).collect();
        assert_eq!(delays, [0, 1, 2, 4, 8, 16, 30, 30]);
    }
}
