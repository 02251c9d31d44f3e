//! An SREAgent from its creation to its end: it watches, says what it would do, isolates a node when it may, releases it when the
//! fault is gone, and leaves nothing behind.

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

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use tessera_api::nodeoperation::OperationPhase;
use tessera_api::sreagent::{SREAgentPhase, SREAgentStatus};
use tessera_api::{NodeOperation, SREAgent};
use tessera_e2e::Lab;
use tessera_e2e::audit::Class;
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::nodes::{GpuNode, Taint};
use tessera_e2e::scenario::{MINUTE, SECOND, controller_requests, count, input, lines, quiet};

const NODE: &str = "gpu-00001";

/// Only what this is about: the exporters are played without the controller that would roll them out.
const EXPORTER: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvidia-dcgm-exporter, namespace: gpu-operator}
spec:
  selector: {matchLabels: {app: nvidia-dcgm-exporter}}
  template:
    metadata: {labels: {app: nvidia-dcgm-exporter, app.kubernetes.io/managed-by: dcgm-monitor-controller}}
    spec:
      nodeSelector: {nvidia.com/gpu.present: "true"}
      tolerations: [{operator: Exists}]
      containers:
        - {name: exporter, image: "example/dcgm-exporter:4", ports: [{name: metrics, containerPort: 9400}]}
"#;

fn agent(auto_repair: bool) -> String {
    format!(
        "{{apiVersion: aiops.local/v1, kind: SREAgent, metadata: {{name: gpu-monitor-agent, namespace: {NAMESPACE}}}, \
         spec: {{gpuEnable: true, autoRepair: {auto_repair}, monitorInterval: 5}}}}"
    )
}

async fn lab() -> anyhow::Result<Lab> {
    let nodes = (0..4).map(|i| {
        let mut node = GpuNode::new(format!("gpu-{i:05}"));
        // Our own pods must land where they are really run.
        node.taint = Taint::Gpu;
        node.labels
            .push(("nvidia.com/gpu.present".into(), "true".into()));
        node.build()
    });
    let lab = Lab::for_test("self-healing", nodes.collect()).await?;
    let mut extra = Vec::new();
    for other in ["driver", "devicePlugin", "dcgmMonitor"] {
        extra.extend([
            "--set".to_owned(),
            format!("{other}Controller.enabled=false"),
        ]);
    }
    // Minutes of calm are shortened to seconds.
    for (index, (name, value)) in [
        ("SRE_AGENT_PROBATION_SECONDS", "8"),
        ("SRE_AGENT_BOOT_GRACE_SECONDS", "0"),
    ]
    .into_iter()
    .enumerate()
    {
        let env = format!("sreagentController.env[{index}]");
        extra.extend([
            "--set-string".to_owned(),
            format!("{env}.name={name},{env}.value={value}"),
        ]);
    }
    let extra: Vec<&str> = extra.iter().map(String::as_str).collect();
    lab.helm_install(&input("values-gpu.yaml"), &extra).await?;
    lab.apply(EXPORTER).await?;
    Ok(lab)
}

async fn until(
    lab: &Lab,
    what: &str,
    check: impl Fn(&SREAgentStatus) -> bool,
) -> anyhow::Result<SREAgentStatus> {
    let agents: Api<SREAgent> = Api::namespaced(lab.client(), NAMESPACE);
    lab.wait_for(what, MINUTE, || async {
        let agent = agents
            .get("gpu-monitor-agent")
            .await
            .map_err(|e| e.to_string())?;
        let status = agent.status.unwrap_or_default();
        if check(&status) {
            Ok(status)
        } else {
            Err(format!("{status:#?}"))
        }
    })
    .await
}

fn incident(status: &SREAgentStatus, state: &str) -> bool {
    let report = status.agent.clone().unwrap_or_default();
    report
        .incidents
        .iter()
        .any(|i| i.node == NODE && i.state == state)
}

async fn node(lab: &Lab) -> anyhow::Result<(bool, Option<String>)> {
    let node = Api::<Node>::all(lab.client()).get(NODE).await?;
    let cordoned = node
        .spec
        .as_ref()
        .and_then(|s| s.unschedulable)
        .unwrap_or(false);
    Ok((
        cordoned,
        node.annotations().get("aiops.local/cordoned-by").cloned(),
    ))
}

async fn bindings(lab: &Lab) -> anyhow::Result<Vec<String>> {
    let ours = ListParams::default().labels("app.kubernetes.io/managed-by=sreagent-controller");
    let list = Api::<ClusterRoleBinding>::all(lab.client())
        .list(&ours)
        .await?;
    Ok(list.iter().map(kube::ResourceExt::name_any).collect())
}

#[tokio::test]
async fn an_agent_watches_isolates_releases_and_goes() -> anyhow::Result<()> {
    let lab = lab().await?;
    let result = scenario(&lab).await;
    if result.is_err() {
        explain(&lab).await;
    }
    result
}

/// Pods, events and the last lines of our own pods' logs.
async fn explain(lab: &Lab) {
    for what in [
        ["get", "pods", "-A", "-o", "wide"],
        ["get", "events", "-A", "-o", "wide"],
    ] {
        println!("{}", lab.kubectl_ok(&what).await.unwrap_or_default());
    }
    let mut dirs = vec![lab.dir().join("pods")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "log") {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let last: Vec<&str> = text.lines().rev().take(30).collect();
                println!("{}:", path.display());
                last.iter().rev().for_each(|line| println!("  {line}"));
            }
        }
    }
}

async fn scenario(lab: &Lab) -> anyhow::Result<()> {
    let mut audit = lab.audit();
    lab.apply(&agent(false)).await?;
    let healthy = until(lab, "telemetry is healthy", |status| {
        let told = |type_: &str| {
            status
                .conditions
                .iter()
                .any(|c| c.type_ == type_ && c.status == "True")
        };
        told("Ready") && told("TelemetryHealthy") && told("NodesHealthy")
    })
    .await?;
    assert_eq!(healthy.phase, Some(SREAgentPhase::DryRun));
    assert_eq!(
        bindings(lab).await?,
        ["tessera-sre-agent-gpu-operator.gpu-monitor-agent-observe"]
    );
    println!("{}", lab.kubectl_ok(&["get", "sre", "-A"]).await?);

    // With nothing wrong: no write, no read.
    let (_, converged) = controller_requests(&mut audit)?;
    println!("to converge: {converged:?}");
    let idle = quiet(&mut audit, 12 * SECOND, MINUTE).await?;
    assert_eq!(
        count(&idle, Class::Read),
        0,
        "{}",
        lines(&idle, Class::Read)
    );
    println!("while idle: {}", lines(&idle, Class::Write));

    // A lost card without the right to act: it is only told.
    annotate(lab, "sim.tessera.dev/xid=0:79").await?;
    let told = until(lab, "the fault is told", |s| incident(s, "Confirmed")).await?;
    let report = told.agent.unwrap_or_default();
    let would = report.incidents.first().and_then(|i| i.would_do.clone());
    assert!(would.unwrap_or_default().contains("cordon node gpu-00001"));
    assert_eq!(node(lab).await?, (false, None));

    // With it: isolated.
    lab.apply(&agent(true)).await?;
    until(lab, "the node is isolated", |s| incident(s, "Isolated")).await?;
    assert_eq!(node(lab).await?, (true, Some("Repair".to_owned())));
    let operation = Api::<NodeOperation>::all(lab.client()).get(NODE).await?;
    assert_eq!(operation.phase(), OperationPhase::AwaitingRepair);
    assert_eq!(
        operation.holder(),
        Some("sre-agent/gpu-operator/gpu-monitor-agent")
    );
    println!("{}", lab.kubectl_ok(&["get", "nodeoperations"]).await?);

    // The fault is gone: released after the probation, and only then.
    annotate(lab, "sim.tessera.dev/xid-").await?;
    until(lab, "the node is on probation", |s| {
        incident(s, "Probation")
    })
    .await?;
    assert!(node(lab).await?.0);
    until(lab, "the node is released", |s| {
        s.agent.clone().unwrap_or_default().incidents.is_empty()
    })
    .await?;
    assert_eq!(node(lab).await?, (false, None));
    let operation = Api::<NodeOperation>::all(lab.client()).get(NODE).await?;
    assert_eq!(operation.phase(), OperationPhase::Done);

    // What a person cordoned stays cordoned, and is not ours.
    lab.kubectl_ok(&["cordon", NODE]).await?;
    annotate(lab, "sim.tessera.dev/row-remap=1:failure").await?;
    let held = until(lab, "the cordon is respected", |s| incident(s, "Confirmed")).await?;
    let report = held.agent.unwrap_or_default();
    let blocked = report
        .incidents
        .first()
        .and_then(|i| i.blocked_by.clone())
        .unwrap_or_default();
    assert!(blocked.starts_with("ForeignCordon"), "{blocked}");
    assert_eq!(node(lab).await?, (true, None));

    // It goes, and its rights and its Lease with it.
    let lease = lab
        .kubectl_ok(&[
            "get",
            "lease",
            "-n",
            NAMESPACE,
            "sre-agent-gpu-monitor-agent",
            "-o=yaml",
        ])
        .await?;
    assert!(lease.contains("kind: ServiceAccount"), "{lease}");
    println!("{}", lab.kubectl_ok(&["get", "events", "-A"]).await?);
    lab.kubectl_ok(&["delete", "sre", "-n", NAMESPACE, "gpu-monitor-agent"])
        .await?;
    let deployments: Api<Deployment> = Api::namespaced(lab.client(), NAMESPACE);
    let leases: Api<Lease> = Api::namespaced(lab.client(), NAMESPACE);
    lab.wait_for("the agent is gone", MINUTE, || async {
        let left = deployments
            .get_opt("sre-agent-gpu-monitor-agent")
            .await
            .map_err(|e| e.to_string())?;
        let bindings = bindings(lab).await.map_err(|e| e.to_string())?;
        let lease = leases
            .get_opt("sre-agent-gpu-monitor-agent")
            .await
            .map_err(|e| e.to_string())?;
        match (left, lease) {
            (None, None) if bindings.is_empty() => Ok(()),
            left => Err(format!("{left:?} {bindings:?}")),
        }
    })
    .await?;
    let (requests, _) = controller_requests(&mut audit)?;
    let refused: Vec<_> = requests.iter().filter(|r| r.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    Ok(())
}

async fn annotate(lab: &Lab, annotation: &str) -> anyhow::Result<()> {
    lab.kubectl_ok(&["annotate", "node", "--overwrite", NODE, annotation])
        .await
        .map(|_| ())
}
