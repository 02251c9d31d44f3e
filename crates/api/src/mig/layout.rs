//! The MIG manager's configuration file, read as strictly as NVIDIA/mig-parted v0.15.0 reads it (`api/spec/v1`): unknown fields and
//! inconsistent rules are refused there, and the whole file with them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::parts::{PARTS, Part};
use crate::quote::quoted;

/// Something in the file that the MIG manager would refuse.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Where in the file.
    pub path: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.path, self.why, self.remedy)
    }
}

/// A file of layouts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutFile {
    /// Rules by name of the layout.
    pub layouts: BTreeMap<String, Vec<Rule>>,
    /// What keeps the file from being used.
    pub mistakes: Vec<Mistake>,
}

/// What is done to the cards that a rule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// PCI ids of cards and vendor, as `0x<device>10DE`; empty for all cards.
    pub filter: Vec<String>,
    /// Instances by profile, as the file writes it.
    pub instances: BTreeMap<String, u32>,
}

impl Rule {
    /// The known parts that it is for, and whether there may be others.
    pub fn parts(&self) -> (Vec<&'static Part>, bool) {
        if self.filter.is_empty() {
            return (PARTS.iter().collect(), true);
        }
        let is_meant = |part: &&Part| {
            let mut ids = part.filters();
            ids.any(|id| {
                self.filter
                    .iter()
                    .any(|given| given.eq_ignore_ascii_case(&id))
            })
        };
        let known = |given: &String| {
            let mut all = PARTS.iter().flat_map(Part::filters);
            all.any(|id| given.eq_ignore_ascii_case(&id))
        };
        let others = !self.filter.iter().all(known);
        (PARTS.iter().filter(is_meant).collect(), others)
    }

    /// GPU instances by profile, at least: several compute instances (`1c.3g.20gb`) lie in one.
    pub fn gpu_instances(&self) -> Vec<(&str, u32)> {
        let mut all: BTreeMap<&str, u32> = BTreeMap::new();
        for (written, count) in &self.instances {
            let (profile, count) = match compute(written) {
                Some((slices, profile)) => {
                    let whole = profile.chars().next().and_then(|c| c.to_digit(10));
                    let needed = u64::from(*count) * u64::from(slices);
                    let needed = needed.div_ceil(u64::from(whole.unwrap_or(1).max(1)));
                    (profile, u32::try_from(needed).unwrap_or(u32::MAX))
                }
                None => (written.as_str(), *count),
            };
            let sum = all.entry(profile).or_default();
            *sum = sum.saturating_add(count);
        }
        all.into_iter().collect()
    }
}

/// `(1, "3g.20gb")` of `1c.3g.20gb`.
fn compute(profile: &str) -> Option<(u32, &str)> {
    let (slices, rest) = profile.split_once("c.")?;
    Some((slices.parse().ok()?, rest))
}

/// Reads a file.
pub fn parse(text: &str) -> LayoutFile {
    let mut file = LayoutFile::default();
    match serde_saphyr::from_str::<Option<Value>>(text) {
        Ok(Some(Value::Object(top))) => read(&top, &mut file),
        Ok(_) => file.wrong(
            "the file",
            "is not a map",
            "write version: v1 and mig-configs",
        ),
        Err(error) => {
            let text = error.to_string();
            let first = quoted(text.lines().next().unwrap_or_default());
            file.wrong("the file", format!("is not YAML ({first})"), "correct it");
        }
    }
    file.mistakes.sort();
    file
}

impl LayoutFile {
    fn wrong(&mut self, path: &str, why: impl Into<String>, remedy: impl Into<String>) {
        self.mistakes.push(Mistake {
            path: path.to_owned(),
            why: why.into(),
            remedy: remedy.into(),
        });
    }

    fn unknown(&mut self, path: &str, map: &Map<String, Value>, known: &[&str]) {
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let key = quoted(key);
            let here = if path.is_empty() {
                key.into_owned()
            } else {
                format!("{path}.{key}")
            };
            let remedy = format!("write one of {}, or remove it", known.join(", "));
            self.wrong(
                &here,
                "is not a setting of the MIG manager, which refuses the file",
                remedy,
            );
        }
    }
}

fn read(top: &Map<String, Value>, file: &mut LayoutFile) {
    file.unknown("", top, &["version", "mig-configs"]);
    if top.get("version").and_then(Value::as_str) != Some("v1") {
        file.wrong(
            "version",
            "is not v1, the only one that the MIG manager knows",
            "write version: v1",
        );
    }
    match top.get("mig-configs") {
        Some(Value::Object(layouts)) if !layouts.is_empty() => {
            for (name, rules) in layouts {
                let path = format!("mig-configs.{}", quoted(name));
                let Value::Array(rules) = rules else {
                    file.wrong(
                        &path,
                        "is not a list of rules",
                        "write a list, each with devices, mig-enabled and mig-devices",
                    );
                    continue;
                };
                let read = |(index, value): (usize, &Value)| {
                    rule(value, &format!("{path}[{index}]"), file)
                };
                let rules = rules.iter().enumerate().filter_map(read).collect();
                file.layouts.insert(name.clone(), rules);
            }
        }
        Some(Value::Object(_)) => {
            file.wrong(
                "mig-configs",
                "has no layout",
                "write at least one, such as all-disabled",
            );
        }
        _ => file.wrong(
            "mig-configs",
            "is no map of layouts, which the MIG manager needs",
            "write the layouts there, by name",
        ),
    }
}

fn rule(value: &Value, path: &str, file: &mut LayoutFile) -> Option<Rule> {
    let Value::Object(map) = value else {
        file.wrong(
            path,
            "is not a map",
            "write devices, mig-enabled and mig-devices",
        );
        return None;
    };
    file.unknown(
        path,
        map,
        &["device-filter", "devices", "mig-enabled", "mig-devices"],
    );
    devices(map, path, file);
    let enabled = map.get("mig-enabled").and_then(Value::as_bool);
    if enabled.is_none() {
        file.wrong(
            &format!("{path}.mig-enabled"),
            "is neither true nor false",
            "write one of them",
        );
    }
    let instances = instances(map, path, file);
    let here = format!("{path}.mig-devices");
    let written = map.get("mig-devices").is_some_and(|value| !value.is_null());
    match enabled {
        Some(true) if !written => {
            file.wrong(
                &here,
                "is missing, although MIG is on",
                "write the number of instances by profile, or {} for none",
            );
        }
        Some(true) if !instances.is_empty() && instances.values().all(|count| *count == 0) => {
            file.wrong(
                &here,
                "has no instance at all",
                "write how many of each profile, or {} for none",
            );
        }
        Some(false) if !instances.is_empty() => {
            file.wrong(
                &here,
                "has instances, although MIG is off",
                "set mig-enabled to true, or remove them",
            );
        }
        Some(_) | None => {}
    }
    Some(Rule {
        filter: filter(map, path, file),
        instances,
    })
}

fn devices(map: &Map<String, Value>, path: &str, file: &mut LayoutFile) {
    let good = match map.get("devices") {
        Some(Value::String(text)) => text == "all",
        Some(Value::Array(list)) => list.iter().all(Value::is_u64),
        _ => false,
    };
    if !good {
        file.wrong(
            &format!("{path}.devices"),
            "is neither `all` nor a list of card numbers",
            "write one of them",
        );
    }
}

fn filter(map: &Map<String, Value>, path: &str, file: &mut LayoutFile) -> Vec<String> {
    let texts = match map.get("device-filter") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::String(text)) if text.is_empty() => Some(Vec::new()),
        Some(Value::String(text)) => Some(vec![text.clone()]),
        Some(Value::Array(list)) => list
            .iter()
            .map(|one| one.as_str().map(str::to_owned))
            .collect(),
        Some(_) => None,
    };
    texts.unwrap_or_else(|| {
        let remedy = "write for example \"0x233010DE\", in quotes, or a list of such texts";
        file.wrong(&format!("{path}.device-filter"), "is not a text", remedy);
        Vec::new()
    })
}

fn instances(map: &Map<String, Value>, path: &str, file: &mut LayoutFile) -> BTreeMap<String, u32> {
    let here = format!("{path}.mig-devices");
    let entries = match map.get("mig-devices") {
        None | Some(Value::Null) => return BTreeMap::new(),
        Some(Value::Object(entries)) => entries,
        Some(_) => {
            file.wrong(
                &here,
                "is not a map",
                "write the number of instances by profile",
            );
            return BTreeMap::new();
        }
    };
    let mut found = BTreeMap::new();
    for (profile, count) in entries {
        let at = format!("{here}.{}", quoted(profile));
        if !is_profile(profile) {
            let remedy = "write it as 1g.10gb, 1g.10gb+me or 1c.3g.40gb";
            file.wrong(&at, "is not the name of a MIG profile", remedy);
        }
        match count.as_u64().and_then(|count| u32::try_from(count).ok()) {
            Some(count) => {
                found.insert(profile.clone(), count);
            }
            None => file.wrong(
                &at,
                format!(
                    "is {}, not a number of instances",
                    quoted(&count.to_string())
                ),
                "write a whole number",
            ),
        }
    }
    found
}

/// `[<c>c.]<g>g.<gb>gb[(+|-)<attribute>]` (mig-parted `pkg/types/mig_profile.go`).
fn is_profile(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (base, attributes) = match text.find(['+', '-']) {
        Some(at) => {
            let (base, rest) = text.split_at(at);
            (base, rest.get(1..))
        }
        None => (text, None),
    };
    if attributes.is_some_and(|list| {
        !list
            .split([',', '+'])
            .all(|one| matches!(one, "me" | "me.all" | "gfx"))
    }) {
        return false;
    }
    let base = match base.split_once("c.") {
        Some((slices, rest)) if digits(slices) => rest,
        Some(_) => return false,
        None => base,
    };
    let Some((slices, memory)) = base.split_once("g.") else {
        return false;
    };
    digits(slices) && memory.strip_suffix("gb").is_some_and(digits)
}
