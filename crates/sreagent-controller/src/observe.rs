//! Stores -> [`Observed`]: the only reads.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::core::{DeserializeGuard, ObjectMeta};
use std::sync::Arc;
use tessera_api::SREAgent;
use tessera_runtime::apply::Owned;
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::watch::ObjectKey;

use crate::build::{CLUSTER_SCOPE, INSTANCE, SREAGENT, scope};
use crate::context::Context;

/// An SREAgent as it is stored; one that cannot be decoded still has its metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Agent {
    /// As the API describes it.
    Good(Box<SREAgent>),
    /// Stored before a rule existed.
    Unreadable {
        /// Its metadata.
        metadata: Box<ObjectMeta>,
        /// Why it cannot be read.
        error: String,
    },
}

impl Agent {
    /// Reads it, without managed fields.
    pub(crate) fn project(object: DeserializeGuard<SREAgent>) -> Self {
        match object.0 {
            Ok(mut object) => {
                object.metadata.managed_fields = None;
                Self::Good(Box::new(object))
            }
            Err(invalid) => {
                let metadata = ObjectMeta {
                    managed_fields: None,
                    ..invalid.metadata
                };
                Self::Unreadable {
                    metadata: Box::new(metadata),
                    error: invalid.error,
                }
            }
        }
    }

    /// Its metadata.
    pub(crate) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Good(object) => &object.metadata,
            Self::Unreadable { metadata, .. } => metadata,
        }
    }

    /// Whether somebody asked for its deletion.
    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }
}

/// An agent's pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentPod {
    /// Whose: the name of the agent's objects, by its label. Its own name does not tell, for long ones are cut.
    pub(crate) agent: String,
    /// What is read of it.
    pub(crate) facts: Arc<PodFacts>,
}

impl AgentPod {
    /// Reads a pod.
    pub(crate) fn of(pod: Pod) -> Self {
        Self {
            agent: pod.labels().get(INSTANCE).cloned().unwrap_or_default(),
            facts: Arc::new(PodFacts::from_pod(pod)),
        }
    }
}

/// What is there of an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Its Deployment.
    pub deployment: Option<Deployment>,
    /// Its pods.
    pub pods: Vec<Arc<PodFacts>>,
    /// Names of its cluster-wide bindings.
    pub bindings: Vec<String>,
}

/// What the stores hold of one agent now.
pub(crate) fn observe(context: &Context, key: &ObjectKey, agent: &str) -> Observed {
    let scope = scope(key);
    let deployment = context
        .deployments
        .get(&ObjectKey::namespaced(&key.namespace, agent));
    let pods = context.pods.list().into_iter();
    let bindings = context.cluster_bindings.list().into_iter();
    Observed {
        deployment: deployment.and_then(|owned| owned.decode()),
        pods: pods
            .filter(|(at, pod)| at.namespace == key.namespace && pod.agent == agent)
            .map(|(_, pod)| pod.facts.clone())
            .collect(),
        bindings: bindings
            .filter(|(_, owned)| {
                owned.label(CLUSTER_SCOPE) == Some(scope.as_str()) && !owned.deleting
            })
            .map(|(at, _)| at.name)
            .collect(),
    }
}

/// The SREAgent that an object was made for.
pub(crate) fn sreagent_of(owned: &Owned) -> Option<ObjectKey> {
    let text = owned
        .value
        .pointer("/metadata/annotations")?
        .get(SREAGENT)?
        .as_str()?;
    let (namespace, name) = text.split_once('/')?;
    Some(ObjectKey::namespaced(namespace, name))
}

/// Whether our finalizer is on it.
pub(crate) fn is_held(metadata: &ObjectMeta) -> bool {
    metadata
        .finalizers
        .iter()
        .flatten()
        .any(|name| name == crate::reconcile::FINALIZER)
}

/// For references: namespace, name and UID.
pub(crate) fn reference(agent: &Agent) -> k8s_openapi::api::core::v1::ObjectReference {
    let meta = agent.metadata();
    k8s_openapi::api::core::v1::ObjectReference {
        api_version: Some("aiops.local/v1".to_owned()),
        kind: Some("SREAgent".to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        ..Default::default()
    }
}

/// UID of the SREAgent, for guarded writes.
pub(crate) fn uid(agent: &SREAgent) -> String {
    agent.uid().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The API server cuts a generated name after 58 characters and adds 5 of its own.
    #[test]
    fn a_pod_whose_name_is_cut_is_its_agents_all_the_same() {
        let agent = crate::validate::agent_name(&"a".repeat(60));
        let generated: String = format!("{agent}-5c9f8d7b64-").chars().take(58).collect();
        let pod =
            json!({"metadata": {"name": format!("{generated}x2v4q"), "labels": {INSTANCE: agent}}});
        let pod = AgentPod::of(serde_json::from_value(pod).unwrap());
        assert_eq!(pod.agent, agent);
        assert!(!pod.facts.name.starts_with(&agent));
    }
}
