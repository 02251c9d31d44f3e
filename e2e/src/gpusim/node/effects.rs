//! What operands do to their Node: resources by the plugin, labels by GPU feature discovery.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;

use super::{Played, Task, soon, writes};
use crate::gpusim::config::{self, PluginConfig};
use crate::gpusim::faults;
use crate::gpusim::labels;

/// How long labels outlive the pod that made them, so that a rolling update does not make them flap.
const LABELS_STAY: Duration = Duration::from_secs(3);
const FEATURE_MANAGER: &str = "nfd-master";

/// What was written to the Node.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Name -> (capacity, allocatable).
    resources: BTreeMap<String, (u32, u32)>,
    labels: BTreeMap<String, String>,
    /// Whether the node was reported dead.
    dead: bool,
    /// Since when no feature discovery runs.
    unlabelled: Option<Instant>,
    /// Cards that the running plugin has marked unhealthy, and that plugin's uid: it never takes it back.
    unhealthy: (String, BTreeSet<u32>),
}

impl State {
    /// Takes over what the Node has already.
    pub(super) fn adopt(&mut self, node: &Node) {
        let status = node.status.clone().unwrap_or_default();
        let number = |map: &Option<BTreeMap<String, Quantity>>, name: &str| {
            map.as_ref()
                .and_then(|map| map.get(name)?.0.parse().ok())
                .unwrap_or(0)
        };
        let names = status.allocatable.iter().flatten().map(|(name, _)| name);
        self.resources = names
            .filter(|name| name.starts_with("nvidia.com/"))
            .map(|name| {
                let both = (
                    number(&status.capacity, name),
                    number(&status.allocatable, name),
                );
                (name.clone(), both)
            })
            .collect();
        let product = "nvidia.com/gpu.product";
        if node.labels().contains_key(product) {
            let found = node
                .labels()
                .iter()
                .filter(|(key, _)| is_feature_label(key));
            self.labels = found
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
        }
    }
}

fn is_feature_label(key: &str) -> bool {
    let families = [
        "nvidia.com/gpu.",
        "nvidia.com/cuda.",
        "nvidia.com/mig.",
        "nvidia.com/mig-",
        "nvidia.com/mps.",
        "nvidia.com/vgpu.",
    ];
    let foreign = [
        "nvidia.com/gpu.deploy.",
        "nvidia.com/gpu.present",
        "nvidia.com/mig.config",
        "nvidia.com/gpu.workload.",
    ];
    families.iter().any(|family| key.starts_with(family))
        && !foreign.iter().any(|prefix| key.starts_with(prefix))
}

impl Task {
    /// Brings the Node to what the operands say; returns when to look again.
    pub(super) async fn write_effects(&mut self) -> Option<Instant> {
        let resources = self.write_resources().await;
        let labels = self.write_labels().await;
        let condition = self.write_condition().await;
        [resources, labels, condition].into_iter().flatten().min()
    }

    /// A dead kubelet: what the node-lifecycle controller would report of it. Coming back is kwok's part.
    async fn write_condition(&mut self) -> Option<Instant> {
        let dead = faults::is_dead(&self.annotations);
        if dead == self.effects.dead {
            return None;
        }
        if !dead || writes::dead(&self.world, &self.name).await {
            self.effects.dead = dead;
            return None;
        }
        Some(soon())
    }

    fn ready(&self, app: &str) -> Option<(&String, &Played)> {
        self.pods
            .iter()
            .find(|(_, played)| played.sim.app == app && played.sim.is_ready())
    }

    /// The MIG strategy: the environment wins over the file, as in the plugin.
    fn mig_strategy(played: &Played, config: &PluginConfig) -> String {
        let variable = played
            .sim
            .containers()
            .iter()
            .find_map(|container| config::env(container, "MIG_STRATEGY"));
        variable
            .or(config.mig_strategy())
            .unwrap_or("none")
            .to_owned()
    }

    async fn write_resources(&mut self) -> Option<Instant> {
        let mut target: BTreeMap<String, (u32, u32)> = BTreeMap::new();
        let mut refusal = None;
        if let Some((uid, played)) = self.ready("nvidia-device-plugin-daemonset")
            && let Some((_, config)) = &played.config
        {
            let (uid, strategy) = (uid.clone(), Self::mig_strategy(played, config));
            let critical = self.cards.critical();
            let known = if self.effects.unhealthy.0 == uid {
                self.effects.unhealthy.1.clone()
            } else {
                BTreeSet::new()
            };
            let unhealthy: BTreeSet<u32> = known.union(&critical).copied().collect();
            // The kubelet counts unhealthy devices in capacity only.
            let broken = unhealthy.union(&self.cards.missing).copied().collect();
            let registered = self
                .hardware
                .resources(config, &strategy, &self.cards.missing);
            match (
                registered,
                self.hardware.resources(config, &strategy, &broken),
            ) {
                (Ok(registered), Ok(healthy)) => {
                    let pair = |(name, count)| {
                        let healthy = healthy.get(&name).copied().unwrap_or(0);
                        (name, (count, healthy))
                    };
                    target = registered.into_iter().map(pair).collect();
                }
                (Err(reason), _) | (_, Err(reason)) => refusal = Some((uid.clone(), reason)),
            }
            self.effects.unhealthy = (uid, unhealthy);
        }
        if let Some((uid, reason)) = refusal
            && let Some(played) = self.pods.get_mut(&uid)
        {
            tracing::info!(node = self.name, "device plugin: {reason}");
            played.sim.refusal = Some(reason);
        }
        // The kubelet keeps a resource that nobody registers any more, with 0 devices.
        for name in self.effects.resources.keys() {
            target.entry(name.clone()).or_insert((0, 0));
        }
        if target == self.effects.resources {
            return None;
        }
        if writes::resources(&self.world, &self.name, &target).await {
            self.effects.resources = target;
            return None;
        }
        Some(soon())
    }

    async fn write_labels(&mut self) -> Option<Instant> {
        let target = match self.ready("gpu-feature-discovery") {
            Some((_, played)) => {
                let default = PluginConfig::default();
                let config = played
                    .config
                    .as_ref()
                    .map_or(&default, |(_, config)| config);
                let strategy = Self::mig_strategy(played, config);
                let missing = u32::try_from(self.cards.missing.len()).unwrap_or(0);
                let present = self.hardware.cards.saturating_sub(missing);
                labels::of(
                    &self.hardware,
                    config,
                    &strategy,
                    self.driver_version(),
                    present,
                )
            }
            None if self.effects.labels.is_empty() => return None,
            None => {
                let since = *self.effects.unlabelled.get_or_insert_with(Instant::now);
                if since.elapsed() < LABELS_STAY {
                    return Some(since + LABELS_STAY);
                }
                BTreeMap::new()
            }
        };
        if !target.is_empty() {
            self.effects.unlabelled = None;
        }
        let mut changes: BTreeMap<String, Option<String>> = BTreeMap::new();
        changes.extend(
            self.effects
                .labels
                .keys()
                .filter(|key| !target.contains_key(*key))
                .map(|key| (key.clone(), None)),
        );
        let renewed = target
            .iter()
            .filter(|(key, value)| self.effects.labels.get(*key) != Some(*value));
        changes.extend(renewed.map(|(key, value)| (key.clone(), Some(value.clone()))));
        if changes.is_empty() {
            return None;
        }
        if writes::labels(&self.world, &self.name, &changes, FEATURE_MANAGER).await {
            self.effects.labels = target;
            return None;
        }
        Some(soon())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_feature_discoverys_labels_are_taken_over() {
        assert!(is_feature_label("nvidia.com/gpu.product"));
        assert!(is_feature_label("nvidia.com/mig.capable"));
        assert!(!is_feature_label("nvidia.com/gpu.deploy.driver"));
        assert!(!is_feature_label("nvidia.com/mig.config.state"));
        assert!(!is_feature_label("nvidia.com/gpu.present"));
    }
}
