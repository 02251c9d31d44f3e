//! The DCGM host engine as a DaemonSet of its own, for clients beside the exporter. It has no authentication: never a host port.
//!
//! Source: NVIDIA/gpu-operator v26.7.0, `assets/state-dcgm`.

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{ContainerPort, Probe, Service, TCPSocketAction},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use tessera_api::{
    effective::Dcgm,
    names::{app, label, service, service_account},
};
use tessera_runtime::template::{self, Common, Operand};

use super::component;
use crate::validate::Validated;

/// Port of the host engine.
pub(super) const PORT: i32 = 5555;

pub(super) fn service(common: &Common) -> Service {
    let mut service = super::service(
        super::meta(common, service::DCGM, app::DCGM, component::ENGINE),
        app::DCGM,
        "dcgm",
        PORT,
    );
    if let Some(spec) = &mut service.spec {
        // An exporter must read the cards of its own node.
        spec.internal_traffic_policy = Some("Local".to_owned());
    }
    service
}

pub(super) fn daemon_set(wanted: &Validated, engine: &Dcgm) -> DaemonSet {
    const CONTAINER: &str = "nvidia-dcgm-ctr";
    let probe = || Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::Int(PORT),
            host: None,
        }),
        initial_delay_seconds: Some(15),
        ..Probe::default()
    };
    let mut container = template::main_container(CONTAINER, &engine.operand);
    container.env = template::merge_env(Vec::new(), &engine.operand.env);
    container.ports = Some(vec![ContainerPort {
        name: Some("dcgm".to_owned()),
        container_port: PORT,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }]);
    container.liveness_probe = Some(probe());
    container.readiness_probe = Some(probe());
    let mut operand = Operand {
        name: app::DCGM.to_owned(),
        app: app::DCGM.to_owned(),
        component: component::ENGINE.to_owned(),
        service_account: service_account::DCGM.to_owned(),
        mount_token: Some(false),
        node_selector: super::nodes(label::DEPLOY_DCGM),
        uses_gpu: true,
        nri_containers: vec![CONTAINER.to_owned()],
        host_network: engine.operand.host_network,
        pull_secrets: engine.operand.image_pull_secrets.clone(),
        containers: vec![container],
        ..Operand::default()
    };
    super::wait_for_toolkit(&mut operand, wanted.wait_for_toolkit.as_ref());
    template::daemon_set(&wanted.common, operand)
}
