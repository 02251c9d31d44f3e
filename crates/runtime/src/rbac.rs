//! The rights a process needs, as data: charts are generated from it and the audit tests check it.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// All the rights of one process.
///
/// `cluster` becomes a ClusterRole, `namespaced` a Role in the namespace that the process runs in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rights {
    /// Rules on cluster-scoped kinds, or on all namespaces.
    pub cluster: Vec<PolicyRule>,
    /// Rules within the process's own namespace.
    pub namespaced: Vec<PolicyRule>,
}

impl Rights {
    /// No rights at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a cluster-wide rule.
    #[must_use]
    pub fn cluster(mut self, rule: PolicyRule) -> Self {
        self.cluster.push(rule);
        self
    }

    /// Adds a rule for the process's own namespace.
    #[must_use]
    pub fn namespaced(mut self, rule: PolicyRule) -> Self {
        self.namespaced.push(rule);
        self
    }

    /// Appends all rules of `other`.
    #[must_use]
    pub fn and(mut self, other: Rights) -> Self {
        self.cluster.extend(other.cluster);
        self.namespaced.extend(other.namespaced);
        self
    }
}

/// One rule: `verbs` on `resources` of one API group (`""` is the core group).
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    named_rule(group, resources, &[], verbs)
}

/// As [`rule`], for objects of the given names only.
pub fn named_rule(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        resource_names: (!names.is_empty()).then(|| owned(names)),
        verbs: owned(verbs),
        non_resource_urls: None,
    }
}

/// What every process needs: its own Lease (named as the controller) and the right to write events.
///
/// `create` cannot be limited by name in Kubernetes RBAC, so it stands in a rule of its own.
pub fn process_rights(controller: &str) -> Rights {
    let group = "coordination.k8s.io";
    Rights::new()
        .namespaced(rule(group, &["leases"], &["create"]))
        .namespaced(named_rule(
            group,
            &["leases"],
            &[controller],
            &["get", "list", "watch", "update"],
        ))
        .cluster(rule("events.k8s.io", &["events"], &["create", "patch"]))
}
