//! The cards of a node, and what the kubelet advertises of them.

use std::collections::{BTreeMap, BTreeSet};

use super::config::PluginConfig;
use crate::nodes::Product;

/// MIG instances of one card: profile (`1g.10gb`) -> count. Empty: MIG is off.
pub(super) type CardLayout = BTreeMap<String, u32>;

/// What a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hardware {
    pub(super) product: Product,
    pub(super) cards: u32,
    /// One entry a card while MIG is on anywhere; empty otherwise.
    pub(super) layout: Vec<CardLayout>,
}

impl Hardware {
    /// The MIG instances of a card.
    pub(super) fn instances(&self, card: u32) -> Option<&CardLayout> {
        let layout = self.layout.get(usize::try_from(card).ok()?)?;
        (!layout.is_empty()).then_some(layout)
    }

    /// Whether any card is in MIG mode.
    pub(super) fn mig(&self) -> bool {
        self.layout.iter().any(|layout| !layout.is_empty())
    }

    /// Resources that the plugin registers: name -> number of healthy devices, replicas counted.
    pub(super) fn resources(
        &self,
        config: &PluginConfig,
        strategy: &str,
        broken: &BTreeSet<u32>,
    ) -> Result<BTreeMap<String, u32>, String> {
        let mut plain: BTreeMap<String, u32> = BTreeMap::new();
        for card in (0..self.cards).filter(|card| !broken.contains(card)) {
            match (self.instances(card), strategy) {
                (Some(layout), "single") => {
                    *plain.entry("nvidia.com/gpu".to_owned()).or_default() +=
                        layout.values().sum::<u32>();
                }
                (Some(layout), "mixed") => {
                    for (profile, count) in layout {
                        *plain
                            .entry(format!("nvidia.com/mig-{}", resource_name(profile)))
                            .or_default() += count;
                    }
                }
                _ => *plain.entry("nvidia.com/gpu".to_owned()).or_default() += 1,
            }
        }
        if strategy == "single" && self.mig() && !self.uniform() {
            return Err("invalid MIG configuration: all cards must have the same instances with strategy single".to_owned());
        }
        let shared = plain.into_iter().map(|(name, count)| {
            let replicas = config.replicas(&name);
            let name = if replicas > 1 && config.renames() {
                format!("{name}.shared")
            } else {
                name
            };
            (name, count * replicas)
        });
        Ok(shared.collect())
    }

    /// Whether all cards have the same instances, all of one profile, as strategy `single` wants.
    fn uniform(&self) -> bool {
        let Some(first) = self.layout.first() else {
            return true;
        };
        first.len() == 1 && self.layout.iter().all(|layout| layout == first)
    }
}

/// `1g.10gb+me` -> `1g.10gb.me`
pub(super) fn resource_name(profile: &str) -> String {
    profile.replace('+', ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(pairs: &[(&str, u32)]) -> CardLayout {
        pairs
            .iter()
            .map(|(profile, count)| ((*profile).to_owned(), *count))
            .collect()
    }

    #[test]
    fn what_is_advertised() {
        let sliced = PluginConfig::parse(
            "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
        )
        .unwrap();
        let renamed = PluginConfig::parse("sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}").unwrap();
        let plain = Hardware {
            product: Product::H100,
            cards: 8,
            layout: Vec::new(),
        };
        let get = |hardware: &Hardware, config: &PluginConfig, strategy: &str, broken: &[u32]| {
            hardware
                .resources(config, strategy, &broken.iter().copied().collect())
                .unwrap()
                .into_iter()
                .map(|(name, count)| format!("{name}={count}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(get(&plain, &sliced, "none", &[]), "nvidia.com/gpu=32");
        assert_eq!(get(&plain, &sliced, "none", &[3]), "nvidia.com/gpu=28");
        assert_eq!(
            get(&plain, &renamed, "none", &[]),
            "nvidia.com/gpu.shared=16"
        );
        let uniform = Hardware {
            cards: 2,
            layout: vec![layout(&[("1g.10gb", 7)]); 2],
            ..plain.clone()
        };
        assert_eq!(
            get(&uniform, &PluginConfig::default(), "single", &[]),
            "nvidia.com/gpu=14"
        );
        assert_eq!(
            get(&uniform, &PluginConfig::default(), "mixed", &[]),
            "nvidia.com/mig-1g.10gb=14"
        );
        let different = Hardware {
            cards: 2,
            layout: vec![layout(&[("1g.10gb+me", 1)]), CardLayout::new()],
            ..plain
        };
        assert_eq!(
            get(&different, &PluginConfig::default(), "mixed", &[]),
            "nvidia.com/gpu=1 nvidia.com/mig-1g.10gb.me=1"
        );
        assert!(
            different
                .resources(&PluginConfig::default(), "single", &BTreeSet::new())
                .is_err()
        );
    }
}
