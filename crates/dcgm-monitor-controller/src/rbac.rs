//! The rights that the code needs; the chart is generated from them.

use tessera_runtime::rbac::{Rights, named_rule, process_rights, rule};

use crate::service_monitor;

/// What an owned kind takes: the watch, server-side apply, pruning.
const OWN: [&str; 5] = ["list", "watch", "create", "patch", "delete"];
/// What a watch takes.
const WATCH: [&str; 2] = ["list", "watch"];

/// Rights of the dcgm-monitor-controller.
pub fn rights() -> Rights {
    process_rights(crate::NAME)
        // `get` is the fresh read after a conflict of the status writer.
        .cluster(rule(
            "nvidia.com",
            &["clusterpolicies"],
            &["get", "list", "watch"],
        ))
        .cluster(rule("nvidia.com", &["clusterpolicies/status"], &["patch"]))
        .cluster(rule("", &["nodes"], &["list", "watch", "patch"]))
        .cluster(named_rule(
            "apiextensions.k8s.io",
            &["customresourcedefinitions"],
            &[service_monitor::CRD],
            &WATCH,
        ))
        .namespaced(rule("apps", &["daemonsets"], &OWN))
        .namespaced(rule("", &["configmaps", "services"], &OWN))
        .namespaced(rule("", &["pods"], &WATCH))
        .namespaced(rule("monitoring.coreos.com", &["servicemonitors"], &OWN))
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_wildcard_no_secret_no_foreign_rbac() {
        let rights = super::rights();
        for rule in rights.cluster.iter().chain(&rights.namespaced) {
            let resources = rule.resources.clone().unwrap_or_default();
            let all = [
                rule.verbs.clone(),
                resources.clone(),
                rule.api_groups.clone().unwrap_or_default(),
            ]
            .concat();
            assert!(!all.iter().any(|text| text == "*"), "{rule:?}");
            assert!(
                !resources
                    .iter()
                    .any(|r| r.contains("secrets") || r.contains("roles") || r.contains("exec")),
                "{rule:?}"
            );
        }
    }
}
