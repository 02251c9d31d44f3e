//! The layouts that every install has, as mig-parted's configuration file: all-disabled, all-enabled, all-balanced and one
//! that fills each card with instances of one profile, `all-<profile>`.
//!
//! Format: NVIDIA/mig-parted `api/spec/v1` (unknown fields are refused there). Since v0.14 the MIG manager derives such a
//! list from each node's hardware; this one is its fallback.

use crate::yaml::{Yaml, render};
use std::collections::BTreeMap;
use tessera_api::mig::parts::{Geometry, PARTS, Part, label_form};

/// The name of the layout without MIG.
pub const ALL_DISABLED: &str = "all-disabled";

/// Layouts by name: each a list of rules, by the part that they are for.
fn layouts() -> BTreeMap<String, Vec<Yaml>> {
    let mut all = BTreeMap::from([
        (ALL_DISABLED.to_owned(), vec![rule(None, false, &[])]),
        ("all-enabled".to_owned(), vec![rule(None, true, &[])]),
    ]);
    for part in PARTS {
        for (profile, most) in part.profiles {
            let name = format!("all-{}", label_form(profile));
            all.entry(name)
                .or_default()
                .push(rule(Some(part), true, &[(profile, *most)]));
        }
        let balanced = rule(Some(part), true, &balanced(part));
        all.entry("all-balanced".to_owned())
            .or_default()
            .push(balanced);
    }
    all
}

/// Small, medium and large ones beside each other.
fn balanced(part: &Part) -> Vec<(&'static str, u32)> {
    let counts: &[(char, u32)] = match part.geometry {
        Geometry::Seven => &[('1', 2), ('2', 1), ('3', 1)],
        Geometry::Four | Geometry::Twelve => &[('1', 2), ('2', 1)],
    };
    // The first profile of a size is the plain one with the least memory.
    let first = |size: char| {
        part.profiles
            .iter()
            .find(|(profile, _)| profile.starts_with(size))
    };
    counts
        .iter()
        .filter_map(|(size, count)| first(*size).map(|(profile, _)| (*profile, *count)))
        .collect()
}

fn rule(part: Option<&Part>, enabled: bool, instances: &[(&str, u32)]) -> Yaml {
    let mut rule = Vec::new();
    if let Some(part) = part {
        rule.push((
            "device-filter",
            Yaml::List(part.filters().map(Yaml::Text).collect()),
        ));
    }
    rule.push(("devices", "all".into()));
    rule.push(("mig-enabled", enabled.into()));
    let instances = instances
        .iter()
        .map(|(profile, count)| ((*profile).to_owned(), (*count).into()));
    rule.push(("mig-devices", Yaml::Entries(instances.collect())));
    Yaml::Map(rule)
}

/// The file `config.yaml`.
pub fn config_file() -> String {
    let layouts = layouts()
        .into_iter()
        .map(|(name, rules)| (name, Yaml::List(rules)))
        .collect();
    render(&Yaml::Map(vec![
        ("version", "v1".into()),
        ("mig-configs", Yaml::Entries(layouts)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_api::mig::{Fit, fit};

    #[test]
    fn the_balanced_layout_fits_on_every_part() {
        for part in PARTS {
            assert_eq!(fit(part, &balanced(part)), Fit::Fits, "{}", part.name);
        }
    }

    #[test]
    fn the_file_is_read_back_by_a_yaml_reader() {
        let file: serde_json::Value = serde_saphyr::from_str(&config_file()).unwrap();
        let layouts = file["mig-configs"].as_object().unwrap();
        assert_eq!(file["version"], "v1");
        assert_eq!(layouts["all-disabled"][0]["mig-enabled"], false);
        assert_eq!(
            layouts["all-enabled"][0]["mig-devices"],
            serde_json::json!({})
        );
        assert_eq!(
            layouts["all-1g.10gb"].as_array().unwrap().len(),
            2,
            "four on an A100 40, seven on an A100 80"
        );
        assert_eq!(layouts["all-1g.10gb.me"][0]["mig-devices"]["1g.10gb+me"], 1);
        assert_eq!(layouts["all-3g.20gb"][0]["device-filter"][0], "0x20B010DE");
    }

    #[test]
    fn the_file() {
        insta::assert_snapshot!(config_file());
    }
}
