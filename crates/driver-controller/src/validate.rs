//! From a policy and what was observed to one strongly typed plan. Every user error that is left after
//! [`tessera_api::effective`] is found here.

mod configs;

pub use configs::{ConfigFacts, MountedConfig};

use crate::fleet::Census;
use crate::pools::{DriverPool, ToolkitPool};
use configs::Configs;
use std::collections::BTreeMap;
use tessera_api::EffectivePolicy;
use tessera_api::conditions::Reason;
use tessera_api::effective::Operand;

/// What is to be done, per component.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated<'a> {
    /// The policy.
    pub policy: &'a EffectivePolicy,
    /// Driver DaemonSets.
    pub driver: Part<DriverPlan>,
    /// Toolkit DaemonSets.
    pub toolkit: Part<ToolkitPlan>,
    /// Validator DaemonSet.
    pub validator: Part<()>,
}

/// A component's plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Part<T> {
    /// The policy turns it off: its objects go.
    Off,
    /// Its part of the policy cannot be used: its objects stay as they are.
    Unusable {
        /// Why.
        reason: Reason,
        /// What, where, and what to do.
        message: String,
    },
    /// It is wanted like this.
    On(T),
}

impl<T> Part<T> {
    /// The plan, if there is one.
    pub fn plan(&self) -> Option<&T> {
        match self {
            Self::On(plan) => Some(plan),
            Self::Off | Self::Unusable { .. } => None,
        }
    }

    fn of(operand: &Operand, plan: impl FnOnce() -> Result<T, (Reason, String)>) -> Self {
        if !operand.enabled {
            return Self::Off;
        }
        if let Some(why) = &operand.invalid {
            return Self::Unusable {
                reason: Reason::InvalidSpec,
                message: why.clone(),
            };
        }
        match plan() {
            Ok(plan) => Self::On(plan),
            Err((reason, message)) => Self::Unusable { reason, message },
        }
    }
}

/// The driver's DaemonSets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriverPlan {
    /// One DaemonSet each.
    pub pools: Vec<DriverPool>,
    /// Package repositories.
    pub repo: Option<MountedConfig>,
    /// Certificates.
    pub certs: Option<MountedConfig>,
    /// Kernel module parameters.
    pub modules: Option<MountedConfig>,
    /// Content hashes of the other ConfigMaps that the driver reads (licence, topology), by name.
    pub hashes: BTreeMap<String, String>,
}

/// The toolkit's DaemonSets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolkitPlan {
    /// One DaemonSet each.
    pub pools: Vec<ToolkitPool>,
}

/// Makes the plan. `configs` are the ConfigMaps of the operands' namespace.
pub fn validate<'a>(
    policy: &'a EffectivePolicy,
    namespace: &str,
    census: &Census,
    configs: &BTreeMap<String, std::sync::Arc<ConfigFacts>>,
) -> Validated<'a> {
    let configs = Configs {
        namespace,
        known: configs,
    };
    Validated {
        policy,
        driver: Part::of(&policy.driver.operand, || driver(policy, census, &configs)),
        toolkit: Part::of(&policy.toolkit.operand, || {
            Ok(ToolkitPlan {
                pools: census.toolkits.keys().copied().collect(),
            })
        }),
        validator: Part::of(&policy.validator.operand, || Ok(())),
    }
}

fn driver(
    policy: &EffectivePolicy,
    census: &Census,
    configs: &Configs<'_>,
) -> Result<DriverPlan, (Reason, String)> {
    let driver = &policy.driver;
    let pools: Vec<DriverPool> = census.drivers.keys().cloned().collect();
    // Precompiled images install nothing, so they read neither repositories nor certificates.
    let installs = |name: &Option<String>| name.clone().filter(|_| !driver.use_precompiled);
    let (repo, certs) = (installs(&driver.repo_config), installs(&driver.cert_config));
    for (path, wanted) in [
        ("driver.repoConfig.configMapName", &repo),
        ("driver.certConfig.name", &certs),
    ] {
        let unknown = pools
            .iter()
            .find(|pool| wanted.is_some() && configs::package_paths(&pool.os.id).is_none());
        if let Some(pool) = unknown {
            let message = format!(
                "spec.{path}: where {} keeps its package sources is not known, so nothing can be mounted there: remove the field",
                pool.os.tag()
            );
            return Err((Reason::ConfigInvalid, message));
        }
    }
    let mut hashes = BTreeMap::new();
    let licence = driver
        .licensing
        .as_ref()
        .filter(|licence| licence.secret_name.is_none());
    let keyed = [
        (
            "driver.virtualTopology.config",
            driver.virtual_topology.as_ref(),
            configs::TOPOLOGY_FILE,
        ),
        (
            "driver.licensingConfig.configMapName",
            licence.and_then(|l| l.config_map_name.as_ref()),
            configs::LICENCE_FILE,
        ),
    ];
    for (path, name, key) in keyed {
        if let Some(name) = name {
            hashes.insert(name.clone(), configs.with_key(path, name, key)?);
        }
    }
    Ok(DriverPlan {
        pools,
        repo: configs.mounted("driver.repoConfig.configMapName", repo.as_ref())?,
        certs: configs.mounted("driver.certConfig.name", certs.as_ref())?,
        modules: configs.mounted(
            "driver.kernelModuleConfig.name",
            driver.kernel_module_config.as_ref(),
        )?,
        hashes,
    })
}

pub(crate) use configs::{LICENCE_FILE, TOKEN_FILE, TOPOLOGY_FILE, package_paths};

#[cfg(test)]
mod tests;
