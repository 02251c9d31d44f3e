//! The rights of this process. See the crate's text for why it has some on RBAC.

use tessera_runtime::rbac::{Rights, named_rule, process_rights, rule};

use crate::NAME;

/// The ClusterRoles that agents can have, and the only ones that this controller may bind. The rules in them are in
/// `tessera_sre_agent::rbac`.
pub const AGENT_ROLES: [&str; 3] = [OBSERVE, REPAIR, OWN];
/// Watching, cluster-wide.
pub const OBSERVE: &str = "tessera-sre-agent-observe";
/// Acting on nodes, cluster-wide.
pub const REPAIR: &str = "tessera-sre-agent-repair";
/// Its Lease and its SREAgent's status, in the SREAgent's namespace.
pub const OWN: &str = "tessera-sre-agent-own";

/// All of them.
pub fn rights() -> Rights {
    let owned = ["list", "watch", "create", "patch", "delete"];
    process_rights(NAME)
        .cluster(rule(
            "aiops.local",
            &["sreagents"],
            &["list", "watch", "patch"],
        ))
        .cluster(rule("aiops.local", &["sreagents/status"], &["patch"]))
        .cluster(rule("apps", &["deployments"], &owned))
        .cluster(rule("", &["serviceaccounts"], &owned))
        .cluster(rule("", &["pods"], &["list", "watch"]))
        .cluster(rule(
            "rbac.authorization.k8s.io",
            &["clusterrolebindings", "rolebindings"],
            &owned,
        ))
        .cluster(named_rule(
            "rbac.authorization.k8s.io",
            &["clusterroles"],
            &AGENT_ROLES,
            &["bind"],
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_bind_the_agents_roles_and_write_none() {
        for rule in rights().cluster.into_iter().chain(rights().namespaced) {
            let resources = rule.resources.unwrap_or_default();
            if resources
                .iter()
                .any(|resource| resource == "clusterroles" || resource == "roles")
            {
                assert_eq!(rule.verbs, ["bind"]);
                assert_eq!(rule.resource_names.unwrap_or_default(), AGENT_ROLES);
            }
            assert!(
                !rule
                    .verbs
                    .iter()
                    .any(|verb| verb == "escalate" || verb == "impersonate" || verb == "*")
            );
        }
    }
}
