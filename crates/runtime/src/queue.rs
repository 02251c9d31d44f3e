//! A queue of keys: each waits at most once, never runs twice at a time, and may be asked for later.
//!
//! The first wake runs at once; further ones within [`COOLDOWN`] of the last start run together after it, so that a
//! burst of events costs few runs and a single event no delay.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Shortest time between two starts of one key.
pub const COOLDOWN: Duration = Duration::from_millis(100);

/// How long [`Queue::wake_soon`] gathers what comes together: counts that move with every pod of a roll-out.
pub const SOON: Duration = Duration::from_millis(300);

/// The pure part: which key runs when. No step looks at more keys than it is about, but the few that started just now.
#[derive(Debug)]
struct Plan<K> {
    keys: BTreeMap<K, Wait>,
    /// When each key that waits and does not run is to start.
    order: BTreeSet<(Instant, K)>,
    /// Starts within [`COOLDOWN`], the oldest first.
    starts: VecDeque<(Instant, K)>,
    /// How many keys have been woken.
    woken: usize,
}

/// What is known of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    /// It was woken, to run then.
    due: Option<Instant>,
    /// It is to be looked at again then.
    again: Option<Instant>,
    running: bool,
    last_start: Option<Instant>,
}

impl Wait {
    fn at(&self) -> Option<Instant> {
        let at = [self.due, self.again].into_iter().flatten().min();
        at.filter(|_| !self.running)
    }
}

impl<K: Ord + Clone> Plan<K> {
    fn new() -> Self {
        Self {
            keys: BTreeMap::new(),
            order: BTreeSet::new(),
            starts: VecDeque::new(),
            woken: 0,
        }
    }

    fn wake(&mut self, key: K, now: Instant) {
        self.change(key, |wait| {
            let ready = wait
                .last_start
                .map_or(now, |start| now.max(start + COOLDOWN));
            wait.due = Some(wait.due.map_or(ready, |due| due.min(ready)));
        });
    }

    fn again(&mut self, key: K, at: Instant) {
        self.change(key, |wait| {
            wait.again = Some(wait.again.map_or(at, |again| again.min(at)));
        });
    }

    /// The next key to run, or when to look again.
    fn pop(&mut self, now: Instant) -> Result<K, Option<Instant>> {
        self.forget_starts(now);
        let Some((at, key)) = self.order.first().cloned() else {
            return Err(None);
        };
        if at > now {
            return Err(Some(at));
        }
        self.change(key.clone(), |wait| {
            *wait = Wait {
                due: None,
                again: None,
                running: true,
                last_start: Some(now),
            };
        });
        self.starts.push_back((now, key.clone()));
        Ok(key)
    }

    fn finish(&mut self, key: &K, again: Option<Instant>) {
        self.change(key.clone(), |wait| wait.running = false);
        if let Some(at) = again {
            self.again(key.clone(), at);
        }
    }

    /// Changes what is known of a key, and its place in the order with it. A key of which nothing is known takes no room.
    fn change(&mut self, key: K, change: impl FnOnce(&mut Wait)) {
        let before = self.keys.get(&key).copied().unwrap_or_default();
        let mut after = before;
        change(&mut after);
        if let Some(at) = before.at() {
            self.order.remove(&(at, key.clone()));
        }
        if let Some(at) = after.at() {
            self.order.insert((at, key.clone()));
        }
        self.woken =
            self.woken + usize::from(after.due.is_some()) - usize::from(before.due.is_some());
        let idle = after.at().is_none() && !after.running && after.last_start.is_none();
        if idle {
            self.keys.remove(&key);
        } else {
            self.keys.insert(key, after);
        }
    }

    /// Starts that no longer hold anything up.
    fn forget_starts(&mut self, now: Instant) {
        let is_over = |start: Instant| now.saturating_duration_since(start) >= COOLDOWN;
        while self
            .starts
            .front()
            .is_some_and(|(start, _)| is_over(*start))
        {
            let Some((start, key)) = self.starts.pop_front() else {
                return;
            };
            self.change(key, |wait| {
                if wait.last_start == Some(start) {
                    wait.last_start = None;
                }
            });
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
        Self {
            inner: Arc::new(Inner {
                plan: Mutex::new(Plan::new()),
                changed: Notify::new(),
            }),
        }
    }

    /// Asks for a run of `key` as soon as possible.
    pub fn wake(&self, key: K) {
        self.inner.plan.lock().wake(key, crate::clock::now());
        self.inner.changed.notify_one();
    }

    /// Asks for a run of `key` within [`SOON`]: for what is only reported, and comes in hundreds.
    pub fn wake_soon(&self, key: K) {
        self.wake_after(key, SOON);
    }

    /// Asks for a run of `key` at the latest after `delay`, unless it runs before.
    pub fn wake_after(&self, key: K, delay: Duration) {
        let at = crate::clock::now() + delay;
        self.inner.plan.lock().again(key, at);
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
        self.inner.plan.lock().woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan<&'static str> {
        Plan::new()
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
    fn keys_run_in_the_order_of_their_times_and_leave_nothing_behind() {
        let (mut plan, start) = (plan(), Instant::now());
        plan.again("late", start + COOLDOWN * 3);
        plan.wake("b", start);
        plan.wake("a", start + COOLDOWN);
        plan.again("late", start + COOLDOWN * 2);
        assert_eq!(plan.woken, 2);
        for key in ["b", "a", "late"] {
            let now = start + COOLDOWN * 2;
            assert_eq!(plan.pop(now), Ok(key));
            plan.finish(&key, None);
        }
        assert_eq!(plan.pop(start + COOLDOWN * 3), Err(None));
        assert!(plan.keys.is_empty() && plan.order.is_empty() && plan.starts.is_empty());
        assert_eq!(plan.woken, 0);
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
