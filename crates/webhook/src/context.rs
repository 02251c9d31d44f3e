//! What all parts of the process share.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
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
use crate::configuration::Live;
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
    /// The one configuration.
    pub(crate) configuration: Store<Live>,
    /// What the rules compare with.
    pub(crate) stores: Stores,
    /// Secret or configuration have changed.
    pub(crate) changed: Arc<Notify>,
    /// The process ends.
    pub(crate) end: CancellationToken,
}

impl Context {
    /// Starts all watches.
    pub(crate) fn new(process: &mut Process, settings: Settings) -> Self {
        let client = process.client();
        let changed = Arc::new(Notify::new());
        let named =
            |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        let secret = settings.certificate_dir.is_none().then(|| {
            let wake = Arc::clone(&changed);
            process.watch(
                Api::<Secret>::namespaced(client.clone(), &settings.namespace),
                named(&settings.ca_secret),
                |secret| Some(CaSecret::of(&secret)),
                move |_| wake.notify_one(),
            )
        });
        let wake = Arc::clone(&changed);
        let configuration = process.watch(
            Api::<ValidatingWebhookConfiguration>::all(client.clone()),
            named(&settings.configuration),
            |configuration| Some(Live::of(configuration)),
            move |_| wake.notify_one(),
        );
        Self {
            stores: Stores::watch(process, &settings.namespace),
            health: process.health(),
            metrics: WebhookMetrics::register(&process.metrics()),
            served: Arc::default(),
            end: process.watch_context().end,
            client,
            secret,
            configuration,
            changed,
            settings,
        }
    }
}
