//! [`Validated`] -> objects. Pure and deterministic.

mod deployment;

pub use deployment::{deployment, resources};

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::BTreeMap;
use tessera_api::effective::hash_of;
use tessera_api::names::label;
use tessera_runtime::apply::{Desired, SerializeError};
use tessera_runtime::watch::ObjectKey;

use crate::args::Settings;
use crate::rbac::{OBSERVE, OWN, REPAIR};
use crate::validate::{Validated, binding_name};

/// Value of `app.kubernetes.io/component` of all objects.
pub const COMPONENT: &str = "agent";
/// Value of label `app` of agents' pods.
pub const APP: &str = "sre-agent";
/// Label of the agent that an object or pod belongs to: the name of its objects.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// Annotation of every object: `<namespace>/<name>` of its SREAgent.
pub const SREAGENT: &str = "aiops.local/sreagent";
/// Scope label of the objects in the SREAgent's namespace, which it owns.
pub const SCOPE: &str = "aiops.local/sreagent";
/// Scope label of the cluster-scoped bindings, which it cannot own.
pub const CLUSTER_SCOPE: &str = "aiops.local/sreagent-cluster";

/// Value of both scope labels.
pub fn scope(key: &ObjectKey) -> String {
    hash_of(&(&key.namespace, &key.name))
}

/// All objects of an agent.
pub struct Objects {
    /// Cluster-scoped bindings: what the agent may do, before it exists.
    pub cluster: Desired,
    /// Objects in the SREAgent's namespace.
    pub namespaced: Desired,
    /// Owner of the namespaced ones.
    pub owner: OwnerReference,
}

/// Builds an agent.
///
/// # Errors
/// Only by a defect: an object that is no JSON.
pub fn objects(agent: &Validated, settings: &Settings) -> Result<Objects, SerializeError> {
    let mut cluster = Desired::new();
    cluster.add(&cluster_binding(agent, "observe", OBSERVE))?;
    if agent.repairs {
        cluster.add(&cluster_binding(agent, "repair", REPAIR))?;
    }
    let mut namespaced = standing(agent)?;
    namespaced.add(&deployment(agent, settings))?;
    Ok(Objects {
        cluster,
        namespaced,
        owner: owner(agent),
    })
}

/// What must outlive the agent's pod, so that it can release its Lease: everything in the namespace but the Deployment.
///
/// # Errors
/// Only by a defect.
pub fn standing(agent: &Validated) -> Result<Desired, SerializeError> {
    let mut desired = Desired::new();
    desired.add(&account(agent))?;
    desired.add(&own_binding(agent))?;
    Ok(desired)
}

fn account(agent: &Validated) -> ServiceAccount {
    ServiceAccount {
        metadata: meta(agent, Some(&agent.namespace), &agent.agent),
        ..ServiceAccount::default()
    }
}

fn own_binding(agent: &Validated) -> RoleBinding {
    RoleBinding {
        metadata: meta(agent, Some(&agent.namespace), &agent.agent),
        role_ref: cluster_role(OWN),
        subjects: Some(vec![subject(agent)]),
    }
}

fn cluster_binding(agent: &Validated, suffix: &str, role: &str) -> ClusterRoleBinding {
    ClusterRoleBinding {
        metadata: meta(
            agent,
            None,
            &binding_name(&agent.namespace, &agent.name, suffix),
        ),
        role_ref: cluster_role(role),
        subjects: Some(vec![subject(agent)]),
    }
}

fn cluster_role(name: &str) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: "ClusterRole".to_owned(),
        name: name.to_owned(),
    }
}

fn subject(agent: &Validated) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: agent.agent.clone(),
        namespace: Some(agent.namespace.clone()),
        api_group: None,
    }
}

/// No `blockOwnerDeletion`: it would need a right on SREAgents' finalizers where that admission plugin is on.
pub fn owner(agent: &Validated) -> OwnerReference {
    OwnerReference {
        api_version: "aiops.local/v1".to_owned(),
        kind: "SREAgent".to_owned(),
        name: agent.name.clone(),
        uid: agent.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn meta(agent: &Validated, namespace: Option<&str>, name: &str) -> ObjectMeta {
    let annotation = (
        SREAGENT.to_owned(),
        format!("{}/{}", agent.namespace, agent.name),
    );
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(labels(agent)),
        annotations: Some(BTreeMap::from([annotation])),
        ..ObjectMeta::default()
    }
}

fn labels(agent: &Validated) -> BTreeMap<String, String> {
    [
        (label::APP, APP),
        (label::COMPONENT, COMPONENT),
        (INSTANCE, agent.agent.as_str()),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

#[cfg(test)]
mod tests;
