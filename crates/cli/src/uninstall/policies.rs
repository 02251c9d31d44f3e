//! What the controllers said about the ClusterPolicies that stay: nobody keeps it true any more.

use anyhow::Context as _;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;
use tessera_api::ClusterPolicy;
use tessera_api::names::controller;

use super::{GPU_CONTROLLERS, Run, objects};

/// Takes the status of each of these controllers off all policies. A controller owns what it has applied, so an apply of
/// nothing under its name removes its conditions and its part, and what it shares with controllers that go on stays.
pub(super) async fn forget(run: &Run) -> anyhow::Result<()> {
    let api: Api<ClusterPolicy> = Api::all(run.client.clone());
    let list = match api.list_metadata(&ListParams::default()).await {
        Ok(list) => list,
        Err(error) if objects::is_missing(&error) => return Ok(()),
        Err(error) => return Err(error).context("ClusterPolicies cannot be listed"),
    };
    for policy in list {
        let name = policy.name_any();
        let mut forgotten = Vec::new();
        for owner in GPU_CONTROLLERS.into_iter().filter(|owner| run.has(owner)) {
            let manager = controller::field_manager(owner);
            let mut entries = policy.managed_fields().iter();
            // An apply by somebody who owns nothing would only leave a trace.
            if entries.any(|entry| entry.manager.as_ref() == Some(&manager))
                && take_back(&api, &name, &manager).await?
            {
                forgotten.push(owner);
            }
        }
        if !forgotten.is_empty() {
            let by = forgotten.join(", ");
            println!(
                "ClusterPolicy {name}: removed the status by {by}; it stays, and nobody acts on it"
            );
        }
    }
    Ok(())
}

/// False when the policy has gone meanwhile.
async fn take_back(api: &Api<ClusterPolicy>, name: &str, manager: &str) -> anyhow::Result<bool> {
    let nothing = json!({
        "apiVersion": ClusterPolicy::api_version(&()), "kind": ClusterPolicy::kind(&()),
        "metadata": {"name": name}, "status": {},
    });
    let params = PatchParams::apply(manager).force();
    match api
        .patch_status(name, &params, &Patch::Apply(&nothing))
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if objects::is_missing(&error) => Ok(false),
        Err(error) => {
            Err(error).with_context(|| format!("status of ClusterPolicy {name} cannot be removed"))
        }
    }
}
