//! The control plane's binaries: found where the user has them, else built once from pinned Go modules and cached.
//!
//! Order for each binary: `KUBEBUILDER_ASSETS`, the cache, `PATH` (only a fitting version), a build. The Go modules are in
//! `e2e/controlplane/{kubernetes,kwok,helm}`; the cache directory is named after a hash of their go.mod and go.sum files, so
//! that a changed pin is a new cache and an old one is never mixed in.

mod build;
mod find;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::paths;

/// Where progress goes: one call, one line.
pub type Report<'a> = &'a (dyn Fn(&str) + Sync);

/// The Kubernetes version that the modules pin.
pub const KUBERNETES_VERSION: &str = "v1.34.4";

/// A program the lab needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// The API server; built first, because the others share most of its packages.
    KubeApiserver,
    /// The controllers of Deployments, DaemonSets, Jobs, garbage collection and so on.
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// The client.
    Kubectl,
    /// The store.
    Etcd,
    /// The simulator of nodes and ordinary pods.
    Kwok,
    /// The installer of charts.
    Helm,
}

/// What a build of a tool needs to know.
pub(crate) struct Recipe {
    /// Directory of the Go module under `e2e/controlplane`.
    pub(crate) module: &'static str,
    /// The Go package of the program.
    pub(crate) package: &'static str,
    /// Seconds a build took on 2 cores, the shared packages being built already.
    pub(crate) seconds: u64,
}

impl Tool {
    /// All tools, in the order in which they are built.
    pub const ALL: [Self; 7] = [
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubectl,
        Self::Etcd,
        Self::Kwok,
        Self::Helm,
    ];

    /// The name of the binary.
    pub fn name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Etcd => "etcd",
            Self::Kwok => "kwok",
            Self::Helm => "helm",
        }
    }

    pub(crate) fn recipe(self) -> Recipe {
        let (module, package, seconds) = match self {
            Self::KubeApiserver => ("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", 207),
            Self::KubeControllerManager => (
                "kubernetes",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                51,
            ),
            Self::KubeScheduler => ("kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", 5),
            Self::Kubectl => ("kubernetes", "k8s.io/kubernetes/cmd/kubectl", 62),
            Self::Etcd => ("kubernetes", "go.etcd.io/etcd/server/v3", 37),
            Self::Kwok => ("kwok", "sigs.k8s.io/kwok/cmd/kwok", 91),
            Self::Helm => ("helm", "helm.sh/helm/v3/cmd/helm", 108),
        };
        Recipe {
            module,
            package,
            seconds,
        }
    }
}

/// The path of every tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tools(BTreeMap<Tool, PathBuf>);

impl Tools {
    /// The path of a tool.
    pub fn path(&self, tool: Tool) -> &Path {
        // `ensure` fills the map for every member of `Tool::ALL`; the bare name is what PATH would resolve.
        self.0
            .get(&tool)
            .map_or(Path::new(tool.name()), PathBuf::as_path)
    }
}

/// Finds every tool, building what is missing.
///
/// # Errors
/// A tool is missing and Go is too, or its build failed; the message says which and what to do.
pub fn ensure(report: Report<'_>) -> anyhow::Result<Tools> {
    let cache = cache_dir()?;
    let mut found = find::all(&cache);
    let missing: Vec<Tool> = Tool::ALL
        .into_iter()
        .filter(|tool| !found.contains_key(tool))
        .collect();
    if !missing.is_empty() {
        build::all(&missing, &cache, report)?;
        found.extend(
            missing
                .into_iter()
                .map(|tool| (tool, cache.join(tool.name()))),
        );
    }
    Ok(Tools(found))
}

/// The cache directory for the present module pins.
///
/// # Errors
/// The Go modules cannot be read, or there is no home directory.
pub fn cache_dir() -> anyhow::Result<PathBuf> {
    Ok(paths::cache()?
        .join("controlplane")
        .join(pins_hash(&modules_dir())?))
}

fn modules_dir() -> PathBuf {
    paths::root().join("e2e").join("controlplane")
}

/// The first 16 hex digits of the SHA-256 over names and contents of the modules' go.mod and go.sum files.
fn pins_hash(modules: &Path) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for module in ["kubernetes", "kwok", "helm"] {
        for file in ["go.mod", "go.sum"] {
            let path = modules.join(module).join(file);
            let content = std::fs::read(&path).with_context(|| {
                format!(
                    "the control plane's pins cannot be read from {}: restore the file from git",
                    path.display()
                )
            })?;
            hash.update(format!("{module}/{file} {}\n", content.len()));
            hash.update(content);
        }
    }
    let mut hex = String::new();
    for byte in hash.finalize().iter().take(8) {
        write!(hex, "{byte:02x}")?;
    }
    Ok(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_follows_the_pins() {
        let dir = tempfile::tempdir().unwrap();
        for module in ["kubernetes", "kwok", "helm"] {
            std::fs::create_dir(dir.path().join(module)).unwrap();
            for file in ["go.mod", "go.sum"] {
                std::fs::write(dir.path().join(module).join(file), "x").unwrap();
            }
        }
        let before = pins_hash(dir.path()).unwrap();
        assert_eq!(before.len(), 16);
        assert_eq!(before, pins_hash(dir.path()).unwrap());
        std::fs::write(dir.path().join("kwok/go.sum"), "y").unwrap();
        assert_ne!(before, pins_hash(dir.path()).unwrap());
    }

    #[test]
    fn a_missing_pin_names_the_file_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let error = pins_hash(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("kubernetes/go.mod") && error.contains("restore"),
            "{error}"
        );
    }
}
