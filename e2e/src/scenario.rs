//! What the scenarios in `tests/` share: install as a user does, wait as a user waits, and look at what a user sees.

mod policies;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Service, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;

pub use self::policies::{
    condition, counted, edit, edit_policy, explain, policy, policy_ready, policy_until,
};
use crate::audit::{Audit, Class, Request, Requests};
use crate::cluster::{Cluster, NAMESPACE};
use crate::{Lab, nodes, paths};

/// A patience that suits most waits.
pub const MINUTE: Duration = Duration::from_secs(60);
/// A unit of time.
pub const SECOND: Duration = Duration::from_secs(1);

/// Name of the user's policy in the inputs.
pub const USER_POLICY: &str = "gpu-cluster-config";
/// Name of the policy that the umbrella chart renders.
pub const BASE_POLICY: &str = "cluster-policy";
/// ServiceAccounts of the controllers.
pub const CONTROLLERS: [&str; 4] = [
    "driver-controller",
    "device-plugin-controller",
    "dcgm-monitor-controller",
    "sreagent-controller",
];

/// A file of the inputs.
pub fn input(name: &str) -> PathBuf {
    paths::root().join("e2e/inputs").join(name)
}

/// A file of the fixtures.
pub fn fixture(name: &str) -> PathBuf {
    paths::root().join("e2e/fixtures").join(name)
}

/// Name of the simulated GPU node of this number, as [`nodes::gpu_nodes`] names it.
pub fn node_name(number: usize) -> String {
    let node = nodes::gpu_nodes_from(number, 1);
    node.first().map(ResourceExt::name_any).unwrap_or_default()
}

/// A lab with these nodes and the umbrella chart installed with the user's values.
///
/// # Errors
/// The lab does not start or helm refuses the chart.
pub async fn installed(name: &str, nodes: Vec<Node>, extra: &[&str]) -> anyhow::Result<Lab> {
    let lab = Lab::for_test(name, nodes).await?;
    lab.helm_install(&input("values-gpu.yaml"), extra).await?;
    Ok(lab)
}

/// As [`installed`], with the user's policy applied and ready.
///
/// # Errors
/// As [`installed`], or the policy is not ready within 60 s.
pub async fn ready(name: &str, nodes: Vec<Node>) -> anyhow::Result<Lab> {
    ready_with(name, nodes, &[]).await
}

/// For what the controllers do about input that admission would have refused: they must do without it.
pub const WITHOUT_ADMISSION: [&str; 2] = ["--set", "webhook.enabled=false"];

/// As [`ready`], with more arguments for helm.
///
/// # Errors
/// As [`ready`].
pub async fn ready_with(name: &str, nodes: Vec<Node>, extra: &[&str]) -> anyhow::Result<Lab> {
    let lab = installed(name, nodes, extra).await?;
    lab.apply_file(&input("cluster-policy.yaml")).await?;
    policy_ready(&lab, USER_POLICY, Duration::from_secs(60)).await?;
    Ok(lab)
}

/// A lab with the definitions and the webhook's own chart, and nothing else of ours.
///
/// # Errors
/// The lab does not start or helm refuses a chart.
pub async fn webhook_alone(name: &str, nodes: Vec<Node>, extra: &[&str]) -> anyhow::Result<Lab> {
    let lab = Lab::for_test(name, nodes).await?;
    install_webhook_alone(&lab, extra).await?;
    Ok(lab)
}

/// The second half of [`webhook_alone`], for a lab that holds something already.
///
/// # Errors
/// Helm refuses a chart.
pub async fn install_webhook_alone(lab: &Lab, extra: &[&str]) -> anyhow::Result<()> {
    let chart = |name: &str| {
        let path = paths::root().join("charts").join(name);
        path.display().to_string()
    };
    let crds = chart("crds");
    lab.helm_ok(&["install", "crds", &crds]).await?;
    let webhook = chart("webhook");
    let install = [
        "install",
        "webhook",
        &webhook,
        "-n",
        NAMESPACE,
        "--create-namespace",
    ];
    lab.helm_ok(&[&install, extra].concat()).await?;
    Ok(())
}

/// How often the API server has asked webhooks of ours whose name starts so, by its own metrics.
///
/// # Errors
/// The API server does not answer.
pub async fn asked(cluster: &Cluster, webhook: &str) -> anyhow::Result<u64> {
    let text = cluster.kubectl_ok(&["get", "--raw", "/metrics"]).await?;
    let name = format!("name=\"{webhook}");
    let counts = text.lines().filter(|line| {
        line.starts_with("apiserver_admission_webhook_request_total{")
            && line.contains(&name)
            && line.contains(".aiops.local\"")
    });
    Ok(counts
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum())
}

/// All objects of a kind that carry our part-of label and one of our controllers' managed-by labels.
///
/// # Errors
/// The API server does not answer.
pub async fn owned<K>(api: Api<K>) -> anyhow::Result<Vec<K>>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let selector = format!(
        "app.kubernetes.io/managed-by in ({})",
        CONTROLLERS.join(",")
    );
    Ok(api
        .list(&ListParams::default().labels(&selector))
        .await?
        .items)
}

/// The operand DaemonSets by name.
///
/// # Errors
/// The API server does not answer.
pub async fn daemonsets(cluster: &Cluster) -> anyhow::Result<BTreeMap<String, DaemonSet>> {
    let sets: Vec<DaemonSet> = owned(Api::namespaced(cluster.client(), NAMESPACE)).await?;
    Ok(sets.into_iter().map(|set| (set.name_any(), set)).collect())
}

/// Every object that our controllers own, as `Kind/namespace/name`; pods left out.
///
/// # Errors
/// The API server does not answer.
pub async fn owned_objects(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let client = cluster.client();
    let mut all = Vec::new();
    macro_rules! collect {
        ($kind:ty) => {
            for object in owned::<$kind>(Api::all(client.clone())).await? {
                let kind = <$kind as k8s_openapi::Resource>::KIND;
                all.push(format!(
                    "{kind}/{}/{}",
                    object.namespace().unwrap_or_default(),
                    object.name_any()
                ));
            }
        };
    }
    collect!(DaemonSet);
    collect!(ConfigMap);
    collect!(Service);
    collect!(RuntimeClass);
    collect!(Deployment);
    collect!(ServiceAccount);
    collect!(ClusterRoleBinding);
    collect!(RoleBinding);
    let monitors: Api<DynamicObject> = Api::all_with(client, &service_monitors());
    match owned(monitors).await {
        Ok(list) => all.extend(list.iter().map(|m| {
            format!(
                "ServiceMonitor/{}/{}",
                m.namespace().unwrap_or_default(),
                m.name_any()
            )
        })),
        // The kind is not installed.
        Err(error)
            if error.to_string().contains("404") || error.to_string().contains("not found") => {}
        Err(error) => return Err(error),
    }
    all.sort();
    Ok(all)
}

/// Applies the user's SREAgent in a namespace.
///
/// # Errors
/// kubectl refuses it.
pub async fn apply_sre_agent(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let file = input("sre-agent.yaml");
    let file = file.to_string_lossy();
    cluster
        .kubectl_ok(&["apply", "-n", namespace, "-f", &file])
        .await
        .map(drop)
}

/// The API of ServiceMonitors.
pub fn service_monitors() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "monitoring.coreos.com",
        "v1",
        "ServiceMonitor",
    ))
}

/// Our controllers' requests since the last call.
///
/// # Errors
/// The audit log cannot be read.
pub fn controller_requests(audit: &mut Audit) -> anyhow::Result<(Vec<Request>, Requests)> {
    let mut requests = audit.next_requests()?;
    requests.retain(|request| {
        CONTROLLERS.contains(&request.account()) || request.account().starts_with("sre-agent")
    });
    let summary = Requests::of(&requests);
    Ok((requests, summary))
}

/// Waits until our controllers have written nothing for `calm`; returns all their requests since the last call.
///
/// # Errors
/// They do not come to rest within `patience`.
pub async fn quiet(
    audit: &mut Audit,
    calm: Duration,
    patience: Duration,
) -> anyhow::Result<Vec<Request>> {
    let start = std::time::Instant::now();
    let mut last_write = std::time::Instant::now();
    let mut all = Vec::new();
    loop {
        let (requests, _) = controller_requests(audit)?;
        if requests
            .iter()
            .any(|request| request.class() == Class::Write)
        {
            last_write = std::time::Instant::now();
        }
        all.extend(requests);
        if last_write.elapsed() >= calm {
            return Ok(all);
        }
        if start.elapsed() >= patience {
            anyhow::bail!(
                "our controllers still write after {patience:?}:\n{}",
                Requests::of(&all)
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Requests of `class`, a line each, for messages.
pub fn lines(requests: &[Request], class: Class) -> String {
    let list = requests.iter().filter(|request| request.class() == class);
    let text: Vec<String> = list
        .map(|r| {
            let mut text = format!(
                "  {} {} {} {}/{} {} {}",
                r.at,
                r.account(),
                r.verb,
                r.namespace,
                r.name,
                r.resource,
                r.code
            );
            for change in &r.changes {
                text.push_str("\n      ");
                text.push_str(change);
            }
            text
        })
        .collect();
    text.join("\n")
}

/// How many requests of `class` there are.
pub fn count(requests: &[Request], class: Class) -> usize {
    requests
        .iter()
        .filter(|request| request.class() == class)
        .count()
}

/// Allocatable `nvidia.com/*` resources of a node.
///
/// # Errors
/// The node does not exist.
pub async fn allocatable(
    cluster: &Cluster,
    node: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    let node = Api::<Node>::all(cluster.client()).get(node).await?;
    let list = node.status.and_then(|s| s.allocatable).unwrap_or_default();
    Ok(list
        .into_iter()
        .filter(|(name, _)| name.starts_with("nvidia.com/"))
        .map(|(name, q)| (name, q.0))
        .collect())
}

/// Pods of the operator's namespace with this `app` label, by node.
///
/// # Errors
/// The API server does not answer.
pub async fn pods_by_node(cluster: &Cluster, app: &str) -> anyhow::Result<BTreeMap<String, Pod>> {
    let api: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let pods = api
        .list(&ListParams::default().labels(&format!("app={app}")))
        .await?;
    let node = |pod: &Pod| {
        pod.spec
            .as_ref()
            .and_then(|s| s.node_name.clone())
            .unwrap_or_default()
    };
    Ok(pods
        .items
        .into_iter()
        .map(|pod| (node(&pod), pod))
        .collect())
}

/// Names of the pods of a controller's Deployment on lab-host.
///
/// # Errors
/// The API server does not answer.
pub async fn controller_pods(cluster: &Cluster, controller: &str) -> anyhow::Result<Vec<String>> {
    let api: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
    let selector = format!("app.kubernetes.io/name={controller}");
    let pods = api.list(&ListParams::default().labels(&selector)).await?;
    Ok(pods
        .items
        .iter()
        .filter(|p| p.metadata.deletion_timestamp.is_none())
        .map(ResourceExt::name_any)
        .collect())
}

/// Holder of a controller's Lease; empty when nobody leads.
///
/// # Errors
/// There is no such Lease.
pub async fn leader(cluster: &Cluster, controller: &str) -> anyhow::Result<String> {
    use k8s_openapi::api::coordination::v1::Lease;
    let lease = Api::<Lease>::namespaced(cluster.client(), NAMESPACE)
        .get(controller)
        .await?;
    lease
        .spec
        .and_then(|s| s.holder_identity)
        .context("the Lease has no holder")
}
