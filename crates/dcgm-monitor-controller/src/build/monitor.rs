//! The exporter's ServiceMonitor.

use std::collections::BTreeMap;

use tessera_api::{
    effective::ServiceMonitor as Settings,
    names::{app, label, service},
    policy::RelabelConfig,
};
use tessera_runtime::template::Common;

use super::{component, exporter};
use crate::service_monitor::{
    Endpoint, NamespaceSelector, Selector, ServiceMonitor, ServiceMonitorSpec, duration,
};

/// It selects NVIDIA's Service of the two, so that `job` is `nvidia-dcgm-exporter`, which known dashboards and alerts ask for.
pub(super) fn monitor(common: &Common, settings: &Settings) -> ServiceMonitor {
    let mut metadata = super::meta(
        common,
        service::NVIDIA_DCGM_EXPORTER,
        app::DCGM_EXPORTER,
        component::MONITOR,
    );
    let mut labels = settings.additional_labels.clone();
    labels.extend(metadata.labels.take().unwrap_or_default());
    metadata.labels = Some(labels);
    // Which node a card is in: the exporter's own label for it has changed its name between versions.
    let node = RelabelConfig {
        action: Some("replace".to_owned()),
        source_labels: Some(vec!["__meta_kubernetes_pod_node_name".to_owned()]),
        target_label: Some("node".to_owned()),
        ..RelabelConfig::default()
    };
    let relabelings = std::iter::once(node)
        .chain(settings.relabelings.iter().cloned().map(with_action))
        .collect();
    let spec = ServiceMonitorSpec {
        job_label: label::APP.to_owned(),
        selector: Selector {
            match_labels: BTreeMap::from([(label::APP.to_owned(), app::DCGM_EXPORTER.to_owned())]),
        },
        namespace_selector: NamespaceSelector {
            match_names: vec![common.namespace.clone()],
        },
        endpoints: vec![Endpoint {
            port: exporter::NVIDIA_PORT_NAME.to_owned(),
            path: "/metrics".to_owned(),
            interval: duration(&settings.interval),
            scrape_timeout: duration(&settings.scrape_timeout),
            honor_labels: settings.honor_labels,
            relabelings,
            metric_relabelings: settings
                .metric_relabelings
                .iter()
                .cloned()
                .map(with_action)
                .collect(),
        }],
    };
    ServiceMonitor { metadata, spec }
}

/// The CRD writes its default action into what is stored; naming it keeps both equal.
fn with_action(mut relabeling: RelabelConfig) -> RelabelConfig {
    relabeling
        .action
        .get_or_insert_with(|| "replace".to_owned());
    relabeling
}
