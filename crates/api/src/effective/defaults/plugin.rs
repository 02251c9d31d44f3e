//! Device plugin, feature discovery, sharing, MIG.

use std::collections::BTreeMap;

use super::{Builder, name, text};
use crate::{
    effective::{
        Component, DevicePlugin, Gfd, Mig, MigManager, PluginConfig, SharedResources, Sharing,
    },
    image::ImageKind,
    names::MIG_RESOURCE_PREFIX,
    policy::{ClusterPolicySpec, MigDefault, MigStrategy, SharedResourcesSpec},
    shares::{MAX_MPS_CLIENTS, MAX_TIME_SLICES, shared_name},
    units::{MemoryLimit, UnitError},
};

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
            memory_limit: self.memory_limit(spec),
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
                Sharing::TimeSlicing(self.shared("timeSlicing", &slicing.shared(), MAX_TIME_SLICES))
            }
            (None, Some(mps)) => Sharing::Mps(self.shared("mps", &mps, MAX_MPS_CLIENTS)),
            (Some(slicing), Some(_)) => {
                let message = "has both timeSlicing and mps, and a card can be shared in one way only: remove one of them";
                self.problem(
                    Component::DevicePlugin,
                    "devicePlugin.config.sharing",
                    message,
                );
                Sharing::TimeSlicing(self.shared("timeSlicing", &slicing.shared(), MAX_TIME_SLICES))
            }
        })
    }

    fn shared(&mut self, kind: &str, section: &SharedResourcesSpec, most: u32) -> SharedResources {
        let path = format!("devicePlugin.config.sharing.{kind}.resources");
        let mut resources = BTreeMap::new();
        let mut wrong = |path: &str, message: String| {
            self.problem(Component::DevicePlugin, path, message);
        };
        let list = section.resources.as_deref().unwrap_or_default();
        if list.is_empty() {
            wrong(&path, "is empty, which the device plugin does not accept: name a resource such as {name: nvidia.com/gpu, replicas: 4}, \
                          or remove the section".into());
        }
        for (index, entry) in list.iter().enumerate() {
            let name = match shared_name(&entry.name) {
                Ok(name) => name,
                Err(error) => {
                    wrong(&format!("{path}[{index}].name"), error.to_string());
                    continue;
                }
            };
            match u32::try_from(entry.replicas) {
                Ok(replicas @ 1..) if replicas <= most => {
                    if resources.insert(name.clone(), replicas).is_some() {
                        let here = format!("{path}[{index}].name");
                        wrong(&here, format!("is `{name}` a second time: keep one entry"));
                    }
                }
                _ => wrong(
                    &format!("{path}[{index}].replicas"),
                    format!(
                        "is `{}`, and {name} can be shared by at most {most} containers: write a number from 1 (not shared) to {most}",
                        entry.replicas
                    ),
                ),
            }
        }
        SharedResources {
            resources,
            rename_by_default: section.rename_by_default.unwrap_or(false),
            fail_requests_greater_than_one: section.fail_requests_greater_than_one.unwrap_or(true),
        }
    }

    fn memory_limit(&mut self, spec: &ClusterPolicySpec) -> MemoryLimit {
        let config = spec.device_plugin.as_ref().and_then(|p| p.config.as_ref());
        let slicing = config
            .and_then(|c| c.sharing.as_ref())
            .and_then(|s| s.time_slicing.as_ref());
        let Some(given) = slicing.and_then(|s| s.memory_limit.as_deref()) else {
            return MemoryLimit::Auto;
        };
        given.parse().unwrap_or_else(|error: UnitError| {
            let path = "devicePlugin.config.sharing.timeSlicing.memoryLimit";
            self.problem(Component::DevicePlugin, path, error.to_string());
            MemoryLimit::Auto
        })
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
