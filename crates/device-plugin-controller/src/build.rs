//! From the validated policy to objects: pure and deterministic.

mod config_manager;
mod config_maps;
mod gfd;
mod mig_manager;
mod mps;
mod plugin;
mod pod;

use crate::validate::{Plan, Validated};
use tessera_runtime::apply::{Desired, SerializeError};

/// Labels `app.kubernetes.io/component`.
pub mod component {
    /// Device plugin and its configuration.
    pub const DEVICE_PLUGIN: &str = "device-plugin";
    /// MPS control daemon.
    pub const MPS: &str = "mps-control-daemon";
    /// Feature discovery.
    pub const GFD: &str = "gpu-feature-discovery";
    /// MIG manager and its configuration.
    pub const MIG_MANAGER: &str = "mig-manager";
}

/// Everything that should exist, ConfigMaps before the DaemonSets that read them.
pub fn build(validated: &Validated, namespace: &str) -> Result<Desired, SerializeError> {
    let mut desired = Desired::new();
    let shape = pod::Shape {
        policy: &validated.policy,
        namespace,
    };
    if validated.plugin.fault().is_some() {
        desired.keep(component::DEVICE_PLUGIN);
        desired.keep(component::MPS);
    }
    if validated.gfd.fault().is_some() {
        desired.keep(component::GFD);
    }
    if validated.mig.fault().is_some() {
        desired.keep(component::MIG_MANAGER);
    }
    let config = match (&validated.plugin, &validated.gfd) {
        (Plan::Run(config), _) | (_, Plan::Run(config)) => Some(config),
        _ => None,
    };
    for map in config
        .into_iter()
        .flat_map(|config| config_maps::plugin(namespace, config))
    {
        desired.add(&map)?;
    }
    if let Plan::Run(config) = &validated.plugin {
        desired.add(&plugin::daemon_set(&shape, config))?;
        if config.mps {
            desired.add(&mps::daemon_set(&shape, config))?;
        }
    }
    if let Plan::Run(config) = &validated.gfd {
        desired.add(&gfd::daemon_set(&shape, config))?;
    }
    if let Plan::Run(config) = &validated.mig {
        for map in config_maps::mig(namespace, config) {
            desired.add(&map)?;
        }
        desired.add(&mig_manager::daemon_set(&shape, config))?;
    }
    Ok(desired)
}
