//! The rights that the code needs; the chart is generated from them.

use tessera_api::names::admission;
use tessera_runtime::rbac::{Rights, named_rule, rule};

/// What a watch takes.
const WATCH: [&str; 2] = ["list", "watch"];

/// Rights of the webhook: reading what its rules compare with; its one Secret; its one configuration. `create` cannot be limited by
/// name in Kubernetes RBAC.
pub fn rights() -> Rights {
    Rights::new()
        .cluster(rule("nvidia.com", &["clusterpolicies"], &WATCH))
        .cluster(rule("aiops.local", &["sreagents"], &WATCH))
        .cluster(rule("", &["nodes"], &WATCH))
        .cluster(named_rule(
            "admissionregistration.k8s.io",
            &[
                "mutatingwebhookconfigurations",
                "validatingwebhookconfigurations",
            ],
            &[admission::CONFIGURATION],
            &["list", "watch", "patch"],
        ))
        .namespaced(rule("", &["configmaps"], &WATCH))
        .namespaced(rule("", &["secrets"], &["create"]))
        .namespaced(named_rule(
            "",
            &["secrets"],
            &[admission::CA_SECRET],
            &["list", "watch", "update"],
        ))
}

#[cfg(test)]
mod tests {
    #[test]
    fn secrets_and_configurations_by_name_only() {
        let rights = super::rights();
        for rule in rights.cluster.iter().chain(&rights.namespaced) {
            let resources = rule.resources.clone().unwrap_or_default();
            let sensitive = resources
                .iter()
                .any(|r| r == "secrets" || r.contains("webhookconfigurations"));
            let named = rule.resource_names.is_some() || rule.verbs == ["create"];
            assert!(!sensitive || named, "{rule:?}");
            assert!(!rule.verbs.iter().any(|verb| verb == "*"), "{rule:?}");
        }
    }
}
