//! From the plan to objects: pure, deterministic, cannot fail.

pub mod config_map;
pub mod driver;
pub mod runtime_class;
pub mod toolkit;
pub mod validator;

use crate::validate::{Part, Validated};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, SELinuxOptions};
use k8s_openapi::api::node::v1::RuntimeClass;
use tessera_api::names::controller;
use tessera_runtime::apply::{Desired, SerializeError};
use tessera_runtime::template::Common;

/// Component label of the driver; NVIDIA's validator looks for it.
pub const DRIVER: &str = "nvidia-driver";
/// Component label of the toolkit.
pub const TOOLKIT: &str = "container-toolkit";
/// Component label of the validator.
pub const VALIDATOR: &str = "operator-validator";
/// Component label of the RuntimeClasses.
pub const RUNTIME_CLASS: &str = "runtime-class";

/// Everything that is wanted.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// RuntimeClasses: pods that name one are refused until it exists, so they come first.
    pub runtime_classes: Vec<RuntimeClass>,
    /// ConfigMaps.
    pub config_maps: Vec<ConfigMap>,
    /// DaemonSets.
    pub daemon_sets: Vec<DaemonSet>,
    /// Components whose objects stay as they are.
    pub kept: Vec<&'static str>,
}

impl Objects {
    /// As the apply engine wants them, in the order of application.
    pub fn desired(self) -> Result<Desired, SerializeError> {
        let Self {
            runtime_classes,
            config_maps,
            daemon_sets,
            kept,
        } = self;
        let mut desired = Desired::new();
        for object in &runtime_classes {
            desired.add(object)?;
        }
        for object in &config_maps {
            desired.add(object)?;
        }
        for object in &daemon_sets {
            desired.add(object)?;
        }
        for component in kept {
            desired.keep(component);
        }
        Ok(desired)
    }
}

/// All objects of a plan.
pub fn build(validated: &Validated<'_>, namespace: &str) -> Objects {
    let policy = validated.policy;
    let common = Common::of(policy, controller::DRIVER, namespace);
    let mut objects = Objects {
        runtime_classes: runtime_class::all(policy),
        ..Objects::default()
    };
    match &validated.driver {
        Part::Off => {}
        Part::Unusable { .. } => objects.kept.push(DRIVER),
        Part::On(plan) => {
            objects
                .config_maps
                .push(config_map::startup_probe(namespace));
            objects.daemon_sets.extend(
                plan.pools
                    .iter()
                    .map(|pool| driver::daemon_set(policy, &common, plan, pool)),
            );
        }
    }
    match &validated.toolkit {
        Part::Off => {}
        Part::Unusable { .. } => objects.kept.push(TOOLKIT),
        Part::On(plan) => {
            objects.daemon_sets.extend(
                plan.pools
                    .iter()
                    .map(|pool| toolkit::daemon_set(policy, &common, *pool)),
            );
        }
    }
    match &validated.validator {
        Part::Off => {}
        Part::Unusable { .. } => objects.kept.push(VALIDATOR),
        Part::On(()) => objects
            .daemon_sets
            .push(validator::daemon_set(policy, &common)),
    }
    objects
}

/// For SELinux: the level that NVIDIA's containers run with, so that they can reach each other's files on the host.
#[must_use]
fn selinux(mut container: Container) -> Container {
    if let Some(context) = &mut container.security_context {
        context.se_linux_options = Some(SELinuxOptions {
            level: Some("s0".to_owned()),
            ..SELinuxOptions::default()
        });
    }
    container
}

#[cfg(test)]
mod tests;
