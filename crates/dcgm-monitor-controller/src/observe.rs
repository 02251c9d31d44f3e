//! Reads the stores into plain data.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use tessera_api::{
    EffectivePolicy, Resolution,
    names::{app, config_map, service},
};
use tessera_runtime::{
    operands::{Rollout, pod::PodFacts},
    watch::ObjectKey,
};

use crate::{
    context::Context,
    expected::{Expected, OPERANDS},
    metrics_source::{MetricsFile, UserMap},
    validate::Facts,
};

/// What is known before anything is written.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    /// The policies.
    pub resolution: Arc<Resolution>,
    /// Policies that cannot be read.
    pub unreadable: Vec<(String, String)>,
    /// The ConfigMap that the active policy names for metrics, if it exists.
    pub user_metrics: Option<Arc<UserMap>>,
    /// What our own metrics ConfigMap holds.
    pub last_metrics: Option<MetricsFile>,
    /// The host engine's DaemonSet exists.
    pub engine_exists: bool,
    /// ServiceMonitors exist as a kind.
    pub monitor_present: bool,
    /// ... and ours are known.
    pub monitor_usable: bool,
}

/// What is known after everything was written.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// By component: the DaemonSet's counts, if it exists.
    pub rollouts: BTreeMap<&'static str, Rollout>,
    /// By component: its pods.
    pub pods: BTreeMap<String, Vec<Arc<PodFacts>>>,
    /// What the nodes let expect.
    pub expected: Expected,
    /// What there is of ServiceMonitors.
    pub monitor: Monitor,
}

/// What there is of ServiceMonitors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Monitor {
    /// Not even the kind.
    #[default]
    NoKind,
    /// The kind exists, and its objects are not known yet: it was installed, or this process was started, a moment ago.
    Unknown,
    /// The kind exists, and we may not list it.
    Forbidden,
    /// The kind exists, ours does not.
    Missing,
    /// Ours exists.
    Live,
}

impl Observed {
    /// Reads.
    pub(crate) fn read(context: &Context) -> Self {
        let resolution = context.policies.resolve();
        let wanted = resolution
            .active
            .as_ref()
            .and_then(|active| active.effective.dcgm_exporter.metrics_config.clone());
        let key = |name: &str| ObjectKey::namespaced(&context.namespace, name);
        let own = context
            .config_maps
            .get(&key(config_map::DCGM_EXPORTER_METRICS));
        Self {
            user_metrics: wanted.and_then(|name| context.user_maps.get(&key(&name))),
            last_metrics: own.and_then(|own| MetricsFile::read_back(&own.decode::<ConfigMap>()?)),
            unreadable: context.policies.unreadable(),
            engine_exists: context.daemon_sets.get(&key(app::DCGM)).is_some(),
            monitor_present: context.monitors.is_present(),
            monitor_usable: context.monitors.is_usable(),
            resolution,
        }
    }

    /// For validation.
    pub(crate) fn facts<'a>(&'a self, namespace: &'a str) -> Facts<'a> {
        Facts {
            namespace,
            user_metrics: self.user_metrics.as_deref(),
            last_metrics: self.last_metrics.as_ref(),
            engine_exists: self.engine_exists,
            monitor_present: self.monitor_present,
            monitor_usable: self.monitor_usable,
        }
    }
}

impl Progress {
    /// Reads.
    pub(crate) fn read(context: &Context, policy: &EffectivePolicy, hash: &str) -> Self {
        let key = |name: &str| ObjectKey::namespaced(&context.namespace, name);
        let rollout = |name: &str| Some(Rollout::of(&*context.daemon_sets.get(&key(name))?));
        let rollouts = OPERANDS
            .iter()
            .filter_map(|(component, _, name)| Some((*component, rollout(name)?)));
        let mut pods: BTreeMap<String, Vec<Arc<PodFacts>>> = BTreeMap::new();
        for pod in context.pods.values() {
            pods.entry(pod.component.clone()).or_default().push(pod);
        }
        Self {
            rollouts: rollouts.collect(),
            pods,
            expected: context
                .memory
                .census
                .lock()
                .count(hash, policy, &context.nodes),
            monitor: Monitor::read(context),
        }
    }
}

impl Monitor {
    fn read(context: &Context) -> Self {
        let store = context.monitors.kind().store();
        let name = ObjectKey::namespaced(&context.namespace, service::NVIDIA_DCGM_EXPORTER);
        let trouble = || store.trouble().unwrap_or_default();
        match (context.monitors.is_present(), context.monitors.is_usable()) {
            (false, _) => Self::NoKind,
            (true, false) if trouble().contains("forbidden") => Self::Forbidden,
            (true, false) => Self::Unknown,
            (true, true) if store.get(&name).is_some_and(|monitor| !monitor.deleting) => Self::Live,
            (true, true) => Self::Missing,
        }
    }
}
