//! One operand pod: a state machine without I/O.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;

use super::Settings;
use super::faults::Fault;
use super::gates::{Facts, Gate};
use crate::hostnode::image_name;

/// How long an init container runs once what it waits for is there.
const INIT: Duration = Duration::from_millis(150);

/// Where a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In this init container; since when its gate is open.
    Init { index: usize, open: Option<Instant> },
    /// The main image cannot be pulled.
    PullFailed,
    /// The main containers run but are not ready yet.
    Starting,
    /// The main containers run.
    Running { ready: bool },
    /// The main container has crashed and starts again then.
    BackOff { until: Instant, reason: String },
}

/// An operand pod.
#[derive(Debug)]
pub(super) struct Sim {
    pub(super) pod: Arc<Pod>,
    /// Label `app`.
    pub(super) app: String,
    pub(super) stage: Stage,
    /// When the stage was entered.
    since: Instant,
    /// The same as a time of day, for the status.
    pub(super) entered: Timestamp,
    pub(super) seen: Timestamp,
    pub(super) restarts: i32,
    /// Why the program cannot run: a configuration that it refuses.
    pub(super) refusal: Option<String>,
    /// Address, for pods that serve something.
    pub(super) ip: String,
    delay: Duration,
}

impl Sim {
    pub(super) fn new(pod: Arc<Pod>, settings: &Settings, ip: String) -> Self {
        let app = pod
            .labels()
            .get("app")
            .cloned()
            .unwrap_or_else(|| "unknown".to_owned());
        let node = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default();
        let delay = start_delay(&app, &node, settings);
        let mut sim = Self {
            stage: Stage::Starting,
            since: Instant::now(),
            entered: Timestamp::now(),
            seen: Timestamp::now(),
            restarts: 0,
            refusal: None,
            ip,
            delay,
            app,
            pod,
        };
        if !sim.init_containers().is_empty() {
            sim.stage = Stage::Init {
                index: 0,
                open: None,
            };
        }
        sim
    }

    /// A pod that was ready already when the simulator started to watch (a lost watch, for example).
    pub(super) fn is_ready(&self) -> bool {
        self.stage == Stage::Running { ready: true } && !self.leaving()
    }

    /// Being deleted.
    pub(super) fn leaving(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn init_containers(&self) -> &[Container] {
        self.pod
            .spec
            .as_ref()
            .and_then(|spec| spec.init_containers.as_deref())
            .unwrap_or_default()
    }

    pub(super) fn containers(&self) -> &[Container] {
        self.pod
            .spec
            .as_ref()
            .map(|spec| spec.containers.as_slice())
            .unwrap_or_default()
    }

    /// The tag of the main image.
    pub(super) fn tag(&self) -> &str {
        let image = self
            .containers()
            .first()
            .and_then(|container| container.image.as_deref())
            .unwrap_or_default();
        let last = image.rsplit('/').next().unwrap_or_default();
        last.split_once(':')
            .map_or("", |(_, tag)| tag.split('@').next().unwrap_or(tag))
    }

    /// The name of the main image.
    pub(super) fn image(&self) -> &str {
        image_name(
            self.containers()
                .first()
                .and_then(|container| container.image.as_deref())
                .unwrap_or_default(),
        )
    }

    /// Does what is due and returns when to look again.
    pub(super) fn step(
        &mut self,
        facts: Facts,
        fault: Option<&Fault>,
        settings: &Settings,
        now: Instant,
    ) -> Option<Instant> {
        loop {
            let next = match &self.stage {
                Stage::Init { index, open } => {
                    match self.step_init(*index, *open, facts, fault, settings, now) {
                        Ok(stage) => stage,
                        Err(wake) => return wake,
                    }
                }
                Stage::PullFailed if fault == Some(&Fault::FailPull) => return None,
                Stage::PullFailed => Stage::Starting,
                Stage::Starting if fault == Some(&Fault::FailPull) => Stage::PullFailed,
                Stage::Starting => {
                    let delay = match fault {
                        Some(Fault::Slow(delay)) => *delay,
                        _ => self.delay,
                    };
                    if now < self.since + delay {
                        return Some(self.since + delay);
                    }
                    Stage::Running { ready: true }
                }
                Stage::Running { ready } => {
                    let wanted = fault != Some(&Fault::NeverReady);
                    if let Some(reason) = self.crash_reason(fault) {
                        self.back_off(reason, now)
                    } else if *ready == wanted {
                        return None;
                    } else {
                        Stage::Running { ready: wanted }
                    }
                }
                Stage::BackOff { until, .. } if now < *until => return Some(*until),
                Stage::BackOff { .. } => match self.crash_reason(fault) {
                    Some(reason) => self.back_off(reason, now),
                    None => Stage::Starting,
                },
            };
            self.stage = next;
            self.since = now;
            self.entered = Timestamp::now();
        }
    }

    fn step_init(
        &self,
        index: usize,
        open: Option<Instant>,
        facts: Facts,
        fault: Option<&Fault>,
        settings: &Settings,
        now: Instant,
    ) -> Result<Stage, Option<Instant>> {
        let Some(container) = self.init_containers().get(index) else {
            return Ok(Stage::Starting);
        };
        let held = matches!(fault, Some(Fault::Wait(name)) if *name == container.name);
        if held || !Gate::of(container).open(facts) {
            return if open.is_some() {
                Ok(Stage::Init { index, open: None })
            } else {
                Err(None)
            };
        }
        let time = INIT.mul_f64(settings.pace);
        match open {
            None => Ok(Stage::Init {
                index,
                open: Some(now),
            }),
            Some(open) if now < open + time => Err(Some(open + time)),
            Some(_) => Ok(Stage::Init {
                index: index + 1,
                open: None,
            }),
        }
    }

    fn crash_reason(&self, fault: Option<&Fault>) -> Option<String> {
        if fault == Some(&Fault::Crash) {
            return Some("crash on cue".to_owned());
        }
        self.refusal.clone()
    }

    fn back_off(&mut self, reason: String, now: Instant) -> Stage {
        self.restarts += 1;
        let seconds = 1_u64 << (self.restarts.clamp(1, 6) - 1);
        Stage::BackOff {
            until: now + Duration::from_secs(seconds.min(30)),
            reason,
        }
    }
}

/// The driver's time, or 0.3 to 1 s, always the same for the same operand on the same node.
fn start_delay(app: &str, node: &str, settings: &Settings) -> Duration {
    if app.starts_with("nvidia-driver") {
        return Duration::from_secs_f64(settings.driver_seconds.max(0.0));
    }
    let mut hasher = DefaultHasher::new();
    (app, node).hash(&mut hasher);
    Duration::from_millis(300 + hasher.finish() % 700).mul_f64(settings.pace)
}
