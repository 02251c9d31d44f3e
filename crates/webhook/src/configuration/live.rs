//! A webhook configuration as it is, and how one is written.

use std::fmt;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::is_ours;

/// An entry of a webhook configuration, of either kind.
pub trait Entry: Clone + PartialEq + Serialize + Send + Sync + 'static {
    /// The configuration's kind.
    type Configuration: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + fmt::Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static;

    /// Takes the entries out of a configuration.
    fn all(configuration: Self::Configuration) -> Vec<Self>;
    /// Its name.
    fn name(&self) -> &str;
    /// Whom the API server asks.
    fn client(&self) -> &WebhookClientConfig;
    /// When it asks.
    fn conditions(&self) -> &[MatchCondition];
}

impl Entry for ValidatingWebhook {
    type Configuration = ValidatingWebhookConfiguration;

    fn all(configuration: Self::Configuration) -> Vec<Self> {
        configuration.webhooks.unwrap_or_default()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn client(&self) -> &WebhookClientConfig {
        &self.client_config
    }

    fn conditions(&self) -> &[MatchCondition] {
        self.match_conditions.as_deref().unwrap_or_default()
    }
}

impl Entry for MutatingWebhook {
    type Configuration = MutatingWebhookConfiguration;

    fn all(configuration: Self::Configuration) -> Vec<Self> {
        configuration.webhooks.unwrap_or_default()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn client(&self) -> &WebhookClientConfig {
        &self.client_config
    }

    fn conditions(&self) -> &[MatchCondition] {
        self.match_conditions.as_deref().unwrap_or_default()
    }
}

/// What is known of a live configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Live<E> {
    /// All entries, ours or not.
    pub entries: Vec<E>,
    /// Somebody has ordered its deletion.
    pub deleting: bool,
}

impl<E: Entry> Live<E> {
    /// Reads it.
    pub fn of(configuration: E::Configuration) -> Self {
        Self {
            deleting: configuration.meta().deletion_timestamp.is_some(),
            entries: E::all(configuration),
        }
    }

    /// The bundles of our entries.
    pub fn bundles(&self) -> Vec<&[u8]> {
        let ours = self.entries.iter().filter(|entry| is_ours(entry.name()));
        ours.map(|entry| {
            let bundle = entry.client().ca_bundle.as_ref();
            bundle.map_or(&[][..], |bytes| bytes.0.as_slice())
        })
        .collect()
    }

    /// Whether the API server has dropped the conditions of what it was sent.
    pub fn lacks_conditions(&self, sent: &[E]) -> bool {
        let lost = |sent: &E| {
            let mut same = self
                .entries
                .iter()
                .filter(|entry| entry.name() == sent.name());
            !sent.conditions().is_empty() && same.any(|entry| entry.conditions().is_empty())
        };
        sent.iter().any(lost)
    }

    /// Whether all of `wanted` is there as it should be.
    pub fn has(&self, wanted: &[E]) -> bool {
        wanted.iter().all(|entry| self.entries.contains(entry))
    }
}

/// The object to apply.
///
/// # Errors
/// It cannot be written as JSON, which is a defect.
pub fn patch<E: Entry>(name: &str, entries: &[E]) -> Result<Value, serde_json::Error> {
    Ok(json!({
        "apiVersion": E::Configuration::api_version(&()),
        "kind": E::Configuration::kind(&()),
        "metadata": {"name": name},
        "webhooks": serde_json::to_value(entries)?,
    }))
}
