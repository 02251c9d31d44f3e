//! ConfigMaps that the operands read.

use super::component;
use crate::mig::layouts;
use crate::plugin_config::FILE;
use crate::validate::{Config, ConfigSource, MigConfig};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use tessera_api::names::{app, config_map, label};

/// Waits for the driver, takes over what the validator found out about it on this node (NVIDIA_DRIVER_ROOT and others), and
/// becomes the plugin.
pub(super) const PLUGIN_ENTRYPOINT: &str = r#"#!/bin/sh
ready=/run/nvidia/validations/driver-ready
while [ ! -f "$ready" ]; do
  echo "waiting for the driver to be ready on this node ($ready)"
  sleep 5
done
set -o allexport
. "$ready"
set +o allexport
exec nvidia-device-plugin "$@"
"#;

/// As above. A driver of the host may be in use by programs of the host, which the MIG manager must stop then.
pub(super) const MIG_ENTRYPOINT: &str = r#"#!/bin/sh
ready=/run/nvidia/validations/driver-ready
while [ ! -f "$ready" ]; do
  echo "waiting for the driver to be ready on this node ($ready)"
  sleep 5
done
set -o allexport
. "$ready"
WITH_SHUTDOWN_HOST_GPU_CLIENTS=$IS_HOST_DRIVER
set +o allexport
exec nvidia-mig-manager "$@"
"#;

/// Services of the host that hold GPUs open (NVIDIA's list for DGX systems).
pub(super) const GPU_CLIENTS: &str = "version: v1
systemd-services:
  - nvsm.service
  - nvsm-mqtt.service
  - nvsm-core.service
  - nvsm-api-gateway.service
  - nvsm-notifier.service
  - nv_peer_mem.service
  - nvidia-dcgm.service
  - dcgm.service
  - dcgm-exporter.service
";

/// File name of the entry point scripts.
pub(super) const ENTRYPOINT: &str = "entrypoint.sh";

/// Those of the device plugin and of feature discovery.
pub(super) fn plugin(namespace: &str, config: &Config) -> Vec<ConfigMap> {
    let mut files = vec![(
        config_map::DEVICE_PLUGIN_ENTRYPOINT,
        ENTRYPOINT,
        PLUGIN_ENTRYPOINT,
    )];
    if let ConfigSource::Rendered(text) = &config.source {
        files.push((config_map::DEVICE_PLUGIN_CONFIG, FILE, text));
    }
    of_operand(
        namespace,
        app::DEVICE_PLUGIN,
        component::DEVICE_PLUGIN,
        &files,
    )
}

/// Those of the MIG manager that the user does not bring.
pub(super) fn mig(namespace: &str, config: &MigConfig) -> Vec<ConfigMap> {
    let layouts = config.layouts.is_none().then(layouts::config_file);
    let mut files = vec![(
        config_map::MIG_MANAGER_ENTRYPOINT,
        ENTRYPOINT,
        MIG_ENTRYPOINT,
    )];
    if let Some(text) = &layouts {
        files.push((config_map::MIG_PARTED_CONFIG, FILE, text));
    }
    if config.clients.is_none() {
        files.push((config_map::GPU_CLIENTS, "clients.yaml", GPU_CLIENTS));
    }
    of_operand(namespace, app::MIG_MANAGER, component::MIG_MANAGER, &files)
}

/// One ConfigMap for each (name, key, text).
fn of_operand(
    namespace: &str,
    app: &str,
    component: &str,
    files: &[(&str, &str, &str)],
) -> Vec<ConfigMap> {
    let labels = BTreeMap::from([
        (label::APP.to_owned(), app.to_owned()),
        (label::COMPONENT.to_owned(), component.to_owned()),
    ]);
    let map = |(name, key, text): &(&str, &str, &str)| ConfigMap {
        metadata: ObjectMeta {
            name: Some((*name).to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([((*key).to_owned(), (*text).to_owned())])),
        ..ConfigMap::default()
    };
    files.iter().map(map).collect()
}
