//! Which policy is active, over which base.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde_json::Value;

use super::{EffectivePolicy, defaults, dialect, merge};
use crate::{
    image::DefaultImages,
    policy::{ClusterPolicy, ClusterPolicySpec, ClusterPolicyStatus, is_base},
};

/// What a set of policies means.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolution {
    /// The active policy; none when there is no policy.
    pub active: Option<Active>,
    /// The others, by name.
    pub ignored: Vec<Ignored>,
}

/// The active policy: the oldest user policy over the base, or the base alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Active {
    /// Name of the policy that gets the status.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
    /// Its resource version: what a computed status must be compared with.
    pub resource_version: String,
    /// Its status as read.
    pub status: ClusterPolicyStatus,
    /// Every policy that the effective one is made of (base and active), for the objects that follow from it.
    pub owners: Vec<OwnerReference>,
    /// What to do. Problems and unsupported paths are in it.
    pub effective: Arc<EffectivePolicy>,
    /// Its hash ([`EffectivePolicy::hash`]).
    pub hash: String,
}

/// A policy that is not active.
#[derive(Clone, Debug, PartialEq)]
pub struct Ignored {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Generation.
    pub generation: i64,
    /// Resource version.
    pub resource_version: String,
    /// Its status as read.
    pub status: ClusterPolicyStatus,
    /// Name of the active policy.
    pub active: String,
    /// Why.
    pub why: IgnoredWhy,
}

/// Why a policy is not active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredWhy {
    /// It is the base, and a user's policy lies over it: it counts, but status is shown there.
    OverlaidBase,
    /// An older policy is active.
    OlderPolicyActive,
}

/// Resolves all policies of a cluster. Those being deleted count as gone. Order of the input does not matter.
pub fn resolve<'a>(
    policies: impl IntoIterator<Item = &'a ClusterPolicy>,
    images: &DefaultImages,
) -> Resolution {
    let live: Vec<&ClusterPolicy> = policies
        .into_iter()
        .filter(|p| is_live(&p.metadata))
        .collect();
    let [base, user] =
        [true, false].map(|base| first(live.iter().copied(), |policy| &policy.metadata, base));
    let Some(active) = user.or(base) else {
        return Resolution::default();
    };
    let layers: Vec<&ClusterPolicy> = base.into_iter().chain(user).collect();
    let ignored = live.iter().filter(|p| p.name_any() != active.name_any());
    let why = |p: &ClusterPolicy| match base {
        Some(base) if base.name_any() == p.name_any() => IgnoredWhy::OverlaidBase,
        _ => IgnoredWhy::OlderPolicyActive,
    };
    let mut ignored: Vec<Ignored> = ignored
        .map(|p| Ignored {
            name: p.name_any(),
            uid: p.uid().unwrap_or_default(),
            generation: p.metadata.generation.unwrap_or_default(),
            resource_version: p.resource_version().unwrap_or_default(),
            status: p.status.clone().unwrap_or_default(),
            active: active.name_any(),
            why: why(p),
        })
        .collect();
    ignored.sort_by(|a, b| a.name.cmp(&b.name));
    let effective = layered(&layers, images).1;
    let active = Active {
        name: active.name_any(),
        uid: active.uid().unwrap_or_default(),
        generation: active.metadata.generation.unwrap_or_default(),
        resource_version: active.resource_version().unwrap_or_default(),
        status: active.status.clone().unwrap_or_default(),
        owners: layers
            .iter()
            .map(|p| owner(p, p.name_any() == active.name_any()))
            .collect(),
        hash: effective.hash(),
        effective: Arc::new(effective),
    };
    Resolution {
        active: Some(active),
        ignored,
    }
}

/// The one that counts of the bases, or else of the users' policies: the oldest, then the lowest name. `metadata` finds the metadata of
/// what is chosen from, which need not be readable otherwise.
pub fn first<T>(
    policies: impl IntoIterator<Item = T>,
    metadata: impl Fn(&T) -> &ObjectMeta,
    base: bool,
) -> Option<T> {
    policies
        .into_iter()
        .filter(|policy| is_live(metadata(policy)) && is_base(metadata(policy)) == base)
        .min_by_key(|policy| age(metadata(policy)))
}

fn is_live(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_none()
}

fn age(metadata: &ObjectMeta) -> (Option<jiff::Timestamp>, String) {
    (
        metadata.creation_timestamp.as_ref().map(|time| time.0),
        metadata.name.clone().unwrap_or_default(),
    )
}

/// NVIDIA's validator waits for the driver container only where a driver DaemonSet's controller is a ClusterPolicy
/// (`isDriverManagedByOperator`), so one owner must be it: the active policy. Garbage collection waits for all owners.
fn owner(policy: &ClusterPolicy, is_active: bool) -> OwnerReference {
    OwnerReference {
        api_version: ClusterPolicy::api_version(&()).into_owned(),
        kind: ClusterPolicy::kind(&()).into_owned(),
        name: policy.name_any(),
        uid: policy.uid().unwrap_or_default(),
        controller: Some(is_active),
        block_owner_deletion: Some(true),
    }
}

/// Policies over each other, the lowest first: their merged spec in NVIDIA's fields, and what it means.
pub(crate) fn layered(
    layers: &[&ClusterPolicy],
    images: &DefaultImages,
) -> (Value, EffectivePolicy) {
    let mut problems = Vec::new();
    let mut merged = Value::Object(serde_json::Map::new());
    for layer in layers {
        // Plain data always serialises; a layer that did not would be left out, which `problems` could not say better.
        let spec = serde_json::to_value(&layer.spec).unwrap_or_default();
        merged = merge(merged, &dialect::normalise(spec, &mut problems));
    }
    // The merge is made of parts that this type wrote, so it always decodes.
    let spec: ClusterPolicySpec = serde_json::from_value(merged.clone()).unwrap_or_default();
    (merged, defaults::apply(&spec, images, problems))
}
