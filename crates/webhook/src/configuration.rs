//! The entries of the webhook configurations: which questions the API server asks, and whom.
//!
//! The chart makes the configurations without entries; they are filled in when there is somebody to answer, and kept as they are here.

mod live;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, RuleWithOperations, ServiceReference, ValidatingWebhook,
    WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use tessera_api::names::{RESOURCE_PREFIX, admission};

pub use self::live::{Entry, Live, patch};
use crate::args::Settings;
use crate::pods::{OPT_OUTS, OTHER_SCHEDULERS};

/// Path of the validating endpoint.
pub const VALIDATE: &str = "/validate";

/// Path of the endpoint for Pods.
pub const MUTATE_PODS: &str = "/mutate-pods";

/// The webhook for Pods.
const PODS: &str = "pods.aiops.local";

/// Label that every namespace has, with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Namespaces of which a cluster lives: nobody there is asked about, nor in our own.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Kubectl's copy of what was applied: the only place where misspelt fields can be seen.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A kind that is validated.
struct Kind {
    webhook: &'static str,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    scope: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        webhook: "clusterpolicies.aiops.local",
        group: "nvidia.com",
        version: "v1",
        plural: "clusterpolicies",
        scope: "Cluster",
    },
    Kind {
        webhook: "sreagents.aiops.local",
        group: "aiops.local",
        version: "v1",
        plural: "sreagents",
        scope: "Namespaced",
    },
];

fn client(settings: &Settings, bundle: &str, path: &str) -> WebhookClientConfig {
    WebhookClientConfig {
        ca_bundle: Some(ByteString(bundle.as_bytes().to_vec())),
        service: Some(ServiceReference {
            name: settings.service.clone(),
            namespace: settings.namespace.clone(),
            path: Some(path.to_owned()),
            port: Some(443),
        }),
        url: None,
    }
}

/// The entries of the validating configuration, with every default written out, so that equal entries are equal values.
///
/// Without `conditions` (see [`mutating`]) the API server asks about more, and the answer is the same.
pub fn validating(settings: &Settings, bundle: &str, conditions: bool) -> Vec<ValidatingWebhook> {
    KINDS
        .iter()
        .map(|kind| ValidatingWebhook {
            name: kind.webhook.to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: client(settings, bundle, VALIDATE),
            // A narrow scope makes it safe: nothing that a cluster needs to heal is of these kinds.
            failure_policy: Some("Fail".to_owned()),
            match_conditions: conditions.then(|| changes().into()),
            match_policy: Some("Equivalent".to_owned()),
            namespace_selector: Some(LabelSelector::default()),
            object_selector: Some(LabelSelector::default()),
            rules: Some(vec![RuleWithOperations {
                api_groups: Some(vec![kind.group.to_owned()]),
                api_versions: Some(vec![kind.version.to_owned()]),
                operations: Some(vec!["CREATE".to_owned(), "UPDATE".to_owned()]),
                resources: Some(vec![kind.plural.to_owned()]),
                scope: Some(kind.scope.to_owned()),
            }]),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(5),
        })
        .collect()
}

/// The entries of the mutating configuration, with every default written out.
///
/// Without `conditions` there are none: an API server that cannot be told when not to ask (`matchConditions` are served by default
/// since Kubernetes 1.28) would ask about every Pod.
pub fn mutating(settings: &Settings, bundle: &str, conditions: bool) -> Vec<MutatingWebhook> {
    if !conditions {
        return Vec::new();
    }
    let opted_in = || OPT_OUTS.map(|key| not_in(key, &[admission::IGNORE]));
    let system = [&SYSTEM_NAMESPACES[..], &[&settings.namespace]].concat();
    let mut namespaces = opted_in().to_vec();
    namespaces.push(not_in(NAMESPACE_NAME, &system));
    vec![MutatingWebhook {
        name: PODS.to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: client(settings, bundle, MUTATE_PODS),
        // A Pod without a limit is better than no Pod.
        failure_policy: Some("Ignore".to_owned()),
        match_conditions: Some(asks_for_cards().into()),
        match_policy: Some("Equivalent".to_owned()),
        namespace_selector: Some(selector(namespaces)),
        object_selector: Some(selector(opted_in().to_vec())),
        // Another webhook may add a container after us.
        reinvocation_policy: Some("IfNeeded".to_owned()),
        rules: Some(vec![RuleWithOperations {
            api_groups: Some(vec![String::new()]),
            api_versions: Some(vec!["v1".to_owned()]),
            operations: Some(vec!["CREATE".to_owned()]),
            resources: Some(vec!["pods".to_owned()]),
            scope: Some("Namespaced".to_owned()),
        }]),
        side_effects: "None".to_owned(),
        // Longer than the server's own limit: its answer says more.
        timeout_seconds: Some(4),
    }]
}

fn not_in(key: &str, values: &[&str]) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
    }
}

fn selector(requirements: Vec<LabelSelectorRequirement>) -> LabelSelector {
    LabelSelector {
        match_expressions: Some(requirements),
        match_labels: None,
    }
}

/// Only Pods with a container that asks for an `nvidia.com` resource, and that no other scheduler of cards is to place.
fn asks_for_cards() -> [MatchCondition; 2] {
    let asks = |list: &str| {
        let some = |key: &str| {
            format!(
                "(has(c.resources.{key}) && c.resources.{key}.exists(name, name.startsWith('{RESOURCE_PREFIX}')))"
            )
        };
        format!(
            "object.spec.{list}.exists(c, has(c.resources) && ({} || {}))",
            some("limits"),
            some("requests")
        )
    };
    let others: Vec<String> = OTHER_SCHEDULERS.map(|name| format!("'{name}'")).into();
    [
        condition(
            "asks-for-gpu",
            format!(
                "{} || (has(object.spec.initContainers) && {})",
                asks("containers"),
                asks("initContainers")
            ),
        ),
        condition(
            "not-of-another-scheduler",
            format!(
                "!(has(object.spec.schedulerName) && object.spec.schedulerName in [{}])",
                others.join(", ")
            ),
        ),
    ]
}

fn condition(name: &str, expression: String) -> MatchCondition {
    MatchCondition {
        name: name.to_owned(),
        expression,
    }
}

/// Only what is new can be wrong: an update of status, labels or finalizers is nobody's business here, and deletion least of all.
fn changes() -> [MatchCondition; 2] {
    let applied = |object: &str| {
        let has = format!(
            "has({object}.metadata.annotations) && '{LAST_APPLIED}' in {object}.metadata.annotations"
        );
        format!("({has} ? {object}.metadata.annotations['{LAST_APPLIED}'] : '')")
    };
    let changed = format!(
        "request.operation == 'CREATE' || has(object.spec) != has(oldObject.spec) || (has(object.spec) && object.spec != oldObject.spec) || {} != {}",
        applied("object"),
        applied("oldObject")
    );
    [
        condition(
            "not-being-deleted",
            "!has(object.metadata.deletionTimestamp)".to_owned(),
        ),
        condition("specification-changed", changed),
    ]
}

/// Whether an entry of this name is ours.
fn is_ours(name: &str) -> bool {
    name == PODS || KINDS.iter().any(|kind| kind.webhook == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser as _;
    use k8s_openapi::api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
    };

    fn settings() -> Settings {
        Args::parse_from(["test", "--namespace=gpu-operator"])
            .settings()
            .unwrap()
    }

    #[test]
    fn only_our_own_kinds_and_only_changes() {
        for entry in validating(&settings(), "pem", true) {
            let rule = entry.rules.unwrap().remove(0);
            assert_eq!(rule.operations.unwrap(), ["CREATE", "UPDATE"]);
            let ours = ["nvidia.com", "aiops.local"].map(str::to_owned);
            assert!(
                rule.api_groups
                    .unwrap()
                    .iter()
                    .all(|group| ours.contains(group))
            );
            assert!(
                !rule
                    .resources
                    .unwrap()
                    .iter()
                    .any(|r| r.contains(['*', '/']))
            );
            assert_eq!(entry.match_conditions.unwrap().len(), 2);
            assert!(entry.timeout_seconds.unwrap() <= 5);
        }
    }

    #[test]
    fn only_new_pods_and_never_in_their_way() {
        let [entry] = mutating(&settings(), "pem", true).try_into().unwrap();
        assert_eq!(entry.failure_policy.as_deref(), Some("Ignore"));
        let rule = entry.rules.unwrap().remove(0);
        assert_eq!(rule.operations.unwrap(), ["CREATE"]);
        assert_eq!(rule.resources.unwrap(), ["pods"]);
        assert_eq!(entry.match_conditions.unwrap().len(), 2);
        let namespaces = serde_json::to_string(&entry.namespace_selector).unwrap();
        for name in [
            "kube-system",
            "gpu-operator",
            "aiops.local/admission",
            "hami.io/webhook",
        ] {
            assert!(namespaces.contains(name), "{name}: {namespaces}");
        }
        let pods = serde_json::to_string(&entry.object_selector).unwrap();
        assert!(pods.contains("aiops.local/admission") && !pods.contains("kube-system"));
    }

    #[test]
    fn foreign_entries_are_left_and_an_edited_one_is_seen() {
        let wanted = validating(&settings(), "pem", true);
        let mut foreign = wanted[0].clone();
        foreign.name = "somebody.example.com".to_owned();
        let mut live = Live {
            entries: vec![foreign, wanted[1].clone(), wanted[0].clone()],
            deleting: false,
        };
        assert!(live.has(&wanted));
        assert_eq!(live.bundles(), [b"pem", b"pem"]);
        live.entries[1].failure_policy = Some("Ignore".to_owned());
        assert!(!live.has(&wanted));
        let nothing = Live {
            entries: Vec::new(),
            deleting: false,
        };
        assert!(!nothing.has(&wanted) && nothing.bundles().is_empty());
    }

    #[test]
    fn an_entry_survives_the_way_through_json() {
        let wanted = validating(&settings(), "pem", true);
        let value = patch("tessera-webhook", &wanted).unwrap();
        let read: ValidatingWebhookConfiguration = serde_json::from_value(value).unwrap();
        assert!(Live::of(read).has(&wanted));
        let wanted = mutating(&settings(), "pem", true);
        let value = patch("tessera-webhook", &wanted).unwrap();
        let read: MutatingWebhookConfiguration = serde_json::from_value(value).unwrap();
        assert!(Live::of(read).has(&wanted));
    }

    #[test]
    fn an_api_server_without_conditions_is_asked_for_none() {
        let sent = validating(&settings(), "pem", true);
        let plain = validating(&settings(), "pem", false);
        let live = |entries: &[ValidatingWebhook]| Live {
            entries: entries.to_vec(),
            deleting: false,
        };
        assert!(live(&plain).lacks_conditions(&sent) && !live(&plain).has(&sent));
        assert!(!live(&sent).lacks_conditions(&sent) && !live(&plain).lacks_conditions(&plain));
        assert!(!live(&[]).lacks_conditions(&sent));
        // Every Pod of the cluster would be ours to answer for.
        assert!(mutating(&settings(), "pem", false).is_empty());
    }
}
