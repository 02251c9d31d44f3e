//! ClusterPolicies as the scenarios see and change them.

use std::fmt::Write as _;
use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tessera_api::ClusterPolicy;
use tessera_api::policy::State;

use super::USER_POLICY;
use crate::cluster::Cluster;

/// Merges `spec` into the user's policy.
///
/// # Errors
/// There is no such policy, or the API server refuses the change.
pub async fn edit(cluster: &Cluster, spec: Value) -> anyhow::Result<()> {
    edit_policy(cluster, USER_POLICY, spec).await
}

/// Merges `spec` into a policy.
///
/// # Errors
/// As [`edit`].
pub async fn edit_policy(cluster: &Cluster, name: &str, spec: Value) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "spec": spec }));
    Api::<ClusterPolicy>::all(cluster.client())
        .patch(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// The policy, if it exists.
///
/// # Errors
/// The API server does not answer.
pub async fn policy(cluster: &Cluster, name: &str) -> anyhow::Result<Option<ClusterPolicy>> {
    Ok(Api::<ClusterPolicy>::all(cluster.client())
        .get_opt(name)
        .await?)
}

/// Waits until the policy is ready at its newest generation.
///
/// # Errors
/// It is not in time; the message holds its conditions.
pub async fn policy_ready(
    cluster: &Cluster,
    name: &str,
    patience: Duration,
) -> anyhow::Result<ClusterPolicy> {
    policy_until(cluster, name, "state: ready", patience, |policy| {
        let status = policy.status.clone().unwrap_or_default();
        let seen = status
            .conditions
            .iter()
            .find(|c| c.type_ == "Ready")
            .and_then(|c| c.observed_generation);
        status.state == Some(State::Ready) && seen == policy.metadata.generation
    })
    .await
}

/// Waits until the policy is as `check` wants it.
///
/// # Errors
/// It is not in time; the message holds its conditions.
pub async fn policy_until(
    cluster: &Cluster,
    name: &str,
    what: &str,
    patience: Duration,
    check: impl Fn(&ClusterPolicy) -> bool,
) -> anyhow::Result<ClusterPolicy> {
    cluster
        .wait_for(
            &format!("ClusterPolicy {name}: {what}"),
            patience,
            || async {
                match policy(cluster, name).await {
                    Ok(Some(policy)) if check(&policy) => Ok(policy),
                    Ok(Some(policy)) => Err(explain(&policy)),
                    Ok(None) => Err("there is no such policy".to_owned()),
                    Err(error) => Err(error.to_string()),
                }
            },
        )
        .await
}

/// Waits until all three controllers report `nodes` ready nodes; mere counts may come up to a minute late.
///
/// # Errors
/// They do not within three minutes.
pub async fn counted(cluster: &Cluster, name: &str, nodes: i32) -> anyhow::Result<()> {
    let what = format!("{nodes} nodes ready by all counts");
    let patience = Duration::from_secs(180);
    let counts = |policy: &ClusterPolicy| {
        let status = policy.status.clone().unwrap_or_default();
        [status.driver, status.device_plugin, status.dcgm]
            .into_iter()
            .all(|part| part.and_then(|part| part.ready) == Some(nodes))
    };
    policy_until(cluster, name, &what, patience, counts)
        .await
        .map(drop)
}

/// The conditions of a policy, a line each.
pub fn explain(policy: &ClusterPolicy) -> String {
    let status = policy.status.clone().unwrap_or_default();
    let mut text = format!(
        "state {:?}, generation {:?}",
        status.state, policy.metadata.generation
    );
    for c in &status.conditions {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n  {:<22} {:<6} {} (generation {:?}): {}",
            c.type_, c.status, c.reason, c.observed_generation, c.message
        );
    }
    text
}

/// Status and reason of a condition; empty when it is not there.
pub fn condition(policy: &ClusterPolicy, type_: &str) -> (String, String, String) {
    let conditions = policy.status.iter().flat_map(|s| &s.conditions);
    conditions
        .filter(|c| c.type_ == type_)
        .map(|c| (c.status.clone(), c.reason.clone(), c.message.clone()))
        .next()
        .unwrap_or_default()
}
