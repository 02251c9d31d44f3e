//! The main job on three GPU nodes: the inputs as users bring them, convergence, requests, rights, drift.
//! (Issue "The main job", section 7, items 1-4 and 9.)

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

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tessera_api::SREAgent;
use tessera_e2e::audit::{Class, Request, Requests};
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::lab::LAB_HOST;
use tessera_e2e::scenario::*;
use tessera_e2e::{Lab, bench, nodes};

#[tokio::test]
async fn inputs_converge_within_the_budgets_and_then_nothing_is_sent() -> anyhow::Result<()> {
    let lab = Lab::for_test("main-job", nodes::gpu_nodes(3)).await?;
    lab.apply_file(&fixture("servicemonitor-crd.yaml")).await?;
    let mut audit = lab.audit();
    lab.helm_install(&input("values-gpu.yaml"), &[]).await?;
    let crds = lab.kubectl_ok(&["get", "crd", "-o", "name"]).await?;
    for crd in [
        "clusterpolicies.nvidia.com",
        "sreagents.aiops.local",
        "nodeoperations.aiops.local",
    ] {
        assert!(crds.contains(crd), "{crd} is not among\n{crds}");
    }

    // The values alone make a policy. Requests until quiet: at most one write an owned object, one a node, and 20; no
    // read a node.
    // Two of the three nodes have a taint that only the user's policy will tolerate: that is said, not passed over.
    let base = policy_until(&lab, BASE_POLICY, "the taint is named", MINUTE, |p| {
        condition(p, "DriverReady").1 == "TaintsNotTolerated"
    })
    .await?;
    assert!(
        condition(&base, "DriverReady").2.contains("gpu-node=true"),
        "{}",
        explain(&base)
    );
    let requests = quiet(&mut audit, 5 * SECOND, MINUTE).await?;
    within_budget(&lab, "install", &requests, 3).await?;

    // The policy, and the status on the way: every moment that is not ready says which component and why.
    let start = Instant::now();
    lab.apply_file(&input("cluster-policy.yaml")).await?;
    let seen = watch_until_ready(&lab, MINUTE).await?;
    let took = start.elapsed();
    for (state, message) in &seen {
        let explained = state == "ready" || (!message.is_empty() && message.len() > 20);
        assert!(
            explained,
            "state {state} was shown without a reason: {seen:#?}"
        );
    }
    assert!(
        seen.iter().any(|(state, _)| state != "ready"),
        "the way to ready was never seen: {seen:#?}"
    );

    // One DaemonSet each, one pod on each GPU node, none on the CPU node.
    let sets = daemonsets(&lab).await?;
    let names: Vec<&str> = sets.keys().map(String::as_str).collect();
    for want in [
        "nvidia-driver-daemonset",
        "nvidia-container-toolkit-daemonset",
        "nvidia-operator-validator",
        "nvidia-device-plugin-daemonset",
        "gpu-feature-discovery",
        "nvidia-dcgm-exporter",
    ] {
        let set = sets.iter().find(|(name, _)| name.starts_with(want));
        let set = set
            .unwrap_or_else(|| panic!("{want} is not among {names:?}"))
            .1;
        let status = set.status.clone().unwrap_or_default();
        assert_eq!(
            (status.desired_number_scheduled, status.number_ready),
            (3, 3),
            "{want}"
        );
        let app = set
            .spec
            .as_ref()
            .and_then(|s| s.template.metadata.as_ref())
            .and_then(|m| m.labels.as_ref());
        let app = app.and_then(|l| l.get("app")).cloned().unwrap_or_default();
        let on: BTreeSet<String> = pods_by_node(&lab, &app).await?.into_keys().collect();
        assert!(
            !on.contains(LAB_HOST) && on.len() == 3,
            "{app} runs on {on:?}"
        );
    }
    for i in 0..3 {
        let node = nodes::gpu_nodes(3)
            .get(i)
            .map(ResourceExt::name_any)
            .unwrap_or_default();
        let list = allocatable(&lab, &node).await?;
        assert_eq!(
            list.get("nvidia.com/gpu").map(String::as_str),
            Some("32"),
            "8 cards of 4 on {node}: {list:?}"
        );
    }

    // The monitor has the policy's interval; the user's own monitor finds the Service.
    let monitors: Api<DynamicObject> =
        Api::namespaced_with(lab.client(), NAMESPACE, &service_monitors());
    let list = monitors.list(&ListParams::default()).await?.items;
    let intervals: Vec<&Value> = list
        .iter()
        .filter_map(|m| m.data.pointer("/spec/endpoints/0/interval"))
        .collect();
    assert_eq!(intervals, [&json!("15s")]);
    let services: Api<Service> = Api::namespaced(lab.client(), NAMESPACE);
    let service = services.get("dcgm-exporter").await?;
    assert_eq!(
        service.labels().get("app").map(String::as_str),
        Some("dcgm-exporter")
    );
    let ports = service.spec.and_then(|s| s.ports).unwrap_or_default();
    assert!(
        ports.iter().any(|p| p.name.as_deref() == Some("metrics")),
        "{ports:?}"
    );
    lab.kubectl_ok(&["create", "namespace", "monitoring"])
        .await?;
    lab.apply_file(&input("service-monitor.yaml")).await?;

    // The agent.
    apply_sre_agent(&lab, NAMESPACE).await?;
    agent_ready(&lab).await?;

    // The overlay and the agent: every object gets its second owner, no node is written again.
    let requests = quiet(&mut audit, 5 * SECOND, MINUTE).await?;
    println!("ready {took:?} after the policy");
    within_budget(&lab, "policy and agent", &requests, 0).await?;

    // And then, for a minute, nothing.
    tokio::time::sleep(MINUTE).await;
    let (requests, total) = controller_requests(&mut audit)?;
    assert_eq!(
        (total.writes, total.reads),
        (0, 0),
        "{}\n{}",
        lines(&requests, Class::Write),
        lines(&requests, Class::Read)
    );

    // People can read it.
    let table = lab.kubectl_ok(&["get", "clusterpolicy"]).await?;
    println!("{table}");
    assert!(table.contains("ready"), "{table}");
    let described = lab
        .kubectl_ok(&["describe", "clusterpolicy", USER_POLICY])
        .await?;
    assert!(
        described.contains("DriverReady") && described.contains("SharingApplied"),
        "{described}"
    );
    println!("{}", lab.kubectl_ok(&["get", "sre", "-A"]).await?);
    Ok(())
}

/// At most one write for each owned object, one for each of `nodes`, and 20 for all statuses; reads only at starts.
async fn within_budget(
    lab: &Lab,
    what: &str,
    requests: &[Request],
    nodes: usize,
) -> anyhow::Result<()> {
    let total = Requests::of(requests);
    let objects = owned_objects(lab).await?.len();
    println!(
        "{what}: {objects} owned objects, {nodes} nodes to label; requests until quiet:\n{total}"
    );
    let budget = objects + nodes + 20;
    anyhow::ensure!(
        total.writes <= budget,
        "{what}: {} writes, budget {budget}:\n{}",
        total.writes,
        lines(requests, Class::Write)
    );
    anyhow::ensure!(
        total.reads <= 30,
        "{what}: {} reads:\n{}",
        total.reads,
        lines(requests, Class::Read)
    );
    anyhow::ensure!(total.denied == 0, "{what}: refused requests:\n{total}");
    Ok(())
}

/// The states and Ready messages that the policy shows, in order, until it is ready.
async fn watch_until_ready(lab: &Lab, patience: Duration) -> anyhow::Result<Vec<(String, String)>> {
    let start = Instant::now();
    let mut seen: Vec<(String, String)> = Vec::new();
    loop {
        if let Some(policy) = policy(lab, USER_POLICY).await?
            && let Some(status) = &policy.status
            && let Some(state) = &status.state
        {
            let state = format!("{state}");
            let message = condition(&policy, "Ready").2;
            if seen.last() != Some(&(state.clone(), message.clone())) {
                println!(
                    "{:>6.2} s  {state}: {message}",
                    start.elapsed().as_secs_f32()
                );
                seen.push((state.clone(), message));
            }
            if state == "ready" {
                return Ok(seen);
            }
            if start.elapsed() > patience {
                anyhow::bail!("not ready after {patience:?}: {}", explain(&policy));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn agent_ready(lab: &Lab) -> anyhow::Result<()> {
    let agents: Api<SREAgent> = Api::namespaced(lab.client(), NAMESPACE);
    lab.wait_for(
        "SREAgent gpu-monitor-agent is available",
        MINUTE,
        || async {
            let agent = agents
                .get("gpu-monitor-agent")
                .await
                .map_err(|e| e.to_string())?;
            let status = agent.status.unwrap_or_default();
            let ready = status
                .conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True");
            if ready {
                Ok(())
            } else {
                Err(format!("{status:#?}"))
            }
        },
    )
    .await
}

#[tokio::test]
async fn small_events_cost_little() -> anyhow::Result<()> {
    let lab = ready("events", nodes::gpu_nodes(3)).await?;
    let rows = bench::small_events(&lab, 3).await?;
    let table = bench::print(4, &rows);
    println!("{table}");
    let budgets: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row.what.as_str(), row.budget.as_str()))
        .collect();
    assert_eq!(
        budgets,
        [
            ("an unrelated node label and condition", "<= 0"),
            ("one operand pod deleted", "<= 4"),
            ("one GPU node joins", "<= 4"),
            ("60 s in which pods cannot start", "<= 6"),
        ]
    );
    assert!(rows.iter().all(|row| row.within), "{table}");
    let policy = policy_until(&lab, USER_POLICY, "not ready, with a reason", MINUTE, |p| {
        condition_false(p, "DriverReady")
    })
    .await?;
    println!("{}", explain(&policy));
    Ok(())
}

fn condition_false(policy: &tessera_api::ClusterPolicy, type_: &str) -> bool {
    condition(policy, type_).0 == "False"
}

#[tokio::test]
async fn every_owned_object_is_repaired_within_a_second() -> anyhow::Result<()> {
    let lab = Lab::for_test("drift", nodes::gpu_nodes(1)).await?;
    lab.apply_file(&fixture("servicemonitor-crd.yaml")).await?;
    lab.helm_install(&input("values-gpu.yaml"), &[]).await?;
    lab.apply_file(&input("cluster-policy.yaml")).await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    let mut audit = lab.audit();
    quiet(&mut audit, 3 * SECOND, MINUTE).await?;
    let client = lab.client();
    let edits: BTreeMap<&str, Value> = BTreeMap::from([
        (
            "DaemonSet",
            json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "example.com/foreign:1"}]),
        ),
        (
            "ConfigMap",
            json!([{"op": "replace", "path": "/data", "value": {}}]),
        ),
        (
            "Service",
            json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 9999}]),
        ),
        (
            "RuntimeClass",
            json!([{"op": "remove", "path": "/metadata/labels/app.kubernetes.io~1part-of"}]),
        ),
        (
            "ServiceMonitor",
            json!([{"op": "replace", "path": "/spec/endpoints/0/interval", "value": "77s"}]),
        ),
    ]);
    let mut slowest: BTreeMap<String, Duration> = BTreeMap::new();
    for object in owned_objects(&lab).await? {
        let parts: Vec<&str> = object.split('/').collect();
        let [kind, namespace, name] = parts.as_slice() else {
            panic!("{object}")
        };
        let api = dynamic(&client, kind, namespace);
        let before = api.get(name).await?;
        let Some(edit) = edits.get(kind) else {
            panic!("no edit is known for {kind}: add one to this test")
        };
        // A foreign label must survive the repair.
        let foreign = json!({"metadata": {"labels": {"example.com/theirs": "stays"}}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(foreign))
            .await?;
        let edit = edit.to_string();
        let target = ["-n", namespace, kind, name, "--type=json", "-p", &edit];
        lab.kubectl_ok(&[&["patch"], target.as_slice()].concat())
            .await?;
        let took = repaired(&lab, &api, name, &before).await?;
        slowest
            .entry(format!("{kind} edited"))
            .and_modify(|t| *t = (*t).max(took))
            .or_insert(took);
        let after = api.get(name).await?;
        assert_eq!(
            after.labels().get("example.com/theirs").map(String::as_str),
            Some("stays"),
            "{object}"
        );
        api.delete(name, &DeleteParams::default()).await?;
        let took = repaired(&lab, &api, name, &before).await?;
        slowest
            .entry(format!("{kind} deleted"))
            .and_modify(|t| *t = (*t).max(took))
            .or_insert(took);
    }
    // A node label of ours removed.
    let all: Api<Node> = Api::all(client);
    let node = nodes::gpu_nodes(1)
        .first()
        .map(ResourceExt::name_any)
        .unwrap_or_default();
    let start = Instant::now();
    lab.kubectl_ok(&[
        "label",
        "node",
        &node,
        "nvidia.com/gpu.deploy.gpu-feature-discovery-",
        "nvidia.com/gpu.present-",
    ])
    .await?;
    lab.wait_for("the node's labels are back", 5 * SECOND, || async {
        let labels = all.get(&node).await.map_err(|e| e.to_string())?;
        match labels
            .labels()
            .get("nvidia.com/gpu.deploy.gpu-feature-discovery")
        {
            Some(value) if value == "true" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    slowest.insert("node labels removed".into(), start.elapsed());
    println!("slowest repair by kind: {slowest:#?}");
    for (what, took) in slowest {
        assert!(took < SECOND, "{what} took {took:?}");
    }
    Ok(())
}

fn dynamic(client: &kube::Client, kind: &str, namespace: &str) -> Api<DynamicObject> {
    use kube::core::ApiResource;
    let resource = match kind {
        "DaemonSet" => ApiResource::erase::<DaemonSet>(&()),
        "ConfigMap" => ApiResource::erase::<ConfigMap>(&()),
        "Service" => ApiResource::erase::<Service>(&()),
        "RuntimeClass" => ApiResource::erase::<RuntimeClass>(&()),
        _ => service_monitors(),
    };
    if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// Waits until the object is as it was before the edit; returns how long that took.
async fn repaired(
    lab: &Lab,
    api: &Api<DynamicObject>,
    name: &str,
    before: &DynamicObject,
) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let want = essence(before);
    lab.wait_for(&format!("{name} is as it was"), 10 * SECOND, || async {
        let live = api
            .get_opt(name)
            .await
            .map_err(|e| e.to_string())?
            .ok_or("it does not exist")?;
        let got = essence(&live);
        if got == want {
            Ok(())
        } else {
            Err(format!("want {want:#}\ngot {got:#}"))
        }
    })
    .await?;
    Ok(start.elapsed())
}

/// What the controller decides about an object: not what the API server or others add.
fn essence(object: &DynamicObject) -> Value {
    let mut data = object.data.clone();
    if let Some(map) = data.as_object_mut() {
        map.remove("status");
    }
    // A recreated Service gets another cluster address.
    if let Some(spec) = data.pointer_mut("/spec").and_then(Value::as_object_mut) {
        for given in ["clusterIP", "clusterIPs"] {
            spec.remove(given);
        }
    }
    let mut labels = object.labels().clone();
    labels.retain(|key, _| !key.starts_with("example.com/"));
    json!({"data": data, "labels": labels})
}
