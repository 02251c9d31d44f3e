//! What a reconcile works with.

use kube::Client;
use std::time::Duration;
use tessera_runtime::apply::{Applier, Owned};
use tessera_runtime::events::Events;
use tessera_runtime::watch::{ObjectKey, Store};

use crate::args::Settings;
use crate::observe::{Agent, AgentPod};

/// One SREAgent.
pub(crate) type Key = ObjectKey;

/// Clients, stores and settings.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) limit: Duration,
    pub(crate) events: Events,
    pub(crate) settings: Settings,
    pub(crate) applier: Applier,
    pub(crate) agents: Store<Agent>,
    pub(crate) deployments: Store<Owned>,
    pub(crate) cluster_bindings: Store<Owned>,
    pub(crate) namespaced: Vec<Store<Owned>>,
    pub(crate) pods: Store<AgentPod>,
}
