//! Device plugin, feature discovery, sharing, MIG.

use std::collections::BTreeMap;

use super::{Builder, name, text};
use crate::{
    effective::{
        Component, DevicePlugin, Gfd, Mig, MigManager, PluginConfig, SharedResources, Sharing,
    },
    image::ImageKind,
    names::{GPU_RESOURCE, MIG_RESOURCE_PREFIX},
    policy::{ClusterPolicySpec, MigDefault, MigStrategy, SharedResourcesSpec},
};

/// The most replicas of a card.
const MAX_REPLICAS: u32 = 64;
/// The most clients of an MPS server (compute capability 7.5 and later; 16 before, which only the node can tell).
const MAX_MPS_REPLICAS: u32 = 48;

impl Builder<'_> {
    pub(super) fn device_plugin(&mut self, spec: &ClusterPolicySpec) -> DevicePlugin {
        let section = spec.device_plugin.as_ref();
        let config = self.plugin_config(spec);
        self.check_mig(spec, &config);
        let root = section
            .and_then(|s| s.mps.as_ref())
            .and_then(|m| m.root.as_ref());
        DevicePlugin {
            operand: self.operand(
                Component::DevicePlugin,
                "devicePlugin",
                section,
                true,
                ImageKind::DevicePlugin,
            ),
            config,
            mps_root: text(root, "/run/nvidia/mps"),
        }
    }

    fn plugin_config(&mut self, spec: &ClusterPolicySpec) -> PluginConfig {
        let section = spec
            .device_plugin
            .as_ref()
            .and_then(|s| s.config.clone())
            .unwrap_or_default();
        let sharing = section.sharing;
        if let Some(name) = name(section.name) {
            if sharing.is_some() {
                let message = format!(
                    "is `{name}` beside devicePlugin.config.sharing, two sources of one configuration: remove one of them"
                );
                self.problem(Component::DevicePlugin, "devicePlugin.config.name", message);
            }
            return PluginConfig::ConfigMap {
                name,
                default: super::name(section.default),
            };
        }
        let sharing = sharing.unwrap_or_default();
        PluginConfig::Inline(match (sharing.time_slicing, sharing.mps) {
            (None, None) => Sharing::None,
            (Some(slicing), None) => {
                Sharing::TimeSlicing(self.shared("timeSlicing", &slicing, MAX_REPLICAS))
            }
            (None, Some(mps)) => Sharing::Mps(self.shared("mps", &mps, MAX_MPS_REPLICAS)),
            (Some(slicing), Some(_)) => {
                let message = "has both timeSlicing and mps, and a card can be shared in one way only: remove one of them";
                self.problem(
                    Component::DevicePlugin,
                    "devicePlugin.config.sharing",
                    message,
                );
                Sharing::TimeSlicing(self.shared("timeSlicing", &slicing, MAX_REPLICAS))
            }
        })
    }

    fn shared(&mut self, kind: &str, section: &SharedResourcesSpec, most: u32) -> SharedResources {
        let path = format!("devicePlugin.config.sharing.{kind}.resources");
        let mut resources = BTreeMap::new();
        let mut wrong = |message: String| self.problem(Component::DevicePlugin, &path, message);
        let list = section.resources.as_deref().unwrap_or_default();
        if list.is_empty() {
            wrong("is empty, which the device plugin does not accept: name a resource such as {name: nvidia.com/gpu, replicas: 4}".into());
        }
        for entry in list {
            let name = full_name(&entry.name);
            if let Err(message) = check_name(&name) {
                wrong(message);
                continue;
            }
            match u32::try_from(entry.replicas) {
                Ok(replicas @ 1..) if replicas <= most => {
                    if resources.insert(name.clone(), replicas).is_some() {
                        wrong(format!("names {name} twice: keep one entry"));
                    }
                }
                _ => wrong(format!(
                    "replicas of {name} is {}: write a number from 1 (not shared) to {most}",
                    entry.replicas
                )),
            }
        }
        SharedResources {
            resources,
            rename_by_default: section.rename_by_default.unwrap_or(false),
            fail_requests_greater_than_one: section.fail_requests_greater_than_one.unwrap_or(true),
        }
    }

    /// What MIG and sharing allow together (reference sharing-mig-monitoring 1.3 and 2.4).
    fn check_mig(&mut self, spec: &ClusterPolicySpec, config: &PluginConfig) {
        let PluginConfig::Inline(sharing) = config else {
            return;
        };
        let strategy = strategy(spec);
        let mig_on = matches!(strategy, MigStrategy::Single | MigStrategy::Mixed);
        let path = "devicePlugin.config.sharing";
        match sharing {
            Sharing::Mps(_) if mig_on && sharing.is_active() => {
                let message = format!(
                    "uses mps while mig.strategy is {strategy}: set mig.strategy to none, or remove mps"
                );
                self.problem(Component::DevicePlugin, path, message);
            }
            Sharing::TimeSlicing(shared) => {
                let names: Vec<&str> = shared.shared().map(|(name, _)| name).collect();
                let instances = names
                    .iter()
                    .filter(|name| name.starts_with(MIG_RESOURCE_PREFIX))
                    .count();
                if mig_on && names.len() > instances
                    || strategy == MigStrategy::Single && !names.is_empty()
                {
                    let message = format!(
                        "shares whole cards while mig.strategy is {strategy}: set mig.strategy to none, or to mixed and share only \
                         nvidia.com/mig-<profile> resources"
                    );
                    self.problem(Component::DevicePlugin, path, message);
                } else if instances > 0 && !mig_on {
                    let message = "shares nvidia.com/mig-<profile>, which exists only with mig.strategy mixed: set it to mixed";
                    self.problem(Component::DevicePlugin, path, message);
                }
            }
            Sharing::Mps(_) | Sharing::None => {}
        }
    }

    pub(super) fn gfd(&mut self, spec: &ClusterPolicySpec) -> Gfd {
        Gfd {
            operand: self.operand(
                Component::Gfd,
                "gfd",
                spec.gfd.as_ref(),
                true,
                ImageKind::Gfd,
            ),
        }
    }

    pub(super) fn mig(&mut self, spec: &ClusterPolicySpec) -> Mig {
        if spec.mig.as_ref().and_then(|m| m.strategy) == Some(MigStrategy::Unrecognised) {
            let message = "is not one of none, single, mixed: write one of them";
            self.problem(Component::DevicePlugin, "mig.strategy", message);
            self.problem(Component::Gfd, "mig.strategy", message);
        }
        Mig {
            strategy: strategy(spec),
        }
    }

    pub(super) fn mig_manager(&mut self, spec: &ClusterPolicySpec) -> MigManager {
        let section = spec.mig_manager.as_ref();
        let operand = self.operand(
            Component::MigManager,
            "migManager",
            section,
            true,
            ImageKind::MigManager,
        );
        let section = section.cloned().unwrap_or_default();
        let config = section.config.unwrap_or_default();
        let config_default = match config.default {
            None | Some(MigDefault::AllDisabled) => {
                Some(MigDefault::AllDisabled.as_str().to_owned())
            }
            Some(MigDefault::Empty) => None,
            Some(MigDefault::Unrecognised) => {
                let message = "is neither all-disabled nor empty: label nodes with nvidia.com/mig.config for any other layout";
                self.problem(Component::MigManager, "migManager.config.default", message);
                None
            }
        };
        MigManager {
            operand,
            config_map: name(config.name),
            config_default,
            gpu_clients_config: name(section.gpu_clients_config.and_then(|c| c.name)),
        }
    }
}

/// The strategy in force: as given; else single while the MIG manager is on and no sharing is set inline, as then instances of uniform
/// layouts are advertised; else none, as what is shared are whole cards.
fn strategy(spec: &ClusterPolicySpec) -> MigStrategy {
    match spec.mig.as_ref().and_then(|m| m.strategy) {
        Some(MigStrategy::Unrecognised) => MigStrategy::None,
        Some(strategy) => strategy,
        None => {
            let manager = spec
                .mig_manager
                .as_ref()
                .and_then(|m| m.enabled)
                .unwrap_or(true);
            let config = spec.device_plugin.as_ref().and_then(|p| p.config.as_ref());
            let sharing = config
                .and_then(|c| c.sharing.as_ref())
                .is_some_and(|s| s.time_slicing.is_some() || s.mps.is_some());
            if manager && !sharing {
                MigStrategy::Single
            } else {
                MigStrategy::None
            }
        }
    }
}

fn full_name(name: &str) -> String {
    if name.contains('/') {
        name.to_owned()
    } else {
        format!("nvidia.com/{name}")
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let suffix = name.strip_prefix("nvidia.com/").unwrap_or_default();
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let well_formed = suffix.chars().all(|c| letters(c) || matches!(c, '-' | '.'))
        && suffix.starts_with(letters)
        && suffix.ends_with(letters);
    if name.len() <= 63
        && well_formed
        && !name.ends_with(".shared")
        && (name == GPU_RESOURCE || !suffix.is_empty())
    {
        Ok(())
    } else {
        Err(format!(
            "`{name}` cannot be shared: write nvidia.com/gpu or nvidia.com/mig-<profile>, without .shared"
        ))
    }
}
