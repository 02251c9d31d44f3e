//! What a Pod's annotations say of its limits.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tessera_api::names::annotation;
use tessera_api::units::MemoryLimit;

/// What a Pod's annotations say of its limits.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes<'a> {
    /// For all containers.
    pod: Option<MemoryLimit>,
    /// By container.
    containers: BTreeMap<&'a str, MemoryLimit>,
    /// What cannot be read, a sentence each.
    pub(super) refusals: Vec<String>,
}

impl<'a> Wishes<'a> {
    /// Reads the annotations.
    pub(super) fn of(pod: &'a Pod) -> Self {
        let mut wishes = Self::default();
        for (key, value) in pod.annotations() {
            let container = key.strip_prefix(annotation::MEMORY_LIMIT_PREFIX);
            if key != annotation::MEMORY_LIMIT && container.is_none() {
                continue;
            }
            match (value.parse(), container) {
                (Ok(limit), Some(name)) => drop(wishes.containers.insert(name, limit)),
                (Ok(limit), None) => wishes.pod = Some(limit),
                (Err(error), _) => wishes
                    .refusals
                    .push(format!("metadata.annotations[{key}]: {error}")),
            }
        }
        wishes
    }

    /// What is wished for one container by name.
    pub(super) fn container(&self, name: &str) -> Option<MemoryLimit> {
        self.containers.get(name).copied()
    }

    /// What is wished for all containers.
    pub(super) fn pod(&self) -> Option<MemoryLimit> {
        self.pod
    }

    /// Annotations that concern none of the containers that take a share of a card.
    pub(super) fn without_effect(&self, sharing: &BTreeSet<&str>) -> Vec<String> {
        let named = self.containers.keys();
        let mut unused: Vec<String> = named
            .filter(|name| !sharing.contains(*name))
            .map(|name| key(name))
            .collect();
        if self.pod.is_some() && sharing.is_empty() {
            unused.push(annotation::MEMORY_LIMIT.to_owned());
        }
        unused
    }
}

/// The annotation for one container.
pub(super) fn key(container: &str) -> String {
    format!("{}{container}", annotation::MEMORY_LIMIT_PREFIX)
}
