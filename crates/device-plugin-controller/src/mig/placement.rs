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

/// Where a profile may begin, and how many memory slices it takes.
#[derive(Clone, Copy)]
struct Places {
    starts: &'static [u32],
    size: u32,
}

/// Whether instances, as (profile, count), fit on one card of `part`.
pub fn fit(part: &Part, instances: &[(&str, u32)]) -> Fit {
    let mut wanted = Vec::new();
    let (mut media, mut all_media) = (0, 0);
    for (profile, count) in instances.iter().filter(|(_, count)| *count > 0) {
        let Some(places) = places(part, profile) else {
            return Fit::NoSuchProfile((*profile).to_owned());
        };
        // More instances than slices never fit; the bound keeps the search small.
        if *count > 12 {
            return Fit::DoesNotFit;
        }
        all_media += if profile.ends_with("+me.all") {
            *count
        } else {
            0
        };
        media += if profile.ends_with("+me") || profile.ends_with("+me.all") {
            *count
        } else {
            0
        };
        wanted.extend((0..*count).map(|_| places));
    }
    // One instance at most has the card's media engines.
    if media > 1 || all_media > 1 {
        return Fit::DoesNotFit;
    }
    // Large ones first: they have the fewest places.
    wanted.sort_by_key(|places| std::cmp::Reverse(places.size));
    if place(&wanted, 0) {
        Fit::Fits
    } else {
        Fit::DoesNotFit
    }
}

/// `taken` has a bit for each memory slice in use.
fn place(wanted: &[Places], taken: u32) -> bool {
    let Some((first, rest)) = wanted.split_first() else {
        return true;
    };
    let mask = |start: &u32| ((1u32 << first.size) - 1) << start;
    first
        .starts
        .iter()
        .map(mask)
        .any(|mask| taken & mask == 0 && place(rest, taken | mask))
}

fn places(part: &Part, profile: &str) -> Option<Places> {
    let most = part.most(profile)?;
    let slices = profile.chars().next()?.to_digit(10)?;
    let of = |starts, size| Some(Places { starts, size });
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
}
