//! Leader election on a Lease: compare-and-swap by resource version, expiry by the local monotonic clock, release
//! after the last write has ended.
//!
//! No crate that is kept up does all three (the usual ones take the lease by a patch without a resource version, or
//! believe the other machine's wall clock), so it is written here. The decisions are in [`decide`].

mod account;
pub mod decide;

use crate::args::RuntimeArgs;
use crate::clients::within;
use crate::health::Health;
use crate::metrics::Metrics;
use account::Owner;
use decide::{Decision, Observed, decide};
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch as flag;
use tokio_util::sync::CancellationToken;

/// One term of leadership. Every write checks it first; a write that needs it cannot be expressed without.
#[derive(Clone, Debug)]
pub struct Term {
    valid_until: Arc<Mutex<Option<Instant>>>,
    ended: CancellationToken,
}

/// This process is not, or no longer, the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica no longer leads; the new leader goes on")]
pub struct NotLeading;

impl Term {
    /// A term without end, for a process that runs without election.
    pub fn unlimited() -> Self {
        Self {
            valid_until: Arc::new(Mutex::new(None)),
            ended: CancellationToken::new(),
        }
    }

    fn until(deadline: Instant) -> Self {
        Self {
            valid_until: Arc::new(Mutex::new(Some(deadline))),
            ended: CancellationToken::new(),
        }
    }

    /// Fails as soon as the renew deadline has passed or the term has been ended.
    pub fn check(&self) -> Result<(), NotLeading> {
        let late = self
            .valid_until
            .lock()
            .is_some_and(|until| crate::clock::now() >= until);
        if late || self.ended.is_cancelled() {
            Err(NotLeading)
        } else {
            Ok(())
        }
    }

    /// Completes when the term ends.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    fn extend(&self, deadline: Instant) {
        *self.valid_until.lock() = Some(deadline);
    }

    fn end(&self) {
        self.ended.cancel();
    }
}

/// Candidate for the Lease named as its controller.
pub struct Election {
    api: Api<Lease>,
    name: String,
    me: String,
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
    request_timeout: Duration,
    health: Health,
    metrics: Arc<Metrics>,
    term: flag::Sender<Option<Term>>,
    owner: Owner,
}

impl Election {
    /// For `controller`, with the identity and times of `args`; `client` should serve nothing else.
    pub fn new(
        controller: &str,
        args: &RuntimeArgs,
        client: Client,
        health: Health,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            api: Api::namespaced(client, &args.namespace),
            name: controller.to_owned(),
            me: args.pod_name.clone(),
            lease_duration: args.lease_duration,
            renew_deadline: args.renew_deadline,
            retry_period: args.retry_period,
            request_timeout: args.request_timeout,
            health,
            metrics,
            term: flag::channel(None).0,
            owner: Owner::default(),
        }
    }

    /// The Lease belongs to the ServiceAccount of this process, and goes with it.
    #[must_use]
    pub fn owned_by_account(mut self) -> Self {
        self.owner = Owner::Unknown;
        self
    }

    /// The present term, and its changes.
    pub fn terms(&self) -> flag::Receiver<Option<Term>> {
        self.term.subscribe()
    }

    /// Takes part until `stop`; then keeps an own lease alive until `drained`, and releases it.
    pub async fn run(mut self, stop: CancellationToken, drained: CancellationToken) {
        let mut events = self.events();
        self.health
            .not_ready("election", "the lease has not been read yet");
        let mut observed: Option<Observed> = None;
        let mut known = false;
        while !stop.is_cancelled() {
            self.beat();
            if known {
                self.health.ready("election");
                self.owner.find(&self.api, self.request_timeout).await;
            }
            let decision = decide(observed.as_ref(), &self.me, crate::clock::now());
            let began = crate::clock::micro_time();
            let attempt = match decision {
                Decision::Wait { until } => {
                    let pause = until
                        .saturating_duration_since(crate::clock::now())
                        .min(self.retry_period * 5);
                    self.watch_until(&mut events, &mut observed, &mut known, pause, &stop)
                        .await;
                    continue;
                }
                // Until the first list has come, an absent lease proves nothing.
                Decision::Create if !known => {
                    self.watch_until(
                        &mut events,
                        &mut observed,
                        &mut known,
                        self.retry_period,
                        &stop,
                    )
                    .await;
                    continue;
                }
                Decision::Create => self.write(None, 0, &began).await,
                Decision::Take {
                    version,
                    transitions,
                } => self.write(Some(version), transitions, &began).await,
            };
            match attempt {
                Ok((lease, sent)) => {
                    // While leading nobody reads the watch: what it would have queued is stale afterwards.
                    drop(events);
                    observed = self.lead(lease, (sent, began), &stop, &drained).await;
                    (events, known) = (self.events(), false);
                }
                Err(error) => {
                    if !crate::error::is_conflict(&error) {
                        tracing::warn!(lease = %self.name, error = %crate::error::sentence(&error), "cannot acquire the lease");
                    }
                    let pause = self.retry_period.mul_f64(0.5 + crate::backoff::jitter());
                    self.watch_until(&mut events, &mut observed, &mut known, pause, &stop)
                        .await;
                }
            }
        }
    }

    fn events(&self) -> BoxStream<'static, watcher::Result<watcher::Event<Lease>>> {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        watcher(self.api.clone(), config).default_backoff().boxed()
    }

    /// Renews until stopped or too late. Returns what is known of the lease afterwards.
    async fn lead(
        &self,
        mut lease: Observed,
        (acquired, began): (Instant, MicroTime),
        stop: &CancellationToken,
        drained: &CancellationToken,
    ) -> Option<Observed> {
        let term = Term::until(acquired + self.renew_deadline);
        let mut deadline = acquired + self.renew_deadline;
        tracing::info!(lease = %self.name, identity = %self.me, transitions = lease.transitions, "leading");
        self.metrics.set_leader(true);
        self.health.ready("election");
        self.term.send_replace(Some(term.clone()));
        let mut pause = self.retry_period;
        let released = loop {
            tokio::select! {
                () = drained.cancelled() => break true,
                () = tokio::time::sleep(pause) => {}
            }
            self.beat();
            if crate::clock::now() >= deadline {
                break false;
            }
            match self
                .write(Some(lease.version.clone()), lease.transitions, &began)
                .await
            {
                Ok((renewed, sent)) => {
                    lease = renewed;
                    deadline = sent + self.renew_deadline;
                    term.extend(deadline);
                    pause = self.retry_period;
                }
                Err(error)
                    if crate::error::is_conflict(&error) || crate::error::is_not_found(&error) =>
                {
                    match self.read().await {
                        Ok(Some(current)) if current.holder == self.me => lease = current,
                        Ok(other) => {
                            tracing::warn!(lease = %self.name, holder = other.as_ref().map_or("nobody", |o| &o.holder), "the lease was taken away");
                            self.step_down(&term);
                            return other;
                        }
                        Err(_) => pause = self.retry_period / 2,
                    }
                }
                Err(error) => {
                    tracing::warn!(lease = %self.name, error = %crate::error::sentence(&error), "cannot renew the lease");
                    pause = self.retry_period / 2;
                }
            }
        };
        self.step_down(&term);
        if released {
            self.release(&lease).await;
        } else {
            tracing::warn!(lease = %self.name, "could not renew in time; standing by");
        }
        if stop.is_cancelled() {
            None
        } else {
            Some(lease)
        }
    }

    fn step_down(&self, term: &Term) {
        term.end();
        self.term.send_replace(None);
        self.metrics.set_leader(false);
    }

    fn beat(&self) {
        self.health
            .beat("election", crate::clock::now(), self.lease_duration * 4);
    }

    async fn watch_until(
        &self,
        events: &mut BoxStream<'static, watcher::Result<watcher::Event<Lease>>>,
        observed: &mut Option<Observed>,
        known: &mut bool,
        pause: Duration,
        stop: &CancellationToken,
    ) {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => return,
            event = events.next() => event,
        };
        match event {
            Some(Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease))) => {
                let new = observe(&lease, self.lease_duration);
                // The same version seen again keeps its first time, or a watch restart would prolong a dead lease.
                if observed
                    .as_ref()
                    .is_none_or(|old| old.version != new.version)
                {
                    *observed = Some(new);
                }
            }
            Some(Ok(watcher::Event::Delete(_))) => *observed = None,
            Some(Ok(watcher::Event::InitDone)) => *known = true,
            Some(Ok(watcher::Event::Init)) | None => {}
            Some(Err(error)) => {
                let why = crate::watch::explain("Lease", &error);
                self.health.not_ready("election", &why);
                *known = false;
                tracing::warn!(lease = %self.name, "{why}");
            }
        }
    }

    async fn read(&self) -> Result<Option<Observed>, kube::Error> {
        let lease = within(self.request_timeout, self.api.get_opt(&self.name)).await?;
        Ok(lease.map(|lease| observe(&lease, self.lease_duration)))
    }

    /// Writes our name; `began` is when this term began. Returns the new state and the time just before the request was sent.
    async fn write(
        &self,
        version: Option<String>,
        transitions: i32,
        began: &MicroTime,
    ) -> Result<(Observed, Instant), kube::Error> {
        let (sent, exists) = (crate::clock::now(), version.is_some());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: version,
                owner_references: self.owner.references(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.me.clone()),
                lease_duration_seconds: i32::try_from(self.lease_duration.as_secs()).ok(),
                acquire_time: Some(began.clone()),
                renew_time: Some(crate::clock::micro_time()),
                lease_transitions: Some(transitions),
                ..LeaseSpec::default()
            }),
        };
        let params = PostParams::default();
        let written = if exists {
            within(
                self.request_timeout,
                self.api.replace(&self.name, &params, &lease),
            )
            .await
        } else {
            within(self.request_timeout, self.api.create(&params, &lease)).await
        }?;
        Ok((observe(&written, self.lease_duration), sent))
    }

    /// Frees the lease at once, so that a standby need not wait for its end.
    async fn release(&self, lease: &Observed) {
        let free = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: Some(lease.version.clone()),
                owner_references: self.owner.references(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                renew_time: Some(crate::clock::micro_time()),
                lease_transitions: Some(lease.transitions),
                ..LeaseSpec::default()
            }),
        };
        let sent = within(
            self.request_timeout,
            self.api.replace(&self.name, &PostParams::default(), &free),
        )
        .await;
        match sent {
            Ok(_) => tracing::info!(lease = %self.name, "lease released"),
            Err(error) => {
                tracing::warn!(lease = %self.name, error = %crate::error::sentence(&error), "cannot release the lease; a standby takes over when it ends");
            }
        }
    }
}

fn observe(lease: &Lease, default: Duration) -> Observed {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec
        .lease_duration_seconds
        .and_then(|s| u64::try_from(s).ok());
    Observed {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: seconds.map_or(default, Duration::from_secs),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        transitions: spec.lease_transitions.unwrap_or(0),
        seen: crate::clock::now(),
    }
}
