//! The rights that this process needs; charts are generated from them.

use tessera_api::names::controller::DEVICE_PLUGIN as NAME;
use tessera_runtime::rbac::{Rights, process_rights, rule};

/// All of them.
pub fn rights() -> Rights {
    process_rights(NAME)
        .cluster(rule(
            "nvidia.com",
            &["clusterpolicies"],
            &["get", "list", "watch"],
        ))
        .cluster(rule("nvidia.com", &["clusterpolicies/status"], &["patch"]))
        // Labels, when no driver-controller writes them.
        .cluster(rule("", &["nodes"], &["get", "list", "watch", "patch"]))
        .namespaced(rule(
            "apps",
            &["daemonsets"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ))
        // Own ones, and those of the user that the policy names.
        .namespaced(rule(
            "",
            &["configmaps"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ))
        .namespaced(rule("", &["pods"], &["get", "list", "watch"]))
}
