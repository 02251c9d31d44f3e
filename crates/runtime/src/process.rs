//! A process from its first line to its last: ports, clients, signals, election, work loop.

use crate::args::RuntimeArgs;
use crate::backoff::{Backoff, jitter};
use crate::clients::{ClientError, Clients, connect};
use crate::election::{Election, Term};
use crate::error::{Class, Classify, chain};
use crate::events::Events;
use crate::health::{Health, ListenError, serve};
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::watch::{Change, Store, WatchContext, follow};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::core::Resource;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch as flag;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// What a reconcile found. Waiting is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The desired state is reached.
    Ready,
    /// On the way; watches wake us, and `requeue` is a deadline if one was set.
    Progressing {
        /// Why, in a few words, for the log.
        reason: String,
        /// When to look again although nothing has changed.
        requeue: Option<Duration>,
    },
    /// Only a change by a person helps.
    Blocked {
        /// Why, in a few words, for the log.
        reason: String,
    },
    /// The object is gone; the key is forgotten.
    Gone,
}

/// One controller's work.
pub trait Reconciler: Send + Sync + 'static {
    /// What is reconciled.
    type Key: Ord + Clone + Debug + Send + Sync + 'static;
    /// Its errors.
    type Error: Classify + Send + Sync + 'static;

    /// The controller's name, for the log and metrics.
    fn name(&self) -> &'static str;

    /// All keys to look at when a term begins.
    fn keys(&self) -> Vec<Self::Key>;

    /// Brings one key to its desired state.
    fn reconcile(
        &self,
        key: &Self::Key,
        term: &Term,
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send;
}

/// A process could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A flag, or a combination of flags, cannot work.
    #[error("{0}")]
    Args(String),
    /// No cluster.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A port is taken.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Signals cannot be received.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}

/// Everything that a controller's own code is built from.
pub struct Process {
    name: &'static str,
    lease: String,
    args: RuntimeArgs,
    clients: Clients,
    metrics: Arc<Metrics>,
    health: Health,
    events: Events,
    watches: WatchContext,
    end: CancellationToken,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    syncs: Vec<futures::future::BoxFuture<'static, ()>>,
}

impl Process {
    /// Sets up logging, ports, clients and signals for the controller `name`.
    pub async fn start(name: &'static str, args: RuntimeArgs) -> Result<Self, StartError> {
        args.validate()
            .map_err(|error| StartError::Args(error.to_string()))?;
        crate::logging::init(&args).map_err(StartError::Args)?;
        tracing::info!(controller = name, version = env!("CARGO_PKG_VERSION"), flags = ?args, "starting");
        // Already installed by a test's other process: the same provider, so nothing to do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let metrics = Arc::new(Metrics::new(name));
        let health = Health::default();
        let clients = connect(&args, &metrics).await?;
        let end = CancellationToken::new();
        let stop = CancellationToken::new();
        let ports = (args.metrics_port, args.health_port);
        let serving = serve(
            args.bind_address,
            ports,
            metrics.clone(),
            health.clone(),
            end.clone(),
        )
        .await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serving);
        tasks.spawn(signals(stop.clone(), end.clone()).map_err(StartError::Signals)?);
        let watches = WatchContext {
            metrics: metrics.clone(),
            health: health.clone(),
            end: end.clone(),
            streaming: Arc::new(true.into()),
        };
        let events = Events::new(
            clients.main.clone(),
            name,
            &args.pod_name,
            args.request_timeout,
        );
        let syncs = Vec::new();
        Ok(Self {
            name,
            lease: name.to_owned(),
            args,
            clients,
            metrics,
            health,
            events,
            watches,
            end,
            stop,
            tasks,
            syncs,
        })
    }

    /// The client for everything but the lease.
    pub fn client(&self) -> Client {
        self.clients.main.clone()
    }

    /// The common flags.
    pub fn args(&self) -> &RuntimeArgs {
        &self.args
    }

    /// The metrics, to register own ones.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// The event publisher.
    pub fn events(&self) -> Events {
        self.events.clone()
    }

    /// Completes when the process has been told to stop.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// What a watch that is started later needs ([`crate::optional`]).
    pub fn watch_context(&self) -> WatchContext {
        self.watches.clone()
    }

    /// Names the Lease otherwise than the controller: for a process that exists once an object, not once a cluster.
    pub fn elect_by(&mut self, lease: &str) {
        lease.clone_into(&mut self.lease);
    }

    /// Runs `task` until the process ends; if it ends before, the process ends with an error.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Watches `api` into a new store. The process is ready, and reconciles, only when it is filled.
    pub fn watch<K, T>(
        &mut self,
        api: Api<K>,
        config: watcher::Config,
        project: impl Fn(K) -> Option<T> + Send + 'static,
        on_change: impl Fn(&Change<T>) + Send + Sync + 'static,
    ) -> Store<T>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
        T: PartialEq + Send + Sync + 'static,
    {
        let store = Store::new(&K::kind(&()), on_change);
        self.watch_into(api, config, store.clone(), project);
        store
    }

    /// As [`Process::watch`], for a store made before and for kinds known at run time only.
    pub fn watch_into<K, T>(
        &mut self,
        api: Api<K>,
        config: watcher::Config,
        store: Store<T>,
        project: impl Fn(K) -> Option<T> + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        T: PartialEq + Send + Sync + 'static,
    {
        let waiting = store.clone();
        self.syncs
            .push(Box::pin(async move { waiting.synced().await }));
        self.tasks
            .spawn(follow(self.watches.clone(), api, config, store, project));
    }

    /// Takes part in the election and reconciles whenever this replica leads, until the process is told to stop.
    /// Returns when everything has ended in order.
    pub async fn run<R: Reconciler>(
        mut self,
        queue: Queue<R::Key>,
        reconciler: R,
    ) -> Result<(), RunError> {
        let drained = CancellationToken::new();
        let (terms, election) = self.elect(&drained);
        if let Some(election) = election {
            self.tasks.spawn(election);
        }
        self.metrics
            .set_workers(self.args.max_concurrent_reconciles);
        let mut work = Work {
            queue,
            reconciler: Arc::new(reconciler),
            metrics: self.metrics.clone(),
            backoff: Backoff::new(self.args.retry_delay),
            told: BTreeMap::new(),
            interval: self.args.reconcile_interval,
            workers: usize::from(self.args.max_concurrent_reconciles),
        };
        let (stop, end, name) = (self.stop.clone(), self.end.clone(), self.name);
        let syncs = std::mem::take(&mut self.syncs);
        let working = async {
            tokio::select! {
                () = stop.cancelled() => {}
                _ = futures::future::join_all(syncs) => work.run(terms, &stop).await,
            }
            self.health.not_ready("process", "stopping");
            drained.cancel();
        };
        let outcome = tokio::select! {
            () = working => Ok(()),
            died = first_death(&mut self.tasks, &stop) => Err(died),
        };
        outcome?;
        // The election task releases the lease now; the others end when told.
        end.cancel();
        let limit = self.args.request_timeout + Duration::from_secs(1);
        let ended = tokio::time::timeout(limit, async {
            while self.tasks.join_next().await.is_some() {}
        })
        .await;
        tracing::info!(controller = name, orderly = ended.is_ok(), "stopped");
        Ok(())
    }

    #[allow(clippy::type_complexity)] // the optional future is used once, above
    fn elect(
        &self,
        drained: &CancellationToken,
    ) -> (
        flag::Receiver<Option<Term>>,
        Option<futures::future::BoxFuture<'static, ()>>,
    ) {
        if !self.args.leader_elect {
            self.metrics.set_leader(true);
            let (sender, receiver) = flag::channel(Some(Term::unlimited()));
            // Kept alive by the future, which ends with the process.
            let end = self.end.clone();
            return (
                receiver,
                Some(Box::pin(async move {
                    end.cancelled().await;
                    drop(sender);
                })),
            );
        }
        let (health, metrics) = (self.health.clone(), self.metrics.clone());
        let election = Election::new(
            &self.lease,
            &self.args,
            self.clients.lease.clone(),
            health,
            metrics,
        );
        let receiver = election.terms();
        (
            receiver,
            Some(Box::pin(election.run(self.stop.clone(), drained.clone()))),
        )
    }
}

/// A part of the process ended although nobody had told it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a background task ended unexpectedly; leaving so that the pod is started afresh")]
pub struct RunError;

async fn first_death(tasks: &mut JoinSet<()>, stop: &CancellationToken) -> RunError {
    loop {
        match tasks.join_next().await {
            // After a stop, tasks may end as they like.
            Some(Ok(())) if stop.is_cancelled() => {}
            Some(_) => return RunError,
            None => std::future::pending().await,
        }
    }
}

/// The first SIGTERM or SIGINT asks for an orderly end, the second ends the process at once.
fn signals(
    stop: CancellationToken,
    end: CancellationToken,
) -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        for second in [false, true] {
            let name = tokio::select! {
                () = end.cancelled() => return,
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if second {
                tracing::warn!(signal = name, "second signal: leaving at once");
                std::process::exit(130);
            }
            tracing::info!(
                signal = name,
                "stopping: finishing what runs, then releasing the lease"
            );
            stop.cancel();
        }
    })
}

struct Work<R: Reconciler> {
    queue: Queue<R::Key>,
    reconciler: Arc<R>,
    metrics: Arc<Metrics>,
    backoff: Backoff<R::Key>,
    told: BTreeMap<R::Key, Outcome>,
    interval: Duration,
    workers: usize,
}

type Run<K, E> = futures::future::BoxFuture<'static, (K, Result<Outcome, E>, Duration)>;

impl<R: Reconciler> Work<R> {
    async fn run(&mut self, mut terms: flag::Receiver<Option<Term>>, stop: &CancellationToken) {
        loop {
            let term = tokio::select! {
                () = stop.cancelled() => return,
                term = terms.wait_for(Option::is_some) => match term {
                    Ok(term) => term.clone(),
                    Err(_) => return,
                },
            };
            if let Some(term) = term {
                for key in self.reconciler.keys() {
                    self.queue.wake(key);
                }
                self.lead(&term, stop).await;
            }
        }
    }

    /// Reconciles during one term; returns when all that was begun has ended.
    async fn lead(&mut self, term: &Term, stop: &CancellationToken) {
        let mut running: FuturesUnordered<Run<R::Key, R::Error>> = FuturesUnordered::new();
        loop {
            self.metrics.queue(self.queue.depth(), running.len());
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = term.ended() => break,
                Some(done) = running.next(), if !running.is_empty() => self.finish(done),
                key = self.queue.next(), if running.len() < self.workers => {
                    self.metrics.added();
                    running.push(self.begin(key, term.clone()));
                }
            }
        }
        while let Some(done) = running.next().await {
            self.finish(done);
        }
    }

    fn begin(&self, key: R::Key, term: Term) -> Run<R::Key, R::Error> {
        let reconciler = self.reconciler.clone();
        let span = tracing::info_span!("reconcile", controller = reconciler.name(), key = ?key);
        let body = async move {
            let start = crate::clock::now();
            tracing::debug!("Reconcile starts");
            let result = reconciler.reconcile(&key, &term).await;
            (key, result, start.elapsed())
        };
        Box::pin(body.instrument(span))
    }

    fn finish(&mut self, (key, result, took): (R::Key, Result<Outcome, R::Error>, Duration)) {
        // Spread the safety net, so that not all keys come at once.
        let resync = self.interval.mul_f64(1.0 + 0.1 * jitter());
        let again = match &result {
            Ok(outcome) => {
                self.backoff.clear(&key);
                self.metrics.reconciled(result_label(outcome), took);
                self.tell(&key, outcome, took);
                match outcome {
                    Outcome::Gone => None,
                    Outcome::Progressing {
                        requeue: Some(after),
                        ..
                    } => Some((*after).min(resync)),
                    Outcome::Ready
                    | Outcome::Progressing { requeue: None, .. }
                    | Outcome::Blocked { .. } => Some(resync),
                }
            }
            Err(error) => {
                self.metrics.reconciled("error", took);
                self.metrics.failed(error.reason());
                self.after_error(&key, error, resync)
            }
        };
        self.queue.finish(&key, again);
    }

    /// One info line for each new outcome of a key; a healthy node's first look is no news.
    fn tell(&mut self, key: &R::Key, outcome: &Outcome, took: Duration) {
        let old = self.told.insert(key.clone(), outcome.clone());
        if *outcome == Outcome::Gone {
            self.told.remove(key);
        }
        let known = match (&old, outcome) {
            // A wait that gets shorter is no news.
            (
                Some(Outcome::Progressing { reason: old, .. }),
                Outcome::Progressing { reason, .. },
            ) => old == reason,
            (old, outcome) => old.as_ref() == Some(outcome),
        };
        if known {
            return;
        }
        let controller = self.reconciler.name();
        let ms = took.as_millis();
        match outcome {
            Outcome::Ready if old.is_none() => {
                tracing::debug!(controller, ?key, ms, "Reconcile: ready");
            }
            Outcome::Ready => tracing::info!(controller, ?key, ms, "Reconcile: ready"),
            Outcome::Progressing { reason, .. } => {
                tracing::info!(controller, ?key, ms, %reason, "Reconcile: in progress");
            }
            Outcome::Blocked { reason } => {
                tracing::warn!(controller, ?key, ms, %reason, "Reconcile: blocked, needs a person");
            }
            Outcome::Gone => tracing::debug!(controller, ?key, ms, "Reconcile: gone"),
        }
    }

    fn after_error(
        &mut self,
        key: &R::Key,
        error: &R::Error,
        resync: Duration,
    ) -> Option<Duration> {
        let pause = match error.class() {
            Class::Conflict => Duration::from_millis(200),
            Class::Transient | Class::Bug => self.backoff.failed(key, jitter()),
            Class::Forbidden => self
                .backoff
                .failed(key, jitter())
                .max(Duration::from_secs(15)),
            Class::Invalid => resync,
            Class::LostLeadership => return None,
        };
        let text = chain(error);
        tracing::warn!(controller = self.reconciler.name(), ?key, class = ?error.class(), retry_in = ?pause, error = %text, "Reconcile failed");
        Some(pause)
    }
}

fn result_label(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Ready | Outcome::Gone | Outcome::Blocked { .. } => "success",
        Outcome::Progressing { .. } => "requeue_after",
    }
}

/// The body of every `main`: parses `A`, runs `start` on one thread and turns an error into one sentence and exit
/// code 1.
pub fn main<A, F>(start: impl FnOnce(A) -> F) -> std::process::ExitCode
where
    A: clap::Parser,
    F: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>>,
{
    let args = A::parse();
    // One thread: these processes wait far more than they compute, and memory counts.
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    match runtime.block_on(start(args)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => fail(error.as_ref()),
    }
}

#[allow(clippy::print_stderr)] // logging may not be set up yet
fn fail(error: &(dyn std::error::Error + 'static)) -> std::process::ExitCode {
    eprintln!("error: {}", chain(error));
    std::process::ExitCode::FAILURE
}
