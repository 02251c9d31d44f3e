//! Those who pause other operands on their node by rewriting `nvidia.com/gpu.deploy.*`: the driver manager before it unloads a
//! driver (k8s-driver-manager v0.12), and the MIG manager before it changes the cards' mode (mig-parted v0.15).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::ResourceExt as _;

use super::{Task, driver_version, soon, writes};
use crate::gpusim::faults;
use crate::gpusim::hardware::CardLayout;
use crate::gpusim::mig;
use crate::gpusim::pod::Stage;

const DEPLOY: &str = "nvidia.com/gpu.deploy.";
const MIG_CONFIG: &str = "nvidia.com/mig.config";
const MIG_STATE: &str = "nvidia.com/mig.config.state";
const FOR_MIG: &str = "paused-for-mig-change";
const FOR_DRIVER: &str = "paused-for-driver-upgrade";
/// How long a change of the cards' mode takes.
const MIG_CHANGE: Duration = Duration::from_secs(1);

/// Deploy labels that the MIG manager pauses, and the pods it waits for.
const MIG_CLIENTS: [(&str, &str); 4] = [
    ("device-plugin", "nvidia-device-plugin-daemonset"),
    ("gpu-feature-discovery", "gpu-feature-discovery"),
    ("dcgm-exporter", "nvidia-dcgm-exporter"),
    ("dcgm", "nvidia-dcgm"),
];

/// The same for the driver manager.
const DRIVER_CLIENTS: [(&str, &str); 7] = [
    ("operator-validator", "nvidia-operator-validator"),
    ("container-toolkit", "nvidia-container-toolkit-daemonset"),
    ("device-plugin", "nvidia-device-plugin-daemonset"),
    ("gpu-feature-discovery", "gpu-feature-discovery"),
    ("dcgm-exporter", "nvidia-dcgm-exporter"),
    ("dcgm", "nvidia-dcgm"),
    ("mig-manager", "nvidia-mig-manager"),
];

/// A change that needs the others out of the way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// The labels are rewritten; waiting for the pods to go.
    Pausing,
    /// Being made, until then.
    Making(Instant),
}

/// How far both are.
#[derive(Debug, Default)]
pub(super) struct State {
    driver: Option<Change>,
    mig: Option<(String, Change)>,
    /// The configuration that the MIG manager has dealt with last.
    mig_done: Option<String>,
}

impl Task {
    /// Whether a new driver may be loaded.
    pub(super) fn unloaded(&self) -> bool {
        self.pause.driver.is_none() && !self.must_unload()
    }

    /// A driver pod of another version is in its driver manager while a driver is loaded.
    fn must_unload(&self) -> bool {
        let Some(loaded) = &self.driver else {
            return false;
        };
        let mut pods = self.pods.values().filter(|played| {
            played.sim.app.starts_with("nvidia-driver-daemonset") && !played.sim.leaving()
        });
        pods.any(|played| {
            matches!(played.sim.stage, Stage::Init { .. })
                && driver_version(played.sim.tag()) != loaded
        })
    }

    /// Brings pauses forward; returns when to look again.
    pub(super) async fn advance_pauses(&mut self) -> Option<Instant> {
        let driver = self.advance_driver().await;
        let mig = self.advance_mig().await;
        [driver, mig].into_iter().flatten().min()
    }

    async fn advance_driver(&mut self) -> Option<Instant> {
        match self.pause.driver.clone() {
            None if self.must_unload() => {
                if !self.pause_labels(&DRIVER_CLIENTS, FOR_DRIVER, None).await {
                    return Some(soon());
                }
                self.pause.driver = Some(Change::Pausing);
                Some(soon())
            }
            None => None,
            Some(_) if self.any_left(&DRIVER_CLIENTS) => Some(soon()),
            Some(_) => {
                if !self.restore_labels(&DRIVER_CLIENTS, FOR_DRIVER, None).await {
                    return Some(soon());
                }
                self.driver = None;
                self.pause.driver = None;
                // The gate of the driver pod is open now.
                Some(Instant::now())
            }
        }
    }

    async fn advance_mig(&mut self) -> Option<Instant> {
        let node = self.node.clone()?;
        match self.pause.mig.clone() {
            None => {
                let wanted = node.labels().get(MIG_CONFIG)?.clone();
                self.pods.values().find(|played| {
                    played.sim.app == "nvidia-mig-manager" && played.sim.is_ready()
                })?;
                if self.pause.mig_done.as_ref() == Some(&wanted) {
                    return None;
                }
                if self.matches(&wanted).await {
                    return self.finish_mig(wanted, "success").await;
                }
                if !self
                    .pause_labels(&MIG_CLIENTS, FOR_MIG, Some("pending"))
                    .await
                {
                    return Some(soon());
                }
                self.pause.mig = Some((wanted, Change::Pausing));
                Some(soon())
            }
            Some((_, Change::Pausing))
                if self.any_left(&MIG_CLIENTS)
                    || faults::mig(&self.annotations) == Some("stuck") =>
            {
                Some(soon())
            }
            Some((wanted, Change::Pausing)) => {
                let until = Instant::now() + MIG_CHANGE.mul_f64(self.world.settings.pace);
                self.pause.mig = Some((wanted, Change::Making(until)));
                Some(until)
            }
            Some((_, Change::Making(until))) if Instant::now() < until => Some(until),
            Some((wanted, Change::Making(_))) => {
                let state = match self.new_layout(&wanted).await {
                    Ok(layout) => {
                        self.hardware.layout = layout;
                        "success"
                    }
                    Err(reason) => {
                        tracing::info!(node = self.name, "MIG manager: {reason}");
                        "failed"
                    }
                };
                self.finish_mig(wanted, state).await
            }
        }
    }

    async fn new_layout(&self, wanted: &str) -> Result<Vec<CardLayout>, String> {
        if faults::mig(&self.annotations) == Some("failed") {
            return Err("failed on cue".to_owned());
        }
        let manager = self
            .pods
            .values()
            .find(|played| played.sim.app == "nvidia-mig-manager");
        let manager = manager.ok_or("the MIG manager's pod is gone")?;
        mig::layout(
            &self.world,
            &manager.sim,
            wanted,
            self.hardware.product,
            self.hardware.cards,
        )
        .await
    }

    /// Whether the cards are as wanted already.
    async fn matches(&self, wanted: &str) -> bool {
        let Ok(layout) = self.new_layout(wanted).await else {
            return false;
        };
        let off = |layout: &[CardLayout]| layout.iter().all(CardLayout::is_empty);
        layout == self.hardware.layout || (off(&layout) && off(&self.hardware.layout))
    }

    async fn finish_mig(&mut self, wanted: String, state: &str) -> Option<Instant> {
        if !self
            .restore_labels(&MIG_CLIENTS, FOR_MIG, Some(state))
            .await
        {
            return Some(soon());
        }
        self.pause.mig = None;
        self.pause.mig_done = Some(wanted);
        Some(Instant::now())
    }

    fn any_left(&self, clients: &[(&str, &str)]) -> bool {
        self.pods
            .values()
            .any(|played| clients.iter().any(|(_, app)| played.sim.app == *app))
    }

    /// `true` becomes the pause value; any other value is somebody's and stays.
    async fn pause_labels(
        &self,
        clients: &[(&str, &str)],
        value: &str,
        mig_state: Option<&str>,
    ) -> bool {
        self.rewrite(clients, "true", value, mig_state).await
    }

    async fn restore_labels(
        &self,
        clients: &[(&str, &str)],
        value: &str,
        mig_state: Option<&str>,
    ) -> bool {
        self.rewrite(clients, value, "true", mig_state).await
    }

    async fn rewrite(
        &self,
        clients: &[(&str, &str)],
        from: &str,
        to: &str,
        mig_state: Option<&str>,
    ) -> bool {
        let Some(node) = &self.node else {
            return true;
        };
        let keys = clients
            .iter()
            .map(|(component, _)| format!("{DEPLOY}{component}"));
        let current = keys.filter(|key| node.labels().get(key).is_some_and(|value| value == from));
        let mut changes: BTreeMap<String, Option<String>> =
            current.map(|key| (key, Some(to.to_owned()))).collect();
        if let Some(state) = mig_state
            .filter(|state| node.labels().get(MIG_STATE).map(String::as_str) != Some(*state))
        {
            changes.insert(MIG_STATE.to_owned(), Some(state.to_owned()));
        }
        let manager = if mig_state.is_some() {
            "mig-manager"
        } else {
            "k8s-driver-manager"
        };
        changes.is_empty() || writes::labels(&self.world, &self.name, &changes, manager).await
    }
}
