//! The node status exporter: the validator's binary, which tells in metrics how far the operands of a node are.
//!
//! Source: NVIDIA/gpu-operator v26.7.0, `assets/state-node-status-exporter`.

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ContainerPort, Service},
};
use tessera_api::{
    effective::NodeStatusExporter,
    names::{app, label, service, service_account},
};
use tessera_runtime::template::{self, Common, Operand, env, env_field};

use super::component;
use crate::validate::Validated;

/// Port of its metrics.
const PORT: i32 = 8000;
/// Name of that port.
const PORT_NAME: &str = "node-status";

pub(super) fn service(common: &Common) -> Service {
    let mut meta = super::meta(
        common,
        service::NODE_STATUS_EXPORTER,
        app::NODE_STATUS_EXPORTER,
        component::NODE_STATUS,
    );
    meta.annotations = Some(super::scrape_annotations(PORT));
    super::service(meta, app::NODE_STATUS_EXPORTER, PORT_NAME, PORT)
}

pub(super) fn daemon_set(wanted: &Validated, exporter: &NodeStatusExporter) -> DaemonSet {
    let mut container = template::main_container(app::NODE_STATUS_EXPORTER, &exporter.operand);
    container.command = Some(vec!["nvidia-validator".to_owned()]);
    let ours = vec![
        env("COMPONENT", "metrics"),
        env("METRICS_PORT", PORT.to_string()),
        env_field("NODE_NAME", "spec.nodeName"),
        // It looks at the host and must not be given a card.
        env("NVIDIA_VISIBLE_DEVICES", "void"),
        env_field("OPERATOR_NAMESPACE", "metadata.namespace"),
    ];
    container.env = template::merge_env(ours, &exporter.operand.env);
    container.ports = Some(vec![ContainerPort {
        name: Some(PORT_NAME.to_owned()),
        container_port: PORT,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }]);
    let mut host = template::mount_propagated("host-root", "/host", "HostToContainer");
    host.read_only = Some(true);
    container.volume_mounts = Some(vec![
        host,
        template::mount_propagated("run-nvidia", "/run/nvidia", "HostToContainer"),
    ]);
    let operand = Operand {
        name: app::NODE_STATUS_EXPORTER.to_owned(),
        app: app::NODE_STATUS_EXPORTER.to_owned(),
        component: component::NODE_STATUS.to_owned(),
        service_account: service_account::NODE_STATUS_EXPORTER.to_owned(),
        mount_token: Some(true),
        node_selector: super::nodes(label::DEPLOY_NODE_STATUS_EXPORTER),
        host_network: exporter.operand.host_network,
        pull_secrets: exporter.operand.image_pull_secrets.clone(),
        containers: vec![container],
        volumes: vec![
            template::host_path("host-root", &wanted.host_paths.root_fs, ""),
            template::host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
        ],
        ..Operand::default()
    };
    template::daemon_set(&wanted.common, operand)
}
