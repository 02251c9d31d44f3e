//! What the nodes let expect, kept up to date node by node, so that a change of one costs the same whatever their number.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::{
    EffectivePolicy, NodeFacts,
    names::{app, label},
    nodes::{desired_labels, is_gpu_node},
};
use tessera_runtime::{
    operands::{taint_sentence, untolerated},
    watch::Store,
};

use crate::build::component;

/// Each component's label of nodes, and its DaemonSet.
pub(crate) const OPERANDS: [(&str, &str, &str); 3] = [
    (
        component::EXPORTER,
        label::DEPLOY_DCGM_EXPORTER,
        app::DCGM_EXPORTER,
    ),
    (component::ENGINE, label::DEPLOY_DCGM, app::DCGM),
    (
        component::NODE_STATUS,
        label::DEPLOY_NODE_STATUS_EXPORTER,
        app::NODE_STATUS_EXPORTER,
    ),
];

/// What the nodes let expect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// GPU nodes.
    pub gpu_nodes: usize,
    /// By component: nodes that should get its label and do not have it yet.
    pub unlabelled: BTreeMap<&'static str, usize>,
    /// By component: nodes that have its label, also if it is paused there just now.
    pub labelled: BTreeMap<&'static str, usize>,
    /// GPU nodes with a taint that the operands do not tolerate, and the sentence about it.
    pub tainted: BTreeMap<String, String>,
}

impl Expected {
    fn add(&mut self, node: &str, share: &Share) {
        self.gpu_nodes += 1;
        for (counts, components) in self.counts(share) {
            for component in components {
                *counts.entry(component).or_default() += 1;
            }
        }
        if let Some(taint) = &share.taint {
            self.tainted.insert(node.to_owned(), taint.clone());
        }
    }

    fn remove(&mut self, node: &str, share: &Share) {
        self.gpu_nodes = self.gpu_nodes.saturating_sub(1);
        for (counts, components) in self.counts(share) {
            for component in components {
                let count = counts.entry(component).or_default();
                *count = count.saturating_sub(1);
            }
            counts.retain(|_, count| *count > 0);
        }
        self.tainted.remove(node);
    }

    fn counts<'a>(
        &'a mut self,
        share: &'a Share,
    ) -> [(&'a mut BTreeMap<&'static str, usize>, &'a [&'static str]); 2] {
        [
            (&mut self.labelled, &share.labelled),
            (&mut self.unlabelled, &share.unlabelled),
        ]
    }
}

/// One GPU node's part of it.
#[derive(Debug)]
struct Share {
    unlabelled: Vec<&'static str>,
    labelled: Vec<&'static str>,
    taint: Option<String>,
}

impl Share {
    /// `None`: not a GPU node, or one that is going away.
    fn of(node: &NodeFacts, policy: &EffectivePolicy) -> Option<Self> {
        if node.deleting || !is_gpu_node(node, policy) {
            return None;
        }
        let wanted = desired_labels(node, Some(policy)).apply;
        let (mut unlabelled, mut labelled) = (Vec::new(), Vec::new());
        for (component, key, _) in OPERANDS {
            match node.label(key) {
                Some(value) if value == "true" || label::PAUSES.contains(&value) => {
                    labelled.push(component);
                }
                None if wanted.contains_key(key) => unlabelled.push(component),
                Some(_) | None => {}
            }
        }
        let taint = untolerated(&node.taints, &policy.daemonsets.tolerations)
            .filter(|_| node.label(label::DEPLOY_OPERANDS) != Some("false"))
            .map(taint_sentence);
        Some(Self {
            unlabelled,
            labelled,
            taint,
        })
    }
}

/// The shares of all nodes under one policy, and their sum.
#[derive(Debug, Default)]
pub(crate) struct Census {
    hash: String,
    shares: BTreeMap<String, Share>,
    changed: BTreeSet<String>,
    expected: Expected,
}

impl Census {
    /// Something that matters has changed on a node.
    pub(crate) fn changed(&mut self, node: &str) {
        self.changed.insert(node.to_owned());
    }

    /// What the nodes let expect now under the policy with this hash.
    pub(crate) fn count(
        &mut self,
        hash: &str,
        policy: &EffectivePolicy,
        nodes: &Store<NodeFacts>,
    ) -> Expected {
        if self.hash != hash {
            *self = Self {
                hash: hash.to_owned(),
                changed: nodes.list().into_iter().map(|(key, _)| key.name).collect(),
                ..Self::default()
            };
        }
        for name in std::mem::take(&mut self.changed) {
            let node = nodes.get_cluster(&name);
            let share = node.and_then(|node| Share::of(&node, policy));
            self.put(name, share);
        }
        self.expected.clone()
    }

    fn put(&mut self, name: String, share: Option<Share>) {
        if let Some(old) = self.shares.remove(&name) {
            self.expected.remove(&name, &old);
        }
        if let Some(share) = share {
            self.expected.add(&name, &share);
            self.shares.insert(name, share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tessera_api::{ClusterPolicy, DefaultImages, resolve};

    impl Expected {
        /// Of these nodes.
        pub(crate) fn of<'a>(
            nodes: impl IntoIterator<Item = &'a NodeFacts>,
            policy: &EffectivePolicy,
        ) -> Self {
            let mut census = Census::default();
            for node in nodes {
                census.put(node.name.clone(), Share::of(node, policy));
            }
            census.expected
        }
    }

    fn policy() -> EffectivePolicy {
        let policy: ClusterPolicy = serde_json::from_value(
            json!({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": {}}),
        )
        .unwrap();
        let active = resolve([&policy], &DefaultImages::builtin()).active;
        EffectivePolicy::clone(&active.unwrap().effective)
    }

    fn node(name: &str, labels: &serde_json::Value, tainted: bool) -> NodeFacts {
        let taints = tainted.then(|| json!([{"key": "k", "effect": "NoSchedule"}]));
        let object =
            json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
        NodeFacts::from_node(&serde_json::from_value(object).unwrap())
    }

    /// However a node came to be as it is, the sum is that of a fresh count.
    #[test]
    fn the_sum_follows_every_change() {
        let policy = policy();
        let states = [
            None,
            Some(node("a", &json!({}), true)),
            Some(node("a", &json!({label::GPU_PRESENT: "true"}), false)),
            Some(node("a", &json!({label::GPU_PRESENT: "true"}), true)),
            Some(node(
                "a",
                &json!({label::GPU_PRESENT: "true", label::DEPLOY_DCGM_EXPORTER: "true"}),
                false,
            )),
        ];
        let other = node("b", &json!({label::GPU_PRESENT: "true"}), true);
        for before in &states {
            for after in &states {
                let mut census = Census::default();
                census.put(other.name.clone(), Share::of(&other, &policy));
                for state in [before, after] {
                    let share = state.as_ref().and_then(|node| Share::of(node, &policy));
                    census.put("a".to_owned(), share);
                }
                let fresh = Expected::of(after.iter().chain([&other]), &policy);
                assert_eq!(census.expected, fresh, "{before:?} {after:?}");
            }
        }
        assert_eq!(Expected::of([&other], &policy).tainted.len(), 1);
        let labelled = Expected::of(states.last().unwrap(), &policy).labelled;
        assert_eq!(labelled.get(component::EXPORTER), Some(&1));
    }
}
