//! Rights: every process has those it needs, in every namespace that it works in, and no right is there for nothing: what only
//! rare situations need is reached here. `cargo xtask test` judges the rest from what all scenarios did.

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

use std::collections::BTreeSet;

use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tessera_api::{NodeOperation, SREAgent};
use tessera_e2e::audit::{Audit, Request};
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::scenario::*;
use tessera_e2e::{Lab, nodes};

/// Namespace and Lease of the agent: not where the controllers are.
const AGENT: (&str, &str) = ("default", "sre-agent-gpu-monitor-agent");

#[tokio::test]
async fn every_process_has_the_rights_it_needs() -> anyhow::Result<()> {
    let lab = Lab::for_test("rights", nodes::gpu_nodes(2)).await?;
    lab.apply_file(&fixture("servicemonitor-crd.yaml")).await?;
    lab.helm_install(&input("values-gpu.yaml"), &[]).await?;
    lab.apply_file(&input("cluster-policy.yaml")).await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    apply_sre_agent(&lab, AGENT.0).await?;
    agent_available(&lab).await?;

    everything_is_switched_off_and_on(&lab).await?;
    old_records_go(&lab).await?;
    a_lease_is_taken_away(&lab).await?;
    drift_of_an_agent_is_repaired(&lab).await?;
    lab.kubectl_ok(&["delete", "sre", "-n", AGENT.0, "gpu-monitor-agent"])
        .await?;
    lab.helm_uninstall(&["--wait", "--timeout", "3m"]).await?;

    let requests = lab.audit().next_requests()?;
    let denied: Vec<String> = requests
        .iter()
        .filter(|r| r.code == 403)
        .map(|r| format!("{} {} {}", r.user, r.verb, r.uri))
        .collect();
    assert!(denied.is_empty(), "{denied:#?}");
    let users: BTreeSet<&str> = requests.iter().map(Request::account).collect();
    for account in CONTROLLERS.into_iter().chain([AGENT.1]) {
        assert!(
            users.contains(account),
            "{account} did not run under its own ServiceAccount: {users:?}"
        );
    }
    Ok(())
}

async fn agent_available(lab: &Lab) -> anyhow::Result<()> {
    let agents: Api<SREAgent> = Api::namespaced(lab.client(), AGENT.0);
    lab.wait_for("the agent is available", MINUTE, || async {
        let agent = agents
            .get("gpu-monitor-agent")
            .await
            .map_err(|e| e.to_string())?;
        let conditions = agent.status.unwrap_or_default().conditions;
        if conditions
            .iter()
            .any(|c| c.type_ == "AgentAvailable" && c.status == "True")
        {
            Ok(())
        } else {
            Err(format!("{conditions:#?}"))
        }
    })
    .await
}

/// What is not wanted any more is deleted, of every kind, and made again.
async fn everything_is_switched_off_and_on(lab: &Lab) -> anyhow::Result<()> {
    let parts = |on: bool| {
        let enabled = json!({ "enabled": on });
        json!({
            "driver": enabled, "containerRuntime": {"enabled": on, "cdi": enabled}, "devicePlugin": enabled,
            "gfd": enabled, "dcgm": {"enabled": on, "exporter": enabled}, "validator": enabled, "migManager": enabled,
            "nodeStatusExporter": enabled,
        })
    };
    edit(lab, parts(false)).await?;
    lab.wait_for("nothing is left", MINUTE, || async {
        let mut left = owned_objects(lab).await.map_err(|e| e.to_string())?;
        left.retain(|object| object.starts_with("DaemonSet/") || object.ends_with("/nvidia-cdi"));
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await?;
    edit(lab, parts(true)).await?;
    policy_ready(lab, USER_POLICY, MINUTE * 2).await.map(drop)
}

/// Records of operations that ended more than a day ago are removed by who held them.
async fn old_records_go(lab: &Lab) -> anyhow::Result<()> {
    let records = [
        ("DriverUpgrade", "driver-controller"),
        ("Repair", "sre-agent/default/gpu-monitor-agent"),
    ];
    for (number, (operation, holder)) in records.into_iter().enumerate() {
        let node = node_name(number);
        lab.apply(&format!(
            "{{apiVersion: aiops.local/v1alpha1, kind: NodeOperation, metadata: {{name: {node}}}}}"
        ))
        .await?;
        let status = json!({"status": {
            "operation": operation, "holder": holder, "phase": "Done", "since": "2020-01-01T00:00:00Z",
        }});
        lab.kubectl_ok(&[
            "patch",
            "nodeoperation",
            &node,
            "--subresource=status",
            "--type=merge",
            "-p",
            &status.to_string(),
        ])
        .await?;
    }
    let operations: Api<NodeOperation> = Api::all(lab.client());
    lab.wait_for("old records are gone", MINUTE, || async {
        let list = operations
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?;
        if list.items.is_empty() {
            Ok(())
        } else {
            Err(format!("{:#?}", list.items))
        }
    })
    .await
}

/// Who finds its Lease in other hands looks at it, waits, and takes it when it has expired.
async fn a_lease_is_taken_away(lab: &Lab) -> anyhow::Result<()> {
    let mut audit: Audit = lab.audit();
    audit.skip()?;
    let leases = CONTROLLERS
        .map(|name| (NAMESPACE, name))
        .into_iter()
        .chain([AGENT]);
    for (namespace, name) in leases.clone() {
        let thief = r#"{"spec": {"holderIdentity": "somebody-else"}}"#;
        lab.kubectl_ok(&[
            "patch",
            "lease",
            "-n",
            namespace,
            name,
            "--type=merge",
            "-p",
            thief,
        ])
        .await?;
    }
    let mut waiting: BTreeSet<String> = leases
        .flat_map(|(_, name)| ["get", "watch", "update"].map(|verb| format!("{name} {verb}")))
        .collect();
    let start = std::time::Instant::now();
    while !waiting.is_empty() {
        for request in audit.next_requests()? {
            if request.resource == "leases" && request.code < 300 {
                waiting.remove(&format!("{} {}", request.account(), request.verb));
            }
        }
        assert!(start.elapsed() < MINUTE, "not seen: {waiting:?}");
        tokio::time::sleep(SECOND / 5).await;
    }
    Ok(())
}

/// What belongs to an agent in its namespace is repaired there.
async fn drift_of_an_agent_is_repaired(lab: &Lab) -> anyhow::Result<()> {
    for kind in ["serviceaccount", "rolebinding", "deployment"] {
        let path = "jsonpath={.metadata.uid}";
        let get = ["get", kind, "-n", AGENT.0, AGENT.1, "-o", path];
        let old = lab.kubectl_ok(&get).await?;
        lab.kubectl_ok(&["delete", kind, "-n", AGENT.0, AGENT.1])
            .await?;
        lab.wait_for(&format!("another {kind}"), MINUTE, || async {
            match lab.kubectl_ok(&get).await {
                Ok(uid) if uid != old => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
        let label = "app.kubernetes.io/part-of=somebody-else";
        lab.kubectl_ok(&["label", kind, "-n", AGENT.0, AGENT.1, "--overwrite", label])
            .await?;
        let label = "jsonpath={.metadata.labels.app\\.kubernetes\\.io/part-of}";
        let get = ["get", kind, "-n", AGENT.0, AGENT.1, "-o", label];
        lab.wait_for(&format!("the {kind} is repaired"), MINUTE, || async {
            match lab.kubectl_ok(&get).await {
                Ok(text) if text == "tessera" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
    }
    agent_available(lab).await
}
