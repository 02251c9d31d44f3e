//! DaemonSet nvidia-device-plugin-mps-control-daemon, only when cards are shared by MPS. Facts: NVIDIA/gpu-operator v26.7.0
//! `assets/state-mps-control-daemon`.

use super::component;
use super::config_manager::access;
use super::pod::{Shape, main, plain};
use crate::validate::Config;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, Volume};
use tessera_api::EffectivePolicy;
use tessera_api::names::{app, label, service_account};
use tessera_runtime::template::{
    Operand, env_field, host_path, mount, mount_propagated, validations_volume,
};

const CONTAINER: &str = "mps-control-daemon-ctr";

pub(super) fn daemon_set(shape: &Shape<'_>, config: &Config) -> DaemonSet {
    // It is a program of the device plugin's image.
    let operand = &shape.policy.device_plugin.operand;
    let access = access(operand, config, "mps-control-daemon");
    let environment = [
        shape.gpu_env(),
        vec![env_field("NODE_NAME", "spec.nodeName")],
        access.env,
    ]
    .concat();
    let mut daemon = main(CONTAINER, operand, "mps-control-daemon", environment);
    // Arguments and resources of the policy are the plugin's.
    (daemon.args, daemon.resources) = (None, None);
    daemon.volume_mounts = Some(
        [
            vec![mount("mps-root", "/mps"), mount("mps-shm", "/dev/shm")],
            access.mounts,
        ]
        .concat(),
    );
    let mount_shm = Container {
        command: Some(vec![
            "mps-control-daemon".to_owned(),
            "mount-shm".to_owned(),
        ]),
        volume_mounts: Some(vec![mount_propagated("mps-root", "/mps", "Bidirectional")]),
        ..plain("mps-control-daemon-mounts", operand)
    };
    // Feature discovery sets this label where the configuration in force asks for MPS.
    let mut nodes = shape.nodes(label::DEPLOY_DEVICE_PLUGIN);
    nodes.insert(label::MPS_CAPABLE.to_owned(), "true".to_owned());
    let operand = Operand {
        name: app::MPS.to_owned(),
        app: app::MPS.to_owned(),
        component: component::MPS.to_owned(),
        service_account: service_account::MPS.to_owned(),
        node_selector: nodes,
        uses_gpu: true,
        host_network: operand.host_network,
        host_pid: true,
        pull_secrets: shape.pull_secrets(operand),
        init_containers: [shape.wait_for_toolkit(), vec![mount_shm], access.init].concat(),
        containers: [vec![daemon], access.sidecars].concat(),
        volumes: [
            vec![validations_volume()],
            volumes(shape.policy),
            access.volumes,
        ]
        .concat(),
        nri_containers: vec![CONTAINER.to_owned()],
        config_hash: Some(access.hash),
        ..Operand::default()
    };
    // The host's process namespace is shared already.
    shape.finish(operand, false)
}

/// The daemon's directories on the host.
pub(super) fn volumes(policy: &EffectivePolicy) -> Vec<Volume> {
    let root = &policy.device_plugin.mps_root;
    vec![
        host_path("mps-root", root, "DirectoryOrCreate"),
        host_path("mps-shm", &format!("{root}/shm"), "DirectoryOrCreate"),
    ]
}
