//! DaemonSet gpu-feature-discovery. Facts: NVIDIA/gpu-operator v26.7.0 `assets/gpu-feature-discovery`.

use super::component;
use super::config_manager::access;
use super::pod::{Shape, main};
use crate::validate::{Config, ConfigSource};
use k8s_openapi::api::apps::v1::DaemonSet;
use tessera_api::names::{app, label, service_account};
use tessera_runtime::template::{
    Operand, env, env_field, host_path, mount, mount_ro, validations_volume,
};

const CONTAINER: &str = "gpu-feature-discovery";
/// Where Node Feature Discovery looks for features.
const FEATURES_DIR: &str = "/etc/kubernetes/node-feature-discovery/features.d";

pub(super) fn daemon_set(shape: &Shape<'_>, config: &Config) -> DaemonSet {
    let operand = &shape.policy.gfd.operand;
    let access = access(operand, config, CONTAINER);
    let mut environment = shape.gpu_env();
    environment.extend([
        env("GFD_FAIL_ON_INIT_ERROR", "true"),
        env("GFD_SLEEP_INTERVAL", "60s"),
        // From the same source as the plugin's, so that labels and resources agree.
        env("MIG_STRATEGY", shape.policy.mig.strategy.as_str()),
        env_field("NAMESPACE", "metadata.namespace"),
        env_field("NODE_NAME", "spec.nodeName"),
        env_field("POD_NAME", "metadata.name"),
    ]);
    let mut discovery = main(
        CONTAINER,
        operand,
        CONTAINER,
        [environment, access.env].concat(),
    );
    let mounts = vec![
        mount("output-dir", FEATURES_DIR),
        mount_ro("host-sys", "/sys"),
    ];
    discovery.volume_mounts = Some([mounts, access.mounts].concat());
    let volumes = vec![
        host_path("output-dir", FEATURES_DIR, "DirectoryOrCreate"),
        host_path("host-sys", "/sys", ""),
        validations_volume(),
    ];
    let operand = Operand {
        name: app::GFD.to_owned(),
        app: app::GFD.to_owned(),
        component: component::GFD.to_owned(),
        service_account: service_account::GFD.to_owned(),
        node_selector: shape.nodes(label::DEPLOY_GFD),
        uses_gpu: true,
        host_network: operand.host_network,
        pull_secrets: shape.pull_secrets(operand),
        init_containers: [shape.wait_for_toolkit(), access.init].concat(),
        containers: [vec![discovery], access.sidecars].concat(),
        volumes: [volumes, access.volumes].concat(),
        nri_containers: vec![CONTAINER.to_owned()],
        config_hash: Some(access.hash),
        ..Operand::default()
    };
    shape.finish(
        operand,
        matches!(config.source, ConfigSource::UserMap { .. }),
    )
}
