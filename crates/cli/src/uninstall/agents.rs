//! What the sreagent-controller made: agents in their SREAgents' namespaces, their bindings, and its finalizers.

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tessera_api::SREAgent;
use tessera_api::names::{PREFIX, controller};

use super::{Run, objects};

/// Takes agents away, waits for their pods, then takes away their accounts and releases their SREAgents.
pub(super) async fn remove(run: &Run) -> anyhow::Result<()> {
    let selector = format!(
        "app.kubernetes.io/part-of=tessera,app.kubernetes.io/managed-by={}",
        controller::SREAGENT
    );
    objects::sweep(
        run,
        &[objects::Kind::of::<Deployment>(true)],
        None,
        &selector,
    )
    .await?;
    let pods = objects::Kind::of::<Pod>(true);
    run.until_gone("agent pods", || {
        objects::remaining(run, &pods, None, &selector)
    })
    .await?;
    let kinds = [
        objects::Kind::of::<ClusterRoleBinding>(false),
        objects::Kind::of::<RoleBinding>(true),
        objects::Kind::of::<ServiceAccount>(true),
    ];
    objects::sweep(run, &kinds, None, &selector).await?;
    release(run).await
}

/// Removes our finalizers and what was said of the agents: there is nothing left that either would wait for or be true of, and
/// nobody to remove them later.
async fn release(run: &Run) -> anyhow::Result<()> {
    let all: Api<SREAgent> = Api::all(run.client.clone());
    let list = match all.list_metadata(&ListParams::default()).await {
        Ok(list) => list,
        Err(error) if objects::is_missing(&error) => return Ok(()),
        Err(error) => return Err(error).context("SREAgents cannot be listed"),
    };
    for agent in list {
        let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
        let api: Api<SREAgent> = Api::namespaced(run.client.clone(), &namespace);
        let (kept, ours): (Vec<&String>, Vec<&String>) = agent
            .finalizers()
            .iter()
            .partition(|name| !name.starts_with(PREFIX));
        let mut writers = agent.managed_fields().iter();
        let has_status = writers.any(|entry| entry.subresource.as_deref() == Some("status"));
        let params = PatchParams::default();
        if !ours.is_empty() {
            let version = agent.resource_version();
            let patch =
                Patch::Merge(json!({"metadata": {"finalizers": kept, "resourceVersion": version}}));
            let released = api.patch_metadata(&name, &params, &patch).await.map(drop);
            if done(released, || {
                format!("SREAgent {namespace}/{name} cannot be released")
            })? {
                println!("released SREAgent {namespace}/{name}: it stays, without an agent");
            }
        }
        if has_status {
            let patch = Patch::Merge(json!({"status": null}));
            let forgotten = api.patch_status(&name, &params, &patch).await.map(drop);
            done(forgotten, || {
                format!("status of SREAgent {namespace}/{name} cannot be removed")
            })?;
        }
    }
    Ok(())
}

/// False when there is no such object any more.
fn done(sent: kube::Result<()>, failure: impl FnOnce() -> String) -> anyhow::Result<bool> {
    match sent {
        Ok(()) => Ok(true),
        Err(error) if objects::is_missing(&error) => Ok(false),
        Err(error) => Err(error).with_context(failure),
    }
}
