//! Does a set of instances fit on one card? A search over the places where each profile may begin, because a sum of
//! slices accepts layouts that the hardware refuses (4g+4g, 3g+3g+1g).
//!
//! Source of the places: NVIDIA's MIG user guide ("MIG Device Placement"), as `{starts}:size` in memory slices.

use super::parts::{Geometry, Part};

/// The answer for one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// There is a placement.
    Fits,
    /// There is none.
    DoesNotFit,
    /// The part does not have this profile.
    NoSuchProfile(String),
}

/// One instance on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    /// Its profile.
    pub profile: &'a str,
    /// First memory slice.
    pub start: u32,
    /// How many memory slices it takes.
    pub size: u32,
}

/// An instance that has no place yet.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    profile: &'a str,
    starts: &'static [u32],
    size: u32,
}

/// No card has more instances than this.
const MOST: u32 = 12;

/// Whether instances, as (profile, count), fit on one card of `part`.
pub fn fit(part: &Part, instances: &[(&str, u32)]) -> Fit {
    match placement(part, instances) {
        Ok(_) => Fit::Fits,
        Err(why) => why,
    }
}

/// Where instances, as (profile, count), can lie on one card of `part`; otherwise why they cannot.
pub fn placement<'a>(part: &Part, instances: &[(&'a str, u32)]) -> Result<Vec<Placed<'a>>, Fit> {
    let mut wanted: Vec<Wanted<'a>> = Vec::new();
    let mut total = 0_u32;
    for (profile, count) in instances.iter().filter(|(_, count)| *count > 0) {
        let Some(one) = places(part, profile) else {
            return Err(Fit::NoSuchProfile((*profile).to_owned()));
        };
        total = total.saturating_add(*count);
        // More instances than slices never fit; the bound keeps the search small.
        if total <= MOST {
            wanted.extend((0..*count).map(|_| one));
        }
    }
    // One instance at most has the card's media engines.
    let media = wanted
        .iter()
        .filter(|one| one.profile.ends_with("+me") || one.profile.ends_with("+me.all"))
        .count();
    if total > MOST || media > 1 {
        return Err(Fit::DoesNotFit);
    }
    // Large ones first: they have the fewest places.
    wanted.sort_by_key(|one| (std::cmp::Reverse(one.size), one.profile));
    let mut placed = Vec::new();
    if place(&wanted, 0, &mut placed) {
        Ok(placed)
    } else {
        Err(Fit::DoesNotFit)
    }
}

/// `taken` has a bit for each memory slice in use.
fn place<'a>(wanted: &[Wanted<'a>], taken: u32, placed: &mut Vec<Placed<'a>>) -> bool {
    let Some((first, rest)) = wanted.split_first() else {
        return true;
    };
    // Instances of one profile are alike: in rising order, each set of places is tried once.
    let after = placed
        .last()
        .filter(|last| last.profile == first.profile)
        .map(|last| last.start);
    for start in first.starts {
        let mask = ((1_u32 << first.size) - 1) << start;
        if taken & mask != 0 || after.is_some_and(|after| *start < after) {
            continue;
        }
        placed.push(Placed {
            profile: first.profile,
            start: *start,
            size: first.size,
        });
        if place(rest, taken | mask, placed) {
            return true;
        }
        placed.pop();
    }
    false
}

fn places<'a>(part: &Part, profile: &'a str) -> Option<Wanted<'a>> {
    let most = part.most(profile)?;
    let slices = profile.chars().next()?.to_digit(10)?;
    let of = |starts, size| {
        Some(Wanted {
            profile,
            starts,
            size,
        })
    };
    match (part.geometry, slices) {
        // A one-slice profile of which only four fit has twice the memory. (`+me` is limited to one for another reason.)
        (Geometry::Seven, 1) if most == 4 => of(&[0, 2, 4, 6], 2),
        (Geometry::Seven, 1) => of(&[0, 1, 2, 3, 4, 5, 6], 1),
        (Geometry::Seven, 2) => of(&[0, 2, 4], 2),
        (Geometry::Seven, 3) => of(&[0, 4], 4),
        (Geometry::Seven | Geometry::Four, 4) => of(&[0], 4),
        (Geometry::Seven, 7) => of(&[0], 8),
        (Geometry::Four, 1) => of(&[0, 1, 2, 3], 1),
        (Geometry::Four, 2) => of(&[0, 2], 2),
        (Geometry::Twelve, 1) => of(&[0, 3, 6, 9], 3),
        (Geometry::Twelve, 2) => of(&[0, 6], 6),
        (Geometry::Twelve, 4) => of(&[0], 12),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::parts::PARTS;
    use proptest::{collection::vec, prelude::*};

    fn part(name: &str) -> &'static Part {
        PARTS.iter().find(|part| part.name.contains(name)).unwrap()
    }

    #[test]
    fn what_fits_together() {
        let a100 = part("A100 40");
        let cases: &[(&[(&str, u32)], Fit)] = &[
            (&[("4g.20gb", 1), ("3g.20gb", 1)], Fit::Fits),
            (&[("3g.20gb", 2)], Fit::Fits),
            (&[("3g.20gb", 1), ("2g.10gb", 1), ("1g.5gb", 2)], Fit::Fits),
            (&[("2g.10gb", 3), ("1g.5gb", 1)], Fit::Fits),
            (&[("1g.10gb", 4)], Fit::Fits),
            (&[("1g.5gb", 6), ("1g.5gb+me", 1)], Fit::Fits),
            (&[("4g.20gb", 2)], Fit::DoesNotFit),
            (&[("3g.20gb", 2), ("1g.5gb", 1)], Fit::DoesNotFit),
            (&[("1g.5gb+me", 2)], Fit::DoesNotFit),
            (&[("7g.40gb", 1), ("1g.5gb", 1)], Fit::DoesNotFit),
            (&[("1g.5gb", u32::MAX)], Fit::DoesNotFit),
            (&[("3g.40gb", 1)], Fit::NoSuchProfile("3g.40gb".to_owned())),
            (&[("3g.40gb", 0)], Fit::Fits),
        ];
        for (instances, want) in cases {
            assert_eq!(fit(a100, instances), *want, "{instances:?}");
        }
        assert_eq!(
            fit(part("A30"), &[("2g.12gb", 1), ("1g.6gb", 2)]),
            Fit::Fits
        );
        assert_eq!(
            fit(part("A30"), &[("2g.12gb", 2), ("1g.6gb", 1)]),
            Fit::DoesNotFit
        );
        assert_eq!(
            fit(part("RTX PRO"), &[("2g.48gb", 1), ("1g.24gb", 2)]),
            Fit::Fits
        );
    }

    #[test]
    fn the_greatest_number_of_each_profile_fits_and_one_more_does_not() {
        for part in PARTS {
            for (profile, most) in part.profiles {
                assert_eq!(
                    fit(part, &[(profile, *most)]),
                    Fit::Fits,
                    "{} {profile}",
                    part.name
                );
                assert_eq!(
                    fit(part, &[(profile, most + 1)]),
                    Fit::DoesNotFit,
                    "{} {profile}",
                    part.name
                );
            }
        }
    }
    /// A part and, for each of its profiles, how many instances.
    fn any_layout() -> impl Strategy<Value = (&'static Part, Vec<(&'static str, u32)>)> {
        (0..PARTS.len(), vec(0..4_u32, 12)).prop_map(|(index, counts)| {
            let part = &PARTS[index];
            let names = part.profiles.iter().map(|(profile, _)| *profile);
            (part, names.zip(counts).collect())
        })
    }

    proptest! {
        #[test]
        fn what_is_found_fits((part, layout) in any_layout()) {
            let Ok(placed) = placement(part, &layout) else { return Ok(()) };
            for (profile, count) in &layout {
                let found = placed.iter().filter(|one| one.profile == *profile).count();
                prop_assert_eq!(u32::try_from(found).unwrap(), *count);
            }
            for (index, one) in placed.iter().enumerate() {
                let legal = places(part, one.profile).unwrap();
                prop_assert!(legal.starts.contains(&one.start) && legal.size == one.size);
                for other in &placed[index + 1..] {
                    let apart = one.start + one.size <= other.start || other.start + other.size <= one.start;
                    prop_assert!(apart, "{one:?} and {other:?}");
                }
            }
        }

        #[test]
        fn fewer_instances_still_fit((part, layout) in any_layout(), index in 0..12_usize) {
            let mut fewer = layout.clone();
            if let Some((_, count)) = fewer.get_mut(index) {
                *count = count.saturating_sub(1);
            }
            if fit(part, &layout) == Fit::Fits {
                prop_assert_eq!(fit(part, &fewer), Fit::Fits);
            }
        }
    }
}
