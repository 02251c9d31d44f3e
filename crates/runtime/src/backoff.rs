//! A capped exponential pause per key, forgotten on success and on deletion.

use std::collections::BTreeMap;
use std::time::Duration;

/// Shortest pause after a failure.
const FIRST: Duration = Duration::from_secs(1);

/// The pause after the `failures`-th failure in a row (1 is the first), at most `cap`, spread by `jitter` in 0..1
/// over the upper fifth, so that replicas and keys do not beat together.
pub fn pause(failures: u32, cap: Duration, jitter: f64) -> Duration {
    let doubled = FIRST.saturating_mul(
        1u32.checked_shl(failures.saturating_sub(1))
            .unwrap_or(u32::MAX),
    );
    doubled
        .min(cap.max(FIRST))
        .mul_f64(1.0 - 0.2 * jitter.clamp(0.0, 1.0))
}

/// Failures in a row for each key.
#[derive(Debug)]
pub struct Backoff<K> {
    failures: BTreeMap<K, u32>,
    cap: Duration,
}

impl<K: Ord + Clone> Backoff<K> {
    /// With `cap` as the longest pause.
    pub fn new(cap: Duration) -> Self {
        Self {
            failures: BTreeMap::new(),
            cap,
        }
    }

    /// Counts a failure and returns how long to wait.
    pub fn failed(&mut self, key: &K, jitter: f64) -> Duration {
        let count = self.failures.entry(key.clone()).or_insert(0);
        *count = count.saturating_add(1);
        pause(*count, self.cap, jitter)
    }

    /// Forgets the key's failures.
    pub fn clear(&mut self, key: &K) {
        self.failures.remove(key);
    }
}

/// A number in 0..1 that differs between processes and calls; only for spreading, never for secrets.
pub fn jitter() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    #[allow(clippy::cast_precision_loss)] // a spread needs no more than 32 bits
    let spread = (RandomState::new().hash_one(0u8) >> 32) as f64;
    spread / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap() {
        let cap = Duration::from_secs(60);
        let seconds: Vec<u64> = (1..=8).map(|n| pause(n, cap, 0.0).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(200, cap, 0.0), cap);
        assert_eq!(pause(1, cap, 1.0), Duration::from_millis(800));
    }

    #[test]
    fn success_forgets() {
        let mut backoff = Backoff::new(Duration::from_secs(60));
        backoff.failed(&"a", 0.0);
        assert_eq!(backoff.failed(&"a", 0.0).as_secs(), 2);
        backoff.clear(&"a");
        assert_eq!(backoff.failed(&"a", 0.0).as_secs(), 1);
    }
}
