//! Driver upgrades on the real control plane: what blocks an eviction is named, foreign cordons stay, a failure halts the
//! roll-out until a person helps, a crash of the leader in the middle loses nothing, and a node costs few requests.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a scenario fails by panicking and shows what it measured"
)]

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tessera_api::NodeOperation;
use tessera_api::nodeoperation::{NodeOperationStatus, OperationPhase, OperationReason};
use tessera_api::policy::State;
use tessera_e2e::audit::Class;
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::lab::Order;
use tessera_e2e::scenario::*;
use tessera_e2e::{Lab, nodes};

/// A trainer that keeps a card of one node, made again elsewhere when it is evicted, and the budget that protects it.
const TRAINER: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: trainer, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: trainer}}
  template:
    metadata: {labels: {app: trainer}}
    spec:
      nodeSelector: {trainer: "here"}
      tolerations: [{operator: Exists, effect: NoSchedule, key: gpu-node}, {operator: Exists, key: gpu}, {operator: Exists, key: nvidia.com/gpu}]
      terminationGracePeriodSeconds: 0
      containers:
      - name: train
        image: trainer:1
        resources: {limits: {nvidia.com/gpu: "1"}}
"#;

const BUDGET: &str = r"
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: trainer, namespace: default}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: trainer}}
";

async fn change_node(lab: &Lab, node: &str, patch: Value) -> anyhow::Result<Node> {
    let nodes: Api<Node> = Api::all(lab.client());
    Ok(nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(patch))
        .await?)
}

async fn apply(lab: &Lab, text: &str) -> anyhow::Result<()> {
    let file = lab.dir().join(format!("upgrade-{}.yaml", text.len()));
    std::fs::write(&file, text)?;
    lab.apply_file(&file).await?;
    Ok(())
}

async fn operation(lab: &Lab, node: &str) -> anyhow::Result<NodeOperationStatus> {
    let found = Api::<NodeOperation>::all(lab.client())
        .get_opt(node)
        .await?;
    Ok(found
        .and_then(|operation| operation.status)
        .unwrap_or_default())
}

async fn operation_until(
    lab: &Lab,
    node: &str,
    what: &str,
    patience: Duration,
    is: impl Fn(&NodeOperationStatus) -> bool,
) -> anyhow::Result<NodeOperationStatus> {
    let start = Instant::now();
    loop {
        let status = operation(lab, node).await?;
        if is(&status) {
            return Ok(status);
        }
        anyhow::ensure!(
            start.elapsed() < patience,
            "{node}: not {what} after {patience:?}: {status:#?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn cordoned(lab: &Lab, node: &str) -> anyhow::Result<bool> {
    let node = Api::<Node>::all(lab.client()).get(node).await?;
    Ok(node.spec.and_then(|spec| spec.unschedulable) == Some(true))
}

async fn image(lab: &Lab, node: &str) -> anyhow::Result<String> {
    let pods = pods_by_node(lab, "nvidia-driver-daemonset").await?;
    let spec = pods
        .get(node)
        .and_then(|pod| pod.spec.clone())
        .unwrap_or_default();
    Ok(spec
        .containers
        .into_iter()
        .next()
        .and_then(|container| container.image)
        .unwrap_or_default())
}

/// The trainer runs on `node`.
async fn train_on(lab: &Lab, node: &str) -> anyhow::Result<()> {
    change_node(
        lab,
        node,
        json!({"metadata": {"labels": {"trainer": "here"}}}),
    )
    .await?;
    apply(lab, TRAINER).await?;
    apply(lab, BUDGET).await?;
    lab.kubectl_ok(&[
        "rollout",
        "status",
        "deployment/trainer",
        "-n",
        "default",
        "--timeout=30s",
    ])
    .await?;
    // The budget's controller has to have seen the pod, or it would allow an eviction.
    lab.kubectl_ok(&[
        "wait",
        "pdb/trainer",
        "-n",
        "default",
        "--for=jsonpath={.status.currentHealthy}=1",
        "--timeout=30s",
    ])
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_blocked_node_says_why_and_a_foreign_cordon_stays() -> anyhow::Result<()> {
    let lab = ready("upgrade-blocked", nodes::gpu_nodes(3)).await?;
    let (first, second, third) = (node_name(0), node_name(1), node_name(2));
    train_on(&lab, &first).await?;
    change_node(&lab, &third, json!({"spec": {"unschedulable": true}})).await?;
    edit(
        &lab,
        json!({"driver": {"version": "550.54.15", "upgradePolicy": {"maxUnavailable": 2}}}),
    )
    .await?;
    let blocked = operation_until(&lab, &first, "blocked", 20 * SECOND, |status| {
        status.reason == Some(OperationReason::DisruptionBudget)
    })
    .await?;
    println!("{}", serde_json::to_string_pretty(&blocked)?);
    assert_eq!(blocked.phase, Some(OperationPhase::EvictingPods));
    let kinds: Vec<(&str, &str)> = blocked
        .blockers
        .iter()
        .map(|b| (b.kind.as_str(), b.name.as_str()))
        .collect();
    assert!(
        kinds.contains(&("PodDisruptionBudget", "trainer")),
        "{kinds:?}"
    );
    assert!(blocked.deadline.is_some() && cordoned(&lab, &first).await?);
    // Nobody is begun beside it, and the one that somebody else cordoned is named.
    let told = policy_until(
        &lab,
        USER_POLICY,
        "naming the foreign cordon",
        10 * SECOND,
        |policy| {
            let driver = policy
                .status
                .clone()
                .unwrap_or_default()
                .driver
                .unwrap_or_default();
            driver
                .exceptions
                .iter()
                .any(|e| e.reason == "ForeignCordon" && e.nodes == [node_name(2)])
        },
    )
    .await?;
    println!("{}", explain(&told));
    assert_eq!(condition(&told, "DriverReady").1, "DriverUpgradeInProgress");
    assert_eq!(
        operation(&lab, &second).await?,
        NodeOperationStatus::default()
    );

    lab.kubectl_ok(&["delete", "pdb/trainer", "-n", "default"])
        .await?;
    for node in [&first, &second] {
        let done = |status: &NodeOperationStatus| status.phase == Some(OperationPhase::Done);
        operation_until(&lab, node, "done", 60 * SECOND, done).await?;
        assert!(!cordoned(&lab, node).await? && image(&lab, node).await?.contains("550.54.15"));
    }
    assert!(cordoned(&lab, &third).await? && !image(&lab, &third).await?.contains("550.54.15"));
    change_node(&lab, &third, json!({"spec": {"unschedulable": null}})).await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    assert!(!cordoned(&lab, &third).await? && image(&lab, &third).await?.contains("550.54.15"));
    Ok(())
}

#[tokio::test]
async fn a_failure_halts_the_rollout_until_a_person_helps() -> anyhow::Result<()> {
    let lab = ready("upgrade-failed", nodes::gpu_nodes(2)).await?;
    let (first, second) = (node_name(0), node_name(1));
    train_on(&lab, &first).await?;
    edit(
        &lab,
        json!({"driver": {"version": "550.54.15", "upgradePolicy": {"podDeletion": {"timeoutSeconds": 3}}}}),
    )
    .await?;
    let failed = operation_until(&lab, &first, "failed", 30 * SECOND, |status| {
        status.phase == Some(OperationPhase::Failed)
    })
    .await?;
    println!(
        "{:?}: {}",
        failed.reason,
        failed.message.clone().unwrap_or_default()
    );
    assert_eq!(failed.reason, Some(OperationReason::DisruptionBudget));
    let told = policy_until(&lab, USER_POLICY, "halted", 10 * SECOND, |policy| {
        condition(policy, "DriverReady").1 == "UpgradeHalted"
    })
    .await?;
    println!("{}", explain(&told));
    let status = told.status.unwrap_or_default();
    assert_eq!(status.state, Some(State::NotReady));
    let progress = status
        .driver
        .and_then(|driver| driver.upgrade)
        .unwrap_or_default();
    assert_eq!(
        (progress.pending, progress.in_progress, progress.failed),
        (1, 0, 1)
    );
    // A restart of everybody changes nothing of that, and writes nothing.
    let mut audit = lab.audit();
    quiet(&mut audit, 3 * SECOND, MINUTE).await?;
    let old = leader(&lab, "driver-controller").await?;
    lab.signal_pod(NAMESPACE, &old, Order::Terminate)?;
    let requests = quiet(&mut audit, 8 * SECOND, MINUTE).await?;
    let writes = |request: &&tessera_e2e::audit::Request| {
        request.class() == Class::Write && request.account() == "driver-controller"
    };
    assert_eq!(
        requests.iter().filter(writes).count(),
        0,
        "{}",
        lines(&requests, Class::Write)
    );
    assert!(cordoned(&lab, &first).await? && !cordoned(&lab, &second).await?);
    assert_eq!(
        operation(&lab, &second).await?,
        NodeOperationStatus::default()
    );

    lab.kubectl_ok(&["delete", "pdb/trainer", "-n", "default"])
        .await?;
    let request =
        json!({"metadata": {"annotations": {"nvidia.com/gpu-driver-upgrade-requested": "true"}}});
    change_node(&lab, &first, request).await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    for node in [&first, &second] {
        assert!(
            !cordoned(&lab, node).await? && image(&lab, node).await?.contains("550.54.15"),
            "{node}"
        );
    }
    assert_eq!(operation(&lab, &first).await?.attempts, Some(2));
    let node = Api::<Node>::all(lab.client()).get(&first).await?;
    let ours: Vec<&String> = node
        .annotations()
        .keys()
        .filter(|key| key.contains("upgrade") || key.contains("cordoned-by"))
        .collect();
    assert!(ours.is_empty(), "left on the node: {ours:?}");
    Ok(())
}

#[tokio::test]
async fn a_crash_in_the_middle_loses_nothing_and_a_node_costs_few_requests() -> anyhow::Result<()> {
    let lab = ready("upgrade-crash", nodes::gpu_nodes(2)).await?;
    let (first, second) = (node_name(0), node_name(1));
    change_node(
        &lab,
        &first,
        json!({"metadata": {"annotations": {"sim.tessera.dev/nvidia-driver-daemonset": "slow=4"}}}),
    )
    .await?;
    let mut audit = lab.audit();
    quiet(&mut audit, 3 * SECOND, MINUTE).await?;
    edit(&lab, json!({"driver": {"version": "550.54.15"}})).await?;
    operation_until(&lab, &first, "restarting", 20 * SECOND, |status| {
        status.phase == Some(OperationPhase::RestartingDriver)
    })
    .await?;
    let old = leader(&lab, "driver-controller").await?;
    let killed = jiff::Timestamp::now();
    lab.signal_pod(NAMESPACE, &old, Order::Kill)?;
    for node in [&first, &second] {
        let done = |status: &NodeOperationStatus| status.phase == Some(OperationPhase::Done);
        operation_until(&lab, node, "done", 60 * SECOND, done).await?;
    }
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    assert!(!cordoned(&lab, &first).await? && !cordoned(&lab, &second).await?);
    let requests = quiet(&mut audit, 3 * SECOND, MINUTE).await?;
    let upgrade = |request: &&tessera_e2e::audit::Request| {
        let what = request.resource.split('/').next().unwrap_or_default();
        let about = ["nodeoperations", "nodes", "pods", "events"].contains(&what);
        request.account() == "driver-controller"
            && about
            && request.class() != Class::Watch
            && request.class() != Class::Lease
    };
    let list: Vec<_> = requests.iter().filter(upgrade).collect();
    let told: Vec<String> = list
        .iter()
        .map(|r| format!("{} {} {} {}", r.verb, r.resource, r.name, r.code))
        .collect();
    println!(
        "{} requests for two nodes:\n{}",
        list.len(),
        told.join("\n")
    );
    assert!(list.len() <= 2 * 15, "{}", told.join("\n"));
    // What was under way when the process was killed is answered to nobody, and logged as 504.
    let cut_off =
        |request: &tessera_e2e::audit::Request| request.code == 504 && request.at <= killed;
    assert!(
        list.iter()
            .all(|request| request.code < 300 || cut_off(request)),
        "{}",
        told.join("\n")
    );
    Ok(())
}
