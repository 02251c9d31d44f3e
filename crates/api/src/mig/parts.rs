//! The products that can do MIG and their profiles, as data.
//!
//! Source: NVIDIA's MIG user guide ("Supported MIG Profiles") and the device ids of NVIDIA/mig-parted v0.15.0. Parts whose
//! profiles are not published there (RTX PRO 5000 and 4500) are left out: the MIG manager reads them from the card.

/// How instances lie on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// Seven compute slices over eight memory slices (A100 and its successors).
    Seven,
    /// Four over four (A30).
    Four,
    /// Four over twelve units (RTX PRO 6000).
    Twelve,
}

/// One product, or several that are alike.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// For people.
    pub name: &'static str,
    /// How instances lie on it.
    pub geometry: Geometry,
    /// PCI device ids.
    pub ids: &'static [u16],
    /// Profiles with the greatest number of instances that fit on one card.
    pub profiles: &'static [(&'static str, u32)],
}

impl Part {
    /// The greatest number of instances of a profile; `None` if the part does not have it.
    pub fn most(&self, profile: &str) -> Option<u32> {
        self.profiles
            .iter()
            .find(|(name, _)| *name == profile)
            .map(|(_, most)| *most)
    }

    /// Memory of a card in MiB, rounded as its profile for the whole card is named.
    pub fn memory(&self) -> u32 {
        let sizes = self.profiles.iter();
        let sizes = sizes.filter_map(|(profile, _)| memory_of_profile(profile));
        sizes.max().unwrap_or(0)
    }

    /// The ids as mig-parted's `device-filter` writes them.
    pub fn filters(&self) -> impl Iterator<Item = String> {
        self.ids.iter().map(|id| format!("0x{id:04X}10DE"))
    }
}

/// All known parts.
pub const PARTS: &[Part] = &[
    Part {
        name: "A30 24 GB",
        geometry: Geometry::Four,
        ids: &[0x20B7],
        profiles: &[
            ("1g.6gb", 4),
            ("1g.6gb+me", 1),
            ("2g.12gb", 2),
            ("2g.12gb+me", 1),
            ("4g.24gb", 1),
        ],
    },
    Part {
        name: "A100 40 GB",
        geometry: Geometry::Seven,
        ids: &[0x20B0, 0x20B1, 0x20F1],
        profiles: &[
            ("1g.5gb", 7),
            ("1g.5gb+me", 1),
            ("1g.10gb", 4),
            ("2g.10gb", 3),
            ("3g.20gb", 2),
            ("4g.20gb", 1),
            ("7g.40gb", 1),
        ],
    },
    Part {
        name: "A100 80 GB, H100 80 GB",
        geometry: Geometry::Seven,
        ids: &[
            0x20B2, 0x20B5, 0x20F3, 0x20F5, 0x2322, 0x2324, 0x2330, 0x2331,
        ],
        profiles: &[
            ("1g.10gb", 7),
            ("1g.10gb+me", 1),
            ("1g.20gb", 4),
            ("2g.20gb", 3),
            ("3g.40gb", 2),
            ("4g.40gb", 1),
            ("7g.80gb", 1),
        ],
    },
    Part {
        name: "H100 NVL 94 GB",
        geometry: Geometry::Seven,
        ids: &[0x2321, 0x233A],
        profiles: &[
            ("1g.12gb", 7),
            ("1g.12gb+me", 1),
            ("1g.24gb", 4),
            ("2g.24gb", 3),
            ("3g.47gb", 2),
            ("4g.47gb", 1),
            ("7g.94gb", 1),
        ],
    },
    Part {
        name: "H20 96 GB, GH200 96 GB",
        geometry: Geometry::Seven,
        ids: &[0x2329, 0x2342],
        profiles: &[
            ("1g.12gb", 7),
            ("1g.12gb+me", 1),
            ("1g.24gb", 4),
            ("2g.24gb", 3),
            ("3g.48gb", 2),
            ("4g.48gb", 1),
            ("7g.96gb", 1),
        ],
    },
    Part {
        name: "H200 141 GB",
        geometry: Geometry::Seven,
        ids: &[0x2335, 0x233B],
        profiles: &[
            ("1g.18gb", 7),
            ("1g.18gb+me", 1),
            ("1g.35gb", 4),
            ("2g.35gb", 3),
            ("3g.71gb", 2),
            ("4g.71gb", 1),
            ("7g.141gb", 1),
        ],
    },
    Part {
        name: "GH200 144 GB",
        geometry: Geometry::Seven,
        ids: &[0x2348],
        profiles: &[
            ("1g.18gb", 7),
            ("1g.36gb", 4),
            ("2g.36gb", 3),
            ("3g.72gb", 2),
            ("4g.72gb", 1),
            ("7g.144gb", 1),
        ],
    },
    Part {
        name: "B200 180 GB",
        geometry: Geometry::Seven,
        ids: &[0x2901],
        profiles: &[
            ("1g.23gb", 7),
            ("1g.23gb+me", 1),
            ("1g.45gb", 4),
            ("2g.45gb", 3),
            ("3g.90gb", 2),
            ("4g.90gb", 1),
            ("7g.180gb", 1),
        ],
    },
    Part {
        name: "GB200",
        geometry: Geometry::Seven,
        ids: &[0x2941],
        profiles: &[
            ("1g.23gb", 7),
            ("1g.47gb", 4),
            ("2g.47gb", 3),
            ("3g.93gb", 2),
            ("4g.93gb", 1),
            ("7g.186gb", 1),
        ],
    },
    Part {
        name: "B300",
        geometry: Geometry::Seven,
        ids: &[0x3182],
        profiles: &[
            ("1g.34gb", 7),
            ("1g.34gb+me", 1),
            ("1g.67gb", 4),
            ("2g.67gb", 3),
            ("3g.135gb", 2),
            ("4g.135gb", 1),
            ("7g.269gb", 1),
        ],
    },
    Part {
        name: "GB300",
        geometry: Geometry::Seven,
        ids: &[0x31C2],
        profiles: &[
            ("1g.35gb", 7),
            ("1g.35gb+me", 1),
            ("1g.70gb", 4),
            ("2g.70gb", 3),
            ("3g.139gb", 2),
            ("4g.139gb", 1),
            ("7g.278gb", 1),
        ],
    },
    Part {
        name: "RTX PRO 6000 96 GB",
        geometry: Geometry::Twelve,
        ids: &[0x2BB5],
        profiles: &[
            ("1g.24gb", 4),
            ("1g.24gb+gfx", 4),
            ("1g.24gb+me", 1),
            ("1g.24gb+me.all", 1),
            ("1g.24gb-me", 4),
            ("2g.48gb", 2),
            ("2g.48gb+gfx", 2),
            ("2g.48gb+me.all", 1),
            ("2g.48gb-me", 2),
            ("4g.96gb", 1),
            ("4g.96gb+gfx", 1),
        ],
    },
];

/// Whether any known part has this profile (`1g.5gb+me`).
pub fn is_known(profile: &str) -> bool {
    PARTS.iter().any(|part| part.most(profile).is_some())
}

/// The profile behind an extended resource: in resource names `+` is written `.` (`nvidia.com/mig-1g.5gb.me`). `None` if no
/// known part has it.
pub fn profile_of_resource(resource: &str) -> Option<&'static str> {
    let suffix = resource.strip_prefix(crate::names::MIG_RESOURCE_PREFIX)?;
    let mut all = PARTS.iter().flat_map(|part| part.profiles);
    all.find(|(profile, _)| label_form(profile) == suffix)
        .map(|(profile, _)| *profile)
}

/// Memory that a profile's name stands for in MiB; names round up.
pub fn memory_of_profile(profile: &str) -> Option<u32> {
    let (_, size) = profile.split_once("g.")?;
    Some(size.split_once("gb")?.0.parse::<u32>().ok()? * 1024)
}

/// A profile as labels, layouts and resources write it.
pub fn label_form(profile: &str) -> String {
    profile.replace('+', ".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_id_belongs_to_one_part_and_every_profile_is_told_apart_as_a_resource() {
        let mut ids = BTreeSet::new();
        for part in PARTS {
            let labels: BTreeSet<String> = part
                .profiles
                .iter()
                .map(|(profile, _)| label_form(profile))
                .collect();
            assert_eq!(labels.len(), part.profiles.len(), "{}", part.name);
            for id in part.ids {
                assert!(ids.insert(id), "{id:04X} is listed twice");
            }
        }
    }

    #[test]
    fn resources_name_profiles() {
        assert_eq!(profile_of_resource("nvidia.com/mig-1g.5gb"), Some("1g.5gb"));
        assert_eq!(
            profile_of_resource("nvidia.com/mig-1g.10gb.me"),
            Some("1g.10gb+me")
        );
        assert_eq!(
            profile_of_resource("nvidia.com/mig-1g.24gb-me"),
            Some("1g.24gb-me")
        );
        assert_eq!(profile_of_resource("nvidia.com/mig-9g.1gb"), None);
        assert_eq!(profile_of_resource("nvidia.com/gpu"), None);
    }
}
