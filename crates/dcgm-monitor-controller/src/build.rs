//! From what is wanted to objects: pure, deterministic, cannot fail.

mod engine;
mod exporter;
mod monitor;
mod node_status;

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{ConfigMap, Service, ServicePort, ServiceSpec},
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use std::collections::BTreeMap;
use tessera_api::names::label;
use tessera_runtime::{
    apply::{Desired, SerializeError},
    template::{self, Common},
};

use crate::{
    service_monitor::ServiceMonitor,
    validate::{Validated, WaitForToolkit, Wanted},
};

pub(crate) use exporter::DEFAULT_MEMORY_LIMIT;

/// Values of label `app.kubernetes.io/component`.
pub mod component {
    /// The exporter: metrics ConfigMap, DaemonSet, Services.
    pub const EXPORTER: &str = "dcgm-exporter";
    /// The host engine: DaemonSet, Service.
    pub const ENGINE: &str = "dcgm";
    /// The node status exporter: DaemonSet, Service.
    pub const NODE_STATUS: &str = "node-status-exporter";
    /// The exporter's ServiceMonitor.
    pub const MONITOR: &str = "dcgm-exporter-monitor";
}

/// The objects, by kind, and the components whose objects stay as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    /// ConfigMaps.
    pub config_maps: Vec<ConfigMap>,
    /// Services.
    pub services: Vec<Service>,
    /// DaemonSets.
    pub daemon_sets: Vec<DaemonSet>,
    /// ServiceMonitors.
    pub monitors: Vec<ServiceMonitor>,
    /// Components to leave alone.
    pub keep: Vec<&'static str>,
}

impl Objects {
    /// For the apply engine, in the order of application: what pods read comes before them.
    pub fn into_desired(self) -> Result<Desired, SerializeError> {
        let Self {
            config_maps,
            services,
            daemon_sets,
            monitors,
            keep,
        } = self;
        let mut desired = Desired::new();
        for object in &config_maps {
            desired.add(object)?;
        }
        for object in &services {
            desired.add(object)?;
        }
        for object in &daemon_sets {
            desired.add(object)?;
        }
        for object in &monitors {
            desired.add(object)?;
        }
        for component in keep {
            desired.keep(component);
        }
        Ok(desired)
    }
}

/// Builds everything that is wanted.
pub fn build(wanted: &Validated) -> Objects {
    let mut objects = Objects::default();
    match &wanted.engine {
        Wanted::On(engine) => {
            objects.services.push(engine::service(&wanted.common));
            objects.daemon_sets.push(engine::daemon_set(wanted, engine));
        }
        Wanted::Unusable(_) => objects.keep.push(component::ENGINE),
        Wanted::Off => {}
    }
    match &wanted.exporter {
        Wanted::On(exporter) => {
            objects
                .config_maps
                .push(exporter::metrics(&wanted.common, exporter));
            objects
                .services
                .extend(exporter::services(&wanted.common, exporter));
            objects
                .daemon_sets
                .push(exporter::daemon_set(wanted, exporter));
            if exporter.monitor {
                objects.monitors.push(monitor::monitor(
                    &wanted.common,
                    &exporter.policy.service_monitor,
                ));
            }
        }
        Wanted::Unusable(_) => objects
            .keep
            .extend([component::EXPORTER, component::MONITOR]),
        Wanted::Off => {}
    }
    match &wanted.node_status {
        Wanted::On(exporter) => {
            objects.services.push(node_status::service(&wanted.common));
            objects
                .daemon_sets
                .push(node_status::daemon_set(wanted, exporter));
        }
        Wanted::Unusable(_) => objects.keep.push(component::NODE_STATUS),
        Wanted::Off => {}
    }
    if wanted.monitor_unknown {
        objects.keep.push(component::MONITOR);
    }
    objects
}

/// Name, namespace and labels of an object of `component`.
fn meta(common: &Common, name: &str, app: &str, component: &str) -> ObjectMeta {
    let labels = [(label::APP, app), (label::COMPONENT, component)];
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(common.namespace.clone()),
        labels: Some(
            labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        ),
        ..ObjectMeta::default()
    }
}

/// A Service for the pods with label `app`, with one port.
fn service(meta: ObjectMeta, app: &str, port_name: &str, port: i32) -> Service {
    Service {
        metadata: meta,
        spec: Some(ServiceSpec {
            ports: Some(vec![ServicePort {
                name: Some(port_name.to_owned()),
                port,
                protocol: Some("TCP".to_owned()),
                target_port: Some(IntOrString::Int(port)),
                ..ServicePort::default()
            }]),
            selector: Some(BTreeMap::from([(label::APP.to_owned(), app.to_owned())])),
            type_: Some("ClusterIP".to_owned()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Annotations by which a Prometheus without the operator finds a Service (as NVIDIA's have them).
fn scrape_annotations(port: i32) -> BTreeMap<String, String> {
    [
        ("prometheus.io/scrape", "true".to_owned()),
        ("prometheus.io/port", port.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// Nodes with this label.
fn nodes(label: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(label.to_owned(), "true".to_owned())])
}

/// Adds the wait for the toolkit to an operand.
fn wait_for_toolkit(operand: &mut template::Operand, wait: Option<&WaitForToolkit>) {
    if let Some(wait) = wait {
        operand.init_containers.push(template::wait_for_file(
            "toolkit",
            &wait.image.to_string(),
            &wait.pull_policy,
        ));
        operand.volumes.push(template::validations_volume());
        operand
            .pull_secrets
            .extend(wait.pull_secrets.iter().cloned());
    }
}

#[cfg(test)]
mod tests;
