//! Changes of the policy and of the nodes. (Issue "The main job", section 7, items 5, 6 and 8.)

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
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tessera_api::policy::State;
use tessera_api::{ClusterPolicy, NodeOperation};
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::scenario::*;
use tessera_e2e::{Lab, nodes};

#[tokio::test]
async fn a_driver_version_reaches_one_node_at_a_time() -> anyhow::Result<()> {
    let lab = ready("driver-upgrade", nodes::gpu_nodes(3)).await?;
    let old = pods_by_node(&lab, "nvidia-driver-daemonset").await?;
    edit(&lab, json!({"driver": {"version": "550.54.15"}})).await?;
    let all: Api<Node> = Api::all(lab.client());
    let operations: Api<NodeOperation> = Api::all(lab.client());
    let start = Instant::now();
    let (mut most_cordoned, mut most_active, mut phases) = (0, 0, Vec::new());
    loop {
        let cordoned = all.list(&ListParams::default()).await?.items;
        let cordoned = cordoned
            .iter()
            .filter(|n| n.spec.as_ref().and_then(|s| s.unschedulable) == Some(true))
            .count();
        most_cordoned = most_cordoned.max(cordoned);
        let list = operations.list(&ListParams::default()).await?.items;
        most_active = most_active.max(list.iter().filter(|o| !o.phase().is_ended()).count());
        for operation in &list {
            let line = format!("{} {}", operation.name_any(), operation.phase());
            if !phases.contains(&line) {
                println!("{:>6.2} s  {line}", start.elapsed().as_secs_f32());
                phases.push(line);
            }
        }
        let done = pods_by_node(&lab, "nvidia-driver-daemonset").await?;
        let new = done
            .iter()
            .filter(|(node, pod)| old.get(*node).map(ResourceExt::uid) != Some(pod.uid()))
            .count();
        let is_ready = policy(&lab, USER_POLICY)
            .await?
            .and_then(|p| p.status)
            .and_then(|s| s.state)
            == Some(State::Ready);
        if new == 3 && cordoned == 0 && is_ready && list.iter().all(|o| o.phase().is_ended()) {
            break;
        }
        anyhow::ensure!(start.elapsed() < MINUTE * 3, "not done: {phases:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("three nodes upgraded in {:?}", start.elapsed());
    assert_eq!(
        (most_cordoned, most_active.max(1)),
        (1, 1),
        "never two nodes at a time: {phases:#?}"
    );
    for (node, pod) in pods_by_node(&lab, "nvidia-driver-daemonset").await? {
        let image = pod
            .spec
            .and_then(|s| s.containers.into_iter().next())
            .and_then(|c| c.image)
            .unwrap_or_default();
        assert!(image.contains("550.54.15"), "{node}: {image}");
    }
    Ok(())
}

#[tokio::test]
async fn policy_edits_reach_the_nodes() -> anyhow::Result<()> {
    let lab = Lab::for_test("edits", nodes::gpu_nodes(2)).await?;
    lab.apply_file(&fixture("servicemonitor-crd.yaml")).await?;
    lab.helm_install(&input("values-gpu.yaml"), &[]).await?;
    lab.apply_file(&input("cluster-policy.yaml")).await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;

    // Replicas 4 -> 2: allocatable follows.
    edit(&lab, json!({"devicePlugin": {"config": {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 2}]}}}}})).await?;
    for i in 0..2 {
        lab.wait_for("16 shares", MINUTE, || async {
            let list = allocatable(&lab, &node_name(i))
                .await
                .map_err(|e| e.to_string())?;
            if list.get("nvidia.com/gpu").map(String::as_str) == Some("16") {
                Ok(())
            } else {
                Err(format!("{list:?}"))
            }
        })
        .await?;
    }
    policy_ready(&lab, USER_POLICY, MINUTE).await?;

    // The interval.
    edit(
        &lab,
        json!({"dcgm": {"exporter": {"serviceMonitor": {"interval": "30s"}}}}),
    )
    .await?;
    let monitors: Api<DynamicObject> =
        Api::namespaced_with(lab.client(), NAMESPACE, &service_monitors());
    lab.wait_for("the monitor's interval is 30s", MINUTE, || async {
        let list = monitors
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?
            .items;
        let intervals: Vec<_> = list
            .iter()
            .filter_map(|m| m.data.pointer("/spec/endpoints/0/interval").cloned())
            .collect();
        if intervals == [json!("30s")] {
            Ok(())
        } else {
            Err(format!("{intervals:?}"))
        }
    })
    .await?;

    // A component off and on.
    edit(&lab, json!({"gfd": {"enabled": false}})).await?;
    lab.wait_for("feature discovery has gone", MINUTE, || async {
        let sets = daemonsets(&lab).await.map_err(|e| e.to_string())?;
        if sets.contains_key("gpu-feature-discovery") {
            Err("it is there".to_owned())
        } else {
            Ok(())
        }
    })
    .await?;
    let off = policy_ready(&lab, USER_POLICY, MINUTE).await?;
    assert_eq!(
        condition(&off, "FeatureDiscoveryReady").1,
        "Disabled",
        "{}",
        explain(&off)
    );
    edit(&lab, json!({"gfd": {"enabled": true}})).await?;
    lab.wait_for("feature discovery is back", MINUTE, || async {
        let sets = daemonsets(&lab).await.map_err(|e| e.to_string())?;
        if sets.contains_key("gpu-feature-discovery") {
            Ok(())
        } else {
            Err("it is not there".to_owned())
        }
    })
    .await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;

    // Tolerations reach every operand.
    edit(&lab, json!({"daemonsets": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, {"key": "team", "operator": "Exists"}]}})).await?;
    lab.wait_for("every operand tolerates the new taint", MINUTE, || async {
        let sets = daemonsets(&lab).await.map_err(|e| e.to_string())?;
        let without: Vec<&String> = sets
            .iter()
            .filter(|(_, set)| {
                let list = set
                    .spec
                    .as_ref()
                    .and_then(|s| s.template.spec.as_ref())
                    .and_then(|s| s.tolerations.clone());
                !list
                    .unwrap_or_default()
                    .iter()
                    .any(|t| t.key.as_deref() == Some("team"))
            })
            .map(|(name, _)| name)
            .collect();
        if without.is_empty() {
            Ok(())
        } else {
            Err(format!("not on {without:?}"))
        }
    })
    .await?;
    policy_ready(&lab, USER_POLICY, MINUTE * 3).await?;

    // A selector that no node has: nothing to do, and ready.
    edit(
        &lab,
        json!({"nodeSelector": {"gpu": null, "no-such": "label"}}),
    )
    .await?;
    let none = policy_until(&lab, USER_POLICY, "NoGPUNodes", MINUTE, |p| {
        condition(p, "Ready").1 == "NoGPUNodes"
    })
    .await?;
    assert_eq!(none.status.and_then(|s| s.state), Some(State::Ready));
    let labels = Api::<Node>::all(lab.client()).get(&node_name(0)).await?;
    let ours: Vec<&String> = labels
        .labels()
        .keys()
        .filter(|k| k.starts_with("nvidia.com/gpu.deploy."))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
    edit(
        &lab,
        json!({"nodeSelector": {"gpu": "true", "no-such": null}}),
    )
    .await?;
    policy_until(&lab, USER_POLICY, "ready again", MINUTE, |p| {
        condition(p, "Ready").1 == "Ready"
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn of_several_policies_one_is_active_and_the_next_takes_over() -> anyhow::Result<()> {
    let lab = installed("policies", nodes::gpu_nodes_from(2, 1), &[]).await?;
    // The base alone: the values speak.
    policy_ready(&lab, BASE_POLICY, MINUTE).await?;
    lab.apply_file(&input("cluster-policy.yaml")).await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    let base = policy_until(&lab, BASE_POLICY, "ignored", MINUTE, |p| {
        p.status.as_ref().and_then(|s| s.state) == Some(State::Ignored)
    })
    .await?;
    assert!(
        condition(&base, "Ready").2.contains(USER_POLICY),
        "{}",
        explain(&base)
    );
    // A second user policy is ignored and says which one is active.
    lab.apply("{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: another}, spec: {gfd: {enabled: false}, nodeSelector: {gpu: 'true'}}}").await?;
    let other = policy_until(&lab, "another", "ignored", MINUTE, |p| {
        p.status.as_ref().and_then(|s| s.state) == Some(State::Ignored)
    })
    .await?;
    assert!(
        condition(&other, "Ready").2.contains(USER_POLICY),
        "{}",
        explain(&other)
    );
    // The active one goes: the next takes over, without a restart, and what both want is not disturbed.
    let driver = pods_by_node(&lab, "nvidia-driver-daemonset").await?;
    let plugin = daemonsets(&lab)
        .await?
        .remove("nvidia-device-plugin-daemonset")
        .and_then(|d| d.uid());
    lab.kubectl_ok(&["delete", "clusterpolicy", USER_POLICY])
        .await?;
    policy_ready(&lab, "another", MINUTE).await?;
    assert!(
        !daemonsets(&lab)
            .await?
            .contains_key("gpu-feature-discovery")
    );
    assert_eq!(
        daemonsets(&lab)
            .await?
            .remove("nvidia-device-plugin-daemonset")
            .and_then(|d| d.uid()),
        plugin,
        "the plugin's DaemonSet was made anew"
    );
    assert_eq!(
        pods_by_node(&lab, "nvidia-driver-daemonset").await?.len(),
        driver.len()
    );
    // The last user policy goes: the base is active again. Then the base too: nothing is left.
    lab.kubectl_ok(&["delete", "clusterpolicy", "another"])
        .await?;
    policy_ready(&lab, BASE_POLICY, MINUTE).await?;
    lab.kubectl_ok(&["delete", "clusterpolicy", BASE_POLICY])
        .await?;
    lab.wait_for("no operand and no label is left", MINUTE, || async {
        let objects = owned_objects(&lab).await.map_err(|e| e.to_string())?;
        let node = Api::<Node>::all(lab.client())
            .get(&node_name(2))
            .await
            .map_err(|e| e.to_string())?;
        let labels: Vec<&String> = node
            .labels()
            .keys()
            .filter(|k| k.starts_with("nvidia.com/gpu.deploy."))
            .collect();
        if objects.is_empty() && labels.is_empty() {
            Ok(())
        } else {
            Err(format!("{objects:?} {labels:?}"))
        }
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn nodes_come_go_and_change() -> anyhow::Result<()> {
    // No GPU node at all: ready, and why.
    let lab = installed("nodes", Vec::new(), &[]).await?;
    lab.apply_file(&input("cluster-policy.yaml")).await?;
    let none = policy_until(&lab, USER_POLICY, "ready without GPU nodes", MINUTE, |p| {
        condition(p, "Ready").1 == "NoGPUNodes"
    })
    .await?;
    assert_eq!(
        none.status.as_ref().and_then(|s| s.state),
        Some(State::Ready),
        "{}",
        explain(&none)
    );
    // The first joins, a second.
    lab.add_nodes(nodes::gpu_nodes(2)).await?;
    policy_until(&lab, USER_POLICY, "2 of 2", MINUTE, |p| {
        driver_ready(p) == Some(2) && condition(p, "Ready").0 == "True"
    })
    .await?;
    // One with a taint that nobody tolerates is named with the taint.
    lab.kubectl_ok(&["taint", "node", &node_name(1), "team-x=private:NoExecute"])
        .await?;
    let tainted = policy_until(&lab, USER_POLICY, "the taint is named", MINUTE, |p| {
        condition(p, "DriverReady").2.contains("team-x")
    })
    .await?;
    assert!(
        condition(&tainted, "DriverReady").2.contains(&node_name(1)),
        "{}",
        explain(&tainted)
    );
    lab.kubectl_ok(&["taint", "node", &node_name(1), "team-x-"])
        .await?;
    policy_until(&lab, USER_POLICY, "2 of 2 again", MINUTE, |p| {
        driver_ready(p) == Some(2) && condition(p, "Ready").0 == "True"
    })
    .await?;
    // One loses its label: its operands go.
    lab.kubectl_ok(&["label", "node", &node_name(1), "gpu-"])
        .await?;
    policy_until(&lab, USER_POLICY, "1 of 1", MINUTE, |p| {
        driver_ready(p) == Some(1) && condition(p, "Ready").0 == "True"
    })
    .await?;
    // A person's wish on a node is left alone.
    lab.kubectl_ok(&[
        "label",
        "node",
        &node_name(0),
        "--overwrite",
        "nvidia.com/gpu.deploy.gpu-feature-discovery=false",
    ])
    .await?;
    lab.wait_for("feature discovery leaves that node", MINUTE, || async {
        let pods = pods_by_node(&lab, "gpu-feature-discovery")
            .await
            .map_err(|e| e.to_string())?;
        if pods.is_empty() {
            Ok(())
        } else {
            Err(format!("{:?}", pods.keys()))
        }
    })
    .await?;
    // The last one leaves the cluster.
    lab.remove_node(&node_name(0)).await?;
    lab.remove_node(&node_name(1)).await?;
    policy_until(&lab, USER_POLICY, "no GPU node again", MINUTE, |p| {
        condition(p, "Ready").1 == "NoGPUNodes"
    })
    .await?;
    assert!(
        Api::<Node>::all(lab.client())
            .get_opt(&node_name(0))
            .await?
            .is_none(),
        "a label write made the node again"
    );
    Ok(())
}

fn driver_ready(policy: &ClusterPolicy) -> Option<i32> {
    policy.status.as_ref()?.driver.as_ref()?.ready
}

#[tokio::test]
async fn the_monitors_kind_may_come_and_go() -> anyhow::Result<()> {
    let lab = ready("optional-kind", nodes::gpu_nodes(1)).await?;
    let absent = policy(&lab, USER_POLICY).await?.unwrap_or_default_policy();
    assert_eq!(
        condition(&absent, "MonitoringReady").1,
        "CRDNotInstalled",
        "{}",
        explain(&absent)
    );
    for round in 1..=2 {
        lab.apply_file(&fixture("servicemonitor-crd.yaml")).await?;
        let monitors: Api<DynamicObject> =
            Api::namespaced_with(lab.client(), NAMESPACE, &service_monitors());
        lab.wait_for(
            &format!("round {round}: the monitor is there"),
            MINUTE,
            || async {
                let list = monitors
                    .list(&ListParams::default())
                    .await
                    .map_err(|e| e.to_string())?
                    .items;
                if list.len() == 1 {
                    Ok(())
                } else {
                    Err(format!("{} monitors", list.len()))
                }
            },
        )
        .await?;
        policy_until(&lab, USER_POLICY, "the monitor is reported", MINUTE, |p| {
            condition(p, "MonitoringReady").1 == "ServiceMonitorApplied"
        })
        .await?;
        lab.kubectl_ok(&[
            "delete",
            "-f",
            fixture("servicemonitor-crd.yaml")
                .to_str()
                .unwrap_or_default(),
        ])
        .await?;
        policy_until(&lab, USER_POLICY, "the kind is missed", MINUTE, |p| {
            condition(p, "MonitoringReady").1 == "CRDNotInstalled"
        })
        .await?;
    }
    let end = policy(&lab, USER_POLICY).await?.unwrap_or_default_policy();
    assert_eq!(
        end.status.as_ref().and_then(|s| s.state),
        Some(State::Ready),
        "{}",
        explain(&end)
    );
    for controller in CONTROLLERS {
        for pod in controller_pods(&lab, controller).await? {
            let pods: Api<k8s_openapi::api::core::v1::Pod> =
                Api::namespaced(lab.client(), NAMESPACE);
            let status = pods.get(&pod).await?.status.unwrap_or_default();
            let restarts: i32 = status
                .container_statuses
                .iter()
                .flatten()
                .map(|c| c.restart_count)
                .sum();
            assert_eq!(restarts, 0, "{pod} was restarted");
        }
    }
    Ok(())
}

/// A policy that must exist.
trait Existing {
    fn unwrap_or_default_policy(self) -> ClusterPolicy;
}

impl Existing for Option<ClusterPolicy> {
    fn unwrap_or_default_policy(self) -> ClusterPolicy {
        self.unwrap_or_else(|| panic!("the policy does not exist"))
    }
}
