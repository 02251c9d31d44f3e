//! Keeps the certificates and the published bundle as they should be: look, decide, act, and look again.

mod publish;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tessera_runtime::clock;
use tessera_runtime::error::{is_conflict, sentence};
use tessera_runtime::watch::{ObjectKey, Store, version};

use crate::certificates::decide::{self, Trust};
use crate::certificates::files::Given;
use crate::certificates::leaf::holds;
use crate::certificates::secret::{self, CaSecret};
use crate::certificates::{Authorities, Authority, CertificateError, Plan, Stored};
use crate::configuration;
use crate::context::Context;

/// Longest time between two looks.
const LONGEST: Duration = Duration::from_secs(30);
/// How often given certificates are read.
const REREAD: Duration = Duration::from_secs(10);

/// Readiness parts.
const CERTIFICATE: &str = "certificate";
const PUBLICATION: &str = "configuration";

/// What went wrong in one look; the next one tries again.
#[derive(Debug, thiserror::Error)]
enum KeeperError {
    #[error("{0}")]
    Certificate(#[from] CertificateError),
    #[error("{what}: {}", sentence(source))]
    Write {
        what: &'static str,
        source: Box<kube::Error>,
    },
    #[error("the configuration cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// Runs until the process ends.
pub(crate) async fn run(context: Arc<Context>) {
    context.health.not_ready(CERTIFICATE, "there is none yet");
    let mut keeper = Keeper::new(context);
    loop {
        let wait = keeper.turn().await;
        tokio::select! {
            () = keeper.context.end.cancelled() => return,
            () = keeper.context.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct Keeper {
    context: Arc<Context>,
    /// Since when all published bundles have held this authority.
    known: Option<(Authority, Instant)>,
    /// Since when this process could serve.
    able: Option<Instant>,
    /// When a configuration was written last, by kind.
    applied: BTreeMap<String, Instant>,
    /// Looks that failed in a row.
    failures: u32,
    given: Option<Given>,
    /// The API server serves match conditions, as far as is known.
    conditions: bool,
}

impl Keeper {
    fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            known: None,
            able: None,
            applied: BTreeMap::new(),
            failures: 0,
            given: None,
            conditions: true,
        }
    }

    /// One look; how long to wait for the next, if nothing happens before.
    async fn turn(&mut self) -> Duration {
        let now = clock::wall().as_second();
        self.context
            .health
            .beat("certificates", clock::now(), Duration::from_secs(120));
        if !self.is_synced() {
            return Duration::from_millis(100);
        }
        let outcome = self.look(now).await;
        self.report(now);
        match outcome {
            Ok(wait) => {
                self.failures = 0;
                self.context.health.ready(PUBLICATION);
                wait
            }
            Err(error) => {
                let text = error.to_string();
                tracing::warn!(error = %text, "certificates or configuration are not as they should be; trying again");
                self.failures = (self.failures + 1).min(5);
                // Who serves a trusted certificate stays ready: only the next one is in danger.
                if self.context.served.get().is_none() {
                    self.context.health.not_ready(PUBLICATION, text);
                }
                let given = self.context.settings.certificate_dir.is_some();
                let longest = if given { REREAD } else { LONGEST };
                Duration::from_secs(1 << self.failures).min(longest)
            }
        }
    }

    fn is_synced(&self) -> bool {
        let secret = self.context.secret.as_ref();
        self.context.validating.is_synced()
            && self.context.mutating.is_synced()
            && secret.is_none_or(Store::is_synced)
    }

    async fn look(&mut self, now: i64) -> Result<Duration, KeeperError> {
        let (bundle, wait) = if self.context.secret.is_some() {
            self.own(now).await?
        } else {
            self.files(now)?
        };
        let Some(bundle) = bundle else {
            return Ok(wait);
        };
        let context = Arc::clone(&self.context);
        let entries = configuration::validating(&context.settings, &bundle, self.conditions);
        let validating = self.publish(&context.validating, &entries).await?;
        let entries = configuration::mutating(&context.settings, &bundle, self.conditions);
        let mutating = self.publish(&context.mutating, &entries).await?;
        Ok(wait.min(validating).min(mutating))
    }

    /// Certificates of our own: the Secret first, then this replica's leaf. The bundle to publish, and when to look again.
    async fn own(&mut self, now: i64) -> Result<(Option<String>, Duration), KeeperError> {
        self.keep_secret(now).await?;
        let Stored::Usable(authorities) = self.stored() else {
            // Somebody else was faster; the watch tells.
            return Ok((None, Duration::from_secs(1)));
        };
        let lifetimes = self.context.settings.lifetimes;
        let trust = self.trust(&authorities);
        let signer = decide::signer(&authorities, trust, lifetimes, now);
        let served = self.context.served.get();
        let leaf = served.as_ref().map(|leaf| (leaf.span, leaf.by.as_ref()));
        if decide::needs_leaf(leaf, signer, now) {
            let settings = &self.context.settings;
            let names = [
                settings.dns_name(),
                format!("{}.cluster.local", settings.dns_name()),
            ];
            let leaf = signer.sign(&names, now, lifetimes.leaf)?;
            let newest = *signer == authorities.current;
            tracing::info!(
                expires = leaf.span.expires,
                by_newest_authority = newest,
                "serving with a new certificate"
            );
            self.context.served.set(leaf);
        }
        let previous = authorities.previous.as_ref();
        let spans = [
            Some(authorities.current.span),
            previous.map(|previous| previous.span),
            self.context.served.get().map(|leaf| leaf.span),
        ];
        let mut wait = decide::next_look(spans.into_iter().flatten(), now);
        let unsettled = trust
            .current
            .and_then(|known| lifetimes.settle.checked_sub(known));
        if let Some(rest) = unsettled.filter(|rest| !rest.is_zero()) {
            wait = wait.min(rest);
        }
        Ok((Some(authorities.bundle()), wait))
    }

    fn stored(&self) -> Stored {
        self.secret_object()
            .map_or(Stored::Absent, |secret| secret.stored)
    }

    fn secret_object(&self) -> Option<CaSecret> {
        let settings = &self.context.settings;
        let key = ObjectKey::namespaced(&settings.namespace, &settings.ca_secret);
        let store = self.context.secret.as_ref()?;
        store.get(&key).map(|secret| CaSecret::clone(&secret))
    }

    /// Makes, renews or mends the Secret. That somebody else was faster is no error: the watch brings what they wrote.
    async fn keep_secret(&self, now: i64) -> Result<(), KeeperError> {
        let known = self.secret_object();
        let stored = self.stored();
        let served = self.context.served.get();
        let serving = served.as_ref().and_then(|leaf| leaf.by.as_ref());
        let life = self.context.settings.lifetimes.ca;
        let next = match decide::plan(&stored, serving, now) {
            Plan::Keep => return Ok(()),
            Plan::Create(previous) => {
                tracing::info!("there is no certificate authority: making one");
                Authorities {
                    current: Authority::generate(now, life)?,
                    previous,
                }
            }
            Plan::Renew(previous, why) => {
                tracing::info!(%why, "a new certificate authority");
                Authorities {
                    current: Authority::generate(now, life)?,
                    previous,
                }
            }
            Plan::Forget => {
                let Stored::Usable(authorities) = stored else {
                    return Ok(());
                };
                Authorities {
                    previous: None,
                    ..*authorities
                }
            }
        };
        let settings = &self.context.settings;
        let api: Api<Secret> = Api::namespaced(self.context.client.clone(), &settings.namespace);
        let name = &settings.ca_secret;
        let limit = settings.request_timeout;
        match secret::write(&api, name, known.as_ref(), &next, limit).await {
            Ok(written) => {
                let key = ObjectKey::namespaced(&settings.namespace, name);
                if let Some(store) = &self.context.secret {
                    store.observe(key, version(&written), CaSecret::of(&written));
                }
                Ok(())
            }
            Err(error) if is_conflict(&error) => Ok(()),
            Err(source) => Err(KeeperError::Write {
                what: "the CA Secret cannot be written",
                source: Box::new(source),
            }),
        }
    }

    /// What the published bundles trust. Where nothing is published nobody calls, so everything is trusted.
    fn trust(&mut self, authorities: &Authorities) -> Trust {
        let bundles = self.context.bundles();
        if bundles.is_empty() {
            self.known = None;
            return Trust {
                current: Some(Duration::MAX),
                previous: true,
            };
        }
        let all = |authority: &Authority| {
            bundles
                .iter()
                .all(|bundle| holds(bundle, &authority.certificate))
        };
        let now = clock::now();
        self.known = if all(&authorities.current) {
            let since = match self.known.take() {
                Some((authority, since)) if authority == authorities.current => since,
                _ => now,
            };
            Some((authorities.current.clone(), since))
        } else {
            None
        };
        Trust {
            current: self.known.as_ref().map(|(_, since)| now - *since),
            previous: authorities.previous.as_ref().is_some_and(all),
        }
    }

    /// Certificates from files, read again whenever they have changed. Bad ones are not taken: what was served and published stays.
    fn files(&mut self, now: i64) -> Result<(Option<String>, Duration), KeeperError> {
        let Some(directory) = &self.context.settings.certificate_dir else {
            return Ok((None, LONGEST));
        };
        let given = Given::read(directory)?;
        if self.given.as_ref() != Some(&given) {
            let leaf = given.leaf()?;
            let name = self.context.settings.dns_name();
            if !leaf.is_trusted(given.bundle.as_bytes(), &name, now) {
                return Err(CertificateError::Untrusted(name).into());
            }
            tracing::info!(
                expires = leaf.span.expires,
                "serving with the given certificate"
            );
            self.context.served.set(leaf);
        }
        let bundle = given.bundle.clone();
        self.given = Some(given);
        Ok((Some(bundle), REREAD))
    }

    /// Says on `/readyz` and `/metrics` how it is.
    fn report(&mut self, now: i64) {
        let health = &self.context.health;
        let Some(leaf) = self.context.served.get() else {
            return;
        };
        self.context.metrics.expires(leaf.span.expires);
        let name = self.context.settings.dns_name();
        let bundles = self.context.bundles();
        if bundles
            .iter()
            .all(|bundle| leaf.is_trusted(bundle, &name, now))
        {
            health.ready(CERTIFICATE);
        } else {
            health.not_ready(
                CERTIFICATE,
                "the published bundle does not trust the served certificate",
            );
        }
        self.able = if health.unready().is_empty() {
            self.able.or_else(|| Some(clock::now()))
        } else {
            None
        };
    }
}
