//! Condition SharingApplied.

use super::{group, tell};
use crate::index::Summary;
use crate::validate::{Plan, Validated};
use crate::verdict::Topic;
use tessera_api::conditions::{ComponentCondition, Reason};
use tessera_api::plugin_file::{Configs, Shares};
use tessera_runtime::operands::Rollout;
use tessera_runtime::status::{Finding, finding as make};

const TYPE: ComponentCondition = ComponentCondition::SharingApplied;

/// `rollout` is the device plugin's.
pub(super) fn finding(validated: &Validated, rollout: Option<Rollout>, nodes: &Summary) -> Finding {
    if let Plan::Keep(fault) = &validated.plugin {
        return make(TYPE, false, fault.reason, fault.message.clone());
    }
    if !TYPE.is_enabled(&validated.policy) {
        let is_on = !matches!(validated.plugin, Plan::Off);
        let (reason, text) = if is_on {
            (Reason::NotShared, "no card is shared")
        } else {
            (Reason::Disabled, "the policy turns the device plugin off")
        };
        return make(TYPE, true, reason, text);
    }
    let Plan::Run(config) = &validated.plugin else {
        let text = "the policy turns the device plugin off";
        return make(TYPE, true, Reason::Disabled, text);
    };
    if let Some(unknown) = group(nodes, Topic::Config) {
        return make(TYPE, false, Reason::NodeConfigUnknown, tell(unknown));
    }
    if let Some(unfit) = group(nodes, Topic::Unfit) {
        return make(TYPE, false, Reason::ConfigInvalid, tell(unfit));
    }
    let (advertising, expected) = (&nodes.advertising, nodes.expected.plugin);
    let is_rolled_out =
        rollout.is_some_and(|rollout| rollout.observed && rollout.updated >= rollout.desired);
    let nobody_follows = expected > 0 && advertising.follow >= expected;
    if !is_rolled_out || nobody_follows {
        let text = "nodes follow as the device plugin is rolled out; see DevicePluginReady";
        return make(TYPE, false, Reason::RollingOut, text);
    }
    if expected == 0 {
        return make(
            TYPE,
            true,
            Reason::NoGPUNodes,
            "no node runs the device plugin",
        );
    }
    if advertising.differ.count > 0 {
        let differ = &advertising.differ;
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
    if advertising.follow > 0 {
        parts.push(format!(
            "{} to follow when the plugin is ready",
            nodes_are(advertising.follow)
        ));
    }
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
    let list: Vec<String> = shares
        .shared
        .iter()
        .map(|(name, n)| format!("{} with {n} shares each", shares.advertised(name)))
        .collect();
    (!list.is_empty()).then(|| list.join(", "))
}
