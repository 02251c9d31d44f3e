//! The driver: one DaemonSet a pool.
//!
//! Facts: NVIDIA/gpu-operator v26.7.0, `assets/state-driver` and the variables that its images read.

mod configs;
mod containers;

use super::DRIVER;
use crate::pools::{DRIVER_POOL, DriverPool};
use crate::validate::DriverPlan;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Affinity, Container, PodAffinityTerm, PodAntiAffinity, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::json;
use std::collections::BTreeMap;
use tessera_api::EffectivePolicy;
use tessera_api::effective::hash_of;
use tessera_api::image::driver_image;
use tessera_api::names::{app, label, service_account};
use tessera_runtime::template::{self, Common, Operand, Update, host_path};

/// Variable (and, as annotation `aiops.local/config-hash`, mark of the pods) with the hash of all that the driver is
/// made from: with the same value the running driver can stay.
const DIGEST: &str = "DRIVER_CONFIG_DIGEST";
/// Label by which NVIDIA's tools tell precompiled drivers.
const PRECOMPILED: &str = "nvidia.com/precompiled";

/// The DaemonSet of one pool.
pub fn daemon_set(
    policy: &EffectivePolicy,
    common: &Common,
    plan: &DriverPlan,
    pool: &DriverPool,
) -> DaemonSet {
    let driver = &policy.driver;
    let image = driver_image(&driver.operand.image, &pool.os, pool.kernel.as_deref()).to_string();
    let mut main = containers::driver(policy, &image);
    let mut peermem = driver
        .rdma
        .enabled
        .then(|| containers::peermem(policy, &image));
    let mut sidecars = containers::sidecars(policy, pool);
    let mut volumes = volumes(policy);
    configs::mount(
        policy,
        plan,
        pool,
        &mut main,
        peermem.as_mut(),
        &mut volumes,
    );
    for sidecar in &mut sidecars {
        configs::packages(plan, pool, sidecar, &mut Vec::new());
        sidecar.env_from.clone_from(&main.env_from);
    }
    let mut running: Vec<Container> = std::iter::once(main)
        .chain(peermem)
        .chain(sidecars)
        .collect();
    let digest = digest(&running, &volumes, plan);
    let mut manager = containers::manager(policy);
    for container in running.iter_mut().chain([&mut manager]) {
        containers::set(container, DIGEST, &digest);
    }
    let mut secrets = driver.operand.image_pull_secrets.clone();
    secrets.extend(driver.manager.image_pull_secrets.clone());
    secrets.extend(
        [&driver.gds, &driver.gdrcopy]
            .into_iter()
            .flatten()
            .flat_map(|s| s.image_pull_secrets.clone()),
    );
    template::daemon_set(
        common,
        Operand {
            name: pool.daemon_set(),
            app: app::DRIVER.to_owned(),
            component: DRIVER.to_owned(),
            service_account: service_account::DRIVER.to_owned(),
            pool_labels: BTreeMap::from([(DRIVER_POOL.to_owned(), pool.name())]),
            pod_labels: BTreeMap::from([(
                PRECOMPILED.to_owned(),
                driver.use_precompiled.to_string(),
            )]),
            pod_annotations: BTreeMap::from([(
                "kubectl.kubernetes.io/default-container".to_owned(),
                containers::MAIN.to_owned(),
            )]),
            node_selector: BTreeMap::from([(label::DEPLOY_DRIVER.to_owned(), "true".to_owned())]),
            affinity: Some(affinity(pool)),
            host_network: driver.operand.host_network,
            host_pid: true,
            pull_secrets: secrets,
            init_containers: vec![manager],
            containers: running,
            volumes,
            config_hash: Some(digest),
            // A driver is replaced by a plan (crate::upgrade), never by a changed template alone.
            update: Some(Update::OnDelete),
            ..Operand::default()
        },
    )
}

/// The pool's nodes, and never two drivers on one node, whoever made the other.
fn affinity(pool: &DriverPool) -> Affinity {
    let other_driver = LabelSelectorRequirement {
        key: label::COMPONENT.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![DRIVER.to_owned()]),
    };
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_expressions: Some(vec![other_driver]),
            ..LabelSelector::default()
        }),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![term]),
            ..PodAntiAffinity::default()
        }),
        ..pool.affinity()
    }
}

/// What a running driver depends on. Probe times, pull policies, the init container and everything about scheduling
/// are left out: they take effect whenever the pod is made anew, and are no reason to take a node out of service.
fn digest(containers: &[Container], volumes: &[Volume], plan: &DriverPlan) -> String {
    let parts: Vec<_> = containers
        .iter()
        .map(|c| {
            json!([
                c.name,
                c.image,
                c.command,
                c.args,
                c.env,
                c.env_from,
                c.volume_mounts,
                c.resources
            ])
        })
        .collect();
    let configs: BTreeMap<&str, &str> = [&plan.repo, &plan.certs, &plan.modules]
        .into_iter()
        .flatten()
        .map(|config| (config.name.as_str(), config.facts.hash.as_str()))
        .chain(
            plan.hashes
                .iter()
                .map(|(name, hash)| (name.as_str(), hash.as_str())),
        )
        .collect();
    hash_of(&json!([parts, volumes, configs]))
}

fn volumes(policy: &EffectivePolicy) -> Vec<Volume> {
    let host = &policy.host_paths;
    let rdma = policy.driver.rdma;
    // A RDMA driver on the host has its sources there; one in a container shares them by a directory of its own.
    let sources = if rdma.enabled && rdma.use_host_mofed {
        "/usr/src"
    } else {
        "/run/mellanox/drivers/usr/src"
    };
    let firmware = format!(
        "{}/lib/firmware",
        host.driver_install_dir.trim_end_matches('/')
    );
    vec![
        host_path("run-nvidia", "/run/nvidia", "DirectoryOrCreate"),
        host_path(
            "run-nvidia-fabricmanager",
            "/run/nvidia-fabricmanager",
            "DirectoryOrCreate",
        ),
        host_path(
            "run-nvidia-topologyd",
            "/run/nvidia-topologyd",
            "DirectoryOrCreate",
        ),
        host_path(
            "run-mellanox-drivers",
            "/run/mellanox/drivers",
            "DirectoryOrCreate",
        ),
        host_path("mlnx-ofed-usr-src", sources, "DirectoryOrCreate"),
        host_path("nv-firmware", &firmware, "DirectoryOrCreate"),
        host_path(
            "firmware-search-path",
            "/sys/module/firmware_class/parameters/path",
            "",
        ),
        host_path(
            "sysfs-memory-online",
            "/sys/devices/system/memory/auto_online_blocks",
            "",
        ),
        host_path("host-os-release", "/etc/os-release", ""),
        host_path("host-root", &host.root_fs, ""),
        host_path("host-sys", "/sys", "Directory"),
        host_path("var-log", "/var/log", ""),
        host_path("dev-log", "/dev/log", ""),
        template::config_map(
            containers::PROBE_VOLUME,
            tessera_api::names::config_map::DRIVER_STARTUP_PROBE,
            &[],
            Some(0o755),
        ),
    ]
}
