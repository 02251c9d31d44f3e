//! Shares of a card: which resources can be shared, and how many times.

use thiserror::Error;

use crate::{names::RESOURCE_PREFIX, quote::quoted};

/// The most time-sliced containers on one card.
pub const MAX_TIME_SLICES: u32 = 64;
/// The most clients of an MPS server (NVIDIA's MPS documentation, for compute capability [`MPS_FULL_COMPUTE`] and later).
pub const MAX_MPS_CLIENTS: u32 = 48;
/// The most clients of an MPS server on older cards.
pub const MAX_MPS_CLIENTS_OLD: u32 = 16;
/// The compute capability from which on [`MAX_MPS_CLIENTS`] holds.
pub const MPS_FULL_COMPUTE: (u32, u32) = (7, 5);
/// More shares than this are allowed and rarely meant.
pub const MANY: u32 = 16;

/// Below this CUDA cannot tell a program how much memory is left (HAMi issue 1370), MiB.
pub const LEAST_USABLE: u32 = 346;
/// Memory of a share that is not given away automatically, MiB: what contexts and libraries take.
pub const RESERVE: u32 = 512;

/// Longest name of a resource that the device plugin takes.
const LONGEST: usize = 63;

/// Why a resource cannot be shared. The message says what to write.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NameError {
    /// Another domain.
    #[error(
        "`{0}` cannot be shared, as its domain is not nvidia.com: write nvidia.com/gpu or nvidia.com/mig-<profile>"
    )]
    Domain(String),
    /// The suffix that the plugin adds itself.
    #[error(
        "`{0}` cannot be shared, as it ends with .shared, which renameByDefault adds: write the name without it"
    )]
    Suffix(String),
    /// Too long.
    #[error(
        "`{0}` cannot be shared, as it has more than 63 characters: write nvidia.com/gpu or nvidia.com/mig-<profile>"
    )]
    Length(String),
    /// Not the name of a resource.
    #[error(
        "`{0}` cannot be shared, as a resource's name has lower-case letters, digits, `-` and `.` only: write nvidia.com/gpu or \
         nvidia.com/mig-<profile>, with `.` for the `+` of a profile"
    )]
    Characters(String),
}

/// The name with its domain: one without means `nvidia.com/`.
pub fn full_name(name: &str) -> String {
    if name.contains('/') {
        name.to_owned()
    } else {
        format!("{RESOURCE_PREFIX}{name}")
    }
}

/// The full name of a resource that can be shared (NVIDIA/k8s-device-plugin `api/config/v1/resources.go`).
pub fn shared_name(name: &str) -> Result<String, NameError> {
    let full = full_name(name);
    let Some(suffix) = full.strip_prefix(RESOURCE_PREFIX) else {
        return Err(NameError::Domain(quoted(&full).into_owned()));
    };
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    // A DNS subdomain: labels of letters, digits and dashes, with dots between them.
    let is_label = |label: &str| {
        label.chars().all(|c| letter(c) || c == '-')
            && label.starts_with(letter)
            && label.ends_with(letter)
    };
    if !suffix.split('.').all(is_label) {
        return Err(NameError::Characters(quoted(&full).into_owned()));
    }
    if suffix.ends_with(".shared") {
        return Err(NameError::Suffix(quoted(&full).into_owned()));
    }
    if full.len() > LONGEST {
        return Err(NameError::Length(quoted(&full).into_owned()));
    }
    Ok(full)
}

/// Why no limit can be worked out. The message goes on from "no limit was set, as".
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NoLimit {
    /// The memory of some card is not known.
    #[error("it is not known how much memory the cards have")]
    Unknown,
    /// The node decides too much.
    #[error(
        "a share has from {least} to {most} MiB, depending on the node: choose nodes by a nodeSelector"
    )]
    Differs {
        /// MiB of the smallest share.
        least: u32,
        /// MiB of the largest.
        most: u32,
    },
    /// Too little is left.
    #[error(
        "{share} MiB a share are too few, of which {RESERVE} MiB are kept for contexts and libraries"
    )]
    TooSmall {
        /// MiB of the smallest share.
        share: u32,
    },
}

/// The automatic limit of a share in MiB, given what a share of each card that may be meant has (none: not known): that of the
/// smallest less [`RESERVE`].
///
/// # Errors
/// It cannot be told: something is not known, the shares differ by more than a tenth, or too little is left.
pub fn automatic_limit(shares: impl IntoIterator<Item = Option<u32>>) -> Result<u32, NoLimit> {
    let known: Option<Vec<u32>> = shares.into_iter().collect();
    let known = known.unwrap_or_default();
    let (Some(least), Some(most)) = (known.iter().min().copied(), known.iter().max().copied())
    else {
        return Err(NoLimit::Unknown);
    };
    if u64::from(most - least) * 10 > u64::from(most) {
        return Err(NoLimit::Differs { least, most });
    }
    match least.checked_sub(RESERVE) {
        Some(limit) if limit >= LEAST_USABLE => Ok(limit),
        _ => Err(NoLimit::TooSmall { share: least }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn automatic_limits() {
        for (shares, want) in [
            (vec![Some(3_840)], Ok(3_328)),
            (vec![Some(20_389), Some(20_480)], Ok(19_877)),
            (
                vec![Some(3_840), Some(20_480)],
                Err(NoLimit::Differs {
                    least: 3_840,
                    most: 20_480,
                }),
            ),
            (vec![Some(3_840), None], Err(NoLimit::Unknown)),
            (vec![], Err(NoLimit::Unknown)),
            (vec![Some(960)], Ok(448)),
            (vec![Some(857)], Err(NoLimit::TooSmall { share: 857 })),
            (vec![Some(0)], Err(NoLimit::TooSmall { share: 0 })),
        ] {
            assert_eq!(automatic_limit(shares.clone()), want, "{shares:?}");
        }
    }

    #[test]
    fn names() {
        let long = "a".repeat(53);
        for (name, want) in [
            ("gpu", Ok("nvidia.com/gpu")),
            ("nvidia.com/mig-1g.10gb.me", Ok("nvidia.com/mig-1g.10gb.me")),
            ("mig-1g.24gb-me", Ok("nvidia.com/mig-1g.24gb-me")),
            ("amd.com/gpu", Err("its domain is not nvidia.com")),
            ("/gpu", Err("its domain is not nvidia.com")),
            ("gpu.shared", Err("ends with .shared")),
            (long.as_str(), Err("more than 63 characters")),
            ("mig-1g.10gb+me", Err("with `.` for the `+` of a profile")),
            ("", Err("lower-case letters")),
            ("nvidia.com/", Err("lower-case letters")),
            ("GPU", Err("lower-case letters")),
            ("a..b", Err("lower-case letters")),
            ("-a", Err("lower-case letters")),
            ("a/b/c", Err("its domain is not nvidia.com")),
        ] {
            match (shared_name(name), want) {
                (Ok(full), Ok(want)) => assert_eq!(full, want),
                (Err(error), Err(want)) => {
                    assert!(error.to_string().contains(want), "{name}: {error}");
                }
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
        assert_eq!(shared_name(&"a".repeat(52)).map(|name| name.len()), Ok(63));
    }
}
