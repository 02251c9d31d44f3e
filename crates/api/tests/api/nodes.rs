//! GPU nodes and their labels.

use k8s_openapi::{
    api::core::v1::{Node, NodeStatus, NodeSystemInfo},
    apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry},
};
use serde_json::json;
use tessera_api::{
    NodeFacts,
    names::{NODE_LABELS_MANAGER, label},
    nodes::{desired_labels, is_gpu_node, is_mig_capable},
};

use crate::effective;

fn node(labels: &[(&str, &str)]) -> NodeFacts {
    NodeFacts {
        name: "n".into(),
        labels: labels
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect(),
        ..NodeFacts::default()
    }
}

fn owning(mut node: NodeFacts, keys: &[&str]) -> NodeFacts {
    node.owned_labels = keys.iter().map(|k| (*k).to_owned()).collect();
    node
}

const PCI: (&str, &str) = ("feature.node.kubernetes.io/pci-10de.present", "true");

#[test]
fn gpu_nodes_by_selector_then_nfd_then_label() {
    let (any, selected) = (
        effective("{}"),
        effective("nodeSelector: {gpu: 'true', pool: a}"),
    );
    assert!(is_gpu_node(&node(&[PCI]), &any));
    assert!(is_gpu_node(
        &node(&[("feature.node.kubernetes.io/pci-0302_10de.present", "true")]),
        &any
    ));
    assert!(is_gpu_node(&node(&[(label::GPU_PRESENT, "true")]), &any));
    assert!(
        !is_gpu_node(
            &owning(node(&[(label::GPU_PRESENT, "true")]), &[label::GPU_PRESENT]),
            &any
        ),
        "our own label is no evidence"
    );
    assert!(!is_gpu_node(&node(&[]), &any));
    assert!(!is_gpu_node(&node(&[PCI]), &selected));
    assert!(is_gpu_node(
        &node(&[("gpu", "true"), ("pool", "a")]),
        &selected
    ));
    assert!(!is_gpu_node(&node(&[("gpu", "true")]), &selected));
}

#[test]
fn a_new_node_gets_what_the_policy_enables() {
    let change = desired_labels(
        &node(&[PCI]),
        Some(&effective("gfd: {enabled: false}\ndcgm: {enabled: true}")),
    );
    assert!(change.needed);
    let keys: Vec<&str> = change.apply.keys().map(String::as_str).collect();
    let want = [
        "nvidia.com/gpu.deploy.client",
        "nvidia.com/gpu.deploy.container-toolkit",
        "nvidia.com/gpu.deploy.dcgm",
        "nvidia.com/gpu.deploy.dcgm-exporter",
        "nvidia.com/gpu.deploy.device-plugin",
        "nvidia.com/gpu.deploy.driver",
        "nvidia.com/gpu.deploy.operator-validator",
        "nvidia.com/gpu.present",
    ];
    assert_eq!(keys, want);
    assert!(change.apply.values().all(|v| v == "true"));
}

#[test]
fn labels_that_are_as_wanted_need_no_write() {
    let policy = effective("{}");
    let first = desired_labels(&node(&[PCI]), Some(&policy)).apply;
    let mut labelled = node(&[PCI]);
    labelled.labels.extend(first.clone());
    labelled.owned_labels = first.keys().cloned().collect();
    let again = desired_labels(&labelled, Some(&policy));
    assert_eq!((again.apply, again.needed), (first, false));
    let cpu = desired_labels(&node(&[]), Some(&policy));
    assert!(cpu.apply.is_empty() && !cpu.needed);
}

#[test]
fn other_values_are_wishes() {
    let policy = effective("{}");
    let wishes = [
        (label::DEPLOY_DRIVER, "pre-installed"),
        (label::DEPLOY_DEVICE_PLUGIN, "paused-for-driver-upgrade"),
        (label::DEPLOY_GFD, "false"),
        (label::DEPLOY_DCGM_EXPORTER, "true"),
        (label::DEPLOY_VALIDATOR, ""),
        PCI,
    ];
    let change = desired_labels(&node(&wishes), Some(&policy));
    for key in [
        label::DEPLOY_DRIVER,
        label::DEPLOY_DEVICE_PLUGIN,
        label::DEPLOY_GFD,
        label::DEPLOY_DCGM_EXPORTER,
    ] {
        assert!(!change.apply.contains_key(key), "{key}");
    }
    assert!(
        change.apply.contains_key(label::DEPLOY_VALIDATOR),
        "empty is absent"
    );
    assert!(change.replaces, "somebody else owns the empty value");
    assert!(change.apply.contains_key(label::DEPLOY_TOOLKIT));
    assert!(!desired_labels(&node(&[PCI]), Some(&policy)).replaces);
}

#[test]
fn what_is_no_longer_wanted_goes_if_it_is_ours() {
    let ours = owning(
        node(&[
            PCI,
            (label::DEPLOY_DCGM, "true"),
            (label::GPU_PRESENT, "true"),
        ]),
        &[label::DEPLOY_DCGM, label::GPU_PRESENT],
    );
    let change = desired_labels(&ours, Some(&effective("dcgm: {enabled: false}")));
    assert!(
        change.needed
            && !change.apply.contains_key(label::DEPLOY_DCGM)
            && change.apply.contains_key(label::GPU_PRESENT)
    );
    let gone = desired_labels(&ours, None);
    assert!(gone.needed && gone.apply.is_empty());
    let foreign = node(&[PCI, (label::DEPLOY_DCGM, "true")]);
    assert!(!desired_labels(&foreign, None).needed);
}

#[test]
fn a_node_without_operands_keeps_only_its_presence() {
    let change = desired_labels(
        &node(&[PCI, (label::DEPLOY_OPERANDS, "false")]),
        Some(&effective("{}")),
    );
    assert_eq!(
        change.apply.into_keys().collect::<Vec<_>>(),
        [label::GPU_PRESENT]
    );
}

#[test]
fn mig_manager_only_where_cards_can_do_it() {
    let cases = [
        (vec![(label::GPU_PRODUCT, "NVIDIA-H100-80GB-HBM3")], true),
        (vec![(label::GPU_PRODUCT, "NVIDIA-H200")], true),
        (vec![(label::GPU_PRODUCT, "NVIDIA-GB200")], true),
        (
            vec![(
                label::GPU_PRODUCT,
                "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
            )],
            true,
        ),
        (
            vec![(label::GPU_PRODUCT, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb")],
            true,
        ),
        (vec![(label::GPU_PRODUCT, "Tesla-T4")], false),
        (vec![(label::GPU_PRODUCT, "NVIDIA-L40S")], false),
        (vec![(label::GPU_PRODUCT, "NVIDIA-A10")], false),
        (
            vec![
                (label::GPU_PRODUCT, "NVIDIA-H100-PCIe"),
                (label::MIG_CAPABLE, "false"),
            ],
            false,
        ),
        (vec![(label::MIG_CAPABLE, "true")], true),
        (vec![], false),
    ];
    for (mut labels, want) in cases {
        assert_eq!(is_mig_capable(&node(&labels)), want, "{labels:?}");
        labels.push(PCI);
        let change = desired_labels(&node(&labels), Some(&effective("{}")));
        assert_eq!(change.apply.contains_key(label::DEPLOY_MIG_MANAGER), want);
    }
}

fn whole_node() -> Node {
    let fields = json!({"f:metadata": {"f:labels": {"f:nvidia.com/gpu.present": {}, "f:nvidia.com/gpu.deploy.driver": {}}}});
    let entry = |manager: &str, operation: &str| ManagedFieldsEntry {
        manager: Some(manager.into()),
        operation: Some(operation.into()),
        fields_v1: Some(FieldsV1(fields.clone())),
        ..ManagedFieldsEntry::default()
    };
    let mut node = Node::default();
    node.metadata.name = Some("gpu-1".into());
    node.metadata.managed_fields = Some(vec![
        entry("kubelet", "Update"),
        entry(NODE_LABELS_MANAGER, "Apply"),
    ]);
    let labels = [
        ("feature.node.kubernetes.io/cpu-cpuid.AVX", "true"),
        ("gpu", "true"),
        PCI,
    ];
    node.metadata.labels = Some(
        labels
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect(),
    );
    let resources: std::collections::BTreeMap<_, _> =
        serde_json::from_value(json!({"cpu": "112", "nvidia.com/gpu": "8"})).expect("resources");
    node.status = Some(NodeStatus {
        capacity: Some(resources.clone()),
        allocatable: Some(resources),
        conditions: serde_json::from_value(json!([
            {"type": "Ready", "status": "True", "message": "m"}, {"type": "DiskPressure", "status": "False"}
        ]))
        .expect("conditions"),
        node_info: Some(NodeSystemInfo {
            os_image: "Ubuntu 22.04.4 LTS".into(),
            kernel_version: "5.15.0-117-generic".into(),
            container_runtime_version: "containerd://1.7.27-k3s1".into(),
            kubelet_version: "v1.33.1+k3s1".into(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    });
    node
}

#[test]
fn facts_of_a_node() {
    let node = whole_node();
    let facts = NodeFacts::from_node(&node);
    assert!(facts.ready);
    assert_eq!(
        facts
            .owned_labels
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        [label::DEPLOY_DRIVER, label::GPU_PRESENT]
    );
    assert_eq!(facts.labels.len(), 2);
    assert_eq!(
        (facts.runtime.name.as_str(), facts.runtime.version.as_str()),
        ("containerd", "1.7.27-k3s1")
    );
    assert_eq!(
        facts
            .os
            .as_ref()
            .map(tessera_api::image::OsRelease::tag)
            .as_deref(),
        Some("ubuntu22.04")
    );
    assert_eq!(facts.capacity, [("nvidia.com/gpu".to_owned(), 8)].into());
}

#[test]
fn a_heartbeat_changes_no_more_than_the_version() {
    let facts = NodeFacts::from_node(&whole_node());
    let changed = |change: fn(&mut NodeFacts)| {
        let mut other = facts.clone();
        change(&mut other);
        facts.same_but_version(&other)
    };
    assert!(changed(|node| node.resource_version = "8".into()));
    let matters: [fn(&mut NodeFacts); 4] = [
        |node| node.labels.clear(),
        |node| node.unschedulable = true,
        |node| node.kernel.clear(),
        |node| node.allocatable.clear(),
    ];
    for (index, change) in matters.into_iter().enumerate() {
        assert!(!changed(change), "{index}");
    }
}

#[test]
fn operating_systems_from_words() {
    let cases = [
        ("Ubuntu 24.04.1 LTS", "ubuntu24.04"),
        ("Red Hat Enterprise Linux 9.4 (Plow)", "rhel9"),
        ("Rocky Linux 8.10 (Green Obsidian)", "rocky8"),
        ("SUSE Linux Enterprise Server 15 SP5", "sles15.5"),
        ("Debian GNU/Linux 12 (bookworm)", "debian12"),
    ];
    for (os_image, want) in cases {
        let mut node = whole_node();
        if let Some(info) = node.status.as_mut().and_then(|s| s.node_info.as_mut()) {
            info.os_image = os_image.into();
        }
        assert_eq!(
            NodeFacts::from_node(&node).os.map(|os| os.tag()).as_deref(),
            Some(want),
            "{os_image}"
        );
    }
    let mut node = whole_node();
    if let Some(info) = node.status.as_mut().and_then(|s| s.node_info.as_mut()) {
        info.os_image = "Talos (v1.8.0)".into();
    }
    assert_eq!(NodeFacts::from_node(&node).os, None);
}
