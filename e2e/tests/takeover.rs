//! Two replicas, crashes and restarts; components alone and left out; uninstall and install over leftovers.
//! (Issue "The main job", section 7, items 7, 9, 10 and 11.)

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

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tessera_api::NodeOperation;
use tessera_e2e::audit::Class;
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::lab::Order;
use tessera_e2e::scenario::*;
use tessera_e2e::{Lab, nodes};

#[tokio::test]
async fn the_standby_takes_over_and_nothing_is_written_twice() -> anyhow::Result<()> {
    let lab = ready("takeover", nodes::gpu_nodes(2)).await?;
    let mut audit = lab.audit();
    quiet(&mut audit, 3 * SECOND, MINUTE).await?;
    for controller in CONTROLLERS {
        for (order, limit) in [(Order::Terminate, 2 * SECOND), (Order::Kill, 17 * SECOND)] {
            settled(&lab, controller).await?;
            let old = leader(&lab, controller).await?;
            let pods = controller_pods(&lab, controller).await?;
            assert!(
                pods.contains(&old) && pods.len() == 2,
                "{controller}: leader {old}, pods {pods:?}"
            );
            let start = (Instant::now(), Timestamp::now());
            lab.signal_pod(NAMESPACE, &old, order)?;
            // While nobody leads, drift happens; the new leader repairs it.
            let took = new_leader(&lab, controller, &old, start, limit + 5 * SECOND).await?;
            println!("{controller}: {order:?}: {took:?}");
            assert!(
                took < limit,
                "{controller}: {order:?}: take-over after {took:?}"
            );
        }
    }
    // Neither the restarts nor the new leaders have written or read anything.
    for controller in CONTROLLERS {
        settled(&lab, controller).await?;
    }
    let requests = quiet(&mut audit, 5 * SECOND, MINUTE).await?;
    assert_eq!(
        count(&requests, Class::Write),
        0,
        "{}",
        lines(&requests, Class::Write)
    );
    Ok(())
}

#[tokio::test]
async fn drift_while_nobody_leads_is_repaired_by_the_next_leader() -> anyhow::Result<()> {
    let lab = ready("lost-nothing", nodes::gpu_nodes(1)).await?;
    let old = leader(&lab, "device-plugin-controller").await?;
    let start = Instant::now();
    lab.signal_pod(NAMESPACE, &old, Order::Kill)?;
    lab.kubectl_ok(&[
        "delete",
        "daemonset",
        "-n",
        NAMESPACE,
        "gpu-feature-discovery",
    ])
    .await?;
    lab.wait_for("the DaemonSet is back", 20 * SECOND, || async {
        let sets = daemonsets(&lab).await.map_err(|e| e.to_string())?;
        if sets.contains_key("gpu-feature-discovery") {
            Ok(())
        } else {
            Err("it is missing".to_owned())
        }
    })
    .await?;
    println!("repaired {:?} after the crash", start.elapsed());
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    // A frozen leader that wakes up after its lease has ended writes nothing more.
    let old = leader(&lab, "dcgm-monitor-controller").await?;
    lab.signal_pod(NAMESPACE, &old, Order::Freeze)?;
    let frozen = (Instant::now(), Timestamp::now());
    let took = new_leader(&lab, "dcgm-monitor-controller", &old, frozen, 22 * SECOND).await?;
    println!("another replica leads {took:?} after the leader froze");
    assert!(took < 17 * SECOND, "{took:?}");
    let mut audit = lab.audit();
    audit.skip()?;
    lab.signal_pod(NAMESPACE, &old, Order::Resume)?;
    let requests = quiet(&mut audit, 5 * SECOND, MINUTE).await?;
    assert_eq!(
        count(&requests, Class::Write),
        0,
        "{}",
        lines(&requests, Class::Write)
    );
    assert_ne!(leader(&lab, "dcgm-monitor-controller").await?, old);
    Ok(())
}

/// Waits until both replicas are ready.
async fn settled(lab: &Lab, controller: &str) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    let selector = ListParams::default().labels(&format!("app.kubernetes.io/name={controller}"));
    lab.wait_for(
        &format!("both replicas of {controller} are ready"),
        MINUTE * 2,
        || async {
            let list = pods.list(&selector).await.map_err(|e| e.to_string())?.items;
            let is_ready = |pod: &&Pod| {
                let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
                conditions
                    .into_iter()
                    .flatten()
                    .any(|c| c.type_ == "Ready" && c.status == "True")
            };
            let ready = list.iter().filter(is_ready).count();
            if ready == 2 {
                Ok(())
            } else {
                Err(format!("{ready} ready"))
            }
        },
    )
    .await
}

/// Waits until somebody leads who did not when `since` was: another pod, or the same pod's container that was started
/// again (it has the same name, and nobody else of that name can be alive). Returns how long that took.
async fn new_leader(
    lab: &Lab,
    controller: &str,
    old: &str,
    since: (Instant, Timestamp),
    patience: Duration,
) -> anyhow::Result<Duration> {
    let leases: Api<Lease> = Api::namespaced(lab.client(), NAMESPACE);
    let what = format!("{controller} has a new leader");
    lab.wait_for(&what, patience, || async {
        let lease = leases.get(controller).await.map_err(|e| e.to_string())?;
        let spec = lease.spec.unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let acquired = spec.acquire_time.is_some_and(|time| time.0 > since.1);
        let renewed = spec.renew_time.is_some_and(|time| time.0 > since.1);
        if !holder.is_empty() && renewed && (holder != old || acquired) {
            Ok(())
        } else {
            Err(format!("holder `{holder}`, renewed since: {renewed}"))
        }
    })
    .await?;
    Ok(since.0.elapsed())
}

#[tokio::test]
async fn each_controller_works_alone_and_the_summary_names_what_is_missing() -> anyhow::Result<()> {
    let lab = Lab::for_test("alone", nodes::gpu_nodes_from(2, 1)).await?;
    let all = [
        "driverController",
        "devicePluginController",
        "dcgmMonitorController",
        "sreagentController",
        "webhook",
    ];
    let only = |name: &str| -> Vec<String> {
        all.iter()
            .flat_map(|c| ["--set".to_owned(), format!("{c}.enabled={}", *c == name)])
            .collect()
    };
    let args = only("devicePluginController");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    lab.helm_install(&input("values-gpu.yaml"), &args).await?;
    // The user's policy asks for everything: what no controller serves is named.
    lab.apply("{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: wants-all}, spec: {nodeSelector: {gpu: 'true'}, driver: {enabled: true}, dcgmExporter: {enabled: true}}}").await?;
    let missing = policy_until(
        &lab,
        "wants-all",
        "the missing controller is named",
        MINUTE,
        |p| {
            condition(p, "Ready").1 == "NoController"
                && !condition(p, "DevicePluginReady").0.is_empty()
        },
    )
    .await?;
    assert!(
        condition(&missing, "Ready").2.contains("driver-controller"),
        "{}",
        explain(&missing)
    );
    lab.wait_for(
        "the plugin's DaemonSet and the node's labels are there",
        MINUTE,
        || async {
            let sets = daemonsets(&lab).await.map_err(|e| e.to_string())?;
            if sets.contains_key("nvidia-device-plugin-daemonset") {
                Ok(())
            } else {
                Err(format!("{:?}", sets.keys()))
            }
        },
    )
    .await?;
    lab.wait_for(
        "the node is labelled although the driver-controller is not there",
        MINUTE,
        || async {
            let api = Api::<Node>::all(lab.client());
            let selector = ListParams::default().labels("nvidia.com/gpu.deploy.device-plugin=true");
            let labelled = api
                .list(&selector)
                .await
                .map_err(|e| e.to_string())?
                .items
                .len();
            if labelled == 1 {
                Ok(())
            } else {
                Err(format!("{labelled} nodes"))
            }
        },
    )
    .await?;
    // One after the other is added, until all is ready.
    for i in 0..all.len() {
        let chosen =
            |j: usize, c: &str| format!("{c}.enabled={}", j <= i || c == "devicePluginController");
        let args = all.iter().enumerate();
        let args: Vec<String> = args
            .flat_map(|(j, c)| ["--set".to_owned(), chosen(j, c)])
            .collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        lab.helm_upgrade(&input("values-gpu.yaml"), &args).await?;
    }
    policy_ready(&lab, "wants-all", MINUTE * 2).await?;
    Ok(())
}

#[tokio::test]
async fn uninstall_leaves_nothing_and_leftovers_do_not_disturb_an_install() -> anyhow::Result<()> {
    let lab = ready("uninstall", nodes::gpu_nodes(2)).await?;
    apply_sre_agent(&lab, NAMESPACE).await?;
    lab.wait_for("the agent's pod exists", MINUTE, || async {
        let objects = owned_objects(&lab).await.map_err(|e| e.to_string())?;
        if objects.iter().any(|o| o.starts_with("Deployment/")) {
            Ok(())
        } else {
            Err(format!("{objects:?}"))
        }
    })
    .await?;
    lab.kubectl_ok(&["create", "configmap", "users-own", "-n", NAMESPACE])
        .await?;
    for round in 1..=2 {
        let start = Instant::now();
        println!(
            "{}",
            lab.helm_uninstall(&["--wait", "--timeout", "3m"]).await?
        );
        println!("round {round}: uninstalled in {:?}", start.elapsed());
        nothing_is_left(&lab).await?;
        let policies = lab
            .kubectl_ok(&["get", "clusterpolicy", USER_POLICY, "-o", "name"])
            .await?;
        assert!(
            policies.contains(USER_POLICY),
            "the user's policy was removed"
        );
        lab.kubectl_ok(&["get", "configmap", "users-own", "-n", NAMESPACE])
            .await?;
        if round == 1 {
            // Leftovers of a broken install: a DaemonSet and a node label of ours.
            lab.helm_install(&input("values-gpu.yaml"), &[]).await?;
            policy_ready(&lab, USER_POLICY, MINUTE * 2).await?;
        }
    }
    Ok(())
}

async fn nothing_is_left(lab: &Lab) -> anyhow::Result<()> {
    lab.wait_for("nothing of ours is left", MINUTE, || async {
        let mut left = owned_objects(lab).await.map_err(|e| e.to_string())?;
        let operations = Api::<NodeOperation>::all(lab.client())
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?;
        left.extend(
            operations
                .items
                .iter()
                .map(|o| format!("NodeOperation/{}", o.name_any())),
        );
        for node in Api::<Node>::all(lab.client())
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?
            .items
        {
            let ours = node.labels().keys().filter(|k| {
                k.starts_with("nvidia.com/gpu.deploy.")
                    || *k == "nvidia.com/gpu.present"
                    || k.starts_with("aiops.local/")
            });
            left.extend(ours.map(|k| format!("label {k} on {}", node.name_any())));
        }
        let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
        let pods = pods
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?
            .items;
        left.extend(pods.iter().map(|p| format!("Pod/{}", p.name_any())));
        if left.is_empty() {
            Ok(())
        } else {
            Err(left.join(", "))
        }
    })
    .await
}
