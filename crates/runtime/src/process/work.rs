//! The work loop: keys from the queue are reconciled while this replica leads.

use crate::backoff::{Backoff, jitter};
use crate::election::Term;
use crate::error::{Class, Classify, chain};
use crate::metrics::Metrics;
use crate::queue::Queue;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch as flag;
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
    type Key: Ord + Clone + Debug + Display + Send + Sync + 'static;
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

pub(super) struct Work<R: Reconciler> {
    pub(super) queue: Queue<R::Key>,
    pub(super) reconciler: Arc<R>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) backoff: Backoff<R::Key>,
    pub(super) told: BTreeMap<R::Key, Outcome>,
    pub(super) failing: Failing<R::Key>,
    pub(super) interval: Duration,
    pub(super) workers: usize,
}

type Run<K, E> = futures::future::BoxFuture<'static, (K, Result<Outcome, E>, Duration)>;

impl<R: Reconciler> Work<R> {
    pub(super) async fn run(
        &mut self,
        mut terms: flag::Receiver<Option<Term>>,
        stop: &CancellationToken,
    ) {
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
        let span = tracing::info_span!("reconcile", controller = reconciler.name(), %key);
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
                self.failing.0.remove(&key);
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
                tracing::debug!(controller, %key, ms, "Reconcile: ready");
            }
            Outcome::Ready => tracing::info!(controller, %key, ms, "Reconcile: ready"),
            Outcome::Progressing { reason, .. } => {
                tracing::info!(controller, %key, ms, %reason, "Reconcile: in progress");
            }
            Outcome::Blocked { reason } => {
                tracing::warn!(controller, %key, ms, %reason, "Reconcile: blocked, needs a person");
            }
            Outcome::Gone => tracing::debug!(controller, %key, ms, "Reconcile: gone"),
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
        if !self.failing.is_news(key, &text, crate::clock::now()) {
            tracing::debug!(controller = self.reconciler.name(), %key, retry_in = ?pause, error = %text, "Reconcile failed again");
            return Some(pause);
        }
        tracing::warn!(controller = self.reconciler.name(), %key, class = ?error.class(), retry_in = ?pause, error = %text, "Reconcile failed");
        Some(pause)
    }
}

/// The same failure is told so often, however many events make us try again.
const REMIND: Duration = Duration::from_secs(60);

/// What was told of each key that fails, and when.
#[derive(Debug)]
pub(super) struct Failing<K>(BTreeMap<K, (String, Instant)>);

impl<K> Default for Failing<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> Failing<K> {
    fn is_news(&mut self, key: &K, text: &str, now: Instant) -> bool {
        let told = self
            .0
            .get(key)
            .is_some_and(|(old, at)| old == text && now.saturating_duration_since(*at) < REMIND);
        if !told {
            self.0.insert(key.clone(), (text.to_owned(), now));
        }
        !told
    }
}

fn result_label(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Ready | Outcome::Gone | Outcome::Blocked { .. } => "success",
        Outcome::Progressing { .. } => "requeue_after",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_failure_is_told_once_a_minute() {
        let (mut failing, now) = (Failing::default(), Instant::now());
        let mut told =
            |text, after| failing.is_news(&"key", text, now + Duration::from_secs(after));
        let news = [
            told("a", 0),
            told("a", 1),
            told("b", 2),
            told("b", 61),
            told("b", 62),
        ];
        assert_eq!(news, [true, false, true, false, true]);
    }
}
