//! A queue of keys: each waits at most once, never runs twice at a time, and may be asked for later.
//!
//! The first wake runs at once; further ones within [`COOLDOWN`] of the last start run together after it, so that a
//! burst of events costs few runs and a single event no delay.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Shortest time between two starts of one key.
pub const COOLDOWN: Duration = Duration::from_millis(100);

/// The pure part: which key runs when.
#[derive(Debug)]
struct Plan<K> {
    due: BTreeMap<K, Instant>,
    requeues: BTreeMap<K, Instant>,
    running: BTreeSet<K>,
    last_start: BTreeMap<K, Instant>,
}

impl<K: Ord + Clone> Plan<K> {
    fn wake(&mut self, key: K, now: Instant) {
        let ready = self
            .last_start
            .get(&key)
            .map_or(now, |start| now.max(*start + COOLDOWN));
        let due = self.due.entry(key).or_insert(ready);
        *due = (*due).min(ready);
    }

    /// The next key to run, or when to look again.
    fn pop(&mut self, now: Instant) -> Result<K, Option<Instant>> {
        let waiting = self
            .due
            .iter()
            .chain(&self.requeues)
            .filter(|(key, _)| !self.running.contains(*key));
        let Some((key, due)) = waiting
            .min_by_key(|(_, due)| **due)
            .map(|(key, due)| (key.clone(), *due))
        else {
            return Err(None);
        };
        if due > now {
            return Err(Some(due));
        }
        self.due.remove(&key);
        self.requeues.remove(&key);
        self.running.insert(key.clone());
        self.last_start
            .retain(|_, start| now.saturating_duration_since(*start) < COOLDOWN);
        self.last_start.insert(key.clone(), now);
        Ok(key)
    }

    fn finish(&mut self, key: &K, again: Option<Instant>) {
        self.running.remove(key);
        if let Some(at) = again {
            let due = self.requeues.entry(key.clone()).or_insert(at);
            *due = (*due).min(at);
        }
    }
}

struct Inner<K> {
    plan: Mutex<Plan<K>>,
    changed: Notify,
}

/// The queue; clones share it.
pub struct Queue<K> {
    inner: Arc<Inner<K>>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<K: Ord + Clone + Debug> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone + Debug> Queue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        let plan = Plan {
            due: BTreeMap::new(),
            requeues: BTreeMap::new(),
            running: BTreeSet::new(),
            last_start: BTreeMap::new(),
        };
        Self {
            inner: Arc::new(Inner {
                plan: Mutex::new(plan),
                changed: Notify::new(),
            }),
        }
    }

    /// Asks for a run of `key` as soon as possible.
    pub fn wake(&self, key: K) {
        self.inner.plan.lock().wake(key, crate::clock::now());
        self.inner.changed.notify_one();
    }

    /// Asks for a run of `key` at the latest after `delay`, unless it runs before.
    pub fn wake_after(&self, key: K, delay: Duration) {
        let at = crate::clock::now() + delay;
        let mut plan = self.inner.plan.lock();
        let due = plan.requeues.entry(key).or_insert(at);
        *due = (*due).min(at);
        drop(plan);
        self.inner.changed.notify_one();
    }

    /// The next key that is due; the caller must [`Queue::finish`] it.
    pub(crate) async fn next(&self) -> K {
        loop {
            let changed = self.inner.changed.notified();
            let popped = self.inner.plan.lock().pop(crate::clock::now());
            match popped {
                Ok(key) => return key,
                Err(None) => changed.await,
                Err(Some(at)) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at.into()) => {}
                        () = changed => {}
                    }
                }
            }
        }
    }

    /// `key` has run and wants to run again after `again`. Its start dropped earlier plans; wakes and plans that came
    /// while it ran stay.
    pub(crate) fn finish(&self, key: &K, again: Option<Duration>) {
        let at = again.map(|delay| crate::clock::now() + delay);
        self.inner.plan.lock().finish(key, at);
        self.inner.changed.notify_one();
    }

    /// How many keys are due or will be, without those that only wait for a planned run.
    pub(crate) fn depth(&self) -> usize {
        self.inner.plan.lock().due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan<&'static str> {
        Plan {
            due: BTreeMap::new(),
            requeues: BTreeMap::new(),
            running: BTreeSet::new(),
            last_start: BTreeMap::new(),
        }
    }

    #[test]
    fn a_burst_costs_one_more_run_after_the_cooldown() {
        let (mut plan, start) = (plan(), Instant::now());
        plan.wake("a", start);
        assert_eq!(plan.pop(start), Ok("a"));
        for ms in 1..50 {
            plan.wake("a", start + Duration::from_millis(ms));
        }
        plan.finish(&"a", None);
        assert_eq!(
            plan.pop(start + Duration::from_millis(60)),
            Err(Some(start + COOLDOWN))
        );
        assert_eq!(plan.pop(start + COOLDOWN), Ok("a"));
        plan.finish(&"a", None);
        assert_eq!(plan.pop(start + COOLDOWN * 9), Err(None));
    }

    #[test]
    fn a_key_never_runs_twice_at_a_time_and_loses_no_wake() {
        let (mut plan, start) = (plan(), Instant::now());
        plan.wake("a", start);
        assert_eq!(plan.pop(start), Ok("a"));
        plan.wake("a", start + COOLDOWN);
        assert_eq!(plan.pop(start + COOLDOWN), Err(None));
        plan.finish(&"a", Some(start + Duration::from_secs(600)));
        assert_eq!(plan.pop(start + COOLDOWN), Ok("a"));
    }

    #[test]
    fn a_planned_run_is_replaced_by_the_next_plan() {
        let (mut plan, start) = (plan(), Instant::now());
        plan.wake("a", start);
        assert_eq!(plan.pop(start), Ok("a"));
        let later = start + Duration::from_secs(5);
        plan.finish(&"a", Some(later));
        assert_eq!(plan.pop(start), Err(Some(later)));
        plan.wake("a", start + Duration::from_secs(1));
        assert_eq!(plan.pop(start + Duration::from_secs(1)), Ok("a"));
        plan.finish(&"a", None);
        assert_eq!(plan.pop(later), Err(None));
    }
}
