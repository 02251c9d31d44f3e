//! Condition SharingApplied.

use super::{group, tell};
use crate::index::Summary;
use crate::sharing::Shares;
use crate::validate::{Plan, Validated};
use crate::verdict::{Configs, Topic};
use tessera_api::conditions::{ComponentCondition, ConditionStatus, Reason};
use tessera_runtime::status::{Finding, finding as make};

const TYPE: ComponentCondition = ComponentCondition::SharingApplied;

/// `plugin` is the finding of DevicePluginReady.
pub(super) fn finding(validated: &Validated, plugin: &Finding, nodes: &Summary) -> Finding {
    if !TYPE.is_enabled(&validated.policy) {
        let is_on = !matches!(validated.plugin, Plan::Off);
        let (reason, text) = if is_on {
            (Reason::NotShared, "no card is shared")
        } else {
            (Reason::Disabled, "the policy turns the device plugin off")
        };
        return make(TYPE, true, reason, text);
    }
    let config = match &validated.plugin {
        Plan::Off => {
            return make(
                TYPE,
                true,
                Reason::Disabled,
                "the policy turns the device plugin off",
            );
        }
        Plan::Keep(fault) => return make(TYPE, false, fault.reason, fault.message.clone()),
        Plan::Run(config) => config,
    };
    if let Some(unknown) = group(nodes, Topic::Config) {
        return make(TYPE, false, Reason::NodeConfigUnknown, tell(unknown));
    }
    if plugin.status != ConditionStatus::True {
        let text = "nodes follow while the device plugin is rolled out; see DevicePluginReady";
        return make(TYPE, false, Reason::RollingOut, text);
    }
    if plugin.reason == Reason::NoGPUNodes {
        return make(
            TYPE,
            true,
            Reason::NoGPUNodes,
            "no node runs the device plugin",
        );
    }
    if let Some(differ) = group(nodes, Topic::Sharing) {
        let text = format!("{} not as asked: {}", nodes_are(differ.count), tell(differ));
        return make(TYPE, false, Reason::SharingMismatch, text);
    }
    let asked = describe(&validated.configs);
    let reason = if asked.is_some() {
        Reason::SharingApplied
    } else {
        Reason::NotShared
    };
    let mut parts = vec![asked.unwrap_or_else(|| "no card is shared".to_owned())];
    if let Some(unclear) = group(nodes, Topic::Unclear) {
        parts.push(format!("not certain of {}", tell(unclear)));
    }
    parts.extend(config.notes.iter().take(3).cloned());
    make(TYPE, true, reason, parts.join("; "))
}

fn nodes_are(count: usize) -> String {
    if count == 1 {
        "1 node is".to_owned()
    } else {
        format!("{count} nodes are")
    }
}

/// `nvidia.com/gpu: 4 shares each`, by key where there are several.
fn describe(configs: &Configs) -> Option<String> {
    match configs {
        Configs::Unknown => None,
        Configs::Same(shares) => one(shares),
        Configs::ByLabel { keys, .. } => {
            let list: Vec<String> = keys
                .iter()
                .filter_map(|(key, shares)| Some(format!("{key}: {}", one(shares)?)))
                .collect();
            (!list.is_empty()).then(|| list.join("; "))
        }
    }
}

fn one(shares: &Shares) -> Option<String> {
    let suffix = if shares.renamed { ".shared" } else { "" };
    let list: Vec<String> = shares
        .shared
        .iter()
        .map(|(name, n)| format!("{name}{suffix} with {n} shares each"))
        .collect();
    (!list.is_empty()).then(|| list.join(", "))
}
