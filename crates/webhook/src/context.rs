//! What all parts of the process share.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, ValidatingWebhook};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher;
use kube::{Api, Client};
use tessera_runtime::Process;
use tessera_runtime::health::Health;
use tessera_runtime::watch::Store;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::args::Settings;
use crate::certificates::Served;
use crate::certificates::secret::CaSecret;
use crate::configuration::{Entry, Live};
use crate::facts::Stores;
use crate::metrics::WebhookMetrics;

/// Clients, stores and settings.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) client: Client,
    pub(crate) health: Health,
    pub(crate) metrics: WebhookMetrics,
    /// What new connections are served with.
    pub(crate) served: Arc<Served>,
    /// The one CA Secret; none when certificates are given.
    pub(crate) secret: Option<Store<CaSecret>>,
    /// The one configuration for our own kinds.
    pub(crate) validating: Store<Live<ValidatingWebhook>>,
    /// The one for Pods.
    pub(crate) mutating: Store<Live<MutatingWebhook>>,
    /// What the rules compare with.
    pub(crate) stores: Stores,
    /// Secret or configurations have changed.
    pub(crate) changed: Arc<Notify>,
    /// The process ends.
    pub(crate) end: CancellationToken,
}

impl Context {
    /// Starts all watches.
    pub(crate) fn new(process: &mut Process, settings: Settings) -> Self {
        let client = process.client();
        let changed = Arc::new(Notify::new());
        let secret = settings.certificate_dir.is_none().then(|| {
            let wake = Arc::clone(&changed);
            process.watch(
                Api::<Secret>::namespaced(client.clone(), &settings.namespace),
                watcher::Config::default().fields(&format!("metadata.name={}", settings.ca_secret)),
                |secret| Some(CaSecret::of(&secret)),
                move |_| wake.notify_one(),
            )
        });
        Self {
            validating: kept(process, &settings.configuration, &changed),
            mutating: kept(process, &settings.configuration, &changed),
            stores: Stores::watch(process, &settings.namespace),
            health: process.health(),
            metrics: WebhookMetrics::register(&process.metrics()),
            served: Arc::default(),
            end: process.watch_context().end,
            client,
            secret,
            changed,
            settings,
        }
    }

    /// The bundles of all published entries of ours.
    pub(crate) fn bundles(&self) -> Vec<Vec<u8>> {
        let name = &self.settings.configuration;
        let validating = self.validating.get_cluster(name);
        let mutating = self.mutating.get_cluster(name);
        let validating = validating.iter().flat_map(|live| live.bundles());
        let mutating = mutating.iter().flat_map(|live| live.bundles());
        validating.chain(mutating).map(<[u8]>::to_vec).collect()
    }
}

/// Watches a configuration by its name.
fn kept<E: Entry>(process: &mut Process, name: &str, changed: &Arc<Notify>) -> Store<Live<E>> {
    let wake = Arc::clone(changed);
    process.watch(
        Api::<E::Configuration>::all(process.client()),
        watcher::Config::default().fields(&format!("metadata.name={name}")),
        |configuration| Some(Live::of(configuration)),
        move |_| wake.notify_one(),
    )
}
