//! The rights that this controller needs.

use tessera_api::names::controller;
use tessera_runtime::rbac::{Rights, process_rights, rule};

/// All of them; the chart is generated from here.
pub fn rights() -> Rights {
    let write = ["list", "watch", "create", "patch", "delete"];
    process_rights(controller::DRIVER)
        // `get` is the fresh read after a conflict of the status writer.
        .cluster(rule(
            "nvidia.com",
            &["clusterpolicies"],
            &["get", "list", "watch"],
        ))
        .cluster(rule("nvidia.com", &["clusterpolicies/status"], &["patch"]))
        .cluster(rule("", &["nodes"], &["get", "list", "watch", "patch"]))
        .cluster(rule("node.k8s.io", &["runtimeclasses"], &write))
        .namespaced(rule("apps", &["daemonsets"], &write))
        .namespaced(rule("", &["configmaps"], &write))
        // Upgrades: the lock of a node, what uses GPUs there, evictions, and the driver and validator pods themselves.
        .cluster(rule(
            "aiops.local",
            &["nodeoperations"],
            &["list", "watch", "create", "delete"],
        ))
        .cluster(rule("aiops.local", &["nodeoperations/status"], &["update"]))
        .cluster(rule("", &["pods"], &["list"]))
        .cluster(rule("", &["pods/eviction"], &["create"]))
        .namespaced(rule("", &["pods"], &["list", "watch", "delete"]))
}
