//! Inline sharing: what is allowed and rarely meant, and what only the nodes can tell. What is never allowed is a problem of the
//! effective policy.

use serde_json::Value;

use super::{MapFacts, case::Case, json::some_of};
use crate::{
    effective::PluginConfig,
    mig::{layout, parts},
    names::{MIG_RESOURCE_PREFIX, config_map},
    quote::quoted,
    shares::{MANY, MAX_MPS_CLIENTS, MAX_MPS_CLIENTS_OLD, MPS_FULL_COMPUTE, full_name},
};

/// The sharing section of a policy.
const SHARING: &str = "devicePlugin.config.sharing";

pub(super) fn judge(case: &mut Case<'_>) {
    if matches!(
        case.effective.device_plugin.config,
        PluginConfig::ConfigMap { .. }
    ) {
        return;
    }
    for kind in ["timeSlicing", "mps"] {
        let list = format!("{SHARING}.{kind}.resources");
        let entries = case.at(&list).and_then(Value::as_array).cloned();
        for (index, entry) in entries.unwrap_or_default().iter().enumerate() {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
            let name = full_name(text("name"));
            let replicas = entry.get("replicas").and_then(Value::as_u64);
            let replicas = replicas.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
            let path = format!("{list}[{index}].replicas");
            number(case, &path, &name, replicas, kind == "mps");
            instances(case, &format!("{list}[{index}].name"), &name);
        }
        renamed(case, &format!("{SHARING}.{kind}.renameByDefault"));
    }
}

fn number(case: &mut Case<'_>, path: &str, name: &str, replicas: u32, mps: bool) {
    if replicas == 1 {
        let why = format!(
            "means that {} is not shared, and the entry is left out of the plugin's configuration",
            quoted(name)
        );
        case.warn((path, &[]), why, "write 2 or more, or remove the entry");
    }
    if replicas <= MANY {
        return;
    }
    let is_old = |compute: (u32, u32)| compute < MPS_FULL_COMPUTE;
    let old: Vec<String> = case
        .cards
        .iter()
        .filter_map(|cards| cards.compute.filter(|c| is_old(*c)).map(|c| (cards, c)))
        .map(|(cards, (major, minor))| format!("{} ({major}.{minor})", cards.node))
        .collect();
    if mps && !old.is_empty() && replicas <= MAX_MPS_CLIENTS {
        let why = format!(
            "is more than the {MAX_MPS_CLIENTS_OLD} MPS clients of a card before compute capability 7.5, and there are such nodes: {}",
            some_of(&old)
        );
        let remedy = format!(
            "write at most {MAX_MPS_CLIENTS_OLD}, or leave these nodes out by nodeSelector"
        );
        case.refuse((path, &["nodeSelector"]), why, remedy);
        return;
    }
    let why = if mps {
        format!(
            "is a large number of containers for one card: each gets 1/{replicas} of its memory and threads"
        )
    } else {
        "is a large number of containers for one card: they take turns, and share its memory without protection from each other".to_owned()
    };
    case.warn(
        (path, &[]),
        why,
        format!("check that it is meant; {MANY} or fewer is usual"),
    );
}

/// A resource of MIG instances that nothing makes.
fn instances(case: &mut Case<'_>, path: &str, name: &str) {
    let Some(suffix) = name.strip_prefix(MIG_RESOURCE_PREFIX) else {
        return;
    };
    let Some(profile) = parts::profile_of_resource(name) else {
        let why = "is an instance of a MIG profile that no known product has, and a name that a node does not have is skipped without a word";
        case.warn(
            (path, &[]),
            why,
            "check the profile; nvidia-smi mig -lgip lists those of a card",
        );
        return;
    };
    let Some((map, file)) = layouts(case) else {
        return;
    };
    let makes = file
        .layouts
        .values()
        .flatten()
        .flat_map(|rule| rule.instances.iter())
        .any(|(made, count)| *count > 0 && parts::label_form(made) == suffix);
    if !makes {
        let why = format!(
            "is an instance of profile {profile}, which no layout of ConfigMap {map} makes"
        );
        let remedy = format!("add a layout with {profile} there, or remove the entry");
        case.warn((path, &["migManager.config.name"]), why, remedy);
    }
}

/// The user's own layouts, if they are known.
fn layouts(case: &Case<'_>) -> Option<(String, layout::LayoutFile)> {
    let name = case.effective.mig_manager.config_map.as_ref()?;
    match case.facts.config_maps.get(name) {
        Some(MapFacts::Present(data)) => Some((
            name.clone(),
            layout::parse(data.get(config_map::CONFIG_KEY)?),
        )),
        Some(MapFacts::Absent | MapFacts::Unknown) | None => None,
    }
}

/// A change of the advertised name leaves pods that wait for the old one.
fn renamed(case: &mut Case<'_>, path: &str) {
    if case.is_update {
        let why = "changes the name under which shared cards are advertised: pods that ask for the old name stay Pending, and nodes show it with 0 \
                   until their kubelet restarts";
        case.warn(
            (path, &[]),
            why,
            "change what pods ask for at the same time",
        );
    }
}
