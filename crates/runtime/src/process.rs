//! A process from its first line to its last: ports, clients, signals, election, work loop.

mod entry;
mod work;

pub use entry::main;
pub use work::{Outcome, Reconciler};

use crate::args::RuntimeArgs;
use crate::backoff::Backoff;
use crate::clients::{ClientError, Clients, connect};
use crate::election::{Election, Term};
use crate::events::Events;
use crate::health::{Health, ListenError, serve};
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::watch::{Change, Store, WatchContext, follow};
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
use work::Work;

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
        let flags = entry::told();
        tracing::info!(
            controller = name,
            version = env!("CARGO_PKG_VERSION"),
            flags,
            "starting"
        );
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

    /// Names the Lease otherwise than the controller: for a process that exists once an object, not once a cluster. Such a
    /// Lease belongs to the process's ServiceAccount, so that it goes when that goes.
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
            failing: work::Failing::default(),
            interval: self.args.reconcile_interval,
            workers: usize::from(self.args.max_concurrent_reconciles),
        };
        let (stop, health) = (self.stop.clone(), self.health.clone());
        let syncs = std::mem::take(&mut self.syncs);
        let working = async move {
            tokio::select! {
                () = stop.cancelled() => {}
                _ = futures::future::join_all(syncs) => work.run(terms, &stop).await,
            }
            health.not_ready("process", "stopping");
            // The election task releases the lease.
            drained.cancel();
        };
        self.end_after(working).await
    }

    /// For a process without election and work loop, whose replicas all do the same: runs until it is told to stop, then
    /// waits for `last`, in which it ends its work, while everything else goes on. Returns when all has ended in order.
    ///
    /// # Errors
    /// A task ended although nobody had told it to.
    pub async fn serve(self, last: impl Future<Output = ()>) -> Result<(), RunError> {
        let (stop, health) = (self.stop.clone(), self.health.clone());
        let working = async move {
            stop.cancelled().await;
            health.not_ready("process", "stopping");
            last.await;
        };
        self.end_after(working).await
    }

    /// Waits for the end of `working`, then for that of all tasks, which are told to end.
    async fn end_after(mut self, working: impl Future<Output = ()>) -> Result<(), RunError> {
        tokio::select! {
            () = working => {}
            died = first_death(&mut self.tasks, &self.stop) => return Err(died),
        }
        self.end.cancel();
        let limit = self.args.request_timeout + Duration::from_secs(1);
        let ended = tokio::time::timeout(limit, async {
            while self.tasks.join_next().await.is_some() {}
        })
        .await;
        tracing::info!(controller = self.name, orderly = ended.is_ok(), "stopped");
        Ok(())
    }

    /// What the process says about itself on `/healthz` and `/readyz`.
    pub fn health(&self) -> Health {
        self.health.clone()
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
        let election = if self.lease == self.name {
            election
        } else {
            election.owned_by_account()
        };
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
