//! The simulator of operands, with DaemonSets of the shape that the controllers make.

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

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tessera_e2e::{Lab, nodes};

const PATIENCE: Duration = Duration::from_secs(30);

/// A DaemonSet as a controller would make it: `app`, deploy label, main image, init containers.
fn daemon_set(
    app: &str,
    deploy: &str,
    image: &str,
    inits: &[&str],
    more: &serde_json::Value,
) -> String {
    let init: Vec<_> = inits
        .iter()
        .map(|name| json!({ "name": name, "image": "x/gpu-operator:v1" }))
        .collect();
    let mut main = json!({ "name": "main", "image": image });
    let mut spec = json!({
        "nodeSelector": { format!("nvidia.com/gpu.deploy.{deploy}"): "true" },
        "tolerations": [{ "operator": "Exists" }],
        "initContainers": init,
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        let target = if key == "volumes" {
            &mut spec
        } else {
            &mut main
        };
        target[key] = value.clone();
    }
    spec["containers"] = json!([main]);
    let labels = json!({ "app": app, "app.kubernetes.io/managed-by": "driver-controller" });
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": app, "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": { "app": app } },
            "updateStrategy": { "type": "OnDelete" },
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    })
    .to_string()
}

/// Driver, toolkit, plugin with time-slicing by 4, feature discovery, validator, exporter.
async fn install(lab: &Lab) -> anyhow::Result<()> {
    let config = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "plugin", "namespace": "default" },
        "data": { "config.yaml": "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n" },
    });
    let reads = json!({
        "env": [{ "name": "CONFIG_FILE", "value": "/config/config.yaml" }],
        "volumeMounts": [{ "name": "config", "mountPath": "/config" }],
        "volumes": [{ "name": "config", "configMap": { "name": "plugin" } }],
    });
    let none = json!({});
    let plugin = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0";
    for manifest in [
        config.to_string(),
        daemon_set(
            "nvidia-driver-daemonset",
            "driver",
            "nvcr.io/nvidia/driver:535.104.05-ubuntu22.04",
            &["k8s-driver-manager"],
            &none,
        ),
        daemon_set(
            "nvidia-container-toolkit-daemonset",
            "container-toolkit",
            "x/container-toolkit:v1",
            &["driver-validation"],
            &none,
        ),
        daemon_set(
            "nvidia-device-plugin-daemonset",
            "device-plugin",
            plugin,
            &["toolkit-validation"],
            &reads,
        ),
        daemon_set(
            "gpu-feature-discovery",
            "gpu-feature-discovery",
            plugin,
            &["toolkit-validation"],
            &reads,
        ),
        daemon_set(
            "nvidia-operator-validator",
            "operator-validator",
            "x/v:1",
            &[
                "driver-validation",
                "toolkit-validation",
                "cuda-validation",
                "plugin-validation",
            ],
            &none,
        ),
        daemon_set(
            "nvidia-dcgm-exporter",
            "dcgm-exporter",
            "x/dcgm-exporter:4",
            &["toolkit-validation"],
            &json!({ "ports": [{ "containerPort": 9400 }] }),
        ),
    ] {
        lab.apply(&manifest).await?;
    }
    let api: Api<Node> = Api::all(lab.client());
    let keys = [
        "driver",
        "container-toolkit",
        "device-plugin",
        "gpu-feature-discovery",
        "operator-validator",
        "dcgm-exporter",
        "dcgm",
        "mig-manager",
    ];
    let labels: serde_json::Map<_, _> = keys
        .iter()
        .map(|key| (format!("nvidia.com/gpu.deploy.{key}"), json!("true")))
        .collect();
    for node in api.list(&ListParams::default().labels("type=kwok")).await? {
        api.patch(
            &node.name_any(),
            &PatchParams::default(),
            &Patch::Merge(json!({ "metadata": { "labels": labels } })),
        )
        .await?;
    }
    Ok(())
}

async fn pods(lab: &Lab) -> Result<Vec<Pod>, String> {
    let api: Api<Pod> = Api::namespaced(lab.client(), "default");
    Ok(api
        .list(&ListParams::default())
        .await
        .map_err(|error| error.to_string())?
        .items)
}

fn describe(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let statuses = status
        .init_container_statuses
        .into_iter()
        .chain(status.container_statuses)
        .flatten();
    let states: Vec<String> = statuses
        .map(|status| {
            format!(
                "{}={}",
                status.name,
                serde_json::to_string(&status.state).unwrap_or_default()
            )
        })
        .collect();
    format!("{} {:?} {}", pod.name_any(), status.phase, states.join(" "))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .clone()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn all_ready(lab: &Lab, count: usize) -> anyhow::Result<()> {
    lab.wait_for("all operand pods are ready", PATIENCE, || async {
        let pods = pods(lab).await?;
        let waiting: Vec<String> = pods
            .iter()
            .filter(|pod| !is_ready(pod))
            .map(describe)
            .collect();
        if pods.len() == count && waiting.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "{} of {count} pods, waiting: {waiting:#?}",
                pods.len()
            ))
        }
    })
    .await
}

async fn node(lab: &Lab, name: &str) -> Result<Node, String> {
    Api::<Node>::all(lab.client())
        .get(name)
        .await
        .map_err(|error| error.to_string())
}

fn allocatable(node: &Node, resource: &str) -> String {
    let map = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.clone())
        .unwrap_or_default();
    map.get(resource)
        .map_or_else(String::new, |quantity| quantity.0.clone())
}

async fn annotate(lab: &Lab, node: &str, key: &str, value: Option<&str>) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(lab.client());
    api.patch(
        node,
        &PatchParams::default(),
        &Patch::Merge(json!({ "metadata": { "annotations": { key: value } } })),
    )
    .await?;
    Ok(())
}

async fn until_ready_is(lab: &Lab, name: &str, want: &str) -> anyhow::Result<()> {
    lab.wait_for(&format!("{name} is Ready={want}"), PATIENCE, || async {
        let node = node(lab, name).await?;
        let conditions = node
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let ready: Vec<&str> = conditions
            .filter(|c| c.type_ == "Ready")
            .map(|c| c.status.as_str())
            .collect();
        if ready == [want] {
            Ok(())
        } else {
            Err(format!("{ready:?}"))
        }
    })
    .await
}

async fn until_allocatable(
    lab: &Lab,
    name: &str,
    resource: &str,
    want: &str,
) -> anyhow::Result<()> {
    lab.wait_for(
        &format!("{name} has {want} {resource}"),
        PATIENCE,
        || async {
            let node = node(lab, name).await?;
            let have = allocatable(&node, resource);
            if have == want {
                Ok(())
            } else {
                Err(format!("it has {have:?}, labels {:?}", node.labels()))
            }
        },
    )
    .await
}

#[tokio::test]
async fn operands_become_ready_and_the_node_shows_it() -> anyhow::Result<()> {
    let lab = Lab::bare("gpusim", nodes::gpu_nodes(2), |_| {}).await?;
    install(&lab).await?;
    lab.wait_for("a pod waits in its init container", PATIENCE, || async {
        let pods = pods(&lab).await?;
        let seen = pods.iter().any(|pod| {
            pod.name_any().starts_with("nvidia-device-plugin")
                && describe(pod).contains("PodInitializing")
        });
        if seen {
            Ok(())
        } else {
            Err(pods.iter().map(describe).collect::<Vec<_>>().join("\n"))
        }
    })
    .await?;
    all_ready(&lab, 12).await?;
    until_allocatable(&lab, "gpu-00000", "nvidia.com/gpu", "32").await?;
    lab.wait_for("feature labels", PATIENCE, || async {
        let labels = node(&lab, "gpu-00001").await?.labels().clone();
        let product = labels.get("nvidia.com/gpu.product").map(String::as_str);
        if product == Some("NVIDIA-H100-80GB-HBM3-SHARED") {
            Ok(())
        } else {
            Err(format!("{labels:?}"))
        }
    })
    .await?;

    // A card falls off the bus; the plugin takes it back only when it is restarted.
    annotate(&lab, "gpu-00000", "sim.tessera.dev/xid", Some("3:79")).await?;
    until_allocatable(&lab, "gpu-00000", "nvidia.com/gpu", "28").await?;
    let text = scrape(&lab, "gpu-00000").await?;
    assert!(
        text.contains("DCGM_FI_DEV_XID_ERRORS{gpu=\"3\"") && text.contains("} 79\n"),
        "{text}"
    );
    annotate(&lab, "gpu-00000", "sim.tessera.dev/xid", None).await?;
    let plugins = "app=nvidia-device-plugin-daemonset";
    lab.kubectl_ok(&[
        "delete",
        "pod",
        "-l",
        plugins,
        "--field-selector",
        "spec.nodeName=gpu-00000",
    ])
    .await?;
    until_allocatable(&lab, "gpu-00000", "nvidia.com/gpu", "32").await?;

    // A dead kubelet, and its return.
    annotate(&lab, "gpu-00001", "sim.tessera.dev/not-ready", Some("true")).await?;
    until_ready_is(&lab, "gpu-00001", "Unknown").await?;
    annotate(&lab, "gpu-00001", "sim.tessera.dev/not-ready", None).await?;
    until_ready_is(&lab, "gpu-00001", "True").await?;

    // Faults come and go.
    annotate(
        &lab,
        "gpu-00001",
        "sim.tessera.dev/nvidia-dcgm-exporter",
        Some("crash"),
    )
    .await?;
    lab.wait_for("a crash loop", PATIENCE, || async {
        let text = pods(&lab)
            .await?
            .iter()
            .map(describe)
            .collect::<Vec<_>>()
            .join("\n");
        if text.contains("CrashLoopBackOff") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await?;
    annotate(
        &lab,
        "gpu-00001",
        "sim.tessera.dev/nvidia-dcgm-exporter",
        None,
    )
    .await?;
    all_ready(&lab, 12).await?;

    lab.kubectl_ok(&[
        "delete",
        "daemonset",
        "nvidia-device-plugin-daemonset",
        "gpu-feature-discovery",
    ])
    .await?;
    until_allocatable(&lab, "gpu-00001", "nvidia.com/gpu", "0").await?;
    lab.wait_for("feature labels go", PATIENCE, || async {
        let labels = node(&lab, "gpu-00001").await?.labels().clone();
        if labels.contains_key("nvidia.com/gpu.product") {
            Err(format!("{labels:?}"))
        } else {
            Ok(())
        }
    })
    .await
}

#[tokio::test]
async fn a_new_driver_pauses_the_others_and_mig_follows_its_protocol() -> anyhow::Result<()> {
    let lab = Lab::bare("gpusim-pause", nodes::gpu_nodes(1), |_| {}).await?;
    install(&lab).await?;
    lab.apply(&daemon_set(
        "nvidia-mig-manager",
        "mig-manager",
        "x/k8s-mig-manager:v1",
        &["toolkit-validation"],
        &json!({}),
    ))
    .await?;
    all_ready(&lab, 7).await?;

    let set = "daemonset/nvidia-driver-daemonset";
    lab.kubectl_ok(&[
        "set",
        "image",
        set,
        "main=nvcr.io/nvidia/driver:550.90.07-ubuntu22.04",
    ])
    .await?;
    lab.kubectl_ok(&[
        "delete",
        "pod",
        "-l",
        "app=nvidia-driver-daemonset",
        "--wait=false",
    ])
    .await?;
    until_allocatable(&lab, "gpu-00000", "nvidia.com/gpu", "0").await?;
    until_allocatable(&lab, "gpu-00000", "nvidia.com/gpu", "32").await?;
    all_ready(&lab, 7).await?;
    let version = node(&lab, "gpu-00000")
        .await
        .map_err(anyhow::Error::msg)?
        .labels()
        .get("nvidia.com/cuda.driver-version.full")
        .cloned();
    assert_eq!(version.as_deref(), Some("550.90.07"));

    lab.kubectl_ok(&[
        "set",
        "env",
        "daemonset/nvidia-device-plugin-daemonset",
        "MIG_STRATEGY=mixed",
    ])
    .await?;
    lab.kubectl_ok(&["delete", "pod", "-l", "app=nvidia-device-plugin-daemonset"])
        .await?;
    lab.kubectl_ok(&[
        "label",
        "node",
        "gpu-00000",
        "nvidia.com/mig.config=all-1g.10gb",
    ])
    .await?;
    until_allocatable(&lab, "gpu-00000", "nvidia.com/mig-1g.10gb", "56").await?;
    let labels = node(&lab, "gpu-00000")
        .await
        .map_err(anyhow::Error::msg)?
        .labels()
        .clone();
    assert_eq!(
        labels
            .get("nvidia.com/mig.config.state")
            .map(String::as_str),
        Some("success")
    );
    assert!(
        labels.values().all(|value| !value.contains("paused")),
        "{labels:?}"
    );
    Ok(())
}

async fn scrape(lab: &Lab, node: &str) -> anyhow::Result<String> {
    let pods = pods(lab).await.map_err(anyhow::Error::msg)?;
    let on_node =
        |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    let exporter = pods
        .iter()
        .filter(on_node)
        .find(|pod| pod.name_any().starts_with("nvidia-dcgm-exporter"));
    let ip = exporter
        .and_then(|pod| pod.status.as_ref()?.pod_ip.clone())
        .unwrap_or_default();
    tessera_e2e::http_get(&format!("{ip}:9400"), "/metrics").await
}
