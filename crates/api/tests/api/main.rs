//! Tests of the public API, one module an area; all pure.

// Clippy's allowances for tests know `#[test]` functions, not what they call.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::large_stack_arrays
)]

mod conditions;
mod crds;
mod effective;
mod examples;
mod images;
mod inputs;
mod judge;
mod mig_layout;
mod nodes;
mod properties;
mod units;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use tessera_api::{
    ClusterPolicy, DefaultImages, EffectivePolicy, Resolution, names::label,
    policy::ClusterPolicySpec, resolve,
};

/// A policy from the YAML of its spec.
fn policy(name: &str, age: i64, spec: &str) -> ClusterPolicy {
    let spec: ClusterPolicySpec = serde_saphyr::from_str(spec).expect("spec of a test policy");
    let mut policy = ClusterPolicy::new(name, spec);
    policy.metadata.uid = Some(format!("uid-{name}"));
    policy.metadata.generation = Some(1);
    policy.metadata.resource_version = Some("7".into());
    policy.metadata.creation_timestamp = Some(Time(
        Timestamp::from_second(1_000_000 - age).expect("a time"),
    ));
    policy
}

/// The policy that the umbrella chart renders.
fn base(spec: &str) -> ClusterPolicy {
    let mut policy = policy("cluster-policy", 1_000, spec);
    policy.metadata.labels = Some(
        [(
            label::POLICY_ROLE.to_owned(),
            label::POLICY_ROLE_BASE.to_owned(),
        )]
        .into(),
    );
    policy
}

fn resolved(policies: &[ClusterPolicy]) -> Resolution {
    resolve(policies, &DefaultImages::builtin())
}

/// The effective policy of one user policy.
fn effective(spec: &str) -> EffectivePolicy {
    let active = resolved(&[policy("mine", 1, spec)]).active;
    EffectivePolicy::clone(&active.expect("one policy is active").effective)
}
