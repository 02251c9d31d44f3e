//! Everything that a reconcile knows, as plain data; read from stores only.

use crate::context::Context;
use crate::index::Summary;
use crate::referenced::MapState;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_api::effective::{EffectivePolicy, PluginConfig, Resolution};
use tessera_api::names::app;
use tessera_runtime::operands::Rollout;
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::watch::ObjectKey;

/// State of the ConfigMaps that the policy names.
pub type Maps = BTreeMap<String, MapState>;

/// What runs, for the report.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Counts of each DaemonSet that exists.
    pub rollouts: BTreeMap<&'static str, Rollout>,
    /// Pods that are not ready.
    pub troubled: Vec<Arc<PodFacts>>,
    /// Nodes that are not as they should be.
    pub nodes: Summary,
}

/// The DaemonSets of this controller.
pub const DAEMON_SETS: [&str; 4] = [app::DEVICE_PLUGIN, app::GFD, app::MPS, app::MIG_MANAGER];

/// What the policies mean.
pub fn resolution(context: &Context) -> Arc<Resolution> {
    context.policies.resolve()
}

/// Names of the ConfigMaps that a policy refers to and this controller reads.
pub fn referenced(policy: &EffectivePolicy) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let reads_config = policy.device_plugin.operand.enabled || policy.gfd.operand.enabled;
    if let PluginConfig::ConfigMap { name, .. } = &policy.device_plugin.config
        && reads_config
    {
        names.insert(name.clone());
    }
    if policy.mig_manager.operand.enabled {
        names.extend(policy.mig_manager.config_map.clone());
        names.extend(policy.mig_manager.gpu_clients_config.clone());
    }
    names
}

/// Makes sure that they are watched, and says what is known of them.
pub fn maps(context: &Context, policy: Option<&EffectivePolicy>) -> Maps {
    let names = policy.map(referenced).unwrap_or_default();
    context.referenced.watch(names.clone());
    names
        .into_iter()
        .map(|name| (name.clone(), context.referenced.get(&name)))
        .collect()
}

/// What runs now.
pub fn observe(context: &Context) -> Observed {
    let rollout = |name: &&'static str| {
        let live = context
            .daemon_sets
            .get(&ObjectKey::namespaced(&context.namespace, *name))?;
        Some((*name, Rollout::of(&live)))
    };
    let troubled = context.troubled.list();
    let unready = troubled
        .iter()
        .filter(|pod| pod.app == app::DEVICE_PLUGIN)
        .map(|pod| pod.node.as_str())
        .collect();
    let nodes = context.index.summary(&unready);
    Observed {
        rollouts: DAEMON_SETS.iter().filter_map(rollout).collect(),
        troubled,
        nodes,
    }
}
