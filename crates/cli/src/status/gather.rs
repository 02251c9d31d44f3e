//! Reading the cluster into an [`Overview`].

use anyhow::{Context as _, bail};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tessera_api::names::{GPU_RESOURCE, label};
use tessera_api::policy::{ClusterPolicyStatus, State};
use tessera_api::{ClusterPolicy, NodeOperation, SREAgent};

use super::{Agent, Condition, Controller, Nodes, Operand, Operation, Overview, Policy};
use crate::uninstall::CONTROLLERS;

/// Reads everything, each kind with one list.
///
/// # Errors
/// A list was refused, or the cluster does not know ClusterPolicy.
pub async fn gather(client: Client, namespace: &str) -> anyhow::Result<Overview> {
    let Some(policies) = list::<ClusterPolicy>(Api::all(client.clone()), "").await? else {
        bail!(
            "Tessera is not installed here: the cluster does not know ClusterPolicy (helm install gpu-operator charts/gpu-operator -n gpu-operator --create-namespace)"
        );
    };
    let (deployments, daemonsets, nodes, operations, agents) = futures::try_join!(
        namespaced::<Deployment>(
            &client,
            namespace,
            "app.kubernetes.io/part-of=tessera,app.kubernetes.io/component=controller"
        ),
        namespaced::<DaemonSet>(&client, namespace, "app.kubernetes.io/part-of=tessera"),
        list::<Node>(Api::all(client.clone()), "nvidia.com/gpu.present=true"),
        list::<NodeOperation>(Api::all(client.clone()), ""),
        list::<SREAgent>(Api::all(client.clone()), ""),
    )?;
    let mut policies: Vec<Policy> = policies.iter().map(policy).collect();
    policies.sort_by_key(|policy| (policy.state == State::Ignored.as_str(), policy.name.clone()));
    let deployments = deployments.unwrap_or_default();
    Ok(Overview {
        namespace: namespace.to_owned(),
        policies,
        controllers: CONTROLLERS
            .iter()
            .map(|name| controller(name, &deployments))
            .collect(),
        operands: daemonsets.unwrap_or_default().iter().map(operand).collect(),
        nodes: count(&nodes.unwrap_or_default()),
        operations: operations
            .unwrap_or_default()
            .iter()
            .filter_map(operation)
            .collect(),
        agents: agents.unwrap_or_default().iter().map(agent).collect(),
    })
}

async fn namespaced<K>(
    client: &Client,
    namespace: &str,
    selector: &str,
) -> anyhow::Result<Option<Vec<K>>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    list(Api::namespaced(client.clone(), namespace), selector).await
}

/// The objects; `None` where the cluster does not know the kind.
async fn list<K>(api: Api<K>, selector: &str) -> anyhow::Result<Option<Vec<K>>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.list(&ListParams::default().labels(selector)).await {
        Ok(list) => Ok(Some(list.items)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} cannot be listed", K::plural(&()))),
    }
}

fn policy(policy: &ClusterPolicy) -> Policy {
    let status = policy.status.clone().unwrap_or_default();
    let generation = policy.metadata.generation;
    let condition =
        |condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| Condition {
            kind: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            current: condition.observed_generation == generation,
        };
    Policy {
        name: policy.name_any(),
        base: policy.is_base(),
        state: status
            .state
            .map(|state| state.as_str().to_owned())
            .unwrap_or_default(),
        conditions: status.conditions.iter().map(condition).collect(),
        exceptions: exceptions(&status),
    }
}

fn exceptions(status: &ClusterPolicyStatus) -> Vec<String> {
    let parts = [
        ("driver", &status.driver),
        ("plugin", &status.device_plugin),
        ("monitoring", &status.dcgm),
    ];
    let all = parts.into_iter().flat_map(|(name, part)| {
        part.iter()
            .flat_map(move |part| part.exceptions.iter().map(move |e| (name, e)))
    });
    all.map(|(name, exception)| {
        let more = usize::try_from(exception.count)
            .unwrap_or_default()
            .saturating_sub(exception.nodes.len());
        let rest = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let message = exception
            .message
            .as_ref()
            .map(|text| format!(": {text}"))
            .unwrap_or_default();
        format!(
            "{name}: {} on {}{rest}{message}",
            exception.reason,
            exception.nodes.join(", ")
        )
    })
    .collect()
}

fn controller(name: &str, deployments: &[Deployment]) -> Controller {
    let found = deployments
        .iter()
        .find(|deployment| deployment.name_any() == name);
    Controller {
        name: name.to_owned(),
        installed: found.is_some(),
        replicas: found
            .and_then(|d| d.spec.as_ref()?.replicas)
            .unwrap_or_default(),
        ready: found
            .and_then(|d| d.status.as_ref()?.ready_replicas)
            .unwrap_or_default(),
    }
}

fn operand(set: &DaemonSet) -> Operand {
    let status = set.status.clone().unwrap_or_default();
    Operand {
        name: set.name_any(),
        controller: set
            .labels()
            .get(label::MANAGED_BY)
            .cloned()
            .unwrap_or_default(),
        desired: status.desired_number_scheduled,
        ready: status.number_ready,
        updated: status.updated_number_scheduled.unwrap_or_default(),
    }
}

fn count(nodes: &[Node]) -> Nodes {
    let is_ready = |node: &&Node| {
        let conditions = node
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions
            .filter(|condition| condition.type_ == "Ready")
            .any(|condition| condition.status == "True")
    };
    let gpus = |node: &Node| {
        node.status
            .as_ref()?
            .allocatable
            .as_ref()?
            .get(GPU_RESOURCE)?
            .0
            .parse::<i64>()
            .ok()
    };
    Nodes {
        gpu: nodes.len(),
        cordoned: nodes
            .iter()
            .filter(|node| {
                node.spec
                    .as_ref()
                    .and_then(|spec| spec.unschedulable)
                    .unwrap_or(false)
            })
            .count(),
        not_ready: nodes.len() - nodes.iter().filter(is_ready).count(),
        allocatable: nodes.iter().filter_map(gpus).sum(),
    }
}

/// Operations that ended well are only a record.
fn operation(operation: &NodeOperation) -> Option<Operation> {
    use tessera_api::nodeoperation::OperationPhase::Failed;
    let phase = operation.phase();
    if phase.is_ended() && phase != Failed {
        return None;
    }
    let status = operation.status.clone().unwrap_or_default();
    Some(Operation {
        node: operation.name_any(),
        operation: status
            .operation
            .map(|kind| kind.as_str().to_owned())
            .unwrap_or_default(),
        phase: phase.as_str().to_owned(),
        holder: operation.holder().unwrap_or_default().to_owned(),
        reason: status
            .reason
            .map(|reason| reason.as_str().to_owned())
            .unwrap_or_default(),
        message: status.message.unwrap_or_default(),
    })
}

fn agent(agent: &SREAgent) -> Agent {
    let status = agent.status.clone().unwrap_or_default();
    let report = status.agent.clone().unwrap_or_default();
    let phase = status
        .phase
        .and_then(|phase| serde_json::to_value(phase).ok());
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Ready");
    Agent {
        namespace: agent.namespace().unwrap_or_default(),
        name: agent.name_any(),
        phase: phase
            .and_then(|phase| phase.as_str().map(str::to_owned))
            .unwrap_or_default(),
        auto_repair: agent.spec.may_repair(),
        unhealthy: report
            .nodes
            .map(|nodes| nodes.unhealthy)
            .unwrap_or_default(),
        incidents: report.open_incidents.unwrap_or_default(),
        message: ready
            .map(|condition| condition.message.clone())
            .unwrap_or_default(),
    }
}
