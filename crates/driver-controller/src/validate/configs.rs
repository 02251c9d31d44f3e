//! ConfigMaps of the user that the driver reads.

use k8s_openapi::api::core::v1::ConfigMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_api::conditions::Reason;
use tessera_api::effective::hash_of;

/// Key of the vGPU licence's settings.
pub(crate) const LICENCE_FILE: &str = "gridd.conf";
/// Key of the vGPU licence's client token.
pub(crate) const TOKEN_FILE: &str = "client_configuration_token.tok";
/// Key of the vGPU topology daemon's settings.
pub(crate) const TOPOLOGY_FILE: &str = "nvidia-topologyd.conf";

/// A ConfigMap, cut to what decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFacts {
    /// Its keys, sorted.
    pub keys: Vec<String>,
    /// Hash of its content.
    pub hash: String,
}

impl ConfigFacts {
    /// Reads a ConfigMap.
    pub fn of(map: &ConfigMap) -> Self {
        let text = map.data.iter().flat_map(BTreeMap::keys);
        let binary = map.binary_data.iter().flat_map(BTreeMap::keys);
        let mut keys: Vec<String> = text.chain(binary).cloned().collect();
        keys.sort();
        Self {
            keys,
            hash: hash_of(&(&map.data, &map.binary_data)),
        }
    }
}

/// A ConfigMap whose keys are mounted one by one, so that other files of the directory stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedConfig {
    /// Its name.
    pub name: String,
    /// Its content.
    pub facts: ConfigFacts,
}

/// The ConfigMaps of a namespace.
pub(crate) struct Configs<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) known: &'a BTreeMap<String, Arc<ConfigFacts>>,
}

impl Configs<'_> {
    /// The ConfigMap that the policy names at `path`.
    fn get(&self, path: &str, name: &str) -> Result<&ConfigFacts, (Reason, String)> {
        self.known.get(name).map(AsRef::as_ref).ok_or_else(|| {
            let message = format!(
                "ConfigMap {}/{name}, named by spec.{path}, does not exist: create it, or change the field",
                self.namespace
            );
            (Reason::ConfigMapNotFound, message)
        })
    }

    /// The ConfigMap at `path`, if one is named.
    pub(crate) fn mounted(
        &self,
        path: &str,
        name: Option<&String>,
    ) -> Result<Option<MountedConfig>, (Reason, String)> {
        let found = name.map(|name| {
            let facts = self.get(path, name)?.clone();
            Ok(MountedConfig {
                name: name.clone(),
                facts,
            })
        });
        found.transpose()
    }

    /// The content hash of the ConfigMap at `path`, which must have `key`.
    pub(crate) fn with_key(
        &self,
        path: &str,
        name: &str,
        key: &str,
    ) -> Result<String, (Reason, String)> {
        let facts = self.get(path, name)?;
        if facts.keys.iter().any(|known| known == key) {
            return Ok(facts.hash.clone());
        }
        let message = format!(
            "ConfigMap {}/{name}, named by spec.{path}, has no key {key} (it has: {}): add it",
            self.namespace,
            facts.keys.join(", ")
        );
        Err((Reason::ConfigKeyNotFound, message))
    }
}

/// Where a distribution keeps package sources and trusted certificates (NVIDIA/gpu-operator, `RepoConfigPathMap` and
/// `CertConfigPathMap`, and the distributions that descend from those).
pub(crate) fn package_paths(os_id: &str) -> Option<(&'static str, &'static str)> {
    match os_id {
        "ubuntu" | "debian" => Some((
            "/etc/apt/sources.list.d",
            "/usr/local/share/ca-certificates",
        )),
        "rhel" | "rhcos" | "centos" | "rocky" | "ol" | "almalinux" | "fedora" | "amzn" => {
            Some(("/etc/yum.repos.d", "/etc/pki/ca-trust/extracted/pem"))
        }
        "sles" | "sl-micro" => Some(("/etc/zypp/repos.d", "/etc/pki/trust/anchors")),
        _ => None,
    }
}
