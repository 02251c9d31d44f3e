//! The container toolkit: one DaemonSet a pool.
//!
//! Facts: NVIDIA/gpu-operator v26.7.0, `assets/state-container-toolkit` and `transformForRuntime`; NVIDIA container
//! toolkit v1.20 for the variables.

use super::{TOOLKIT, selinux, validator};
use crate::pools::{TOOLKIT_POOL, ToolkitPool};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, EnvVar, Volume, VolumeMount};
use std::collections::BTreeMap;
use tessera_api::EffectivePolicy;
use tessera_api::names::{VALIDATIONS_DIR, app, label, service_account};
use tessera_runtime::template::{
    self, Common, Operand, VALIDATIONS_VOLUME, env, env_field, host_path, main_container,
    merge_env, mount, mount_propagated, validations_volume,
};

/// Where the host's directories appear in the container (NVIDIA's names; users see them in logs).
const CONFIG_DIR: &str = "/runtime/config-dir/";
const DROP_IN_DIR: &str = "/runtime/config-dir.d/";
const SOCKET_DIR: &str = "/runtime/sock-dir/";
const NRI_DIR: &str = "/runtime/nri-sock-dir/";
/// containerd's and CRI-O's NRI socket.
const NRI_SOCKET: &str = "/var/run/nri/nri.sock";
/// Where OCI hooks are registered.
const HOOKS_DIR: &str = "/usr/share/containers/oci/hooks.d";

/// The DaemonSet of one pool.
pub fn daemon_set(policy: &EffectivePolicy, common: &Common, pool: ToolkitPool) -> DaemonSet {
    let toolkit = &policy.toolkit;
    let mut host = Host {
        user: toolkit.operand.env.clone(),
        ..Host::default()
    };
    host.runtime(policy, pool);
    let mut volumes = validator::host_volumes(policy);
    volumes.extend([
        validations_volume(),
        host_path("toolkit-root", "/run/nvidia/toolkit", "DirectoryOrCreate"),
        host_path("toolkit-install-dir", &toolkit.install_dir, ""),
        host_path("crio-hooks", HOOKS_DIR, ""),
        host_path("cdi-root", "/var/run/cdi", "DirectoryOrCreate"),
    ]);
    let main = main(policy, &mut host);
    volumes.extend(host.volumes);
    let mut secrets = toolkit.operand.image_pull_secrets.clone();
    secrets.extend(policy.validator.operand.image_pull_secrets.clone());
    template::daemon_set(
        common,
        Operand {
            name: pool.daemon_set(),
            app: app::TOOLKIT.to_owned(),
            component: TOOLKIT.to_owned(),
            service_account: service_account::TOOLKIT.to_owned(),
            pool_labels: BTreeMap::from([(TOOLKIT_POOL.to_owned(), pool.name().to_owned())]),
            node_selector: BTreeMap::from([(label::DEPLOY_TOOLKIT.to_owned(), "true".to_owned())]),
            affinity: Some(pool.affinity()),
            host_network: toolkit.operand.host_network,
            host_pid: true,
            pull_secrets: secrets,
            init_containers: vec![validator::driver_check(policy)],
            containers: vec![main],
            volumes,
            ..Operand::default()
        },
    )
}

/// Sources what the validator found out about the driver, then installs. The pause is NVIDIA's: containerd from 1.6.9 on
/// ends containers that have restarted it too soon after their own start.
fn script() -> String {
    format!(
        "until [ -f {VALIDATIONS_DIR}/driver-ready ]; do echo waiting for the driver to be validated; sleep 5; done\n\
         set -a\n\
         . {VALIDATIONS_DIR}/driver-ready\n\
         set +a\n\
         sleep 5\n\
         exec nvidia-toolkit \"$@\""
    )
}

fn main(policy: &EffectivePolicy, host: &mut Host) -> Container {
    let toolkit = &policy.toolkit;
    let mut made = selinux(main_container(
        "nvidia-container-toolkit-ctr",
        &toolkit.operand,
    ));
    let user_args = made.args.take().unwrap_or_default();
    made.command = Some(vec!["/bin/sh".to_owned(), "-c".to_owned()]);
    // What follows the script is its $0, $1, ...
    let extra = if user_args.is_empty() {
        Vec::new()
    } else {
        [vec!["nvidia-toolkit".to_owned()], user_args].concat()
    };
    made.args = Some([vec![script()], extra].concat());
    let mut ours = std::mem::take(&mut host.env);
    ours.extend([
        env("ROOT", &toolkit.install_dir),
        env("TOOLKIT_INSTALL_DIR", &toolkit.install_dir),
        env("TOOLKIT_PID_FILE", "/run/nvidia/toolkit/toolkit.pid"),
        env("NVIDIA_VISIBLE_DEVICES", "void"),
        env(
            "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND",
            "management.nvidia.com/gpu",
        ),
        env_field("NRI_NAMESPACE", "metadata.namespace"),
    ]);
    made.env = merge_env(ours, &host.user);
    let mut root = mount_propagated("host-root", "/host", "HostToContainer");
    root.read_only = Some(true);
    let mut mounts = vec![
        mount("toolkit-root", "/run/nvidia/toolkit"),
        mount(VALIDATIONS_VOLUME, VALIDATIONS_DIR),
        mount("toolkit-install-dir", &toolkit.install_dir),
        mount("crio-hooks", HOOKS_DIR),
        mount_propagated("driver-install-dir", "/driver-root", "HostToContainer"),
        root,
        mount("cdi-root", "/var/run/cdi"),
    ];
    mounts.append(&mut host.mounts);
    made.volume_mounts = Some(mounts);
    made
}

/// What of the host's runtime the container sees.
#[derive(Default)]
struct Host {
    /// The user's variables that are left. Paths of the host among them become mounts, as NVIDIA's operator does it, so
    /// that existing policies for k3s and the like go on working.
    user: BTreeMap<String, String>,
    env: Vec<EnvVar>,
    mounts: Vec<VolumeMount>,
    volumes: Vec<Volume>,
}

impl Host {
    fn runtime(&mut self, policy: &EffectivePolicy, pool: ToolkitPool) {
        let paths = pool.paths();
        let (runtime, specific) = (paths.runtime, paths.runtime.to_uppercase());
        self.set("RUNTIME", runtime);
        if runtime == "containerd" {
            self.set("CONTAINERD_RUNTIME_CLASS", &policy.runtime_class);
        }
        self.modes(policy, runtime);
        let config = self.path(
            &[&format!("{specific}_CONFIG"), "RUNTIME_CONFIG"],
            paths.config,
        );
        let config = self.mounted(
            &config,
            &format!("{runtime}-config"),
            CONFIG_DIR,
            "DirectoryOrCreate",
        );
        self.set("RUNTIME_CONFIG", &config);
        self.set(&format!("{specific}_CONFIG"), &config);
        if let Some(default) = paths.drop_in {
            let file = self.path(&["RUNTIME_DROP_IN_CONFIG"], default);
            let seen = self.mounted(
                &file,
                &format!("{runtime}-drop-in-config"),
                DROP_IN_DIR,
                "DirectoryOrCreate",
            );
            self.set("RUNTIME_DROP_IN_CONFIG", &seen);
            self.set("RUNTIME_DROP_IN_CONFIG_HOST_PATH", &file);
        }
        if let Some(source) = self
            .user
            .remove("RUNTIME_CONFIG_SOURCE")
            .or_else(|| paths.source.map(str::to_owned))
        {
            self.set("RUNTIME_CONFIG_SOURCE", &on_host(&source));
        }
        if let Some(default) = paths.socket {
            let file = self.path(&[&format!("{specific}_SOCKET"), "RUNTIME_SOCKET"], default);
            let seen = self.mounted(&file, &format!("{runtime}-socket"), SOCKET_DIR, "");
            self.set("RUNTIME_SOCKET", &seen);
            self.set(&format!("{specific}_SOCKET"), &seen);
        }
        if policy.cdi.nri {
            let file = self.path(&["NRI_SOCKET"], NRI_SOCKET);
            let seen = self.mounted(&file, "nri-socket", NRI_DIR, "DirectoryOrCreate");
            self.set("NRI_SOCKET", &seen);
        }
    }

    fn modes(&mut self, policy: &EffectivePolicy, runtime: &str) {
        if policy.cdi.enabled {
            self.set("CDI_ENABLED", "true");
            // Pods ask for devices by name; only pods with our RuntimeClass need NVIDIA's runtime.
            self.set("NVIDIA_RUNTIME_SET_AS_DEFAULT", "false");
            self.set("NVIDIA_CONTAINER_RUNTIME_MODE", "cdi");
            self.set("CRIO_CONFIG_MODE", "config");
        } else if runtime == "crio" {
            self.set("CRIO_CONFIG_MODE", "hook");
        }
        if policy.cdi.nri {
            self.set("ENABLE_NRI_PLUGIN", "true");
            // NRI's promise: the runtime's configuration is left alone, and the runtime is not restarted.
            self.set("NO_RUNTIME_CONFIG", "true");
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.env.push(env(name, value));
    }

    /// A path of the host: the user's, by the first of the variables that is set, else the default.
    fn path(&mut self, names: &[&str], default: &str) -> String {
        let given: Vec<String> = names
            .iter()
            .filter_map(|name| self.user.remove(*name))
            .filter(|path| !path.is_empty())
            .collect();
        given
            .into_iter()
            .next()
            .unwrap_or_else(|| default.to_owned())
    }

    /// Mounts the directory of `file` and returns the file's path in the container.
    fn mounted(&mut self, file: &str, volume: &str, directory: &str, type_: &str) -> String {
        let (parent, name) = file.rsplit_once('/').unwrap_or(("", file));
        let parent = if parent.is_empty() { "/" } else { parent };
        self.volumes.push(host_path(volume, parent, type_));
        self.mounts.push(mount(volume, directory));
        format!("{directory}{name}")
    }
}

/// `file=` sources name files of the host, which the container sees under /host.
fn on_host(sources: &str) -> String {
    let translated = sources
        .split(',')
        .map(|source| match source.split_once('=') {
            Some(("file", path)) => format!("file=/host/{}", path.trim_start_matches('/')),
            _ => source.to_owned(),
        });
    translated.collect::<Vec<_>>().join(",")
}
