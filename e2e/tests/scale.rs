//! A hundred GPU nodes: the budgets that must not grow with the cluster. (Issue "The main job", section 7, item 3.)

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

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use tessera_e2e::audit::{Class, Requests};
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::scenario::*;
use tessera_e2e::{Lab, nodes};

const N: usize = 100;
const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_hundred_nodes_stay_within_the_budgets() -> anyhow::Result<()> {
    let lab = Lab::for_test("hundred", nodes::gpu_nodes(N)).await?;
    lab.apply_file(&fixture("servicemonitor-crd.yaml")).await?;
    let mut audit = lab.audit();
    lab.helm_install(&input("values-gpu.yaml"), &[]).await?;
    let start = Instant::now();
    lab.apply_file(&input("cluster-policy.yaml")).await?;
    policy_ready(&lab, USER_POLICY, MINUTE * 8).await?;
    let took = start.elapsed();
    let requests = quiet(&mut audit, 10 * SECOND, MINUTE * 3).await?;
    let total = Requests::of(&requests);
    let objects = owned_objects(&lab).await?.len();
    println!("{N} nodes ready after {took:?}; {objects} owned objects; until quiet:\n{total}");
    assert!(
        total.writes <= objects + N + 20,
        "{} writes:\n{}",
        total.writes,
        lines(&requests, Class::Write)
    );
    assert!(
        total.reads <= 30,
        "{} reads:\n{}",
        total.reads,
        lines(&requests, Class::Read)
    );
    // One operand pod.
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    let victim = pods_by_node(&lab, "nvidia-dcgm-exporter")
        .await?
        .into_values()
        .next()
        .map(|p| p.name_any())
        .unwrap_or_default();
    pods.delete(&victim, &DeleteParams::default()).await?;
    let requests = quiet(&mut audit, 8 * SECOND, MINUTE).await?;
    let sent = count(&requests, Class::Write) + count(&requests, Class::Read);
    println!("one operand pod deleted: {sent} requests");
    assert!(
        sent <= 4,
        "{}\n{}",
        lines(&requests, Class::Write),
        lines(&requests, Class::Read)
    );
    // One node.
    lab.add_nodes(nodes::gpu_nodes_from(N, 1)).await?;
    counted(&lab, USER_POLICY, i32::try_from(N)? + 1).await?;
    let requests = quiet(&mut audit, 15 * SECOND, MINUTE * 2).await?;
    let sent = count(&requests, Class::Write) + count(&requests, Class::Read);
    println!("one node joins: {sent} requests");
    assert!(
        sent <= 4,
        "{}\n{}",
        lines(&requests, Class::Write),
        lines(&requests, Class::Read)
    );
    // Nothing for a minute.
    tokio::time::sleep(MINUTE).await;
    let (requests, total) = controller_requests(&mut audit)?;
    assert_eq!(
        (total.writes, total.reads),
        (0, 0),
        "{}",
        lines(&requests, Class::Write)
    );
    for usage in lab.usage() {
        println!("{usage:?}");
    }
    Ok(())
}
