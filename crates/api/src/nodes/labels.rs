//! Which nodes are GPU nodes, and the labels that admit operands to them (DESIGN section 3).

use std::collections::BTreeMap;

use super::NodeFacts;
use crate::{effective::EffectivePolicy, names::label};

/// Products that can do MIG, as parts of the product label; feature discovery's own label comes first where it has run.
const MIG_PRODUCTS: [&str; 12] = [
    "a30",
    "a100",
    "h100",
    "h200",
    "h20",
    "h800",
    "gh200",
    "b200",
    "gb200",
    "b300",
    "gb300",
    "rtx-pro-6000",
];

/// Whether a node is a GPU node: it has all labels of the policy's `nodeSelector`; without one, NFD has seen an NVIDIA display
/// controller, or somebody (other than we) labelled it `nvidia.com/gpu.present=true`. Our own label is no evidence: it would keep
/// itself alive.
pub fn is_gpu_node(node: &NodeFacts, policy: &EffectivePolicy) -> bool {
    if !policy.node_selector.is_empty() {
        return policy
            .node_selector
            .iter()
            .all(|(key, value)| node.label(key) == Some(value));
    }
    let is_true = |key: &str| node.label(key) == Some("true");
    label::NFD_PCI.iter().any(|key| is_true(key))
        || is_true(label::GPU_PRESENT) && !node.owned_labels.contains(label::GPU_PRESENT)
}

/// Whether a node has cards, as far as its labels tell: it is a GPU node, or, where the policy leaves that to discovery, feature
/// discovery has seen a card there.
pub fn has_cards(node: &NodeFacts, policy: &EffectivePolicy) -> bool {
    is_gpu_node(node, policy)
        || policy.node_selector.is_empty() && node.label(label::GPU_PRODUCT).is_some()
}

/// Whether a node's cards can do MIG.
pub fn is_mig_capable(node: &NodeFacts) -> bool {
    match node.label(label::MIG_CAPABLE) {
        Some(value) => value == "true",
        None => node.label(label::GPU_PRODUCT).is_some_and(|product| {
            let words: Vec<String> = product
                .to_ascii_lowercase()
                .split(['-', '_', ' '])
                .map(str::to_owned)
                .collect();
            let spelt = words.join("-");
            MIG_PRODUCTS.iter().any(|known| {
                words.iter().any(|word| word == known)
                    || known.contains('-') && spelt.contains(known)
            })
        }),
    }
}

/// What our shared field manager should own of a node's labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelChange {
    /// The labels to apply, all of them: what is left out and was ours goes.
    pub apply: BTreeMap<String, String>,
    /// Whether applying them would change the node.
    pub needed: bool,
    /// Whether one of them takes the place of somebody else's empty value, so that applying needs force.
    pub replaces: bool,
}

/// The labels of a node under a policy (`None`: there is no policy, all of ours go).
///
/// A label is `"true"` where it is absent, empty, or ours already. Any other value, and a `"true"` that somebody else wrote, is a wish
/// (off, paused for an upgrade, `pre-installed`) and is left alone. What the policy no longer wants is left out, and so removed if it
/// is ours. `nvidia.com/gpu.deploy.operands=false` leaves out every operand.
pub fn desired_labels(node: &NodeFacts, policy: Option<&EffectivePolicy>) -> LabelChange {
    let wanted = policy
        .map(|policy| wanted(node, policy))
        .unwrap_or_default();
    let free = |key: &str| match node.label(key) {
        None | Some("") => true,
        Some("true") => node.owned_labels.contains(key),
        Some(_) => false,
    };
    let apply: BTreeMap<String, String> = wanted
        .into_iter()
        .filter(|key| free(key))
        .map(|key| (key.to_owned(), "true".to_owned()))
        .collect();
    let unchanged = node.owned_labels.iter().eq(apply.keys())
        && apply
            .iter()
            .all(|(key, value)| node.label(key) == Some(value));
    let is_empty = |key: &String| node.label(key) == Some("");
    LabelChange {
        needed: !unchanged,
        replaces: apply.keys().any(is_empty),
        apply,
    }
}

fn wanted(node: &NodeFacts, policy: &EffectivePolicy) -> Vec<&'static str> {
    if !is_gpu_node(node, policy) {
        return Vec::new();
    }
    if node.label(label::DEPLOY_OPERANDS) == Some("false") {
        return vec![label::GPU_PRESENT];
    }
    let operands = [
        (label::DEPLOY_DRIVER, policy.driver.operand.enabled),
        (label::DEPLOY_TOOLKIT, policy.toolkit.operand.enabled),
        (label::DEPLOY_VALIDATOR, policy.validator.operand.enabled),
        (
            label::DEPLOY_DEVICE_PLUGIN,
            policy.device_plugin.operand.enabled,
        ),
        (label::DEPLOY_GFD, policy.gfd.operand.enabled),
        (
            label::DEPLOY_MIG_MANAGER,
            policy.mig_manager.operand.enabled && is_mig_capable(node),
        ),
        (label::DEPLOY_DCGM, policy.dcgm.operand.enabled),
        (
            label::DEPLOY_DCGM_EXPORTER,
            policy.dcgm_exporter.operand.enabled,
        ),
        (
            label::DEPLOY_NODE_STATUS_EXPORTER,
            policy.node_status_exporter.operand.enabled,
        ),
        (label::DEPLOY_CLIENT, true),
    ];
    let enabled = operands
        .into_iter()
        .filter(|(_, enabled)| *enabled)
        .map(|(key, _)| key);
    std::iter::once(label::GPU_PRESENT).chain(enabled).collect()
}
