//! The rights that this process needs; charts are generated from them.

use tessera_api::names::controller::DEVICE_PLUGIN as NAME;
use tessera_runtime::rbac::{Rights, process_rights, rule};

/// All of them.
pub fn rights() -> Rights {
    process_rights(NAME)
        // `get` is the fresh read after a conflict of the status writer.
        .cluster(rule(
            "nvidia.com",
            &["clusterpolicies"],
            &["get", "list", "watch"],
        ))
        .cluster(rule("nvidia.com", &["clusterpolicies/status"], &["patch"]))
        // Labels, when no driver-controller writes them.
        .cluster(rule("", &["nodes"], &["list", "watch", "patch"]))
        .namespaced(rule(
            "apps",
            &["daemonsets"],
            &["list", "watch", "create", "patch", "delete"],
        ))
        // Own ones, and those of the user that the policy names.
        .namespaced(rule(
            "",
            &["configmaps"],
            &["list", "watch", "create", "patch", "delete"],
        ))
        .namespaced(rule("", &["pods"], &["list", "watch"]))
}
