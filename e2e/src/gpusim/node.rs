//! One node: its operand pods, its hardware, and what they do to the Node object.

mod effects;
mod pause;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use tokio::sync::mpsc::UnboundedReceiver;

use super::World;
use super::config::{self, PluginConfig};
use super::exporter::Exporter;
use super::faults::{self, Cards};
use super::gates::Facts;
use super::hardware::Hardware;
use super::pod::{Sim, Stage};
use super::status;
use crate::nodes::{Product, annotation};

/// What a node's task is told.
pub(super) enum Event {
    Node(Arc<Node>),
    Pod(Arc<Pod>),
    PodGone(String),
    /// Time has passed.
    Wake,
}

/// An operand pod with what was written about it.
struct Played {
    sim: Sim,
    written: Option<(Stage, i32)>,
    /// The plugin's configuration and the node label that chose it.
    config: Option<(Option<String>, PluginConfig)>,
    exporter: Option<Exporter>,
}

/// The task of a node.
struct Task {
    world: Arc<World>,
    name: String,
    node: Option<Arc<Node>>,
    annotations: BTreeMap<String, String>,
    hardware: Hardware,
    preinstalled: String,
    cards: Cards,
    /// By uid.
    pods: BTreeMap<String, Played>,
    /// Version of the loaded driver.
    driver: Option<String>,
    pause: pause::State,
    effects: effects::State,
}

/// Plays a node until its events end.
pub(super) async fn run(world: Arc<World>, name: String, mut events: UnboundedReceiver<Event>) {
    let mut task = Task {
        world,
        name,
        node: None,
        annotations: BTreeMap::new(),
        hardware: Hardware {
            product: Product::H100,
            cards: 8,
            layout: Vec::new(),
        },
        preinstalled: String::new(),
        cards: Cards::default(),
        pods: BTreeMap::new(),
        driver: None,
        pause: pause::State::default(),
        effects: effects::State::default(),
    };
    let mut wake = None;
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = sleep_until(wake) => Some(Event::Wake),
        };
        let Some(event) = event else { return };
        task.take(event);
        while let Ok(event) = events.try_recv() {
            task.take(event);
        }
        wake = if task.node.is_some() {
            task.advance().await
        } else {
            None
        };
    }
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

impl Task {
    fn take(&mut self, event: Event) {
        match event {
            Event::Node(node) => self.take_node(node),
            Event::Pod(pod) => self.take_pod(pod),
            Event::PodGone(uid) => {
                self.pods.remove(&uid);
            }
            Event::Wake => {}
        }
    }

    fn take_node(&mut self, node: Arc<Node>) {
        self.annotations.clone_from(node.annotations());
        if self.node.is_none() {
            let get = |key: &str| self.annotations.get(key).map_or("", String::as_str);
            self.hardware.cards = get(annotation::GPUS).parse().unwrap_or(8);
            self.hardware.product =
                Product::of_label(get(annotation::PRODUCT)).unwrap_or(Product::H100);
            self.preinstalled = get(annotation::PREINSTALLED).to_owned();
            self.effects.adopt(&node);
        }
        self.cards = Cards::of_node(&self.annotations);
        self.node = Some(node);
    }

    fn take_pod(&mut self, pod: Arc<Pod>) {
        let uid = pod.uid().unwrap_or_default();
        if let Some(played) = self.pods.get_mut(&uid) {
            played.sim.pod = pod;
            return;
        }
        let ip = self.world.net.address().to_string();
        let sim = Sim::new(pod, &self.world.settings, ip);
        let played = Played {
            sim,
            written: None,
            config: None,
            exporter: None,
        };
        self.pods.insert(uid, played);
    }

    /// Lets everything happen that is due, writes what it changes, and returns when to look again.
    async fn advance(&mut self) -> Option<Instant> {
        let mut wake = None;
        // What one pod becomes opens gates of others.
        for _ in 0..8 {
            let before = self.facts();
            wake = self.step_pods();
            self.resolve_configs().await;
            self.note_driver();
            if self.facts() == before {
                break;
            }
        }
        self.write_statuses().await;
        self.serve();
        let paused = self.advance_pauses().await;
        let effects = self.write_effects().await;
        [wake, paused, effects].into_iter().flatten().min()
    }

    /// State of the node that operands wait for.
    fn facts(&self) -> Facts {
        let ready = |app: &str| {
            self.pods
                .values()
                .any(|played| played.sim.app.starts_with(app) && played.sim.is_ready())
        };
        let loaded = self.driver.is_some() && ready("nvidia-driver-daemonset");
        Facts {
            driver: loaded || self.preinstalled.contains("driver"),
            toolkit: ready("nvidia-container-toolkit-daemonset")
                || self.preinstalled.contains("toolkit"),
            plugin: ready("nvidia-device-plugin-daemonset"),
            unloaded: self.unloaded(),
        }
    }

    fn step_pods(&mut self) -> Option<Instant> {
        let facts = self.facts();
        let now = Instant::now();
        let mut wake: Option<Instant> = None;
        for played in self
            .pods
            .values_mut()
            .filter(|played| !played.sim.leaving())
        {
            let sim = &mut played.sim;
            let fault = faults::of_pod(
                &sim.app,
                sim.tag(),
                &self.annotations,
                sim.pod.annotations(),
            );
            let next = sim.step(facts, fault.as_ref(), &self.world.settings, now);
            wake = [wake, next].into_iter().flatten().min();
        }
        wake
    }

    /// Reads the configuration of plugin, GFD and MPS pods when they start, and when the label that chooses it changes.
    async fn resolve_configs(&mut self) {
        let wanted = self.node.as_ref().and_then(|node| {
            node.labels()
                .get("nvidia.com/device-plugin.config")
                .cloned()
        });
        for played in self.pods.values_mut() {
            let started = matches!(
                played.sim.stage,
                Stage::Starting | Stage::Running { .. } | Stage::BackOff { .. }
            );
            if !started || played.sim.leaving() || !config::is_read_by(&played.sim) {
                continue;
            }
            // A refused file is read again at each start.
            let current = played.sim.refusal.is_none()
                && played
                    .config
                    .as_ref()
                    .is_some_and(|(key, _)| *key == wanted);
            if current {
                continue;
            }
            match config::of_pod(&self.world, &played.sim, wanted.as_deref()).await {
                Ok(config) => {
                    played.config = Some((wanted.clone(), config));
                    played.sim.refusal = None;
                }
                Err(reason) => played.sim.refusal = Some(reason),
            }
        }
    }

    /// Which driver is loaded: that of the driver pod that became ready last.
    fn note_driver(&mut self) {
        let ready = self.pods.values().find(|played| {
            played.sim.app.starts_with("nvidia-driver-daemonset") && played.sim.is_ready()
        });
        if let Some(played) = ready {
            self.driver = Some(driver_version(played.sim.tag()).to_owned());
        }
    }

    /// The version that the node's driver reports.
    fn driver_version(&self) -> &str {
        self.driver.as_deref().unwrap_or("550.54.15")
    }

    async fn write_statuses(&mut self) {
        let brief = self.world.nodes.load(Ordering::Relaxed) > self.world.settings.detailed_nodes;
        let mut writes = Vec::new();
        for played in self
            .pods
            .values_mut()
            .filter(|played| !played.sim.leaving())
        {
            let view = status::view(&played.sim);
            let wait = brief
                && played.written.is_some()
                && status::passing(&played.sim)
                && self.driver.is_some();
            if wait || played.written.as_ref() == Some(&view) {
                continue;
            }
            writes.push((Arc::clone(&played.sim.pod), status::render(&played.sim)));
            played.written = Some(view);
        }
        for (pod, body) in writes {
            if !writes::pod_status(&self.world, &pod, &body).await
                && let Some(played) = self.pods.get_mut(&pod.uid().unwrap_or_default())
            {
                played.written = None;
            }
        }
    }

    /// Exporters listen as long as their pod runs; they get the state of the cards whenever it may have changed.
    fn serve(&mut self) {
        let facts = super::metrics::Facts {
            node: self.name.clone(),
            hardware: self.hardware.clone(),
            cards: self.cards.clone(),
            driver: self.driver_version().to_owned(),
        };
        for played in self.pods.values_mut() {
            let up = matches!(played.sim.stage, Stage::Starting | Stage::Running { .. });
            match (
                &mut played.exporter,
                up && played.sim.app == "nvidia-dcgm-exporter",
            ) {
                (Some(exporter), true) => exporter.update(facts.clone()),
                (exporter @ None, true) => *exporter = Exporter::start(&played.sim, facts.clone()),
                (exporter, false) => *exporter = None,
            }
        }
    }
}

/// `535.104.05-ubuntu22.04` is driver 535.104.05.
fn driver_version(tag: &str) -> &str {
    tag.split('-').next().unwrap_or(tag)
}

/// The next of a series of looks at something that no event announces.
fn soon() -> Instant {
    Instant::now() + Duration::from_millis(500)
}
