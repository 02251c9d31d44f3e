//! Files that a driver container gets from ConfigMaps, Secrets and the host.

use crate::pools::DriverPool;
use crate::validate::{
    DriverPlan, LICENCE_FILE, MountedConfig, TOKEN_FILE, TOPOLOGY_FILE, package_paths,
};
use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use tessera_api::EffectivePolicy;
use tessera_api::effective::Licensing;
use tessera_runtime::template::{config_map, host_path, mount_file, mount_ro, secret};

/// Where the driver container looks for kernel module parameters and the licence.
const DRIVERS_DIR: &str = "/drivers";

/// Mounts all of them.
pub(super) fn mount(
    policy: &EffectivePolicy,
    plan: &DriverPlan,
    pool: &DriverPool,
    main: &mut Container,
    mut peermem: Option<&mut Container>,
    volumes: &mut Vec<Volume>,
) {
    let driver = &policy.driver;
    if let Some(licence) = &driver.licensing {
        licensing(licence, main, volumes);
    }
    if let Some(name) = &driver.virtual_topology {
        volumes.push(config_map(
            "topology-config",
            name,
            &[(TOPOLOGY_FILE, TOPOLOGY_FILE)],
            None,
        ));
        add(
            main,
            mount_file(
                "topology-config",
                "/etc/nvidia/nvidia-topologyd.conf",
                TOPOLOGY_FILE,
            ),
        );
    }
    if let Some(modules) = &plan.modules {
        files("kernel-module-config", modules, DRIVERS_DIR, main, volumes);
        if let Some(peermem) = peermem.as_mut() {
            files(
                "kernel-module-config",
                modules,
                DRIVERS_DIR,
                peermem,
                &mut Vec::new(),
            );
        }
    }
    packages(plan, pool, main, volumes);
    if !driver.use_precompiled {
        subscription(pool, main, volumes);
    }
}

/// Where packages come from: for every container that installs some.
pub(super) fn packages(
    plan: &DriverPlan,
    pool: &DriverPool,
    container: &mut Container,
    volumes: &mut Vec<Volume>,
) {
    let Some((sources, certificates)) = package_paths(&pool.os.id) else {
        return;
    };
    if let Some(repo) = &plan.repo {
        files("repo-config", repo, sources, container, volumes);
    }
    if let Some(certs) = &plan.certs {
        files("cert-config", certs, certificates, container, volumes);
    }
}

/// Each key as a file of its own, so that the directory keeps its other files.
fn files(
    volume: &str,
    config: &MountedConfig,
    directory: &str,
    container: &mut Container,
    volumes: &mut Vec<Volume>,
) {
    volumes.push(config_map(volume, &config.name, &[], None));
    for key in &config.facts.keys {
        add(
            container,
            mount_file(volume, &format!("{directory}/{key}"), key),
        );
    }
}

fn licensing(licence: &Licensing, main: &mut Container, volumes: &mut Vec<Volume>) {
    let mut items = vec![(LICENCE_FILE, LICENCE_FILE)];
    if licence.nls_enabled {
        items.push((TOKEN_FILE, TOKEN_FILE));
    }
    let volume = match (&licence.secret_name, &licence.config_map_name) {
        (Some(name), _) => secret("licensing-config", name, &items),
        (None, Some(name)) => config_map("licensing-config", name, &items, None),
        (None, None) => return,
    };
    volumes.push(volume);
    add(
        main,
        mount_file(
            "licensing-config",
            &format!("{DRIVERS_DIR}/{LICENCE_FILE}"),
            LICENCE_FILE,
        ),
    );
    if licence.nls_enabled {
        let token = format!("{DRIVERS_DIR}/ClientConfigToken/{TOKEN_FILE}");
        add(main, mount_file("licensing-config", &token, TOKEN_FILE));
    }
}

/// The host's right to install packages of a distribution that sells it (NVIDIA/gpu-operator, `SubscriptionPathMap`).
fn subscription(pool: &DriverPool, main: &mut Container, volumes: &mut Vec<Volume>) {
    let paths: &[(&str, &str, &str)] = match pool.os.id.as_str() {
        "rhel" => &[
            (
                "/etc/pki/entitlement",
                "/run/secrets/etc-pki-entitlement",
                "Directory",
            ),
            (
                "/etc/yum.repos.d/redhat.repo",
                "/run/secrets/redhat.repo",
                "File",
            ),
            ("/etc/rhsm", "/run/secrets/rhsm", "Directory"),
        ],
        "sles" | "sl-micro" => &[
            (
                "/etc/zypp/credentials.d",
                "/etc/zypp/credentials.d",
                "Directory",
            ),
            ("/etc/SUSEConnect", "/etc/SUSEConnect", "FileOrCreate"),
        ],
        _ => &[],
    };
    for (number, (host, path, type_)) in paths.iter().enumerate() {
        let name = format!("subscription-config-{number}");
        volumes.push(host_path(&name, host, type_));
        add(main, mount_ro(&name, path));
    }
}

fn add(container: &mut Container, mount: VolumeMount) {
    container
        .volume_mounts
        .get_or_insert_with(Vec::new)
        .push(mount);
}
