//! What a check works with.

use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::observe::{Exporter, Own};
use crate::scrape::Limits;
use jiff::SignedDuration;
use kube::Client;
use parking_lot::Mutex;
use std::time::Duration;
use tessera_api::NodeFacts;
use tessera_runtime::drain::Drain;
use tessera_runtime::events::Events;
use tessera_runtime::operation::Operations;
use tessera_runtime::watch::Store;

/// Clients, stores and settings.
pub struct Context {
    /// For the status.
    pub client: Client,
    /// Longest time of one API request.
    pub request_timeout: Duration,
    /// Name of the SREAgent.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Events.
    pub events: Events,
    /// Metrics.
    pub metrics: Metrics,
    /// The SREAgent: one object at most.
    pub own: Store<Own>,
    /// All nodes.
    pub nodes: Store<NodeFacts>,
    /// All exporter pods.
    pub exporters: Store<Exporter>,
    /// The per-node lock.
    pub operations: Operations,
    /// Cordon and uncordon.
    pub drain: Drain,
    /// Limits of scraping.
    pub limits: Limits,
    /// Clean time before release.
    pub probation: SignedDuration,
    /// Time after a boot without isolation.
    pub boot_grace: SignedDuration,
    /// What is remembered between checks; `None` before the first.
    pub memory: Mutex<Option<Memory>>,
}
