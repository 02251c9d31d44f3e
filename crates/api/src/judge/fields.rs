//! Fields that contradict each other, or that nothing acts on.

use super::{case::Case, json::some_of};
use crate::{effective::PluginConfig, quote::quoted};

pub(super) fn judge(case: &mut Case<'_>) {
    device_list(case);
    nri(case);
    inactive(case);
    for (path, remedy) in DEPRECATED {
        if case.at(path).is_some() {
            case.warn(
                (path, &[]),
                "is deprecated by NVIDIA and has no effect",
                *remedy,
            );
        }
    }
    for path in case.effective.unsupported.clone() {
        let remedy = "remove it, or see condition Supported of the policy";
        case.warn(
            (&path, &[]),
            "is accepted and kept, but Tessera does not act on it",
            remedy,
        );
    }
}

/// Fields that NVIDIA has deprecated and that nothing reads (gpu-operator v26.7.0, `clusterpolicy_types.go`).
const DEPRECATED: &[(&str, &str)] = &[
    (
        "operator.defaultRuntime",
        "remove it: the runtime of each node is detected",
    ),
    ("operator.initContainer", "remove it"),
    (
        "psp",
        "remove it: pod security policies are gone from Kubernetes",
    ),
    ("cdi.default", "remove it: cdi.enabled decides"),
    (
        "driver.useOpenKernelModules",
        "write driver.kernelModuleType: open instead",
    ),
];

/// Every strategy that the device plugin knows, and whether it hands out devices by CDI.
const STRATEGIES: [(&str, bool); 4] = [
    ("envvar", false),
    ("volume-mounts", false),
    ("cdi-annotations", true),
    ("cdi-cri", true),
];

/// The user's environment wins over ours: a strategy that does not go with `cdi.enabled` leaves every GPU pod without its card.
fn device_list(case: &mut Case<'_>) {
    let operand = &case.effective.device_plugin.operand;
    let Some(given) = operand.env.get("DEVICE_LIST_STRATEGY").cloned() else {
        return;
    };
    if !operand.enabled {
        return;
    }
    let asked: Vec<&str> = given
        .split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect();
    let shown = quoted(&given);
    let known = |name: &&str| STRATEGIES.iter().find(|(strategy, _)| strategy == name);
    let path: (&str, &[&str]) = ("devicePlugin.env", &["cdi.enabled"]);
    let unknown: Vec<String> = asked
        .iter()
        .filter(|name| known(name).is_none())
        .map(|name| (*name).to_owned())
        .collect();
    if !unknown.is_empty() || asked.is_empty() {
        let why = format!(
            "sets DEVICE_LIST_STRATEGY to `{shown}`, which the device plugin does not know ({}), so that it does not start",
            if asked.is_empty() {
                "empty".to_owned()
            } else {
                some_of(&unknown)
            }
        );
        let remedy = "remove it (cdi.enabled decides), or write some of envvar, volume-mounts, cdi-annotations, cdi-cri";
        case.refuse(path, why, remedy);
        return;
    }
    let by_cdi = asked.iter().filter_map(known).any(|(_, cdi)| *cdi);
    if case.effective.cdi.enabled && !by_cdi {
        let why = format!(
            "sets DEVICE_LIST_STRATEGY to `{shown}` while cdi.enabled is true, and containers get no device without a CDI strategy"
        );
        let remedy = "remove it, write cdi-annotations,cdi-cri, or set cdi.enabled to false";
        case.refuse(path, why, remedy);
    } else if !case.effective.cdi.enabled && by_cdi {
        let why = format!(
            "sets DEVICE_LIST_STRATEGY to `{shown}` while cdi.enabled is false, and no runtime is set up to resolve CDI devices"
        );
        case.refuse(
            path,
            why,
            "remove it, write envvar, or set cdi.enabled to true",
        );
    }
}

/// The NRI plugin is a part of the toolkit, and talks to a runtime that has NRI.
fn nri(case: &mut Case<'_>) {
    if !case.effective.cdi.nri {
        return;
    }
    if !case.effective.toolkit.operand.enabled {
        let path: (&str, &[&str]) = ("cdi.nriPluginEnabled", &["toolkit.enabled"]);
        let why = "has no effect while toolkit.enabled is false, as the NRI plugin runs in the toolkit's pods";
        case.refuse(
            path,
            why,
            "set toolkit.enabled to true, or turn the NRI plugin off",
        );
    }
    if case.at("operator.runtimeClass").is_some() {
        let path: (&str, &[&str]) = ("operator.runtimeClass", &["cdi.nriPluginEnabled"]);
        let why =
            "has no effect while cdi.nriPluginEnabled is true, as there are no RuntimeClasses then";
        case.warn(path, why, "remove it");
    }
    let is_old = |node: &&std::sync::Arc<crate::NodeFacts>| {
        let version = numbers(&node.runtime.version);
        match node.runtime.name.as_str() {
            "containerd" => version < [1, 7, 30] || version.starts_with(&[2, 0]),
            "cri-o" => version < [1, 34, 0],
            _ => false,
        }
    };
    let meant: Vec<String> = case.cards.iter().map(|cards| cards.node.clone()).collect();
    let old: Vec<String> = case
        .facts
        .nodes
        .iter()
        .filter(|node| meant.contains(&node.name))
        .filter(is_old)
        .map(|node| {
            format!(
                "{} ({} {})",
                node.name, node.runtime.name, node.runtime.version
            )
        })
        .collect();
    if !old.is_empty() {
        let path: (&str, &[&str]) = ("cdi.nriPluginEnabled", &["nodeSelector"]);
        let why = format!(
            "asks for more than the runtimes of some nodes have: {}",
            some_of(&old)
        );
        let remedy = "upgrade to containerd 1.7.30, 2.1 or CRI-O 1.34, or turn the NRI plugin off";
        case.warn(path, why, remedy);
    }
}

/// The first three numbers of a version.
fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version
        .trim_start_matches('v')
        .split(['.', '-', '+'])
        .map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// Fields without effect beside others.
fn inactive(case: &mut Case<'_>) {
    let name = "devicePlugin.config.name";
    if case.text("devicePlugin.config.default").is_some() && case.text(name).is_none() {
        let path: (&str, &[&str]) = ("devicePlugin.config.default", &[name]);
        let why = "has no effect, as it names a key of the ConfigMap devicePlugin.config.name, and there is none";
        case.warn(path, why, "remove it, or name the ConfigMap");
    }
    let is_mps = matches!(
        &case.effective.device_plugin.config,
        PluginConfig::Inline(crate::effective::Sharing::Mps(_)) | PluginConfig::ConfigMap { .. }
    );
    if case.at("devicePlugin.mps.root").is_some() && !is_mps {
        let path: (&str, &[&str]) = ("devicePlugin.mps.root", &["devicePlugin.config"]);
        case.warn(
            path,
            "has no effect, as no card is shared by MPS",
            "remove it",
        );
    }
    if case.text("driver.licensingConfig.configMapName").is_some() {
        let path = "driver.licensingConfig.configMapName";
        let why = "is deprecated by NVIDIA, as a licence is no matter for a ConfigMap";
        case.warn(
            (path, &[]),
            why,
            "put it into a Secret and write licensingConfig.secretName",
        );
    }
}
