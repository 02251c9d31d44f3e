//! Writes the entries of the webhook configurations.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _};
use tessera_runtime::clients::within;
use tessera_runtime::clock;
use tessera_runtime::watch::{ObjectKey, Store, version};

use super::{Keeper, KeeperError};
use crate::configuration::{self, Entry, Live};

/// Shortest time between two writes of a configuration: two versions of this program may disagree for as long as a roll-out takes.
const PACE: Duration = Duration::from_secs(2);

/// At once, once more.
const SOON: Duration = Duration::from_millis(10);

impl Keeper {
    /// Brings a configuration's entries to what they should be; when to look again if it is not yet time.
    pub(super) async fn publish<E: Entry>(
        &mut self,
        store: &Store<Live<E>>,
        wanted: &[E],
    ) -> Result<Duration, KeeperError> {
        let settings = &self.context.settings;
        let name = &settings.configuration;
        let kind = E::Configuration::kind(&());
        let Some(live) = store.get_cluster(name).filter(|live| !live.deleting) else {
            return Ok(Duration::MAX);
        };
        if live.has(wanted) {
            return Ok(Duration::MAX);
        }
        let now = clock::now();
        // Nobody is asked before somebody can answer, and before the Service leads there.
        let wait = match (live.bundles().is_empty(), self.able) {
            (true, None) => Duration::from_millis(200),
            (true, Some(since)) => {
                (since + settings.lifetimes.settle).saturating_duration_since(now)
            }
            (false, _) => self
                .applied
                .get(kind.as_ref())
                .map_or(Duration::ZERO, |at| {
                    (*at + PACE).saturating_duration_since(now)
                }),
        };
        if !wait.is_zero() {
            return Ok(wait);
        }
        let body = configuration::patch(name, wanted)?;
        let api: Api<E::Configuration> = Api::all(self.context.client.clone());
        let params = PatchParams::apply(crate::FIELD_MANAGER).force();
        let patch = Patch::Apply(&body);
        let sent = api.patch(name, &params, &patch);
        let written = match within(settings.request_timeout, sent).await {
            Ok(written) => written,
            // Before 1.27 the field is not even known.
            Err(error) if self.conditions && error.to_string().contains("matchConditions") => {
                self.without_conditions();
                return Ok(SOON);
            }
            Err(source) => {
                return Err(KeeperError::Write {
                    what: "the webhook configuration cannot be written",
                    source: Box::new(source),
                });
            }
        };
        tracing::info!(%kind, configuration = %name, "published the entries of the webhook configuration");
        self.applied.insert(kind.into_owned(), now);
        let key = ObjectKey::cluster(name.clone());
        let version = version(&written);
        let live = Live::of(written);
        if live.lacks_conditions(wanted) {
            self.without_conditions();
        }
        store.observe(key, version, live);
        // What is published decides what is served.
        Ok(SOON)
    }

    fn without_conditions(&mut self) {
        self.conditions = false;
        tracing::warn!(
            "this API server serves no match conditions (before Kubernetes 1.28 they are off): policies and agents are judged at every \
             update, and Pods are left as they are"
        );
    }
}
