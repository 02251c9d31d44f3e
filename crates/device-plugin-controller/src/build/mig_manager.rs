//! DaemonSet nvidia-mig-manager. Facts: NVIDIA/gpu-operator v26.7.0 `assets/state-mig-manager`, NVIDIA/mig-parted v0.15.0.

use super::component;
use super::config_maps::{ENTRYPOINT, GPU_CLIENTS, MIG_ENTRYPOINT};
use super::pod::{Shape, main};
use crate::mig::layouts;
use crate::plugin_config::FILE;
use crate::referenced::Data;
use crate::validate::MigConfig;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::EnvVar;
use tessera_api::names::{app, config_map, label, service_account};
use tessera_runtime::template::{
    self, Operand, config_hash, env, env_field, host_path, mount, mount_file, mount_propagated,
    mount_ro, validations_volume,
};

const CONTAINER: &str = "nvidia-mig-manager";
const LAYOUTS_DIR: &str = "/mig-parted-config";

pub(super) fn daemon_set(shape: &Shape<'_>, config: &MigConfig) -> DaemonSet {
    let (policy, operand) = (shape.policy, &shape.policy.mig_manager.operand);
    let command = if shape.has_validator() {
        "/bin/entrypoint.sh"
    } else {
        CONTAINER
    };
    let mut manager = main(CONTAINER, operand, command, environment(shape, config));
    manager.volume_mounts = Some(vec![
        mount_file("entrypoint", "/bin/entrypoint.sh", ENTRYPOINT),
        mount(template::VALIDATIONS_VOLUME, "/run/nvidia/validations"),
        mount("host-sys", "/sys"),
        mount_ro("mig-parted-config", LAYOUTS_DIR),
        mount_propagated("host-root", "/host", "HostToContainer"),
        mount_propagated("driver-install-dir", "/driver-root", "HostToContainer"),
        mount_ro("gpu-clients", "/gpu-clients"),
        mount("cdi-root", "/var/run/cdi"),
    ]);
    let name_of = |own: &Option<(String, _)>, default: &str| {
        own.as_ref()
            .map_or(default.to_owned(), |(name, _)| name.clone())
    };
    let volumes = vec![
        template::config_map(
            "entrypoint",
            config_map::MIG_MANAGER_ENTRYPOINT,
            &[],
            Some(0o700),
        ),
        template::config_map(
            "mig-parted-config",
            &name_of(&config.layouts, config_map::MIG_PARTED_CONFIG),
            &[],
            None,
        ),
        template::config_map(
            "gpu-clients",
            &name_of(&config.clients, config_map::GPU_CLIENTS),
            &[],
            None,
        ),
        validations_volume(),
        host_path("host-sys", "/sys", "Directory"),
        host_path("host-root", &policy.host_paths.root_fs, ""),
        host_path(
            "driver-install-dir",
            &policy.host_paths.driver_install_dir,
            "DirectoryOrCreate",
        ),
        host_path("cdi-root", "/var/run/cdi", "DirectoryOrCreate"),
    ];
    let operand = Operand {
        name: app::MIG_MANAGER.to_owned(),
        app: app::MIG_MANAGER.to_owned(),
        component: component::MIG_MANAGER.to_owned(),
        service_account: service_account::MIG_MANAGER.to_owned(),
        node_selector: shape.nodes(label::DEPLOY_MIG_MANAGER),
        uses_gpu: true,
        host_network: operand.host_network,
        host_pid: true,
        host_ipc: true,
        pull_secrets: shape.pull_secrets(operand),
        init_containers: shape.wait_for_toolkit(),
        containers: vec![manager],
        volumes,
        nri_containers: vec![CONTAINER.to_owned()],
        config_hash: Some(hash(config)),
        ..Operand::default()
    };
    shape.finish(operand, false)
}

fn environment(shape: &Shape<'_>, config: &MigConfig) -> Vec<EnvVar> {
    // The user's layouts replace those that the MIG manager derives from the cards; ours only stand in for them.
    let layouts = if config.layouts.is_some() {
        "CONFIG_FILE"
    } else {
        "DEFAULT_CONFIG_FILE"
    };
    let mut list = vec![
        env(layouts, format!("{LAYOUTS_DIR}/{FILE}")),
        env("GPU_CLIENTS_FILE", "/gpu-clients/clients.yaml"),
        env_field("DEFAULT_GPU_CLIENTS_NAMESPACE", "metadata.namespace"),
        env_field("NODE_NAME", "spec.nodeName"),
        env_field("POD_NAME", "metadata.name"),
        env_field("POD_NAMESPACE", "metadata.namespace"),
    ];
    if !shape.has_validator() {
        // The driver is the host's then, and its programs may hold the cards.
        list.push(env("WITH_SHUTDOWN_HOST_GPU_CLIENTS", "true"));
    }
    if shape.policy.cdi.enabled {
        list.extend([
            env("CDI_ENABLED", "true"),
            env("NVIDIA_CDI_HOOK_PATH", shape.cdi_hook()),
        ]);
    }
    list
}

fn hash(config: &MigConfig) -> String {
    let text = |own: &Option<(String, std::sync::Arc<Data>)>, key: &str, default: String| {
        own.as_ref().map_or(default, |(_, data)| {
            data.get(key).cloned().unwrap_or_default()
        })
    };
    let layouts = text(&config.layouts, FILE, layouts::config_file());
    let clients = text(&config.clients, "clients.yaml", GPU_CLIENTS.to_owned());
    config_hash([
        ("layouts", layouts.as_str()),
        ("clients", clients.as_str()),
        ("entrypoint", MIG_ENTRYPOINT),
    ])
}
