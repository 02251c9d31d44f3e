//! What to do about certificates: pure, so that clock steps, losses and races are tables.

use std::time::Duration;

use super::{Authority, Lifetimes, Span};

/// The authorities of one Secret: the newest, and the one before it while that is still valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorities {
    /// The newest.
    pub current: Authority,
    /// The one before.
    pub previous: Option<Authority>,
}

impl Authorities {
    /// What the API server is to trust: both, as PEM.
    pub fn bundle(&self) -> String {
        let mut text = self.current.certificate.clone();
        if let Some(previous) = &self.previous {
            text.push_str(&previous.certificate);
        }
        text
    }
}

/// What the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// There is none.
    Absent,
    /// Something else.
    Unusable(String),
    /// Authorities.
    Usable(Box<Authorities>),
}

/// What to do about the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing.
    Keep,
    /// Make it, with a new authority and this previous one.
    Create(Option<Authority>),
    /// Put a new authority in, with this previous one.
    Renew(Option<Authority>, String),
    /// Leave out the previous authority, which has expired.
    Forget,
}

/// What to do about the Secret. `serving` is the authority that signed what this replica serves: when the Secret has lost it, it
/// becomes the previous one, so that what is served stays trusted until the next one is known.
pub fn plan(stored: &Stored, serving: Option<&Authority>, now: i64) -> Plan {
    let alive = |authority: Option<&Authority>| {
        authority
            .filter(|authority| authority.span.is_valid(now))
            .cloned()
    };
    let authorities = match stored {
        Stored::Absent => return Plan::Create(alive(serving)),
        Stored::Unusable(why) => return Plan::Renew(alive(serving), why.clone()),
        Stored::Usable(authorities) => authorities,
    };
    let current = &authorities.current;
    if !current.span.is_valid(now) {
        let other = serving.filter(|serving| *serving != current);
        return Plan::Renew(alive(other), "it is not valid by this clock".to_owned());
    }
    if current.span.is_due(now) {
        let why = "two thirds of its life are over".to_owned();
        return Plan::Renew(Some(current.clone()), why);
    }
    match &authorities.previous {
        Some(previous) if !previous.span.is_valid(now) => Plan::Forget,
        _ => Plan::Keep,
    }
}

/// Who trusts the authorities: the bundles that are published now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// For how long all published bundles have held the current one; none: not all do.
    pub current: Option<Duration>,
    /// Whether all published bundles hold the previous one.
    pub previous: bool,
}

/// How late a look may be: seconds are whole, and looks at least one apart.
const LATE: i64 = 2;

/// Which authority signs: the newest as soon as it is known everywhere, and until then the one before, if that is of any use.
pub fn signer(
    authorities: &Authorities,
    trust: Trust,
    lifetimes: Lifetimes,
    now: i64,
) -> &Authority {
    let current = &authorities.current;
    let settle = lifetimes.settle;
    match &authorities.previous {
        Some(previous) if trust.previous && previous.span.is_valid(now) => {
            let settled = trust.current.is_some_and(|since| {
                since >= settle
                    || ends_first(
                        previous,
                        current,
                        settle.saturating_sub(since),
                        lifetimes,
                        now,
                    )
            });
            if settled { current } else { previous }
        }
        _ => current,
    }
}

/// Whether the previous authority, and with it any leaf that it signs, ends before the newest has been seen published for `rest` more.
/// A process that has just started has seen nothing yet: then the age of the newest tells that it is known everywhere.
fn ends_first(
    previous: &Authority,
    current: &Authority,
    rest: Duration,
    lifetimes: Lifetimes,
    now: i64,
) -> bool {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX / 4);
    let is_old = now - current.span.issued >= seconds(lifetimes.settle);
    is_old && previous.span.expires - now <= seconds(rest) + LATE
}

/// Whether a new leaf is needed instead of one with this life and authority.
pub fn needs_leaf(leaf: Option<(Span, Option<&Authority>)>, signer: &Authority, now: i64) -> bool {
    leaf.is_none_or(|(span, by)| by != Some(signer) || !span.is_valid(now) || span.is_due(now))
}

/// When to look again although nothing has happened: at the next renewal, and every 30 s because the clock may step.
pub fn next_look(spans: impl IntoIterator<Item = Span>, now: i64) -> Duration {
    let ends = spans
        .into_iter()
        .flat_map(|span| [span.due(), span.expires])
        .filter(|at| *at > now);
    let next = ends.min().map_or(30, |at| (at - now).clamp(1, 30));
    Duration::from_secs(u64::try_from(next).unwrap_or(30))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const NOW: i64 = 1_800_000_000;
    const LIVES: Lifetimes = Lifetimes {
        ca: Duration::from_secs(300 * 3600),
        leaf: Duration::from_secs(24 * 3600),
        settle: Duration::from_secs(10),
    };

    fn authority(issued: i64) -> Authority {
        Authority {
            certificate: format!("ca {issued}\n"),
            key: String::new(),
            span: Span::of(issued, LIVES.ca),
        }
    }

    fn usable(current: i64, previous: Option<i64>) -> Stored {
        Stored::Usable(Box::new(Authorities {
            current: authority(current),
            previous: previous.map(authority),
        }))
    }

    #[test]
    fn what_is_missing_or_broken_is_made_and_what_is_served_stays_trusted() {
        let serving = authority(NOW - HOUR);
        let keep = Some(serving.clone());
        assert_eq!(plan(&Stored::Absent, None, NOW), Plan::Create(None));
        assert_eq!(
            plan(&Stored::Absent, Some(&serving), NOW),
            Plan::Create(keep.clone())
        );
        let broken = Stored::Unusable("why".into());
        assert_eq!(
            plan(&broken, Some(&serving), NOW),
            Plan::Renew(keep, "why".into())
        );
        // An expired authority on disk is no previous one.
        let old = authority(NOW - 301 * HOUR);
        let stored = usable(NOW - 301 * HOUR, None);
        assert!(matches!(
            plan(&stored, Some(&old), NOW),
            Plan::Renew(None, _)
        ));
    }

    #[test]
    fn renewal_at_two_thirds_and_the_old_one_until_it_ends() {
        let fresh = usable(NOW - 199 * HOUR, None);
        assert_eq!(plan(&fresh, None, NOW), Plan::Keep);
        let due = usable(NOW - 200 * HOUR, Some(NOW - 299 * HOUR));
        let next = Some(authority(NOW - 200 * HOUR));
        let why = "two thirds of its life are over".to_owned();
        assert_eq!(plan(&due, None, NOW), Plan::Renew(next, why));
        let both = usable(NOW - HOUR, Some(NOW - 201 * HOUR));
        assert_eq!(plan(&both, None, NOW), Plan::Keep);
        let ended = usable(NOW - 100 * HOUR, Some(NOW - 300 * HOUR));
        assert_eq!(plan(&ended, None, NOW), Plan::Forget);
    }

    #[test]
    fn clock_steps_of_an_hour_change_nothing_and_of_a_year_are_survived() {
        let stored = usable(NOW, None);
        for step in [-HOUR, HOUR] {
            assert_eq!(plan(&stored, None, NOW + step), Plan::Keep, "{step}");
            let span = Span::of(NOW, LIVES.leaf);
            let ca = authority(NOW);
            assert!(!needs_leaf(Some((span, Some(&ca))), &ca, NOW + step));
        }
        for step in [-9000 * HOUR, 9000 * HOUR] {
            let plan = plan(&stored, Some(&authority(NOW)), NOW + step);
            assert!(matches!(plan, Plan::Renew(None, _)), "{plan:?}");
        }
    }

    #[test]
    fn the_new_authority_signs_when_all_know_it() {
        let Stored::Usable(pair) = usable(NOW, Some(NOW - 200 * HOUR)) else {
            unreachable!()
        };
        let by = |current: Option<u64>, previous| {
            let current = current.map(Duration::from_secs);
            signer(&pair, Trust { current, previous }, LIVES, NOW)
                .span
                .issued
        };
        assert_eq!(by(None, true), NOW - 200 * HOUR);
        assert_eq!(by(Some(9), true), NOW - 200 * HOUR);
        assert_eq!(by(Some(10), true), NOW);
        // Nobody trusts the old one: it is of no use.
        assert_eq!(by(None, false), NOW);
        assert_eq!(by(Some(0), false), NOW);
    }

    #[test]
    fn who_starts_as_the_old_authority_ends_does_not_sign_with_it() {
        let end = NOW + 100 * HOUR;
        let by = |current_age: i64, now: i64, known: Option<u64>| {
            let Stored::Usable(pair) = usable(now - current_age, Some(NOW - 200 * HOUR)) else {
                unreachable!()
            };
            let trust = Trust {
                current: known.map(Duration::from_secs),
                previous: true,
            };
            *signer(&pair, trust, LIVES, now) == pair.current
        };
        for (age, left, known, newest, why) in [
            (
                100 * HOUR,
                5,
                Some(0),
                true,
                "a leaf would end before the new one has settled here",
            ),
            (
                100 * HOUR,
                12,
                Some(0),
                true,
                "looks come every second at best",
            ),
            (100 * HOUR, 13, Some(0), false, "there is time to settle"),
            (100 * HOUR, 5, None, false, "nobody trusts the new one yet"),
            (9, 5, Some(0), false, "it cannot be known everywhere yet"),
            (
                -HOUR,
                5,
                Some(0),
                false,
                "by a clock that stepped back, nobody knows its age",
            ),
        ] {
            assert_eq!(by(age, end - left, known), newest, "{why}");
        }
    }

    #[test]
    fn looks_come_at_the_next_renewal_and_every_half_minute() {
        let wait = |life: u64| next_look([Span::of(NOW, Duration::from_secs(life))], NOW).as_secs();
        assert_eq!((wait(15), wait(1), wait(86400)), (10, 1, 30));
        assert_eq!(next_look([], NOW).as_secs(), 30);
        let past = Span::of(NOW - 100, Duration::from_secs(50));
        assert_eq!(next_look([past], NOW).as_secs(), 30);
    }
}
