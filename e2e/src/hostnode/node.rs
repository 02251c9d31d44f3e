//! The Node object of this machine.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::lab::LAB_HOST;

/// Creates Node `lab-host`: a Linux server without GPUs, big enough for every Deployment of the charts.
pub(super) async fn create(client: &Client, port: u16) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": LAB_HOST,
            "labels": {
                "kubernetes.io/hostname": LAB_HOST,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node-role.kubernetes.io/control-plane": "",
                "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
                "feature.node.kubernetes.io/system-os_release.VERSION_ID": "22.04",
            },
        },
    }))?;
    api.create(&PostParams::default(), &node).await?;
    let now = jiff::Timestamp::now().to_string();
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "reason": "LabAgent", "message": "played by the lab", "lastHeartbeatTime": now, "lastTransitionTime": now });
    let resources =
        json!({ "cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "200Gi" });
    let status = json!({ "status": {
        "capacity": resources,
        "allocatable": resources,
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }, { "type": "Hostname", "address": LAB_HOST }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
        "conditions": [
            condition("MemoryPressure", "False"),
            condition("DiskPressure", "False"),
            condition("PIDPressure", "False"),
            condition("Ready", "True"),
        ],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "Ubuntu 22.04.5 LTS", "kernelVersion": "5.15.0-117-generic",
            "containerRuntimeVersion": "containerd://1.7.27", "kubeletVersion": crate::controlplane::KUBERNETES_VERSION, "kubeProxyVersion": "",
            "bootID": "lab", "machineID": "lab", "systemUUID": "lab",
        },
    }});
    api.patch_status(LAB_HOST, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}
