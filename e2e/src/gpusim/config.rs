//! The device plugin's configuration file, read as the plugin v0.20 reads it: unknown keys are dropped, some values stop it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Volume};
use kube::ResourceExt as _;
use serde::Deserialize;

use super::World;
use super::pod::Sim;

/// What of the file matters here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct PluginConfig {
    version: Option<String>,
    flags: Flags,
    sharing: Sharing,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Flags {
    mig_strategy: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Sharing {
    time_slicing: Option<Shared>,
    mps: Option<Shared>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Shared {
    rename_by_default: bool,
    resources: Vec<Replicated>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Replicated {
    name: String,
    replicas: Option<u32>,
}

/// How cards are shared; MPS wins when both are given, without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    None,
    TimeSlicing,
    Mps,
}

impl PluginConfig {
    /// Parses the file; the error is why the plugin ends.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let config: Self = if text.trim().is_empty() {
            Self::default()
        } else {
            serde_saphyr::from_str(text)
                .map_err(|error| format!("unable to load config: {error}"))?
        };
        match config.version.as_deref() {
            None | Some("" | "v1") => {}
            Some(other) => return Err(format!("unable to load config: unknown version: {other}")),
        }
        for shared in [&config.sharing.time_slicing, &config.sharing.mps]
            .into_iter()
            .flatten()
        {
            if shared.resources.is_empty() {
                return Err("unable to load config: no resources specified".to_owned());
            }
            for resource in &shared.resources {
                match resource.replicas {
                    Some(2..) => {}
                    Some(_) => {
                        return Err(
                            "unable to load config: number of replicas must be >= 2".to_owned()
                        );
                    }
                    None => return Err("unable to load config: no replicas specified".to_owned()),
                }
            }
        }
        Ok(config)
    }

    /// The strategy and its resources.
    pub(super) fn sharing(&self) -> (Strategy, Option<&Shared>) {
        match (&self.sharing.mps, &self.sharing.time_slicing) {
            (Some(mps), _) => (Strategy::Mps, Some(mps)),
            (None, Some(slicing)) => (Strategy::TimeSlicing, Some(slicing)),
            (None, None) => (Strategy::None, None),
        }
    }

    /// The file's MIG strategy.
    pub(super) fn mig_strategy(&self) -> Option<&str> {
        self.flags.mig_strategy.as_deref()
    }

    /// Replicas of a resource; 1 when it is not shared.
    pub(super) fn replicas(&self, resource: &str) -> u32 {
        let (_, shared) = self.sharing();
        let shared = shared.into_iter().flat_map(|shared| &shared.resources);
        let mut named = shared.filter(|entry| full_name(&entry.name) == resource);
        named.find_map(|entry| entry.replicas).unwrap_or(1)
    }

    /// Whether shared resources are advertised as `<name>.shared`.
    pub(super) fn renames(&self) -> bool {
        self.sharing()
            .1
            .is_some_and(|shared| shared.rename_by_default)
    }
}

fn full_name(name: &str) -> String {
    if name.contains('/') {
        name.to_owned()
    } else {
        format!("nvidia.com/{name}")
    }
}

/// Whether the pod's program reads that file.
pub(super) fn is_read_by(sim: &Sim) -> bool {
    sim.image() == "k8s-device-plugin"
        || sim
            .containers()
            .iter()
            .any(|container| env(container, "CONFIG_FILE").is_some())
            && sim.app != "nvidia-mig-manager"
}

/// The configuration that a pod of the plugin, GFD or the MPS daemon runs with on its node.
///
/// With a config-manager, the node's label `nvidia.com/device-plugin.config` names the key, else `DEFAULT_CONFIG`, else an entry
/// named `default`, else a single one (if FALLBACK_STRATEGIES says so). Without, it is the file that `CONFIG_FILE` names.
pub(super) async fn of_pod(
    world: &World,
    sim: &Sim,
    wanted: Option<&str>,
) -> Result<PluginConfig, String> {
    let namespace = sim.pod.namespace().unwrap_or_default();
    let Some(source) = source(sim) else {
        return Ok(PluginConfig::default());
    };
    let Some(data) = world.configmaps.get(&namespace, &source.map).await else {
        return Err(format!("configmap \"{}\" not found", source.map));
    };
    let key = match source.key {
        Some(key) => Some(key),
        None => chosen_key(&data, wanted, source.default.as_deref(), &source.fallbacks)?,
    };
    match key {
        None => Ok(PluginConfig::default()),
        Some(key) => match data.get(&key) {
            Some(text) => PluginConfig::parse(text),
            None => Err(format!("specified config {key} does not exist")),
        },
    }
}

fn chosen_key(
    data: &BTreeMap<String, String>,
    wanted: Option<&str>,
    default: Option<&str>,
    fallbacks: &str,
) -> Result<Option<String>, String> {
    if let Some(name) = wanted.or(default).filter(|name| !name.is_empty()) {
        return if data.contains_key(name) {
            Ok(Some(name.to_owned()))
        } else {
            Err(format!("specified config {name} does not exist"))
        };
    }
    for strategy in fallbacks.split(',') {
        match strategy {
            "named" if data.contains_key("default") => return Ok(Some("default".to_owned())),
            "single" if data.len() == 1 => return Ok(data.keys().next().cloned()),
            "empty" => return Ok(None),
            _ => {}
        }
    }
    Err("no config was chosen and no fallback fits".to_owned())
}

/// Where a pod's configuration comes from.
struct Source {
    map: String,
    /// The key, when it is fixed.
    key: Option<String>,
    default: Option<String>,
    fallbacks: String,
}

fn source(sim: &Sim) -> Option<Source> {
    let volumes = sim
        .pod
        .spec
        .as_ref()?
        .volumes
        .as_deref()
        .unwrap_or_default();
    let manager = sim
        .init_containers()
        .iter()
        .chain(sim.containers())
        .find(|container| container.name.starts_with("config-manager"));
    if let Some(manager) = manager {
        let dir = env(manager, "CONFIG_FILE_SRCDIR").unwrap_or("/available-configs");
        let (volume, _) = mounted(manager, volumes, dir)?;
        return Some(Source {
            map: volume.config_map.as_ref()?.name.clone(),
            key: None,
            default: env(manager, "DEFAULT_CONFIG").map(str::to_owned),
            fallbacks: env(manager, "FALLBACK_STRATEGIES")
                .unwrap_or("named,single")
                .to_owned(),
        });
    }
    let (container, file) = sim
        .containers()
        .iter()
        .find_map(|container| Some((container, env(container, "CONFIG_FILE")?)))?;
    let (volume, path) = mounted(container, volumes, file)?;
    let map = volume.config_map.as_ref()?;
    let item = map.items.iter().flatten().find(|item| item.path == path);
    Some(Source {
        map: map.name.clone(),
        key: Some(item.map_or(path, |item| item.key.clone())),
        default: None,
        fallbacks: String::new(),
    })
}

/// The volume that a path of a container lies in, and the rest of the path.
fn mounted<'a>(
    container: &Container,
    volumes: &'a [Volume],
    path: &str,
) -> Option<(&'a Volume, String)> {
    let mount = container
        .volume_mounts
        .iter()
        .flatten()
        .find(|mount| path.starts_with(mount.mount_path.trim_end_matches('/')))?;
    let volume = volumes.iter().find(|volume| volume.name == mount.name)?;
    let rest = path
        .strip_prefix(mount.mount_path.trim_end_matches('/'))?
        .trim_start_matches('/');
    let rest = if rest.is_empty() {
        mount.sub_path.clone().unwrap_or_default()
    } else {
        rest.to_owned()
    };
    Some((volume, rest))
}

/// The value of a variable that is set literally.
pub(super) fn env<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    container
        .env
        .iter()
        .flatten()
        .find(|var| var.name == name)?
        .value
        .as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_as_the_plugin_takes_them() {
        let config = PluginConfig::parse("version: v1\nsharing:\n  timeSlicing:\n    typo: 1\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n").unwrap();
        assert_eq!(config.replicas("nvidia.com/gpu"), 4);
        assert_eq!(config.replicas("nvidia.com/mig-1g.10gb"), 1);
        assert_eq!(config.sharing().0, Strategy::TimeSlicing);
        assert_eq!(PluginConfig::parse("").unwrap().sharing().0, Strategy::None);
    }

    #[test]
    fn files_that_stop_the_plugin() {
        for (text, reason) in [
            ("version: v2\n", "unknown version"),
            (
                "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}\n",
                ">= 2",
            ),
            (
                "sharing: {timeSlicing: {resources: [{name: gpu}]}}\n",
                "no replicas",
            ),
            ("sharing: {mps: {resources: []}}\n", "no resources"),
            ("a: [\n", "unable to load"),
        ] {
            let error = PluginConfig::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn the_key_of_a_node() {
        let data: BTreeMap<String, String> = [("a", ""), ("b", "")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let key = |wanted, default| chosen_key(&data, wanted, default, "empty");
        assert_eq!(key(Some("b"), Some("a")), Ok(Some("b".to_owned())));
        assert_eq!(key(None, Some("a")), Ok(Some("a".to_owned())));
        assert_eq!(key(None, None), Ok(None));
        assert!(key(Some("c"), None).unwrap_err().contains("does not exist"));
    }
}
