//! Sample policies, resolved as the controller resolves them.

use crate::observe::Maps;
use crate::referenced::MapState;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_api::{ClusterPolicy, DefaultImages, EffectivePolicy, resolve};

pub(super) const DEFAULTS: &str =
    "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {name: p, uid: p}\nspec: {}\n";
pub(super) const VALUES: &str = include_str!("samples/values-base.yaml");
pub(super) const INPUT: &str = include_str!("samples/cluster-policy.yaml");
pub(super) const EVERYTHING: &str = include_str!("samples/everything.yaml");
pub(super) const MPS: &str = include_str!("samples/mps.yaml");
pub(super) const MINIMAL: &str = include_str!("samples/minimal.yaml");

pub(super) const NAMESPACE: &str = "gpu-operator";

pub(super) fn policy(texts: &[&str]) -> Arc<EffectivePolicy> {
    let policies: Vec<ClusterPolicy> = texts
        .iter()
        .map(|text| serde_saphyr::from_str(text).unwrap())
        .collect();
    resolve(&policies, &DefaultImages::builtin())
        .active
        .unwrap()
        .effective
}

/// A policy with this spec.
pub(super) fn spec(text: &str) -> Arc<EffectivePolicy> {
    policy(&[&format!(
        "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {{name: p, uid: p}}\nspec: {text}\n"
    )])
}

pub(super) fn map(entries: &[(&str, &str)]) -> MapState {
    MapState::Present(Arc::new(
        entries
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
            .collect(),
    ))
}

pub(super) const SHARED: &str = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/mig-1g.10gb, replicas: 2}\n";

pub(super) fn maps() -> Maps {
    BTreeMap::from([
        (
            "plugin-configs".to_owned(),
            map(&[("shared", SHARED), ("whole", "version: v1\n")]),
        ),
        (
            "my-layouts".to_owned(),
            map(&[("config.yaml", "version: v1\nmig-configs:\n  mine: []\n")]),
        ),
        (
            "my-clients".to_owned(),
            map(&[("clients.yaml", "version: v1\n")]),
        ),
    ])
}
