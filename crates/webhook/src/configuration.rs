//! The entries of the webhook configuration: which questions the API server asks, and whom.
//!
//! The chart makes the configuration without entries; they are filled in when there is somebody to answer, and kept as they are here.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, RuleWithOperations, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use crate::args::Settings;

/// Path of the validating endpoint.
pub const VALIDATE: &str = "/validate";

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

/// The entries of the validating configuration, with every default written out, so that equal entries are equal values.
pub fn entries(settings: &Settings, bundle: &str) -> Vec<ValidatingWebhook> {
    KINDS
        .iter()
        .map(|kind| ValidatingWebhook {
            name: kind.webhook.to_owned(),
            admission_review_versions: vec!["v1".to_owned()],
            client_config: WebhookClientConfig {
                ca_bundle: Some(ByteString(bundle.as_bytes().to_vec())),
                service: Some(ServiceReference {
                    name: settings.service.clone(),
                    namespace: settings.namespace.clone(),
                    path: Some(VALIDATE.to_owned()),
                    port: Some(443),
                }),
                url: None,
            },
            // A narrow scope makes it safe: nothing that a cluster needs to heal is of these kinds.
            failure_policy: Some("Fail".to_owned()),
            match_conditions: Some(conditions()),
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

/// Only what is new can be wrong: an update of status, labels or finalizers is nobody's business here, and deletion least of all.
fn conditions() -> Vec<MatchCondition> {
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
        (
            "not-being-deleted",
            "!has(object.metadata.deletionTimestamp)".to_owned(),
        ),
        ("specification-changed", changed),
    ]
    .map(|(name, expression)| MatchCondition {
        name: name.to_owned(),
        expression,
    })
    .into()
}

/// What is known of the live configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// All entries, ours or not.
    pub entries: Vec<ValidatingWebhook>,
    /// Somebody has ordered its deletion.
    pub deleting: bool,
}

impl Live {
    /// Reads it.
    pub fn of(configuration: ValidatingWebhookConfiguration) -> Self {
        Self {
            deleting: configuration.metadata.deletion_timestamp.is_some(),
            entries: configuration.webhooks.unwrap_or_default(),
        }
    }

    /// The bundles of our entries.
    pub fn bundles(&self) -> Vec<&[u8]> {
        let ours = |entry: &&ValidatingWebhook| KINDS.iter().any(|kind| kind.webhook == entry.name);
        self.entries
            .iter()
            .filter(ours)
            .map(|entry| {
                let bundle = entry.client_config.ca_bundle.as_ref();
                bundle.map_or(&[][..], |bytes| bytes.0.as_slice())
            })
            .collect()
    }

    /// Whether all of `wanted` is there as it should be.
    pub fn has(&self, wanted: &[ValidatingWebhook]) -> bool {
        wanted.iter().all(|entry| self.entries.contains(entry))
    }
}

/// The object to apply.
///
/// # Errors
/// It cannot be written as JSON, which is a defect.
pub fn patch(name: &str, entries: &[ValidatingWebhook]) -> Result<Value, serde_json::Error> {
    Ok(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": serde_json::to_value(entries)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser as _;

    fn settings() -> Settings {
        Args::parse_from(["test", "--namespace=gpu-operator"])
            .settings()
            .unwrap()
    }

    #[test]
    fn only_our_own_kinds_and_only_changes() {
        for entry in entries(&settings(), "pem") {
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
    fn foreign_entries_are_left_and_an_edited_one_is_seen() {
        let wanted = entries(&settings(), "pem");
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
        assert!(!Live::default().has(&wanted) && Live::default().bundles().is_empty());
    }

    #[test]
    fn an_entry_survives_the_way_through_json() {
        let wanted = entries(&settings(), "pem");
        let value = patch("tessera-webhook", &wanted).unwrap();
        let read: ValidatingWebhookConfiguration = serde_json::from_value(value).unwrap();
        assert!(Live::of(read).has(&wanted));
    }
}
