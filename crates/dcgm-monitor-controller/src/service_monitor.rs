//! `ServiceMonitor` of the Prometheus operator: just the fields that we write.
//!
//! Source: Prometheus operator v0.93, `monitoring.coreos.com/v1`.

use std::collections::BTreeMap;

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use tessera_api::{policy::RelabelConfig, units::ScrapeDuration};

/// Name of its CustomResourceDefinition.
pub const CRD: &str = "servicemonitors.monitoring.coreos.com";

/// Which Services are scraped, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "monitoring.coreos.com",
    version = "v1",
    kind = "ServiceMonitor",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitorSpec {
    /// Label of the Service whose value becomes label `job`.
    pub job_label: String,
    /// Which Services.
    pub selector: Selector,
    /// In which namespaces.
    pub namespace_selector: NamespaceSelector,
    /// Which of their ports.
    pub endpoints: Vec<Endpoint>,
}

/// Labels that a Service has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// All of them.
    pub match_labels: BTreeMap<String, String>,
}

/// Namespaces by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Any of them.
    pub match_names: Vec<String>,
}

/// One port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Name of the Service's port.
    pub port: String,
    /// Path of the metrics.
    pub path: String,
    /// How often.
    pub interval: String,
    /// When a scrape has failed.
    pub scrape_timeout: String,
    /// Whether the exporter's labels win over the target's.
    pub honor_labels: bool,
    /// Rewriting of targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relabelings: Vec<RelabelConfig>,
    /// Rewriting of metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metric_relabelings: Vec<RelabelConfig>,
}

/// A duration as the CRD's pattern accepts it: whole numbers, each unit once, the larger first. Spelled as the user did where that
/// fits, else in milliseconds or seconds.
pub fn duration(value: &ScrapeDuration) -> String {
    if is_prometheus(value.as_str()) {
        return value.as_str().to_owned();
    }
    let millis = value.as_duration().as_millis();
    if millis.is_multiple_of(1000) {
        format!("{}s", millis / 1000)
    } else {
        format!("{millis}ms")
    }
}

fn is_prometheus(text: &str) -> bool {
    let mut rest = text;
    for unit in ["y", "w", "d", "h", "m", "s", "ms"] {
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        // `m` is also how `ms` begins.
        let cut = tail
            .strip_prefix(unit)
            .filter(|after| after.is_empty() || after.starts_with(|c: char| c.is_ascii_digit()));
        if let (false, Some(after)) = (number.is_empty(), cut) {
            rest = after;
        }
    }
    rest.is_empty() && !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fit_the_crds_pattern() {
        let cases = [
            ("15s", "15s"),
            ("1m", "1m"),
            ("500ms", "500ms"),
            ("1m30s", "1m30s"),
            ("1h5m2s10ms", "1h5m2s10ms"),
            ("1.5s", "1500ms"),
            ("0.5m", "30s"),
            ("30s1m", "90s"),
            ("15", "15s"),
        ];
        for (given, want) in cases {
            let value: ScrapeDuration = given.parse().unwrap();
            assert_eq!(duration(&value), want, "{given}");
        }
    }
}
