//! Status of a policy: one slice a controller, conditions, and what is computed from them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::fields::choice;

choice! {
    /// The one word about a policy (NVIDIA's values).
    State {
        /// Every enabled component is ready.
        Ready = "ready",
        /// Some enabled component is not.
        NotReady = "notReady",
        /// Another policy is active, or this one is the base under another.
        Ignored = "ignored",
    }
}

/// Status of a policy. Each controller applies its own part only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPolicyStatus {
    /// The one word: ready, notReady, ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Namespace of the operands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Conditions, one a component, and Ready and Supported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Driver, toolkit, validator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<ComponentStatus>,
    /// Device plugin, feature discovery, MPS, MIG.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_plugin: Option<ComponentStatus>,
    /// DCGM, exporters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcgm: Option<ComponentStatus>,
    /// What is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<EffectiveStatus>,
}

/// What one controller has to say about its operands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// For the table of `kubectl get`: `<ready>/<desired>` nodes, or a word such as `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Nodes that should run the main operand (driver, device plugin, exporter).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<i32>,
    /// Nodes where it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    /// Nodes that run it as the policy now says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<i32>,
    /// The main operand's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Each DaemonSet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub operands: Vec<OperandStatus>,
    /// Nodes that are not as they should be, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceptions: Vec<NodeExceptions>,
    /// Progress of a driver roll-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<UpgradeProgress>,
}

/// One DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperandStatus {
    /// Name of the DaemonSet.
    pub name: String,
    /// Nodes that should run it.
    pub desired: i32,
    /// Nodes where it is ready.
    pub ready: i32,
    /// Nodes that run it as the policy now says.
    pub updated: i32,
    /// Image tag or digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Nodes that are not as they should be, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeExceptions {
    /// Reason, from the same vocabulary as conditions.
    pub reason: String,
    /// How many nodes.
    pub count: i32,
    /// The first of them by name, at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub nodes: Vec<String>,
    /// One example, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl NodeExceptions {
    /// Groups (reason, node, message) by reason: counted, nodes sorted and cut to five, the message of the first named node kept.
    pub fn group<R: ToString>(found: impl IntoIterator<Item = (R, String, String)>) -> Vec<Self> {
        let mut by_reason: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (reason, node, message) in found {
            by_reason
                .entry(reason.to_string())
                .or_default()
                .insert(node, message);
        }
        let group = |(reason, nodes): (String, BTreeMap<String, String>)| Self {
            reason,
            count: i32::try_from(nodes.len()).unwrap_or(i32::MAX),
            message: nodes.values().next().filter(|m| !m.is_empty()).cloned(),
            nodes: nodes.into_keys().take(5).collect(),
        };
        by_reason.into_iter().map(group).collect()
    }
}

/// Progress of a driver roll-out, in nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeProgress {
    /// Version or image that the roll-out leads to.
    pub target: String,
    /// Nodes that still wait.
    pub pending: i32,
    /// Nodes with a running operation.
    pub in_progress: i32,
    /// Nodes that have it.
    pub done: i32,
    /// Nodes where it failed.
    pub failed: i32,
}

/// What is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EffectiveStatus {
    /// Hash of the effective policy.
    pub hash: String,
    /// Image of each enabled operand.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
}
