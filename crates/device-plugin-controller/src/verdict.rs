//! One node against what the policy asks of it: everything that is not as it should be, each with a sentence. Pure.

use crate::mig::protocol::{Standing, standing};
use crate::sharing::{Advertised, compare};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_api::EffectivePolicy;
use tessera_api::cards::Cards;
use tessera_api::conditions::Reason;
use tessera_api::effective::Operand;
use tessera_api::names::label;
use tessera_api::nodes::{NodeFacts, is_gpu_node, is_mig_capable};
use tessera_api::plugin_file::{Chosen, Configs};
use tessera_api::policy::MigStrategy;
use tessera_runtime::operands::{taint_sentence, untolerated};

/// What may be said about a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// It has a taint that the operands do not tolerate.
    Taint,
    /// Its labels pause the device plugin.
    Paused,
    /// It chooses a configuration that does not exist.
    Config,
    /// Its cards cannot give what sharing asks of them.
    Unfit,
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
            Self::Unfit => Reason::ConfigInvalid,
            Self::Sharing => Reason::SharingMismatch,
            Self::Unclear => return None,
            Self::MigFailed => Reason::MigFailed,
            Self::MigUnusable => Reason::MigLayoutInvalid,
            Self::MigPending => Reason::MigPending,
        })
    }

    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Taint,
        Self::Paused,
        Self::Config,
        Self::Unfit,
        Self::Sharing,
        Self::Unclear,
        Self::MigFailed,
        Self::MigUnusable,
        Self::MigPending,
    ];
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

/// Which operands a node is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // four independent yes-or-no questions
pub struct Roles {
    /// Any: it has a GPU.
    pub gpu: bool,
    /// The device plugin.
    pub plugin: bool,
    /// Feature discovery.
    pub gfd: bool,
    /// The MIG manager.
    pub mig: bool,
    /// Feature discovery has yet to say whether its cards can do MIG.
    pub mig_unknown: bool,
}

/// Everything that is to be said about one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What it is to run.
    pub roles: Roles,
    /// What it would run, were it not for its taints.
    pub denied: Roles,
    /// What is not as it should be.
    pub said: BTreeMap<Topic, String>,
}

/// Judges one node; cost independent of how many there are.
pub fn judge(node: &NodeFacts, asked: &Asked) -> Verdict {
    let mut verdict = Verdict::default();
    if node.deleting || !is_gpu_node(node, &asked.policy) {
        return verdict;
    }
    let roles = roles(node, &asked.policy);
    if let Some(taint) = untolerated(&node.taints, &asked.policy.daemonsets.tolerations) {
        // Its feature discovery does not run either, so that nothing will tell what its cards can do.
        let mig = roles.mig || roles.mig_unknown;
        verdict.denied = Roles { mig, ..roles };
        // A node that is switched off needs no toleration.
        if roles.plugin || roles.gfd || mig {
            verdict.said.insert(Topic::Taint, taint_sentence(taint));
        }
        return verdict;
    }
    verdict.roles = roles;
    if asked.policy.mig_manager.operand.enabled {
        mig(
            node,
            asked.policy.mig.strategy,
            asked.layouts.as_deref(),
            &mut verdict.said,
        );
    }
    if asked.policy.device_plugin.operand.enabled {
        plugin(node, &asked.configs, &mut verdict.said);
        if let Some(text) = tessera_api::judge::node(&asked.policy, &Cards::of(node))
            && verdict.roles.plugin
        {
            verdict.said.insert(Topic::Unfit, text);
        }
    }
    verdict
}

/// An operand runs where its label admits it; where the label is missing it is about to be written.
fn roles(node: &NodeFacts, policy: &EffectivePolicy) -> Roles {
    let is_off = node.label(label::DEPLOY_OPERANDS) == Some("false");
    let admits = |key| !is_off && matches!(node.label(key), None | Some("" | "true"));
    let runs = |operand: &Operand, key| operand.enabled && admits(key);
    let gfd = runs(&policy.gfd.operand, label::DEPLOY_GFD);
    let (can_mig, has_manager) = (
        is_mig_capable(node),
        runs(&policy.mig_manager.operand, label::DEPLOY_MIG_MANAGER),
    );
    let is_said = [label::MIG_CAPABLE, label::GPU_PRODUCT]
        .iter()
        .any(|key| node.label(key).is_some());
    Roles {
        gpu: true,
        plugin: runs(&policy.device_plugin.operand, label::DEPLOY_DEVICE_PLUGIN),
        gfd,
        mig: has_manager && can_mig,
        mig_unknown: has_manager && gfd && !is_said,
    }
}

fn mig(
    node: &NodeFacts,
    strategy: MigStrategy,
    layouts: Option<&[String]>,
    said: &mut BTreeMap<Topic, String>,
) {
    // Nodes without the manager are left alone.
    if node.label(label::DEPLOY_MIG_MANAGER).is_none() {
        return;
    }
    match standing(node, strategy, layouts) {
        Standing::Settled => {}
        Standing::Pending(text) => {
            said.insert(Topic::MigPending, text);
        }
        Standing::Failed(text) => {
            said.insert(Topic::MigFailed, text);
        }
        Standing::Unusable(text) => {
            said.insert(Topic::MigUnusable, text);
        }
    }
}

fn plugin(node: &NodeFacts, configs: &Configs, said: &mut BTreeMap<Topic, String>) {
    match node.label(label::DEPLOY_DEVICE_PLUGIN) {
        Some("true") => {}
        Some(value) if value.contains("paused") => {
            said.insert(
                Topic::Paused,
                format!("label {} is {value}", label::DEPLOY_DEVICE_PLUGIN),
            );
            return;
        }
        // Switched off by somebody, or not labelled yet: no plugin is asked for.
        _ => return,
    }
    let shares = match configs.of(node) {
        Chosen::Unknown | Chosen::Nothing => return,
        Chosen::Shares(shares) => shares,
        Chosen::Missing(key) => {
            said.insert(Topic::Config, unknown_key(configs, key));
            return;
        }
    };
    match compare(node, shares) {
        Advertised::AsAsked => {}
        Advertised::Unclear(text) => {
            said.insert(Topic::Unclear, text);
        }
        Advertised::Differs(text) => {
            said.insert(Topic::Sharing, text);
        }
    }
}

fn unknown_key(configs: &Configs, chosen: &str) -> String {
    let Configs::ByLabel { map, keys, .. } = configs else {
        return String::new();
    };
    let known: Vec<&str> = keys.keys().map(String::as_str).collect();
    format!(
        "label {} is {chosen}, and ConfigMap {map} has only {}; the plugin does not start there",
        label::DEVICE_PLUGIN_CONFIG,
        known.join(", ")
    )
}
