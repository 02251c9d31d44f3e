//! The rights of an agent, in three static ClusterRoles that the chart makes from this file:
//!
//! | ClusterRole | bound by | for |
//! |---|---|---|
//! | `tessera-sre-agent-observe` | ClusterRoleBinding, always | watching nodes, operations, exporters; events |
//! | `tessera-sre-agent-repair` | ClusterRoleBinding, only with `autoRepair` | holding, cordoning and releasing nodes |
//! | `tessera-sre-agent-own` | RoleBinding in the SREAgent's namespace | its Lease and its SREAgent's status |
//!
//! Lease and status stand in a role of their own because a ClusterRoleBinding of them would let every agent take any
//! controller's Lease.

use k8s_openapi::api::rbac::v1::PolicyRule;
use tessera_runtime::rbac::rule;

/// Name of the ClusterRole of [`observe`].
pub const OBSERVE: &str = "tessera-sre-agent-observe";
/// Name of the ClusterRole of [`repair`].
pub const REPAIR: &str = "tessera-sre-agent-repair";
/// Name of the ClusterRole of [`own`].
pub const OWN: &str = "tessera-sre-agent-own";

/// Watching, cluster-wide.
pub fn observe() -> Vec<PolicyRule> {
    vec![
        rule("", &["nodes", "pods"], &["list", "watch"]),
        rule("aiops.local", &["nodeoperations"], &["list", "watch"]),
        // Events on Nodes are in namespace default, those on SREAgents in theirs.
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

/// Acting on nodes, cluster-wide.
pub fn repair() -> Vec<PolicyRule> {
    vec![
        // get: a guarded write that met a conflict looks at the node anew.
        rule("", &["nodes"], &["get", "patch"]),
        rule("aiops.local", &["nodeoperations"], &["create", "delete"]),
        rule("aiops.local", &["nodeoperations/status"], &["update"]),
    ]
}

/// Its own Lease and status, in its SREAgent's namespace.
pub fn own() -> Vec<PolicyRule> {
    vec![
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "list", "watch", "create", "update"],
        ),
        rule("aiops.local", &["sreagents"], &["list", "watch"]),
        rule("aiops.local", &["sreagents/status"], &["patch"]),
    ]
}

/// All three by the last part of their names, for the chart's generator.
pub fn roles() -> [(&'static str, Vec<PolicyRule>); 3] {
    [("observe", observe()), ("own", own()), ("repair", repair())]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without `repair` the API server refuses every change of a node, whatever the agent's code does.
    #[test]
    fn only_repair_can_change_nodes_and_operations() {
        for rule in observe().into_iter().chain(own()) {
            let harmless = ["get", "list", "watch"];
            let touches = rule
                .resources
                .iter()
                .flatten()
                .any(|r| r.starts_with("node") || r.starts_with("pod"));
            assert!(
                !touches
                    || rule
                        .verbs
                        .iter()
                        .all(|verb| harmless.contains(&verb.as_str())),
                "{rule:?}"
            );
        }
    }

    #[test]
    fn no_wildcards_and_no_secrets() {
        for rule in observe().into_iter().chain(own()).chain(repair()) {
            let all = [rule.api_groups, rule.resources, Some(rule.verbs)];
            let words: Vec<String> = all.into_iter().flatten().flatten().collect();
            assert!(
                !words
                    .iter()
                    .any(|word| word.contains('*') || word == "secrets"),
                "{words:?}"
            );
        }
    }
}
