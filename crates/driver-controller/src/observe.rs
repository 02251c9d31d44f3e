//! What a reconcile of the policies decides on: plain data from the stores, no requests.

use crate::context::Context;
use crate::fleet::Census;
use crate::validate::ConfigFacts;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_api::effective::Resolution;
use tessera_runtime::apply::Owned;
use tessera_runtime::operands::pod::PodFacts;

/// Before anything is decided.
pub struct Observed {
    /// What the policies mean.
    pub resolution: Arc<Resolution>,
    /// Policies that cannot be read, and why.
    pub unreadable: Vec<(String, String)>,
    /// ConfigMaps of the operands' namespace, by name.
    pub configs: BTreeMap<String, Arc<ConfigFacts>>,
}

/// Looks at policies and ConfigMaps.
pub fn observe(context: &Context) -> Observed {
    Observed {
        resolution: context.policies.resolve(),
        unreadable: context.policies.unreadable(),
        configs: context
            .configs
            .list()
            .into_iter()
            .map(|(key, facts)| (key.name, facts))
            .collect(),
    }
}

/// After everything has been applied.
pub struct Rolled {
    /// The GPU nodes.
    pub census: Census,
    /// Our DaemonSets, by name.
    pub sets: BTreeMap<String, Arc<Owned>>,
    /// Pods of our operands, by component.
    pub pods: BTreeMap<String, Vec<Arc<PodFacts>>>,
}

/// Looks at what the objects have become.
pub fn rolled(context: &Context) -> Rolled {
    let mut pods: BTreeMap<String, Vec<Arc<PodFacts>>> = BTreeMap::new();
    for pod in context.pods.values() {
        pods.entry(pod.component.clone()).or_default().push(pod);
    }
    Rolled {
        census: context.known.fleet.read().census().clone(),
        sets: context
            .sets
            .list()
            .into_iter()
            .map(|(key, set)| (key.name, set))
            .collect(),
        pods,
    }
}
