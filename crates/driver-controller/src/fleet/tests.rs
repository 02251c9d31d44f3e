use super::*;
use crate::testing::{labelled, node, policy};
use k8s_openapi::api::core::v1::Taint;
use serde_json::json;

fn place(node: &NodeFacts) -> Placement {
    Placement::of(node, &policy(json!({}))).unwrap()
}

#[test]
fn a_usual_node_needs_no_label_of_ours() {
    let placement = place(&node("a"));
    assert_eq!(placement.labels, BTreeMap::new());
    assert_eq!(placement.exceptions, []);
    assert_eq!(placement.toolkit, Some(ToolkitPool::Containerd));
    let DriverPlace::Pool(pool) = placement.driver else {
        panic!("no pool")
    };
    assert_eq!(pool.daemon_set(), "nvidia-driver-daemonset-ubuntu22.04");
}

#[test]
fn a_nodes_own_wish_decides() {
    let cases = [
        (
            label::DEPLOY_DRIVER,
            "pre-installed",
            DriverPlace::Host,
            true,
        ),
        (label::DEPLOY_DRIVER, "false", DriverPlace::Off, true),
        (
            label::DEPLOY_DRIVER,
            "paused-for-driver-upgrade",
            place(&node("a")).driver,
            true,
        ),
        (label::DEPLOY_OPERANDS, "false", DriverPlace::Off, false),
        (
            label::DEPLOY_TOOLKIT,
            "false",
            place(&node("a")).driver,
            false,
        ),
    ];
    for (key, value, driver, toolkit) in cases {
        let placement = place(&labelled("a", key, value));
        assert_eq!(placement.driver, driver, "{key}={value}");
        assert_eq!(placement.toolkit.is_some(), toolkit, "{key}={value}");
    }
}

#[test]
fn readiness_never_matters() {
    let mut down = node("a");
    (down.ready, down.unschedulable) = (false, true);
    assert_eq!(place(&down), place(&node("a")));
}

#[test]
fn what_keeps_operands_away_is_named() {
    let mut tainted = node("a");
    tainted.taints = vec![Taint {
        key: "team".to_owned(),
        value: Some("x".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    }];
    let mut unknown = node("b");
    (unknown.os, unknown.os_image) = (None, "Weird 1".to_owned());
    let mut odd = node("c");
    odd.runtime.name = "rkt".to_owned();
    let cases = [
        (
            tainted,
            Reason::TaintsNotTolerated,
            "taint team=x:NoSchedule is not tolerated",
        ),
        (
            unknown,
            Reason::UnknownOperatingSystem,
            "operating system \"Weird 1\" is not known",
        ),
        (
            odd,
            Reason::UnsupportedRuntime,
            "container runtime rkt is not supported",
        ),
    ];
    for (node, reason, text) in cases {
        let exceptions = place(&node).exceptions;
        assert_eq!(exceptions.len(), 1, "{exceptions:?}");
        assert_eq!(exceptions[0].0, reason);
        assert!(exceptions[0].1.starts_with(text), "{exceptions:?}");
    }
}

#[test]
fn counting_node_by_node_equals_counting_all() {
    let policy = policy(json!({}));
    let mut ubuntu24 = labelled("c", label::NFD_OS_VERSION, "24.04");
    ubuntu24.os.as_mut().unwrap().version = "24.04".to_owned();
    let nodes = [
        node("a"),
        labelled("b", label::DEPLOY_DRIVER, "pre-installed"),
        ubuntu24,
        NodeFacts::default(),
    ];
    let mut fleet = Fleet::default();
    for node in &nodes {
        fleet.set(&node.name, Placement::of(node, &policy));
    }
    assert!(
        !fleet.set("a", Placement::of(&node("a"), &policy)),
        "nothing has changed"
    );
    let mut again = Fleet::default();
    again.rebuild(
        nodes
            .iter()
            .filter_map(|node| Some((node.name.clone(), Placement::of(node, &policy)?))),
    );
    assert_eq!(fleet.census(), again.census());
    let census = fleet.census();
    assert_eq!(
        (
            census.gpu_nodes,
            census.host_driver.len(),
            census.drivers.len()
        ),
        (3, 1, 2)
    );
    assert_eq!(census.toolkits.get(&ToolkitPool::Containerd), Some(&3));
    for node in &nodes {
        fleet.set(&node.name, None);
    }
    assert_eq!(*fleet.census(), Census::default());
}
