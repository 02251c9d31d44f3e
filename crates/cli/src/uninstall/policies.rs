//! What the controllers said about the ClusterPolicies that stay: nobody keeps it true any more.

use anyhow::Context as _;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tessera_api::ClusterPolicy;
use tessera_api::conditions::ComponentCondition;
use tessera_api::names::controller;

use super::{GPU_CONTROLLERS, Run, objects};

/// How often a policy is looked at again because somebody wrote to it meanwhile.
const TRIES: u32 = 5;

/// Takes the status of each of these controllers off all policies; what others go on saying stays.
pub(super) async fn forget(run: &Run) -> anyhow::Result<()> {
    // Whatever has been stored: a policy that cannot be decoded loses its status as well.
    let api: Api<DynamicObject> = Api::all_with(
        run.client.clone(),
        &ApiResource::erase::<ClusterPolicy>(&()),
    );
    let leaving: Vec<&str> = GPU_CONTROLLERS
        .into_iter()
        .filter(|name| run.has(name))
        .collect();
    for _ in 0..TRIES {
        let list = match api.list(&ListParams::default()).await {
            Ok(list) => list,
            Err(error) if objects::is_missing(&error) => return Ok(()),
            Err(error) => return Err(error).context("ClusterPolicies cannot be listed"),
        };
        let mut beaten = false;
        for policy in list {
            beaten |= !take_back(&api, &policy, &leaving).await?;
        }
        if !beaten {
            return Ok(());
        }
    }
    anyhow::bail!("somebody keeps writing to ClusterPolicies: look who does, and try again")
}

/// False when somebody else wrote to the policy meanwhile.
async fn take_back(
    api: &Api<DynamicObject>,
    policy: &DynamicObject,
    leaving: &[&str],
) -> anyhow::Result<bool> {
    let writers: Vec<&str> = GPU_CONTROLLERS
        .into_iter()
        .filter(|name| {
            let manager = controller::field_manager(name);
            let mut entries = policy.managed_fields().iter();
            entries.any(|entry| entry.manager.as_deref() == Some(&manager))
        })
        .collect();
    let status = policy.data.get("status").unwrap_or(&Value::Null);
    let Some(rest) = without(status, &writers, leaving) else {
        return Ok(true);
    };
    let name = policy.name_any();
    let change = json!({
        "metadata": {"resourceVersion": policy.resource_version()},
        "status": rest,
    });
    match api
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(change))
        .await
    {
        Ok(_) => {
            println!(
                "ClusterPolicy {name}: removed the status by {}; the policy stays",
                leaving.join(", ")
            );
            Ok(true)
        }
        Err(error) if objects::is_missing(&error) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => {
            Err(error).with_context(|| format!("status of ClusterPolicy {name} cannot be removed"))
        }
    }
}

/// What to merge into a status that `writers` have written to, when the controllers in `leaving` go; `None`: nothing.
/// What is computed from all of it goes with the last of them, and is computed anew by those that stay.
fn without(status: &Value, writers: &[&str], leaving: &[&str]) -> Option<Value> {
    if status.is_null() || !writers.iter().any(|name| leaving.contains(name)) {
        return None;
    }
    if writers.iter().all(|name| leaving.contains(name)) {
        return Some(Value::Null);
    }
    let conditions = status.get("conditions").and_then(Value::as_array);
    let is_leaving = |condition: &Value| {
        let type_ = condition.get("type").and_then(Value::as_str);
        type_
            .and_then(ComponentCondition::owner)
            .is_some_and(|owner| leaving.contains(&owner))
    };
    let kept: Vec<&Value> = conditions
        .into_iter()
        .flatten()
        .filter(|condition| !is_leaving(condition))
        .collect();
    let mut rest = json!({"conditions": kept});
    for (name, part) in [
        (controller::DRIVER, "driver"),
        (controller::DEVICE_PLUGIN, "devicePlugin"),
        (controller::DCGM_MONITOR, "dcgm"),
    ] {
        if leaving.contains(&name)
            && let Some(map) = rest.as_object_mut()
        {
            map.insert(part.to_owned(), Value::Null);
        }
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_of_a_status() {
        let status = json!({
            "state": "ready",
            "conditions": [{"type": "DriverReady"}, {"type": "ExporterReady"}, {"type": "Ready"}],
            "driver": {"ready": 3}, "dcgm": {"ready": 3},
        });
        let (driver, dcgm) = (controller::DRIVER, controller::DCGM_MONITOR);
        let both = [driver, dcgm];
        assert_eq!(without(&status, &both, &GPU_CONTROLLERS), Some(Value::Null));
        assert_eq!(
            without(&status, &both, &[driver]),
            Some(
                json!({"conditions": [{"type": "ExporterReady"}, {"type": "Ready"}], "driver": null})
            )
        );
        assert_eq!(without(&status, &[dcgm], &[driver]), None);
        assert_eq!(without(&status, &[], &GPU_CONTROLLERS), None);
        assert_eq!(without(&Value::Null, &both, &GPU_CONTROLLERS), None);
    }
}
