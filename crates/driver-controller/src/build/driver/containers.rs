//! Containers of a driver pod.

use super::super::{config_map, selinux};
use crate::pools::DriverPool;
use k8s_openapi::api::core::v1::{
    Container, EnvFromSource, ExecAction, Lifecycle, LifecycleHandler, Probe, SecretEnvSource,
};
use tessera_api::EffectivePolicy;
use tessera_api::effective::{DriverSidecar, ProbeTimes};
use tessera_api::image::driver_image;
use tessera_api::names::VALIDATIONS_DIR;
use tessera_api::policy::KernelModuleType;
use tessera_runtime::template::{
    container, env, env_field, main_container, merge_env, mount, mount_file, mount_propagated,
    mount_ro,
};

/// The main container.
pub(super) const MAIN: &str = "nvidia-driver-ctr";
/// Volume of the startup probe's script.
pub(super) const PROBE_VOLUME: &str = "driver-startup-probe-script";
/// Where the script is mounted.
const PROBE_PATH: &str = "/usr/local/bin/startup-probe.sh";

const BOTH_WAYS: &str = "Bidirectional";
const FROM_HOST: &str = "HostToContainer";

/// What driver-manager would evict and drain with, cordoning and uncordoning around it.
const EVICTIONS: [&str; 2] = ["ENABLE_GPU_POD_EVICTION", "ENABLE_AUTO_DRAIN"];

/// Prepares the node: pauses the other operands, waits for pods that use GPUs, unloads the old modules. Its variables
/// are no reason for another driver.
pub(super) fn manager(policy: &EffectivePolicy) -> Container {
    let manager = &policy.driver.manager;
    let ours = vec![
        env_field("NODE_NAME", "spec.nodeName"),
        env_field("OPERATOR_NAMESPACE", "metadata.namespace"),
        // Always run by the plain runtime: NVIDIA's is what this pod makes possible.
        env("NVIDIA_VISIBLE_DEVICES", "void"),
        env("ENABLE_GPU_POD_EVICTION", "true"),
        env("ENABLE_AUTO_DRAIN", "false"),
        env("DRAIN_USE_FORCE", "false"),
        env("DRAIN_POD_SELECTOR_LABEL", ""),
        env("DRAIN_TIMEOUT_SECONDS", "0s"),
        env("DRAIN_DELETE_EMPTYDIR_DATA", "false"),
    ];
    let mut made = container(
        "k8s-driver-manager",
        &manager.image.to_string(),
        manager.image_pull_policy.as_str(),
    );
    made.command = Some(vec!["driver-manager".to_owned()]);
    made.args = Some(vec!["uninstall_driver".to_owned()]);
    made.env = merge_env(ours.into_iter().chain(rdma(policy)).collect(), &manager.env);
    if policy.driver.upgrade.auto_upgrade {
        // The upgrades of this controller clear the node, within its budget. Driver-manager would do it at any restart of
        // the pod, and then uncordon the node whoever cordoned it (uninstallDriver in cmd/driver-manager/main.go of
        // k8s-driver-manager). Values made for NVIDIA's chart say "true" here, which NVIDIA's operator overrules too.
        for name in EVICTIONS {
            set(&mut made, name, "false");
        }
    }
    let mut root = mount_propagated("host-root", "/host", FROM_HOST);
    root.read_only = Some(true);
    made.volume_mounts = Some(vec![
        mount_propagated("run-nvidia", "/run/nvidia", BOTH_WAYS),
        root,
        mount("host-sys", "/sys"),
        mount_propagated("run-mellanox-drivers", "/run/mellanox/drivers", FROM_HOST),
    ]);
    made
}

/// Installs and loads the driver, then stays.
pub(super) fn driver(policy: &EffectivePolicy, image: &str) -> Container {
    let driver = &policy.driver;
    let mut ours = vec![
        env_field("NODE_NAME", "spec.nodeName"),
        env_field("NODE_IP", "status.hostIP"),
        env("NVIDIA_VISIBLE_DEVICES", "void"),
        env("KERNEL_MODULE_TYPE", driver.kernel_module_type.as_str()),
    ];
    if driver.kernel_module_type == KernelModuleType::Open {
        // Read by images older than KERNEL_MODULE_TYPE.
        ours.push(env("OPEN_KERNEL_MODULES_ENABLED", "true"));
    }
    // What the validator must find, told by the startup probe's file.
    ours.extend(driver.gds.as_ref().map(|_| env("GDS_ENABLED", "true")));
    ours.extend(
        driver
            .gdrcopy
            .as_ref()
            .map(|_| env("GDRCOPY_ENABLED", "true")),
    );
    ours.extend(rdma(policy));
    let mut made = selinux(main_container(MAIN, &driver.operand));
    made.image = Some(image.to_owned());
    made.command = Some(vec!["nvidia-driver".to_owned()]);
    made.args = made.args.or_else(|| Some(vec!["init".to_owned()]));
    made.env = merge_env(ours, &driver.operand.env);
    made.env_from = driver.secret_env.as_ref().map(|name| {
        let secret = SecretEnvSource {
            name: name.clone(),
            optional: None,
        };
        vec![EnvFromSource {
            secret_ref: Some(secret),
            ..EnvFromSource::default()
        }]
    });
    made.volume_mounts = Some(vec![
        mount_propagated("run-nvidia", "/run/nvidia", BOTH_WAYS),
        mount("run-nvidia-fabricmanager", "/run/nvidia-fabricmanager"),
        mount("run-nvidia-topologyd", "/run/nvidia-topologyd"),
        mount("var-log", "/var/log"),
        mount("dev-log", "/dev/log"),
        mount_ro("host-os-release", "/host-etc/os-release"),
        mount_propagated(
            "mlnx-ofed-usr-src",
            "/run/mellanox/drivers/usr/src",
            FROM_HOST,
        ),
        mount_propagated("run-mellanox-drivers", "/run/mellanox/drivers", FROM_HOST),
        mount(
            "sysfs-memory-online",
            "/sys/devices/system/memory/auto_online_blocks",
        ),
        mount(
            "firmware-search-path",
            "/sys/module/firmware_class/parameters/path",
        ),
        mount("nv-firmware", "/lib/firmware"),
        mount_file(PROBE_VOLUME, PROBE_PATH, config_map::SCRIPT),
    ]);
    made.startup_probe = Some(probe(exec(&["sh", PROBE_PATH]), driver.startup_probe));
    let alive = || {
        exec(&[
            "sh",
            "-c",
            "test -e /sys/module/nvidia/refcnt && nvidia-smi > /dev/null",
        ])
    };
    made.liveness_probe = driver.liveness_probe.map(|times| probe(alive(), times));
    made.readiness_probe = driver.readiness_probe.map(|times| probe(alive(), times));
    let not_ready = format!("rm -f {VALIDATIONS_DIR}/.driver-ctr-ready");
    made.lifecycle = Some(Lifecycle {
        pre_stop: Some(LifecycleHandler {
            exec: Some(exec(&["/bin/sh", "-c", &not_ready])),
            ..LifecycleHandler::default()
        }),
        ..Lifecycle::default()
    });
    made
}

/// Loads nvidia-peermem whenever the RDMA driver was replaced.
pub(super) fn peermem(policy: &EffectivePolicy, image: &str) -> Container {
    let driver = &policy.driver;
    let mut made = selinux(container(
        "nvidia-peermem-ctr",
        image,
        driver.operand.image_pull_policy.as_str(),
    ));
    made.command = Some(vec!["nvidia-driver".to_owned()]);
    made.args = Some(vec!["reload_nvidia_peermem".to_owned()]);
    made.env = merge_env(rdma(policy), &driver.operand.env);
    made.resources.clone_from(&driver.operand.resources);
    made.volume_mounts = Some(vec![
        mount_propagated("run-nvidia", "/run/nvidia", BOTH_WAYS),
        mount("var-log", "/var/log"),
        mount_ro("dev-log", "/dev/log"),
        mount_propagated("run-mellanox-drivers", "/run/mellanox/drivers", FROM_HOST),
    ]);
    let loaded = || exec(&["sh", "-c", "nvidia-driver probe_nvidia_peermem"]);
    let times = |initial_delay_seconds, period_seconds, failure_threshold| ProbeTimes {
        initial_delay_seconds,
        timeout_seconds: 10,
        period_seconds,
        success_threshold: 1,
        failure_threshold,
    };
    made.startup_probe = Some(probe(loaded(), times(10, 10, 120)));
    made.liveness_probe = Some(probe(loaded(), times(30, 30, 1)));
    made
}

/// GPUDirect Storage and GDRCopy: each builds and loads its module when the driver's sources are there.
pub(super) fn sidecars(policy: &EffectivePolicy, pool: &DriverPool) -> Vec<Container> {
    let driver = &policy.driver;
    let kinds = [
        (
            &driver.gds,
            "nvidia-fs-ctr",
            "nvidia-gds-driver",
            "nvidia_fs",
        ),
        (
            &driver.gdrcopy,
            "nvidia-gdrcopy-ctr",
            "nvidia-gdrcopy-driver",
            "gdrdrv",
        ),
    ];
    let wanted = kinds
        .into_iter()
        .filter_map(|(sidecar, name, program, module)| {
            Some((sidecar.as_ref()?, name, program, module))
        });
    wanted
        .map(|(sidecar, name, program, module)| {
            self::sidecar(policy, pool, sidecar, (name, program, module))
        })
        .collect()
}

fn sidecar(
    policy: &EffectivePolicy,
    pool: &DriverPool,
    sidecar: &DriverSidecar,
    (name, program, module): (&str, &str, &str),
) -> Container {
    let image = driver_image(&sidecar.image, &pool.os, None).to_string();
    let mut made = selinux(container(name, &image, sidecar.image_pull_policy.as_str()));
    let script = format!(
        "until [ -d /run/nvidia/driver/usr/src ] && grep -q '^nvidia ' /proc/modules; do echo waiting for the driver; sleep 10; done; exec {program} install"
    );
    made.command = Some(vec!["bash".to_owned(), "-c".to_owned()]);
    made.args = Some(if sidecar.args.is_empty() {
        vec![script]
    } else {
        sidecar.args.clone()
    });
    made.env = merge_env(Vec::new(), &sidecar.env);
    made.resources.clone_from(&policy.driver.operand.resources);
    made.volume_mounts = Some(vec![
        mount_propagated("run-nvidia", "/run/nvidia", FROM_HOST),
        mount("var-log", "/var/log"),
        mount_ro("dev-log", "/dev/log"),
    ]);
    let loaded = format!("grep -q '^{module} ' /proc/modules");
    let times = ProbeTimes {
        initial_delay_seconds: 10,
        timeout_seconds: 10,
        period_seconds: 10,
        success_threshold: 1,
        failure_threshold: 120,
    };
    made.startup_probe = Some(probe(exec(&["sh", "-c", &loaded]), times));
    made
}

fn rdma(policy: &EffectivePolicy) -> Vec<k8s_openapi::api::core::v1::EnvVar> {
    let rdma = policy.driver.rdma;
    let mut variables = Vec::new();
    if rdma.enabled {
        variables.push(env("GPU_DIRECT_RDMA_ENABLED", "true"));
        if rdma.use_host_mofed {
            variables.push(env("USE_HOST_MOFED", "true"));
        }
    }
    variables
}

/// Sets a variable that nobody else may set.
pub(super) fn set(container: &mut Container, name: &str, value: &str) {
    let variables = container.env.get_or_insert_with(Vec::new);
    variables.retain(|variable| variable.name != name);
    variables.insert(0, env(name, value));
}

fn exec(command: &[&str]) -> ExecAction {
    ExecAction {
        command: Some(command.iter().map(ToString::to_string).collect()),
    }
}

fn probe(exec: ExecAction, times: ProbeTimes) -> Probe {
    Probe {
        exec: Some(exec),
        initial_delay_seconds: Some(times.initial_delay_seconds),
        timeout_seconds: Some(times.timeout_seconds),
        period_seconds: Some(times.period_seconds),
        success_threshold: Some(times.success_threshold),
        failure_threshold: Some(times.failure_threshold),
        ..Probe::default()
    }
}
