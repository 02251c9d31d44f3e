//! Shares of a card: which resources can be shared, and how many times.

use thiserror::Error;

use crate::names::RESOURCE_PREFIX;

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
        return Err(NameError::Domain(full));
    };
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    // A DNS subdomain: labels of letters, digits and dashes, with dots between them.
    let is_label = |label: &str| {
        label.chars().all(|c| letter(c) || c == '-')
            && label.starts_with(letter)
            && label.ends_with(letter)
    };
    if !suffix.split('.').all(is_label) {
        return Err(NameError::Characters(full));
    }
    if suffix.ends_with(".shared") {
        return Err(NameError::Suffix(full));
    }
    if full.len() > LONGEST {
        return Err(NameError::Length(full));
    }
    Ok(full)
}

#[cfg(test)]
mod tests {
    use super::*;

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
