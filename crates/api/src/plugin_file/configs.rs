//! Which configuration of the device plugin a node uses, and what it makes the node advertise.

use std::collections::BTreeMap;

use super::Parsed;
use crate::{
    EffectivePolicy, NodeFacts,
    effective::{SharedResources, Sharing},
    names::label,
    policy::MigStrategy,
};

/// What the nodes that use one configuration should advertise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// How MIG instances are advertised.
    pub strategy: MigStrategy,
    /// Replicas by full resource name; all at least 2.
    pub shared: BTreeMap<String, u32>,
    /// Whether shared resources are advertised as `<name>.shared`.
    pub renamed: bool,
    /// Whether they are shared by MPS, which needs the control daemon, and not by turns.
    pub mps: bool,
    /// Whether the plugin refuses a container that asks for more than one share.
    pub one_each: bool,
}

impl Shares {
    /// Nothing is shared.
    pub fn none(strategy: MigStrategy) -> Self {
        Self {
            strategy,
            shared: BTreeMap::new(),
            renamed: false,
            mps: false,
            one_each: false,
        }
    }

    /// What a policy asks for in its own fields.
    pub fn of(policy: &EffectivePolicy, sharing: &Sharing) -> Self {
        let resources = sharing.resources();
        let shared = resources
            .into_iter()
            .flat_map(SharedResources::shared)
            .map(|(name, replicas)| (name.to_owned(), replicas));
        Self {
            strategy: policy.mig.strategy,
            shared: shared.collect(),
            renamed: resources.is_some_and(|shared| shared.rename_by_default),
            mps: matches!(sharing, Sharing::Mps(_)) && sharing.is_active(),
            one_each: resources.is_some_and(|shared| shared.fail_requests_greater_than_one),
        }
    }

    /// The name under which a shared resource is advertised.
    pub fn advertised(&self, name: &str) -> String {
        if self.renamed {
            format!("{name}.shared")
        } else {
            name.to_owned()
        }
    }
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

/// The configuration of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen<'a> {
    /// Not known now.
    Unknown,
    /// It chooses none, and there is no default.
    Nothing,
    /// A key that the ConfigMap does not have.
    Missing(&'a str),
    /// This one.
    Shares(&'a Shares),
}

impl Configs {
    /// The files of a ConfigMap, which have no problems.
    pub fn by_label<'a>(
        map: &str,
        files: impl IntoIterator<Item = (&'a String, &'a Parsed)>,
        default: Option<&str>,
    ) -> Self {
        let keys = files.into_iter();
        Self::ByLabel {
            map: map.to_owned(),
            keys: keys
                .map(|(key, file)| (key.clone(), file.shares.clone()))
                .collect(),
            default: default.map(str::to_owned),
        }
    }

    /// What a node uses.
    pub fn of<'a>(&'a self, node: &'a NodeFacts) -> Chosen<'a> {
        self.choose(node.label(label::DEVICE_PLUGIN_CONFIG))
    }

    /// What a node uses whose label is `label`.
    pub fn choose<'a>(&'a self, label: Option<&'a str>) -> Chosen<'a> {
        match self {
            Self::Unknown => Chosen::Unknown,
            Self::Same(shares) => Chosen::Shares(shares),
            Self::ByLabel { keys, default, .. } => {
                let label = label.filter(|key| !key.is_empty());
                match label.or(default.as_deref()) {
                    None => Chosen::Nothing,
                    Some(key) => keys.get(key).map_or(Chosen::Missing(key), Chosen::Shares),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_chooses_a_key_and_the_default_fills_in() {
        let strategy = MigStrategy::None;
        let file = super::super::parse(
            "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, renameByDefault: true, resources: [{name: gpu, replicas: 4}]}}",
            strategy,
        );
        let four = file.shares.clone();
        assert!(four.one_each && !four.mps);
        assert_eq!(four.advertised("nvidia.com/gpu"), "nvidia.com/gpu.shared");
        let files = BTreeMap::from([("four".to_owned(), file)]);
        let with = |default| Configs::by_label("map", &files, default);
        for (configs, label, want) in [
            (&with(None), Some("four"), Chosen::Shares(&four)),
            (&with(None), Some("five"), Chosen::Missing("five")),
            (&with(None), Some(""), Chosen::Nothing),
            (&with(None), None, Chosen::Nothing),
            (&with(Some("four")), None, Chosen::Shares(&four)),
            (&with(Some("six")), None, Chosen::Missing("six")),
            (&Configs::Unknown, Some("four"), Chosen::Unknown),
            (
                &Configs::Same(four.clone()),
                Some("x"),
                Chosen::Shares(&four),
            ),
        ] {
            assert_eq!(configs.choose(label), want, "{configs:?} {label:?}");
        }
    }

    #[test]
    fn what_the_plugin_refuses_by_default() {
        let one_each = |text: &str| super::super::parse(text, MigStrategy::None).shares.one_each;
        // NVIDIA/k8s-device-plugin, api/config/v1/replicas.go: true for MPS, false for time-slicing.
        assert!(one_each(
            "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"
        ));
        assert!(!one_each(
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}"
        ));
    }
}
