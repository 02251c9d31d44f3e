//! The rights of the charts' hooks. The charts are generated from it.

use tessera_runtime::rbac::{Rights, named_rule, rule};

use crate::uninstall::{CONFIGURATIONS, CONTROLLERS, elects};
use tessera_api::names::admission::CA_SECRET;

/// Group of the foreign kinds that controllers create where they are known.
const MONITORING: &str = "monitoring.coreos.com";

/// Rights of the hook that runs `kubectl-tessera uninstall`.
///
/// Agents live in their SREAgents' namespaces, so what belongs to them needs cluster-wide rules. The account exists only
/// while the hook runs.
pub fn uninstall() -> Rights {
    let leases: Vec<&str> = CONTROLLERS
        .into_iter()
        .filter(|name| elects(name))
        .collect();
    Rights::new()
        .cluster(rule("", &["nodes"], &["list", "patch"]))
        .cluster(rule("", &["pods"], &["list"]))
        .cluster(rule("", &["serviceaccounts"], &["list", "delete"]))
        .cluster(rule("apps", &["deployments"], &["list", "delete"]))
        .cluster(rule(
            "rbac.authorization.k8s.io",
            &["clusterrolebindings", "rolebindings"],
            &["list", "delete"],
        ))
        .cluster(rule(
            "node.k8s.io",
            &["runtimeclasses"],
            &["list", "delete"],
        ))
        .cluster(rule(
            "aiops.local",
            &["nodeoperations"],
            &["list", "delete"],
        ))
        .cluster(rule("aiops.local", &["sreagents"], &["list", "patch"]))
        .cluster(rule("aiops.local", &["sreagents/status"], &["patch"]))
        .cluster(rule("nvidia.com", &["clusterpolicies"], &["list"]))
        .cluster(rule("nvidia.com", &["clusterpolicies/status"], &["patch"]))
        .cluster(named_rule(
            "admissionregistration.k8s.io",
            &[
                "mutatingwebhookconfigurations",
                "validatingwebhookconfigurations",
            ],
            &CONFIGURATIONS,
            &["delete"],
        ))
        .namespaced(named_rule("", &["secrets"], &[CA_SECRET], &["delete"]))
        .namespaced(rule("apps", &["deployments/scale"], &["patch"]))
        .namespaced(rule("apps", &["daemonsets"], &["list", "delete"]))
        .namespaced(rule("", &["configmaps", "services"], &["list", "delete"]))
        .namespaced(rule(
            MONITORING,
            &["prometheusrules", "servicemonitors"],
            &["list", "delete"],
        ))
        .namespaced(named_rule(
            "coordination.k8s.io",
            &["leases"],
            &leases,
            &["delete"],
        ))
}

/// Rights of the hook that runs `kubectl-tessera crds apply`: our own definitions only. `create` cannot be limited by name.
pub fn crds_apply(names: &[&str]) -> Rights {
    let (group, resources) = ("apiextensions.k8s.io", ["customresourcedefinitions"]);
    Rights::new()
        .cluster(rule(group, &resources, &["create"]))
        .cluster(named_rule(group, &resources, names, &["get", "patch"]))
}
