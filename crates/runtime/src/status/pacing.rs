//! When a changed status may be written: pure.
//!
//! A person wants to read the truth at once; the API server wants few writes while hundreds of pods start. So what
//! matters (a condition's status or reason) is written nearly at once, with a short pause in which changes that belong
//! together meet; mere counts and texts follow ever more rarely as long as nothing that matters changes. What was ready
//! and is on its way back (a node joined, a pod was replaced) is given a moment to get there by itself.

use std::time::{Duration, Instant};

/// Changes that matter and come together are written together.
const GATHER: Duration = Duration::from_millis(300);
/// Shortest time between two steps on the way: a roll-out takes many, and each is written by three controllers.
const STEP: Duration = Duration::from_secs(2);
/// Shortest time between any two writes.
const SPACING: Duration = Duration::from_millis(500);
/// How long mere counts wait: after the first, second and each later such write.
const LAZY: [Duration; 3] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(300),
];
/// How long mere counts must have been different: while they move, each would be old when it is written.
const STILL: Duration = Duration::from_secs(15);
/// How long something that was ready may be on its way back to ready before that is news.
const SETTLING: Duration = Duration::from_secs(20);
/// So many changes that matter may be written in a row before they too become rare (something flaps).
const BURST: u32 = 12;
/// After so long, one more of them may be written.
const REFILL: Duration = Duration::from_secs(60);

/// What can wait is written in turns: each of the three writers has one of so many parts of a round to itself.
const SLOTS: u64 = 3;
/// How long a turn is, and how much of it may be used to begin a write.
const SLOT: Duration = Duration::from_secs(1);
const SLOT_OPEN: Duration = Duration::from_millis(700);

/// How long the writer of rank `rank` has to wait at `wall` (since 1970) for its turn. One event makes all writers wait equally
/// long, and who writes in the same moment as another is refused and has to read again. Clocks that disagree cost no more
/// than that.
pub fn until_turn(rank: u64, wall: Duration) -> Duration {
    let part = |slots: u64| SLOT.as_nanos() * u128::from(slots);
    let round = part(SLOTS);
    let since = (wall.as_nanos() + round - part(rank % SLOTS)) % round;
    if since < SLOT_OPEN.as_nanos() {
        return Duration::ZERO;
    }
    Duration::from_nanos(u64::try_from(round - since).unwrap_or(u64::MAX))
}

/// How a new status differs from the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Not at all.
    None,
    /// In counts or texts only.
    Detail,
    /// A condition that was ready is no longer, only because pods are being started, under an unchanged policy.
    Settling,
    /// A condition's status or reason, or something that was never written.
    Matters,
    /// As [`Difference::Matters`], and everything of this controller is well now.
    Recovered,
}

/// What one writer remembers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacing {
    last_write: Option<Instant>,
    seen: Option<(Difference, Instant)>,
    lazy_writes: usize,
    burst: u32,
    policy: u64,
    turn: Duration,
}

impl Pacing {
    /// Of a writer that lets others go first for `turn`: one event is often news to several writers of one status, and
    /// who writes in the same moment as another is refused and has to read again.
    pub fn of(turn: Duration) -> Self {
        Self {
            turn,
            ..Self::default()
        }
    }

    /// Reports are about this policy (its hash, or what stands for it). When it asks for something else, what follows
    /// is no flapping, whatever came before.
    pub fn about(&mut self, policy: u64) {
        if self.policy != policy {
            *self = Self {
                policy,
                burst: 0,
                lazy_writes: 0,
                ..*self
            };
        }
    }

    /// `None`: nothing to write. `Some(at)`: write as soon as `at` has come.
    pub fn due(&mut self, difference: Difference, now: Instant) -> Option<Instant> {
        // A difference of another kind is another story, with a beginning of its own.
        self.seen = self.seen.filter(|(kind, _)| *kind == difference);
        if difference == Difference::None {
            return None;
        }
        let (_, first) = *self.seen.get_or_insert((difference, now));
        let Some(last) = self.last_write else {
            // The very first report is news in itself.
            return Some(first + self.turn);
        };
        let flapping = self.spent(now) >= BURST;
        let lazy = LAZY
            .get(self.lazy_writes.min(LAZY.len() - 1))
            .copied()
            .unwrap_or(SPACING);
        Some(match difference {
            Difference::None | Difference::Detail => (first + STILL).max(last + lazy),
            Difference::Settling => (first + SETTLING).max(last + SPACING),
            Difference::Matters if flapping => last + REFILL,
            Difference::Matters => (first + GATHER + self.turn).max(last + STEP),
            // Never rare: a recovery is only reported after a trouble was, and that one is.
            Difference::Recovered => now.max(last + SPACING),
        })
    }

    /// A write of this difference has been made.
    pub fn wrote(&mut self, difference: Difference, now: Instant) {
        let spent = self.spent(now);
        self.last_write = Some(now);
        self.seen = None;
        match difference {
            Difference::Detail => self.lazy_writes += 1,
            Difference::None => {}
            Difference::Settling | Difference::Matters | Difference::Recovered => {
                self.burst = spent.saturating_add(1);
                self.lazy_writes = 0;
            }
        }
    }

    /// How much of the burst is used up at `now`.
    fn spent(&self, now: Instant) -> u32 {
        let quiet = self
            .last_write
            .map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let refilled = u32::try_from(quiet.as_secs() / REFILL.as_secs()).unwrap_or(u32::MAX);
        self.burst.saturating_sub(refilled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a series of (time, difference) as a reconciler would, waking when told, and counts the writes.
    fn writes(changes: &[(u64, Difference)], until_ms: u64) -> Vec<u64> {
        let start = Instant::now();
        let (mut pacing, mut current, mut written) =
            (Pacing::default(), Difference::None, Vec::new());
        for ms in 0..=until_ms {
            let now = start + Duration::from_millis(ms);
            if let Some((_, difference)) = changes.iter().find(|(at, _)| *at == ms) {
                current = *difference;
            }
            if pacing.due(current, now).is_some_and(|at| at <= now) {
                pacing.wrote(current, now);
                written.push(ms);
                current = Difference::None;
            }
        }
        written
    }

    use Difference::{Detail, Matters, None as Same, Recovered, Settling};

    #[test]
    fn what_comes_back_by_itself_is_no_news() {
        assert_eq!(
            writes(&[(0, Matters), (5000, Settling), (9000, Same)], 60_000),
            [0]
        );
        assert_eq!(
            writes(&[(0, Matters), (5000, Settling)], 60_000),
            [0, 25_000]
        );
        // A real trouble in between is told at once.
        assert_eq!(
            writes(&[(0, Matters), (5000, Settling), (6000, Matters)], 60_000),
            [0, 6300]
        );
    }

    #[test]
    fn the_first_report_and_a_recovery_are_written_at_once() {
        assert_eq!(writes(&[(0, Matters), (2000, Recovered)], 3000), [0, 2000]);
    }

    #[test]
    fn troubles_that_come_together_are_written_together() {
        assert_eq!(
            writes(
                &[
                    (0, Matters),
                    (5000, Matters),
                    (5100, Matters),
                    (5250, Matters)
                ],
                7000
            ),
            [0, 5300]
        );
    }

    #[test]
    fn a_minute_of_counting_costs_two_writes() {
        let counts: Vec<(u64, Difference)> = std::iter::once((0, Matters))
            .chain((1..600).map(|n| (n * 100, Detail)))
            .collect();
        assert_eq!(writes(&counts, 60_000).len(), 2);
    }

    #[test]
    fn what_can_wait_is_written_in_turns() {
        let ms = Duration::from_millis;
        let table = [
            (0, 0, 0),
            (0, 699, 0),
            (0, 700, 2300),
            (0, 2999, 1),
            (1, 0, 1000),
            (1, 1300, 0),
            (2, 1800, 200),
            (2, 2700, 2300),
        ];
        for (rank, wall, wait) in table {
            assert_eq!(until_turn(rank, ms(wall)), ms(wait), "{rank} at {wall}");
            let now = ms(wall) + until_turn(rank, ms(wall));
            assert_eq!(until_turn(rank, now), Duration::ZERO);
        }
        // At no time may two of them begin.
        for wall in 0..6000 {
            let open = (0..3).filter(|rank| until_turn(*rank, ms(wall)).is_zero());
            assert!(open.count() <= 1, "{wall}");
        }
    }

    #[test]
    fn writers_take_turns() {
        let start = Instant::now();
        let turn = Duration::from_millis(200);
        let mut second = Pacing::of(turn);
        assert_eq!(second.due(Matters, start), Some(start + turn), "first");
        // The wait is counted from the difference, not from the last look at it.
        let later = start + turn / 2;
        assert_eq!(second.due(Matters, later), Some(start + turn));
        second.wrote(Matters, start + turn);
        let again = start + Duration::from_secs(60);
        assert_eq!(second.due(Matters, again), Some(again + GATHER + turn));
        assert_eq!(
            second.due(Recovered, again),
            Some(again),
            "good news at once"
        );
    }

    #[test]
    fn flapping_becomes_rare_and_a_new_policy_starts_anew() {
        let start = Instant::now();
        let (mut pacing, mut stored_well, mut writes) = (Pacing::default(), true, 0);
        let mut run = |pacing: &mut Pacing, seconds: std::ops::Range<u64>| {
            let before = writes;
            for second in seconds {
                let (now, is_well) = (start + Duration::from_secs(second), second % 2 == 0);
                let difference = match (stored_well, is_well) {
                    (true, true) | (false, false) => Difference::None,
                    (true, false) => Matters,
                    (false, true) => Recovered,
                };
                // Looked at again half a second later, when the short pauses are over.
                for now in [now, now + Duration::from_millis(500)] {
                    if stored_well != is_well
                        && pacing.due(difference, now).is_some_and(|at| at <= now)
                    {
                        pacing.wrote(difference, now);
                        (stored_well, writes) = (is_well, writes + 1);
                    }
                }
            }
            writes - before
        };
        assert!(run(&mut pacing, 0..600) < 40);
        assert!(run(&mut pacing, 600..610) <= 2);
        pacing.about(2);
        // A trouble is told every 2 s at most, each recovery at once.
        assert!(run(&mut pacing, 610..620) >= 5);
    }
}
