//! Requests of a node's task, bounded for all nodes together.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::gpusim::World;

/// No request may hold up a node for longer.
const LIMIT: Duration = Duration::from_secs(10);

/// Writes a pod's status; false when it should be tried again.
pub(super) async fn pod_status(world: &World, pod: &Pod, status: &Value) -> bool {
    let api: Api<Pod> = Api::namespaced(world.client.clone(), &pod.namespace().unwrap_or_default());
    let body = json!({ "metadata": { "uid": pod.uid() }, "status": status });
    done(
        world,
        api.patch_status(
            &pod.name_any(),
            &PatchParams::default(),
            &Patch::Strategic(&body),
        ),
    )
    .await
}

/// Sets (or with `None` removes) labels of a node under a field manager.
pub(super) async fn labels(
    world: &World,
    node: &str,
    labels: &BTreeMap<String, Option<String>>,
    manager: &str,
) -> bool {
    let api: Api<Node> = Api::all(world.client.clone());
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    done(
        world,
        api.patch(
            node,
            &params,
            &Patch::Merge(&json!({ "metadata": { "labels": labels } })),
        ),
    )
    .await
}

/// Sets capacity and allocatable of a node's extended resources.
pub(super) async fn resources(
    world: &World,
    node: &str,
    resources: &BTreeMap<String, (u32, u32)>,
) -> bool {
    let api: Api<Node> = Api::all(world.client.clone());
    let column = |pick: fn(&(u32, u32)) -> u32| -> BTreeMap<&String, String> {
        resources
            .iter()
            .map(|(name, pair)| (name, pick(pair).to_string()))
            .collect()
    };
    let body = json!({ "status": { "capacity": column(|pair| pair.0), "allocatable": column(|pair| pair.1) } });
    done(
        world,
        api.patch_status(node, &PatchParams::default(), &Patch::Merge(&body)),
    )
    .await
}

/// Reports a node as one whose kubelet says nothing any more.
pub(super) async fn dead(world: &World, node: &str) -> bool {
    let api: Api<Node> = Api::all(world.client.clone());
    let body = json!({ "status": { "conditions": [{
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": jiff::Timestamp::now().to_string(),
    }] } });
    done(
        world,
        api.patch_status(node, &PatchParams::default(), &Patch::Strategic(&body)),
    )
    .await
}

/// Runs a request; true when there is nothing to try again.
async fn done<T>(world: &World, request: impl Future<Output = kube::Result<T>>) -> bool {
    let Ok(_permit) = world.requests.acquire().await else {
        return true;
    };
    match tokio::time::timeout(LIMIT, request).await {
        Ok(Ok(_)) => true,
        // The object is gone, or another one has its name.
        Ok(Err(kube::Error::Api(answer))) if matches!(answer.code, 404 | 409) => true,
        Ok(Err(error)) => {
            tracing::warn!(%error, "gpusim's write");
            false
        }
        Err(_) => false,
    }
}
