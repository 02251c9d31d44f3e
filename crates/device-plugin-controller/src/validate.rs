//! Policy and ConfigMaps become one value that can be built without a question; every mistake of a user is found here.

use crate::observe::Maps;
use crate::plugin_config::{FILE, PluginFile};
use crate::referenced::{Data, MapState};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_api::conditions::Reason;
use tessera_api::effective::{Component, EffectivePolicy, Operand, PluginConfig, Sharing};
use tessera_api::judge::{Severity, layout_file};
use tessera_api::plugin_file::{Configs, Parsed, Shares, parse};

/// Why a component cannot be brought to what the policy asks for. Its last good state stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Reason of the condition.
    pub reason: Reason,
    /// Object, cause, next step.
    pub message: String,
}

/// What to do with a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan<T> {
    /// The policy turns it off: its objects go.
    Off,
    /// It cannot be used: its objects stay as they are.
    Keep(Fault),
    /// Run it so.
    Run(T),
}

impl<T> Plan<T> {
    /// The fault, if there is one.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Keep(fault) => Some(fault),
            Self::Off | Self::Run(_) => None,
        }
    }
}

/// Where the plugin, feature discovery and the MPS daemon read their configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// From the file that Tessera renders.
    Rendered(String),
    /// From the user's ConfigMap, a key a node.
    UserMap {
        /// Its name.
        name: String,
        /// Key of nodes that choose none.
        default: Option<String>,
        /// Its content.
        data: Arc<Data>,
    },
}

/// Their configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where it is read.
    pub source: ConfigSource,
    /// Whether cards are shared by MPS.
    pub mps: bool,
    /// What has no effect although it is written.
    pub notes: Vec<String>,
}

/// The MIG manager's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigConfig {
    /// The user's own layouts; none for those that Tessera ships.
    pub layouts: Option<(String, Arc<Data>)>,
    /// The user's own list of programs on the host.
    pub clients: Option<(String, Arc<Data>)>,
}

/// What can be built.
#[derive(Clone, Debug, PartialEq)]
pub struct Validated {
    /// The policy.
    pub policy: Arc<EffectivePolicy>,
    /// Device plugin, with the MPS daemon.
    pub plugin: Plan<Config>,
    /// Feature discovery.
    pub gfd: Plan<Config>,
    /// MIG manager.
    pub mig: Plan<MigConfig>,
    /// What nodes should advertise.
    pub configs: Configs,
    /// Names of the user's own MIG layouts.
    pub layouts: Option<Vec<String>>,
}

/// `Err` names a ConfigMap that has not been read yet: nothing can be decided before.
pub fn validate(
    policy: Arc<EffectivePolicy>,
    maps: &Maps,
    namespace: &str,
) -> Result<Validated, String> {
    if let Some((name, _)) = maps.iter().find(|(_, state)| **state == MapState::Loading) {
        return Err(name.clone());
    }
    let (config, configs) = config(&policy, maps, namespace);
    // Feature discovery reads the plugin's configuration: what cannot be used for the one is not tried on the other.
    let bad_config = policy.problems.iter().find(|problem| {
        problem.component == Component::DevicePlugin && problem.path.starts_with(PLUGIN_CONFIG)
    });
    let config = match bad_config {
        Some(problem) => Err(invalid(&problem.to_string())),
        None => config,
    };
    let run = |operand: &Operand| plan(operand, || config.clone());
    let mig = plan(&policy.mig_manager.operand, || {
        mig(&policy, maps, namespace)
    });
    let layouts = match &mig {
        Plan::Run(MigConfig {
            layouts: Some((_, data)),
            ..
        }) => layout_names(data),
        Plan::Run(_) | Plan::Off | Plan::Keep(_) => None,
    };
    Ok(Validated {
        plugin: run(&policy.device_plugin.operand),
        gfd: run(&policy.gfd.operand),
        mig,
        configs,
        layouts,
        policy,
    })
}

/// Path of the plugin's configuration in the policy.
const PLUGIN_CONFIG: &str = "devicePlugin.config";

fn invalid(why: &str) -> Fault {
    Fault {
        reason: Reason::InvalidSpec,
        message: format!("{why}; what ran before keeps running"),
    }
}

fn plan<T>(operand: &Operand, config: impl FnOnce() -> Result<T, Fault>) -> Plan<T> {
    if !operand.enabled {
        return Plan::Off;
    }
    if let Some(why) = &operand.invalid {
        return Plan::Keep(invalid(why));
    }
    match config() {
        Ok(config) => Plan::Run(config),
        Err(fault) => Plan::Keep(fault),
    }
}

fn config(
    policy: &EffectivePolicy,
    maps: &Maps,
    namespace: &str,
) -> (Result<Config, Fault>, Configs) {
    match &policy.device_plugin.config {
        PluginConfig::Inline(sharing) => {
            let file = PluginFile::of(policy, sharing).render();
            let is_mps = matches!(sharing, Sharing::Mps(_)) && sharing.is_active();
            let config = Config {
                source: ConfigSource::Rendered(file),
                mps: is_mps,
                notes: Vec::new(),
            };
            (Ok(config), Configs::Same(Shares::of(policy, sharing)))
        }
        PluginConfig::ConfigMap { name, default } => {
            match user_map(policy, maps, namespace, name, default.as_deref()) {
                Ok((config, configs)) => (Ok(config), configs),
                Err(fault) => (Err(fault), Configs::Unknown),
            }
        }
    }
}

fn user_map(
    policy: &EffectivePolicy,
    maps: &Maps,
    namespace: &str,
    name: &str,
    default: Option<&str>,
) -> Result<(Config, Configs), Fault> {
    let data = present(maps, namespace, name, "devicePlugin.config.name")?;
    if let Some(key) = default.filter(|key| !data.contains_key(*key)) {
        return Err(no_key(
            namespace,
            name,
            key,
            "devicePlugin.config.default",
            &data,
        ));
    }
    if data.is_empty() {
        let message = format!(
            "ConfigMap {namespace}/{name} (spec.devicePlugin.config.name) has no entry: add one, whose key nodes can choose"
        );
        return Err(Fault {
            reason: Reason::ConfigKeyNotFound,
            message,
        });
    }
    let parsed: BTreeMap<&String, Parsed> = data
        .iter()
        .map(|(key, text)| (key, parse(text, policy.mig.strategy)))
        .collect();
    let problems: Vec<String> = parsed
        .iter()
        .flat_map(|(key, file)| {
            file.problems
                .iter()
                .map(move |problem| format!("key {key}: {problem}"))
        })
        .collect();
    if !problems.is_empty() {
        return Err(unusable(&format!("{namespace}/{name}"), &problems));
    }
    let notes = parsed.iter().flat_map(|(key, file)| {
        file.notes
            .iter()
            .map(move |note| format!("ConfigMap {name}, key {key}: {note}"))
    });
    let config = Config {
        source: ConfigSource::UserMap {
            name: name.to_owned(),
            default: default.map(str::to_owned),
            data: data.clone(),
        },
        mps: parsed.values().any(|file| file.shares.mps),
        notes: notes.collect(),
    };
    let configs = Configs::by_label(name, parsed.iter().map(|(key, file)| (*key, file)), default);
    Ok((config, configs))
}

fn mig(policy: &EffectivePolicy, maps: &Maps, namespace: &str) -> Result<MigConfig, Fault> {
    let entry = |name: &Option<String>, path: &str, key: &str| {
        let Some(name) = name else { return Ok(None) };
        let data = present(maps, namespace, name, path)?;
        if data.contains_key(key) {
            Ok(Some((name.clone(), data)))
        } else {
            Err(no_key(namespace, name, key, path, &data))
        }
    };
    let layouts = entry(
        &policy.mig_manager.config_map,
        "migManager.config.name",
        FILE,
    )?;
    if let Some((name, data)) = &layouts {
        // The MIG manager refuses the whole file for one mistake, and a layout that fits on no card fails on the node.
        let found = layout_file(data.get(FILE).map_or("", String::as_str));
        let refused = found
            .into_iter()
            .filter(|(severity, _)| *severity == Severity::Refuse);
        let mistakes: Vec<String> = refused.map(|(_, mistake)| mistake.to_string()).collect();
        if !mistakes.is_empty() {
            let place = format!("{namespace}/{name}, key {FILE}");
            return Err(unusable(&place, &mistakes));
        }
    }
    let clients = entry(
        &policy.mig_manager.gpu_clients_config,
        "migManager.gpuClientsConfig.name",
        "clients.yaml",
    )?;
    Ok(MigConfig { layouts, clients })
}

/// What is at `place` in a user's ConfigMap cannot be used.
fn unusable(place: &str, problems: &[String]) -> Fault {
    let problems = some_of(problems);
    Fault {
        reason: Reason::ConfigInvalid,
        message: format!("ConfigMap {place}: {problems}; what ran before keeps running"),
    }
}

fn layout_names(data: &Data) -> Option<Vec<String>> {
    let file = tessera_api::mig::layout::parse(data.get(FILE)?);
    Some(file.layouts.into_keys().collect())
}

fn present(maps: &Maps, namespace: &str, name: &str, path: &str) -> Result<Arc<Data>, Fault> {
    match maps.get(name) {
        Some(MapState::Present(data)) => Ok(data.clone()),
        Some(MapState::Absent | MapState::Loading) | None => {
            let message = format!(
                "ConfigMap {namespace}/{name}, named by spec.{path}, does not exist: create it, or remove the name; what ran before keeps running"
            );
            Err(Fault {
                reason: Reason::ConfigMapNotFound,
                message,
            })
        }
    }
}

fn no_key(namespace: &str, name: &str, key: &str, path: &str, data: &Data) -> Fault {
    let known: Vec<&str> = data.keys().map(String::as_str).collect();
    let known = if known.is_empty() {
        "no key at all".to_owned()
    } else {
        format!("only {}", known.join(", "))
    };
    let message = format!(
        "ConfigMap {namespace}/{name} has no key {key} (spec.{path}); it has {known}; what ran before keeps running"
    );
    Fault {
        reason: Reason::ConfigKeyNotFound,
        message,
    }
}

/// The first three, and how many more.
fn some_of(list: &[String]) -> String {
    let shown = list.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
    match list.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}
