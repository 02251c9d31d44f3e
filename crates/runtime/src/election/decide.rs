//! The rules of client-go's leader election as a pure function.
//!
//! Only local observation times count, never the times written in the Lease: clocks of two machines may differ by
//! any amount. What must not differ much is their speed.

use std::time::{Duration, Instant};

/// What is known of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The holder's identity; empty after a release.
    pub holder: String,
    /// For how long the holder promised to be the leader after each renewal.
    pub duration: Duration,
    /// The Lease's resource version: changes with each renewal.
    pub version: String,
    /// How often the lease changed hands.
    pub transitions: i32,
    /// When this process first saw this version.
    pub seen: Instant,
}

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// There is no Lease: create it.
    Create,
    /// The Lease is free, expired or already ours: write our name, if it still has this version.
    Take {
        /// Version to compare with.
        version: String,
        /// Transitions to write.
        transitions: i32,
    },
    /// Somebody else leads; look again at this moment unless the Lease changes before.
    Wait {
        /// When the present holder's time is up.
        until: Instant,
    },
}

/// Decides for a candidate named `me`.
pub fn decide(observed: Option<&Observed>, me: &str, now: Instant) -> Decision {
    let Some(lease) = observed else {
        return Decision::Create;
    };
    let take = |transitions| Decision::Take {
        version: lease.version.clone(),
        transitions,
    };
    if lease.holder == me {
        return take(lease.transitions);
    }
    let until = lease.seen + lease.duration;
    if lease.holder.is_empty() || now >= until {
        return take(lease.transitions.saturating_add(1));
    }
    Decision::Wait { until }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, seen: Instant) -> Observed {
        Observed {
            holder: holder.to_owned(),
            duration: Duration::from_secs(15),
            version: "7".to_owned(),
            transitions: 3,
            seen,
        }
    }

    #[test]
    fn table() {
        let seen = Instant::now();
        let take = |transitions| Decision::Take {
            version: "7".to_owned(),
            transitions,
        };
        let second = Duration::from_secs(1);
        let cases = [
            ("no lease", None, 0, Decision::Create),
            ("released", Some(""), 0, take(4)),
            (
                "another leads",
                Some("b"),
                14,
                Decision::Wait {
                    until: seen + second * 15,
                },
            ),
            ("another has expired", Some("b"), 15, take(4)),
            ("ours from before a restart", Some("me"), 0, take(3)),
            ("ours, long ago", Some("me"), 99, take(3)),
        ];
        for (name, holder, age, want) in cases {
            let observed = holder.map(|holder| lease(holder, seen));
            assert_eq!(
                decide(observed.as_ref(), "me", seen + second * age),
                want,
                "{name}"
            );
        }
    }
}
