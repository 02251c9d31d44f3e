//! One node against what the policy asks of it: everything that is not as it should be, each with a sentence. Pure.

use crate::mig::protocol::{Standing, standing};
use crate::sharing::{Advertised, Shares, compare};
use k8s_openapi::api::core::v1::Toleration;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_api::EffectivePolicy;
use tessera_api::conditions::Reason;
use tessera_api::names::label;
use tessera_api::nodes::{NodeFacts, is_gpu_node};
use tessera_api::policy::MigStrategy;
use tessera_runtime::operands::untolerated;

/// What may be said about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// It has a taint that the operands do not tolerate.
    Taint,
    /// Its labels pause the device plugin.
    Paused,
    /// It chooses a configuration that does not exist.
    Config,
    /// It advertises something else than was asked for.
    Sharing,
    /// It cannot be told whether it advertises what was asked for.
    Unclear,
    /// A MIG layout failed.
    MigFailed,
    /// A MIG layout cannot be advertised.
    MigUnusable,
    /// A MIG layout is under way.
    MigPending,
}

impl Topic {
    /// The reason it has in status; none for what is no exception.
    pub fn reason(self) -> Option<Reason> {
        Some(match self {
            Self::Taint => Reason::TaintsNotTolerated,
            Self::Paused => Reason::NodePaused,
            Self::Config => Reason::NodeConfigUnknown,
            Self::Sharing => Reason::SharingMismatch,
            Self::Unclear => return None,
            Self::MigFailed => Reason::MigFailed,
            Self::MigUnusable => Reason::MigLayoutInvalid,
            Self::MigPending => Reason::MigPending,
        })
    }

    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Taint,
        Self::Paused,
        Self::Config,
        Self::Sharing,
        Self::Unclear,
        Self::MigFailed,
        Self::MigUnusable,
        Self::MigPending,
    ];
}

/// Which configuration nodes use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Configs {
    /// Not known now: nothing is compared.
    Unknown,
    /// The same for all.
    Same(Shares),
    /// By node label.
    ByLabel {
        /// Name of the ConfigMap, for messages.
        map: String,
        /// By key.
        keys: BTreeMap<String, Shares>,
        /// Key of nodes without a label; such nodes share nothing without one.
        default: Option<String>,
    },
}

/// What nodes are judged by.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The policy.
    pub policy: Arc<EffectivePolicy>,
    /// The device plugin's configuration.
    pub configs: Configs,
    /// Names of the user's own MIG layouts, if there are such.
    pub layouts: Option<Vec<String>>,
}

/// Everything that is to be said about one node.
pub type Verdict = BTreeMap<Topic, String>;

/// Judges one node; cost independent of how many there are.
pub fn judge(node: &NodeFacts, asked: &Asked) -> Verdict {
    let mut verdict = Verdict::new();
    if node.deleting || !is_gpu_node(node, &asked.policy) {
        return verdict;
    }
    if let Some(taint) = untolerated_taint(node, &asked.policy.daemonsets.tolerations) {
        verdict.insert(Topic::Taint, taint);
        return verdict;
    }
    if asked.policy.mig_manager.operand.enabled {
        mig(
            node,
            asked.policy.mig.strategy,
            asked.layouts.as_deref(),
            &mut verdict,
        );
    }
    if asked.policy.device_plugin.operand.enabled {
        plugin(node, &asked.configs, &mut verdict);
    }
    verdict
}

fn untolerated_taint(node: &NodeFacts, tolerations: &[Toleration]) -> Option<String> {
    let taint = untolerated(&node.taints, tolerations)?;
    let value = taint
        .value
        .as_deref()
        .map(|value| format!("={value}"))
        .unwrap_or_default();
    let text = format!(
        "taint {}{value}:{} is not tolerated: add it to daemonsets.tolerations, or remove it",
        taint.key, taint.effect
    );
    Some(text)
}

fn mig(node: &NodeFacts, strategy: MigStrategy, layouts: Option<&[String]>, verdict: &mut Verdict) {
    // Nodes without the manager are left alone.
    if node.label(label::DEPLOY_MIG_MANAGER).is_none() {
        return;
    }
    match standing(node, strategy, layouts) {
        Standing::Settled => {}
        Standing::Pending(text) => {
            verdict.insert(Topic::MigPending, text);
        }
        Standing::Failed(text) => {
            verdict.insert(Topic::MigFailed, text);
        }
        Standing::Unusable(text) => {
            verdict.insert(Topic::MigUnusable, text);
        }
    }
}

fn plugin(node: &NodeFacts, configs: &Configs, verdict: &mut Verdict) {
    match node.label(label::DEPLOY_DEVICE_PLUGIN) {
        Some("true") => {}
        Some(value) if value.contains("paused") => {
            verdict.insert(
                Topic::Paused,
                format!("label {} is {value}", label::DEPLOY_DEVICE_PLUGIN),
            );
            return;
        }
        // Switched off by somebody, or not labelled yet: no plugin is asked for.
        _ => return,
    }
    let shares = match configs {
        Configs::Unknown => return,
        Configs::Same(shares) => shares,
        Configs::ByLabel { map, keys, default } => {
            let chosen = node
                .label(label::DEVICE_PLUGIN_CONFIG)
                .filter(|key| !key.is_empty())
                .or(default.as_deref());
            let Some(chosen) = chosen else { return };
            let Some(shares) = keys.get(chosen) else {
                verdict.insert(Topic::Config, unknown_key(map, keys, chosen));
                return;
            };
            shares
        }
    };
    match compare(node, shares) {
        Advertised::AsAsked => {}
        Advertised::Unclear(text) => {
            verdict.insert(Topic::Unclear, text);
        }
        Advertised::Differs(text) => {
            verdict.insert(Topic::Sharing, text);
        }
    }
}

fn unknown_key(map: &str, keys: &BTreeMap<String, Shares>, chosen: &str) -> String {
    let known = keys
        .keys()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "label {} is {chosen}, and ConfigMap {map} has only {known}; the plugin does not start there",
        label::DEVICE_PLUGIN_CONFIG
    )
}
