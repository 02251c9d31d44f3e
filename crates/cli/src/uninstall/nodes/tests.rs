//! What goes of a node, and what stays.

use super::*;
use tessera_api::ownership;

fn node(value: Value) -> Node {
    serde_json::from_value(value).unwrap()
}

fn operation(value: Value) -> NodeOperation {
    serde_json::from_value(value).unwrap()
}

fn all() -> Owners {
    Owners::new(&super::super::CONTROLLERS.map(str::to_owned), false)
}

fn labelled() -> Value {
    json!({
        "metadata": {
            "name": "gpu-1",
            "labels": {
                "kubernetes.io/hostname": "gpu-1", "nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true",
                "nvidia.com/gpu.deploy.dcgm": "false", "nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"
            },
            "annotations": {"aiops.local/skip": "true"},
            "managedFields": [
                {"manager": "node-labels.aiops.local", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": {
                    "f:nvidia.com/gpu.present": {}, "f:nvidia.com/gpu.deploy.driver": {}}}}},
                {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {
                    "f:nvidia.com/gpu.deploy.dcgm": {}}, "f:annotations": {"f:aiops.local/skip": {}}}}}
            ]
        }
    })
}

#[test]
fn only_our_own_labels_and_stale_pauses_go() {
    let cleanup = NodeCleanup::of(&node(labelled()), None, &all()).unwrap();
    let labels: Vec<&str> = cleanup.labels.iter().map(String::as_str).collect();
    assert_eq!(
        labels,
        [
            "nvidia.com/gpu.deploy.device-plugin",
            "nvidia.com/gpu.deploy.driver",
            "nvidia.com/gpu.present"
        ]
    );
    assert!(cleanup.annotations.is_empty() && !cleanup.uncordon);
}

#[test]
fn labels_that_a_driver_upgrade_gave_back_go_too() {
    let keys = ["nvidia.com/gpu.deploy.dcgm", "nvidia.com/gpu.deploy.gfd"];
    let upgraded = |manager: &str| {
        let owned = ["nvidia.com/mig.config.state", keys[0], keys[1]];
        let owned: Map<_, _> = owned
            .map(|key| (format!("f:{key}"), json!({})))
            .into_iter()
            .collect();
        node(json!({"metadata": {"name": "gpu-1",
            "labels": {keys[0]: "true", keys[1]: "false", "nvidia.com/mig.config.state": "success"},
            "managedFields": [{"manager": manager, "operation": "Update",
                "fieldsV1": {"f:metadata": {"f:labels": owned}}}]}}))
    };
    let cleanup = NodeCleanup::of(&upgraded("k8s-driver-manager"), None, &all()).unwrap();
    assert_eq!(cleanup.labels, BTreeSet::from([keys[0].to_owned()]));
    assert_eq!(NodeCleanup::of(&upgraded("kubectl"), None, &all()), None);
}

/// Every label and annotation of nodes in the ownership table, with the manager that writes it.
fn owned_by_table() -> Vec<(&'static str, String, String)> {
    let parts = ownership::TABLE
        .iter()
        .flat_map(|entry| entry.parts.iter().map(move |part| (entry, part)));
    let found = parts
        .filter(|(_, part)| part.on == "Node")
        .filter_map(|(entry, part)| {
            let (what, key) = part.path.strip_prefix("metadata.")?.split_once('[')?;
            let key = key.trim_end_matches(']').replace('*', "driver");
            let what = if what == "labels" {
                "labels"
            } else {
                "annotations"
            };
            Some((what, key, entry.field_manager.to_owned()))
        });
    found.collect()
}

#[test]
fn all_that_the_ownership_table_names_goes_unless_somebody_else_set_it() {
    let owned = owned_by_table();
    for wanted in [
        label::MIG_CONFIG,
        annotation::UPGRADE_ENABLED,
        label::UPGRADE_STATE,
    ] {
        assert!(owned.iter().any(|(_, key, _)| key == wanted), "{wanted}");
    }
    for (what, key, manager) in owned {
        let by = |manager: &str| {
            let fields = json!({"f:metadata": {format!("f:{what}"): {format!("f:{key}"): {}}}});
            node(
                json!({"metadata": {"name": "gpu-1", what: {key.clone(): "true"},
                "managedFields": [{"manager": manager, "operation": "Update", "fieldsV1": fields}]}}),
            )
        };
        let cleanup = NodeCleanup::of(&by(&manager), None, &all()).unwrap();
        let gone = if what == "labels" {
            &cleanup.labels
        } else {
            &cleanup.annotations
        };
        assert!(gone.contains(&key), "{key} of {manager}");
        assert_eq!(
            NodeCleanup::of(&by("kubectl-label"), None, &all()),
            None,
            "{key}"
        );
    }
}

#[test]
fn shared_labels_stay_while_another_gpu_controller_needs_them() {
    let one = Owners::new(&[controller::DCGM_MONITOR.to_owned()], true);
    assert_eq!(NodeCleanup::of(&node(labelled()), None, &one), None);
}

#[test]
fn a_node_without_our_marks_is_not_touched() {
    let plain = node(
        json!({"metadata": {"name": "cpu-1", "labels": {"nvidia.com/gpu.present": "true"}}, "spec": {"unschedulable": true}}),
    );
    assert_eq!(NodeCleanup::of(&plain, None, &all()), None);
}

#[test]
fn a_cordon_is_undone_only_where_it_was_ours() {
    let cordoned = node(json!({"metadata": {"name": "gpu-1"}, "spec": {"unschedulable": true}}));
    let status = |found: bool| {
        operation(
            json!({"apiVersion": "aiops.local/v1alpha1", "kind": "NodeOperation", "metadata": {"name": "gpu-1"}, "status": {
            "operation": "DriverUpgrade", "holder": "driver-controller", "phase": "Failed",
            "found": {"cordonedBefore": found}, "undo": [{"act": "Uncordon"}]}}),
        )
    };
    assert!(
        NodeCleanup::of(&cordoned, Some(&status(false)), &all())
            .unwrap()
            .uncordon
    );
    assert_eq!(
        NodeCleanup::of(&cordoned, Some(&status(true)), &all()),
        None
    );
    let others = Owners::new(&[controller::SREAGENT.to_owned()], true);
    assert_eq!(
        NodeCleanup::of(&cordoned, Some(&status(false)), &others),
        None
    );
}

#[test]
fn a_marked_cordon_is_undone_without_an_operation() {
    let marked = node(
        json!({"metadata": {"name": "gpu-1", "annotations": {"aiops.local/cordoned-by": "DriverUpgrade"},
        "managedFields": [{"manager": "driver-controller.aiops.local", "operation": "Update",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:aiops.local/cordoned-by": {}}}}}]},
        "spec": {"unschedulable": true}}),
    );
    let cleanup = NodeCleanup::of(&marked, None, &all()).unwrap();
    assert!(cleanup.uncordon);
    assert_eq!(
        cleanup.patch(),
        json!({
        "metadata": {"labels": {}, "annotations": {"aiops.local/cordoned-by": null}}, "spec": {"unschedulable": null}})
    );
}

#[test]
fn agents_hold_operations_under_their_own_names() {
    let held = operation(
        json!({"apiVersion": "aiops.local/v1alpha1", "kind": "NodeOperation", "metadata": {"name": "gpu-1"},
        "status": {"holder": "sre-agent/default/gpu-monitor-agent"}}),
    );
    assert!(all().hold(&held));
    assert!(!Owners::new(&[controller::DRIVER.to_owned()], false).hold(&held));
}
