//! How a pod gets at its configuration: a mounted file, or NVIDIA's config-manager, which picks a key by the node's label
//! before the start and signals the program when the label changes.

use super::pod::plain;
use crate::plugin_config::FILE;
use crate::validate::{Config, ConfigSource};
use k8s_openapi::api::core::v1::{Container, EnvVar, Volume, VolumeMount};
use tessera_api::effective::Operand;
use tessera_api::names::{config_map, label};
use tessera_runtime::template::{self, config_hash, empty_dir, env, env_field, mount, mount_ro};

const CONFIG_DIR: &str = "/config";
const AVAILABLE_DIR: &str = "/available-configs";

/// What a pod needs for its configuration.
pub(super) struct Access {
    /// To be run before the program.
    pub(super) init: Vec<Container>,
    /// To be run beside it.
    pub(super) sidecars: Vec<Container>,
    pub(super) volumes: Vec<Volume>,
    /// Of the program's container.
    pub(super) mounts: Vec<VolumeMount>,
    /// Of the program's container.
    pub(super) env: Vec<EnvVar>,
    /// Of everything that is read.
    pub(super) hash: String,
}

/// For the program `process` of `operand`'s image.
pub(super) fn access(operand: &Operand, config: &Config, process: &str) -> Access {
    let env = vec![env("CONFIG_FILE", format!("{CONFIG_DIR}/{FILE}"))];
    let hash = hash(config);
    match &config.source {
        ConfigSource::Rendered(_) => Access {
            init: Vec::new(),
            sidecars: Vec::new(),
            volumes: vec![template::config_map(
                "config",
                config_map::DEVICE_PLUGIN_CONFIG,
                &[],
                None,
            )],
            mounts: vec![mount_ro("config", CONFIG_DIR)],
            env,
            hash,
        },
        ConfigSource::UserMap { name, default, .. } => Access {
            init: vec![manager(
                "config-manager-init",
                operand,
                default.as_deref(),
                None,
            )],
            sidecars: vec![manager(
                "config-manager",
                operand,
                default.as_deref(),
                Some(process),
            )],
            volumes: vec![
                empty_dir("config"),
                template::config_map("available-configs", name, &[], None),
            ],
            // The chosen file is a link into the other volume, so the program needs both.
            mounts: vec![
                mount_ro("available-configs", AVAILABLE_DIR),
                mount("config", CONFIG_DIR),
            ],
            env,
            hash,
        },
    }
}

/// One hash for plugin, feature discovery and MPS daemon, so that they follow a change together.
fn hash(config: &Config) -> String {
    let script = super::config_maps::PLUGIN_ENTRYPOINT;
    match &config.source {
        ConfigSource::Rendered(text) => {
            config_hash([(FILE, text.as_str()), ("entrypoint", script)])
        }
        ConfigSource::UserMap { data, .. } => {
            let keys = data.iter().map(|(key, text)| (key.as_str(), text.as_str()));
            config_hash(keys.chain([("entrypoint/", script)]))
        }
    }
}

/// Without `signal` it picks the file once and ends. Environment: NVIDIA/k8s-device-plugin `cmd/config-manager`.
fn manager(
    name: &str,
    operand: &Operand,
    default: Option<&str>,
    signal: Option<&str>,
) -> Container {
    let is_once = signal.is_none();
    let list = vec![
        env("CONFIG_FILE_DST", format!("{CONFIG_DIR}/{FILE}")),
        env("CONFIG_FILE_SRCDIR", AVAILABLE_DIR),
        env("DEFAULT_CONFIG", default.unwrap_or_default()),
        env("FALLBACK_STRATEGIES", "empty"),
        env("NODE_LABEL", label::DEVICE_PLUGIN_CONFIG),
        env_field("NODE_NAME", "spec.nodeName"),
        env("ONESHOT", is_once.to_string()),
        env("PROCESS_TO_SIGNAL", signal.unwrap_or_default()),
        env("SEND_SIGNAL", (!is_once).to_string()),
        // 1 is SIGHUP: read the configuration again.
        env("SIGNAL", if is_once { "" } else { "1" }),
    ];
    Container {
        command: Some(vec!["config-manager".to_owned()]),
        env: Some(list),
        volume_mounts: Some(vec![
            mount_ro("available-configs", AVAILABLE_DIR),
            mount("config", CONFIG_DIR),
        ]),
        ..plain(name, operand)
    }
}
