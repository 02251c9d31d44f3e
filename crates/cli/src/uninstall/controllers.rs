//! Stopping controllers: their Deployments belong to helm, so they are scaled down and not deleted.

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::{GPU_CONTROLLERS, Run};

fn selector(names: &[String]) -> String {
    format!(
        "app.kubernetes.io/part-of=tessera,app.kubernetes.io/component=controller,app.kubernetes.io/name in ({})",
        names.join(",")
    )
}

/// Scales the chosen controllers to zero and waits until their pods have ended.
pub(super) async fn stop(run: &Run) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(run.client.clone(), &run.namespace);
    let params = ListParams::default().labels(&selector(&run.controllers));
    for deployment in deployments
        .list(&params)
        .await
        .context("the controllers' Deployments cannot be listed")?
    {
        let name = deployment.name_any();
        let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        if replicas > 0 {
            let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
            deployments
                .patch_scale(&name, &PatchParams::default(), &none)
                .await
                .with_context(|| format!("Deployment {name} cannot be scaled down"))?;
            println!("stopping {name} (was {replicas} replicas)");
        }
    }
    let pods: Api<Pod> = Api::namespaced(run.client.clone(), &run.namespace);
    run.until_gone("the controllers' pods", || async {
        let left = pods
            .list_metadata(&params)
            .await
            .context("the controllers' pods cannot be listed")?;
        Ok(left
            .iter()
            .map(|pod| format!("Pod {}", pod.name_any()))
            .collect())
    })
    .await
}

/// Whether a GPU controller that is not taken away goes on running: it needs the nodes' labels.
pub(super) async fn others_run(run: &Run) -> anyhow::Result<bool> {
    let others: Vec<String> = GPU_CONTROLLERS
        .into_iter()
        .filter(|name| !run.has(name))
        .map(str::to_owned)
        .collect();
    if others.is_empty() {
        return Ok(false);
    }
    let deployments: Api<Deployment> = Api::namespaced(run.client.clone(), &run.namespace);
    let found = deployments
        .list(&ListParams::default().labels(&selector(&others)))
        .await?;
    Ok(found
        .into_iter()
        .any(|deployment| deployment.spec.and_then(|spec| spec.replicas) != Some(0)))
}
