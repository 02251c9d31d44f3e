//! The release's life on a real control plane: install, upgrade, CRDs, uninstall. No controller runs here; what they would have
//! made is made by hand, so that what is tested is the charts and the hooks.

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

use std::time::Duration;

use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::lab::Lab;
use tessera_e2e::nodes::gpu_nodes;
use tessera_e2e::scenario::{fixture, input};

const CRDS: [&str; 3] = [
    "clusterpolicies.nvidia.com",
    "nodeoperations.aiops.local",
    "sreagents.aiops.local",
];

const HASH: &str = "jsonpath={.metadata.annotations.aiops\\.local/schema-hash}";

/// All controllers installed, none running.
const STOPPED: [&str; 10] = [
    "--set",
    "driverController.replicas=0",
    "--set",
    "devicePluginController.replicas=0",
    "--set",
    "dcgmMonitorController.replicas=0",
    "--set",
    "sreagentController.replicas=0",
    "--set",
    "webhook.replicas=0",
];

async fn installed(name: &str, nodes: usize) -> Lab {
    let lab = Lab::for_test(name, gpu_nodes(nodes)).await.unwrap();
    lab.helm_install(&input("values-gpu.yaml"), &STOPPED)
        .await
        .unwrap();
    lab
}

/// One field of an object; empty where the object or the field is not there.
async fn field(lab: &Lab, object: &[&str], path: &str) -> String {
    let args = [&["get", "--ignore-not-found"], object, &["-o", path]].concat();
    lab.kubectl_ok(&args).await.unwrap()
}

async fn exists(lab: &Lab, object: &[&str]) -> bool {
    !field(lab, object, "name").await.is_empty()
}

#[tokio::test]
async fn the_first_install_needs_no_hook_and_every_pod_is_admitted_as_restricted() {
    let lab = Lab::for_test("restricted", Vec::new()).await.unwrap();
    lab.kubectl_ok(&["create", "namespace", NAMESPACE])
        .await
        .unwrap();
    lab.kubectl_ok(&[
        "label",
        "namespace",
        NAMESPACE,
        "pod-security.kubernetes.io/enforce=restricted",
    ])
    .await
    .unwrap();
    let notes = lab
        .helm_install(&input("values-gpu.yaml"), &[])
        .await
        .unwrap();
    assert!(notes.contains("refused with the reason"), "{notes}");
    assert!(notes.contains("kubectl get clusterpolicy"), "{notes}");
    for crd in CRDS {
        assert!(exists(&lab, &["crd", crd]).await, "{crd}");
    }
    let replicas = field(
        &lab,
        &["clusterpolicy", "cluster-policy"],
        "jsonpath={.spec.devicePlugin.config.sharing.timeSlicing.resources[0].replicas}",
    )
    .await;
    assert_eq!(replicas, "4");
    lab.wait_for(
        "two pods of each controller",
        Duration::from_secs(20),
        || async {
            let pods = field(
                &lab,
                &[
                    "pods",
                    "-n",
                    NAMESPACE,
                    "-l",
                    "app.kubernetes.io/component=controller",
                ],
                "name",
            )
            .await;
            if pods.lines().count() == 10 {
                Ok(())
            } else {
                Err(pods)
            }
        },
    )
    .await
    .unwrap();
    let events = field(
        &lab,
        &["events", "-n", NAMESPACE],
        "jsonpath={.items[*].message}",
    )
    .await;
    assert!(!events.contains("violates PodSecurity"), "{events}");
    assert!(
        !events.contains("tessera-crds-upgrade"),
        "a first install must not depend on a hook: {events}"
    );
}

/// Values that render quite different policies; the API server must take each.
const VALUES: [&str; 4] = [
    "",
    include_str!("charts/nvidia-values.yaml"),
    "driver:\n  resources:\n  env:\ntoolkit:\ndcgm:\ndevicePlugin:\n  config:\nvalidator:\ngfd:\n  enabled:\n",
    "driverController: {enabled: false}\ndevicePluginController: {enabled: false}\ndcgmMonitorController: {enabled: false}\nglobal: {imagePullSecrets: [a]}\n",
];

#[tokio::test]
async fn the_api_server_takes_the_base_policy_of_every_set_of_values_and_all_of_deploy() {
    let lab = Lab::for_test("values", Vec::new()).await.unwrap();
    let root = tessera_e2e::paths::root();
    lab.apply_file(&root.join("deploy")).await.unwrap();
    let chart = root.join("charts/gpu-operator");
    for values in VALUES {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), values).unwrap();
        let (chart, file) = (chart.to_str().unwrap(), file.path().to_str().unwrap());
        let show = [
            "template",
            "gpu-operator",
            chart,
            "--kube-version",
            "v1.34.0",
            "-f",
            file,
            "--show-only",
            "templates/cluster-policy.yaml",
        ];
        let policy = lab.helm_ok(&show).await.unwrap();
        lab.apply(&policy)
            .await
            .unwrap_or_else(|error| panic!("{error:#}\n{policy}"));
    }
}

#[tokio::test]
async fn an_upgrade_changes_the_base_policy_brings_old_crds_up_to_date_and_clears_up_after_a_component()
 {
    let lab = installed("upgrade", 1).await;
    let values = input("values-gpu.yaml");
    let crd = ["crd", CRDS[0]];
    let mut newest = Vec::new();
    for name in CRDS {
        let hash = field(&lab, &["crd", name], HASH).await;
        assert_eq!(hash.len(), 16, "{name}: {hash}");
        let old = "aiops.local/schema-hash=old";
        lab.kubectl_ok(&["annotate", "crd", name, "--overwrite", old])
            .await
            .unwrap();
        newest.push(hash);
    }
    // One is missing altogether.
    lab.kubectl_ok(&["delete", "crd", "nodeoperations.aiops.local"])
        .await
        .unwrap();
    let dropped = r#"[{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}]"#;
    lab.kubectl_ok(&["patch", crd[0], crd[1], "--type=json", "-p", dropped])
        .await
        .unwrap();
    let made = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: nvidia-dcgm-exporter-metrics
  namespace: gpu-operator
  labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: dcgm-monitor-controller}
";
    lab.apply(made).await.unwrap();

    let changes = [
        &STOPPED[..],
        &[
            "--set",
            "devicePlugin.sharing.timeSlicing.replicas=2",
            "--set",
            "dcgmMonitorController.enabled=false",
        ],
    ]
    .concat();
    lab.helm_upgrade(&values, &changes).await.unwrap();
    let spec = field(
        &lab,
        &["clusterpolicy", "cluster-policy"],
        "jsonpath={.spec}",
    )
    .await;
    assert!(
        spec.contains(r#""replicas":2"#) && spec.contains(r#""dcgmExporter":{"enabled":false"#),
        "{spec}"
    );
    for (name, hash) in CRDS.into_iter().zip(newest) {
        assert_eq!(field(&lab, &["crd", name], HASH).await, hash, "{name}");
    }
    assert!(
        field(
            &lab,
            &crd,
            "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}"
        )
        .await
        .contains("State")
    );
    assert!(
        !exists(
            &lab,
            &["configmap", "-n", NAMESPACE, "nvidia-dcgm-exporter-metrics"]
        )
        .await
    );
    assert!(
        !exists(
            &lab,
            &["deployment", "-n", NAMESPACE, "dcgm-monitor-controller"]
        )
        .await
    );
    let replicas = field(
        &lab,
        &["deployment", "-n", NAMESPACE, "driver-controller"],
        "name",
    )
    .await;
    assert!(!replicas.is_empty(), "the others stay");
    let hooks = field(
        &lab,
        &[
            "jobs,serviceaccounts",
            "-n",
            NAMESPACE,
            "-l",
            "app.kubernetes.io/component=hook",
        ],
        "name",
    )
    .await;
    assert_eq!(hooks, "", "hooks leave nothing behind");
}

/// What controllers and agents leave: one object of each kind, marks on nodes, an operation, a held SREAgent; and what is not theirs.
const LEFTOVERS: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: nvidia-driver-daemonset
  namespace: gpu-operator
  labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: driver-controller}
spec:
  selector: {matchLabels: {app: nvidia-driver-daemonset}}
  template:
    metadata: {labels: {app: nvidia-driver-daemonset, app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: driver-controller}}
    spec:
      nodeSelector: {nvidia.com/gpu.deploy.driver: 'true'}
      tolerations: [{operator: Exists}]
      containers: [{name: nvidia-driver-ctr, image: nvcr.io/nvidia/driver:1}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ours, namespace: gpu-operator, labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: device-plugin-controller}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: users, namespace: gpu-operator}
---
apiVersion: v1
kind: Service
metadata: {name: dcgm-exporter, namespace: gpu-operator, labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: dcgm-monitor-controller}}
spec: {ports: [{port: 9400}]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia, labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: driver-controller}}
handler: nvidia
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: users}
handler: runc
---
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: gpu-cluster-config}
spec: {}
---
apiVersion: aiops.local/v1
kind: SREAgent
metadata: {name: agent, namespace: default, finalizers: [aiops.local/agent-bindings, example.com/other]}
spec: {gpuEnable: true}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: sre-agent, namespace: default, labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: sreagent-controller}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sre-agent, labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: sreagent-controller}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tessera-sre-agent-observe}
subjects: [{kind: ServiceAccount, name: sre-agent, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sre-agent, namespace: default, labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: sreagent-controller}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tessera-sre-agent-own}
subjects: [{kind: ServiceAccount, name: sre-agent, namespace: default}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: sre-agent, namespace: default, labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: sreagent-controller}}
spec:
  replicas: 0
  selector: {matchLabels: {app: sre-agent}}
  template:
    metadata: {labels: {app: sre-agent}}
    spec: {containers: [{name: sre-agent, image: sre-agent}]}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: ours, namespace: gpu-operator, labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: dcgm-monitor-controller}}
spec: {endpoints: [], selector: {}}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: ours, namespace: gpu-operator, labels: {app.kubernetes.io/part-of: tessera, app.kubernetes.io/managed-by: dcgm-monitor-controller}}
spec: {groups: []}
";

#[tokio::test]
async fn uninstall_takes_what_is_ours_leaves_the_rest_and_an_install_on_top_works() {
    let lab = installed("uninstall", 2).await;
    let nodes: Vec<String> = gpu_nodes(2)
        .into_iter()
        .filter_map(|node| node.metadata.name)
        .collect();
    for kind in ["servicemonitor", "prometheusrule"] {
        let crd = fixture(&format!("{kind}-crd.yaml"));
        lab.apply_file(&crd).await.unwrap();
    }
    mark_nodes(&lab, &nodes).await;
    lab.apply(LEFTOVERS).await.unwrap();
    report_ready(&lab).await;
    let agent = &["sreagent", "-n", "default", "agent"];
    let active = [
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status": {"phase": "Active"}}"#,
    ];
    lab.kubectl_ok(&[&["patch"], &agent[..], &active].concat())
        .await
        .unwrap();

    lab.helm_uninstall(&[]).await.unwrap();

    for gone in [
        vec![
            "daemonsets,services,deployments,jobs,pods,leases,serviceaccounts",
            "-n",
            NAMESPACE,
            "-l",
            "app.kubernetes.io/part-of=tessera",
        ],
        vec!["configmap", "-n", NAMESPACE, "ours"],
        vec!["runtimeclass", "nvidia"],
        vec!["nodeoperations"],
        vec!["clusterpolicy", "cluster-policy"],
        vec!["serviceaccount", "-n", "default", "sre-agent"],
        vec!["rolebinding", "-n", "default", "sre-agent"],
        vec!["deployment", "-n", "default", "sre-agent"],
        vec!["servicemonitor", "-n", NAMESPACE, "ours"],
        vec!["prometheusrule", "-n", NAMESPACE, "ours"],
        vec![
            "clusterroles,clusterrolebindings",
            "-l",
            "app.kubernetes.io/part-of=tessera",
        ],
    ] {
        assert_eq!(field(&lab, &gone, "name").await, "", "{gone:?} is left");
    }
    for kept in [
        &["configmap", "-n", NAMESPACE, "users"][..],
        &["runtimeclass", "users"],
        &["clusterpolicy", "gpu-cluster-config"],
        &["crd", CRDS[0]],
        &["crd", CRDS[1]],
        &["crd", CRDS[2]],
    ] {
        assert!(exists(&lab, kept).await, "{kept:?} must stay");
    }
    assert_eq!(
        field(&lab, agent, "jsonpath={.metadata.finalizers}{.status}").await,
        r#"["example.com/other"]"#,
        "an SREAgent stays, and nobody is left who could keep its status true"
    );
    let policy = &["clusterpolicy", "gpu-cluster-config"];
    assert_eq!(
        field(
            &lab,
            policy,
            "jsonpath={.status.state}{.status.conditions}{.status.driver}"
        )
        .await,
        "",
        "nobody is left who could keep it true"
    );
    let labels = field(&lab, &["node", &nodes[0]], "jsonpath={.metadata.labels}").await;
    assert!(
        !labels.contains("gpu.present") && !labels.contains("gpu.deploy.driver"),
        "{labels}"
    );
    assert!(
        labels.contains(r#""nvidia.com/gpu.deploy.dcgm":"false""#),
        "a user's own wish stays: {labels}"
    );
    assert_eq!(
        field(&lab, &["node", &nodes[0]], "jsonpath={.spec.unschedulable}").await,
        "",
        "our cordon is undone"
    );
    assert_eq!(
        field(&lab, &["node", &nodes[1]], "jsonpath={.spec.unschedulable}").await,
        "true",
        "somebody else's cordon stays"
    );

    lab.helm_install(&input("values-gpu.yaml"), &STOPPED)
        .await
        .unwrap();
    assert!(exists(&lab, &["clusterpolicy", "cluster-policy"]).await);
}

/// The user's policy as two controllers have reported it.
async fn report_ready(lab: &Lab) {
    let condition = |name: &str| {
        format!(
            "{{type: {name}, status: 'True', reason: Ready, message: m, lastTransitionTime: '2026-01-01T00:00:00Z'}}"
        )
    };
    for (controller, own, part) in [
        ("driver-controller", "DriverReady", "driver"),
        ("dcgm-monitor-controller", "ExporterReady", "dcgm"),
    ] {
        let status = format!(
            "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nmetadata: {{name: gpu-cluster-config}}\nstatus: {{state: ready, \
             {part}: {{summary: 2/2}}, conditions: [{}, {}]}}\n",
            condition(own),
            condition("Ready")
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), status).unwrap();
        lab.kubectl_ok(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--subresource=status",
            &format!("--field-manager={controller}.aiops.local"),
            "-f",
            file.path().to_str().unwrap(),
        ])
        .await
        .unwrap();
    }
    let policy = &["clusterpolicy", "gpu-cluster-config"];
    let state = field(
        lab,
        policy,
        "jsonpath={.status.state}{.status.dcgm.summary}",
    )
    .await;
    assert_eq!(state, "ready2/2");
}

/// Labels under our field manager, a user's label, our cordon on the first node, somebody else's on the second.
async fn mark_nodes(lab: &Lab, nodes: &[String]) {
    for node in nodes {
        let ours = format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {node}, labels: {{nvidia.com/gpu.present: 'true', nvidia.com/gpu.deploy.driver: 'true'}}}}\n"
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), ours).unwrap();
        let path = file.path().to_str().unwrap();
        lab.kubectl_ok(&[
            "apply",
            "--server-side",
            "--field-manager=node-labels.aiops.local",
            "-f",
            path,
        ])
        .await
        .unwrap();
        lab.kubectl_ok(&["label", "node", node, "nvidia.com/gpu.deploy.dcgm=false"])
            .await
            .unwrap();
        lab.kubectl_ok(&["cordon", node]).await.unwrap();
    }
    let operation = format!(
        "apiVersion: aiops.local/v1alpha1\nkind: NodeOperation\nmetadata: {{name: {}}}\n",
        nodes[0]
    );
    lab.apply(&operation).await.unwrap();
    let status = r#"{"status": {"operation": "DriverUpgrade", "holder": "driver-controller", "phase": "Cordoned", "undo": [{"act": "Uncordon"}]}}"#;
    lab.kubectl_ok(&[
        "patch",
        "nodeoperation",
        &nodes[0],
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ])
    .await
    .unwrap();
}
