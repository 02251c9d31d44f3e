//! DaemonSet nvidia-device-plugin-daemonset. Facts: NVIDIA/gpu-operator v26.7.0 `assets/state-device-plugin`.

use super::config_manager::access;
use super::config_maps::ENTRYPOINT;
use super::pod::{Shape, main};
use super::{component, mps};
use crate::plugin_config::device_list;
use crate::validate::{Config, ConfigSource};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::EnvVar;
use tessera_api::names::{app, config_map, label, service_account};
use tessera_runtime::template::{
    self, Operand, env, host_path, mount, mount_file, mount_propagated, validations_volume,
};

const CONTAINER: &str = "nvidia-device-plugin";

pub(super) fn daemon_set(shape: &Shape<'_>, config: &Config) -> DaemonSet {
    let (policy, operand) = (shape.policy, &shape.policy.device_plugin.operand);
    let access = access(operand, config, CONTAINER);
    // Without a validator nobody makes the file that the script waits for: a driver must be there already.
    let command = if shape.has_validator() {
        "/bin/entrypoint.sh"
    } else {
        CONTAINER
    };
    let mut plugin = main(
        CONTAINER,
        operand,
        command,
        [environment(shape, config), access.env].concat(),
    );
    let mut mounts = vec![
        mount_file("entrypoint", "/bin/entrypoint.sh", ENTRYPOINT),
        mount("device-plugins", "/var/lib/kubelet/device-plugins"),
        mount(template::VALIDATIONS_VOLUME, "/run/nvidia/validations"),
        mount_propagated("driver-install-dir", "/driver-root", "HostToContainer"),
        mount_propagated("host-root", "/host", "HostToContainer"),
        mount("cdi-root", "/var/run/cdi"),
    ];
    if let Some(host) = mounts.iter_mut().find(|mount| mount.name == "host-root") {
        host.read_only = Some(true);
    }
    let mut volumes = vec![
        template::config_map(
            "entrypoint",
            config_map::DEVICE_PLUGIN_ENTRYPOINT,
            &[],
            Some(0o700),
        ),
        host_path(
            "device-plugins",
            &format!("{}/device-plugins", policy.host_paths.kubelet_root_dir),
            "",
        ),
        validations_volume(),
        host_path(
            "driver-install-dir",
            &policy.host_paths.driver_install_dir,
            "DirectoryOrCreate",
        ),
        host_path("host-root", &policy.host_paths.root_fs, ""),
        host_path("cdi-root", "/var/run/cdi", "DirectoryOrCreate"),
    ];
    if config.mps {
        // The plugin looks into the daemon's directory to see whether it is well.
        mounts.extend([mount("mps-root", "/mps"), mount("mps-shm", "/dev/shm")]);
        volumes.extend(mps::volumes(policy));
    }
    mounts.extend(access.mounts);
    volumes.extend(access.volumes);
    plugin.volume_mounts = Some(mounts);
    let operand = Operand {
        name: app::DEVICE_PLUGIN.to_owned(),
        app: app::DEVICE_PLUGIN.to_owned(),
        component: component::DEVICE_PLUGIN.to_owned(),
        service_account: service_account::DEVICE_PLUGIN.to_owned(),
        node_selector: shape.nodes(label::DEPLOY_DEVICE_PLUGIN),
        uses_gpu: true,
        host_network: operand.host_network,
        pull_secrets: shape.pull_secrets(operand),
        init_containers: [shape.wait_for_toolkit(), access.init].concat(),
        containers: [vec![plugin], access.sidecars].concat(),
        volumes,
        nri_containers: vec![CONTAINER.to_owned()],
        config_hash: Some(access.hash),
        ..Operand::default()
    };
    shape.finish(
        operand,
        matches!(config.source, ConfigSource::UserMap { .. }),
    )
}

/// What wins over the configuration file must say the same as the file.
fn environment(shape: &Shape<'_>, config: &Config) -> Vec<EnvVar> {
    let policy = shape.policy;
    let mut list = shape.gpu_env();
    list.extend([
        env("PASS_DEVICE_SPECS", "true"),
        env("FAIL_ON_INIT_ERROR", "true"),
        env(
            "DEVICE_LIST_STRATEGY",
            device_list(policy.cdi.enabled).join(","),
        ),
        env("DEVICE_ID_STRATEGY", "uuid"),
        env("MIG_STRATEGY", policy.mig.strategy.as_str()),
    ]);
    if policy.cdi.enabled {
        list.extend([
            env("CDI_ENABLED", "true"),
            env("CDI_ANNOTATION_PREFIX", "cdi.k8s.io/"),
            env("NVIDIA_CDI_HOOK_PATH", shape.cdi_hook()),
        ]);
    }
    if config.mps {
        list.push(env("MPS_ROOT", policy.device_plugin.mps_root.as_str()));
    }
    list
}
