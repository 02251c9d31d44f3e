//! What the owner tells the agent and what the agent answers.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::Ports;
use crate::controlplane::Tools;
use crate::gpusim;

/// Everything the agent needs to know, as a file in the lab's directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// The lab's directory.
    pub dir: PathBuf,
    /// Ports of the control plane.
    pub ports: Ports,
    /// Directory of the binaries that stand for images.
    pub images: PathBuf,
    /// Behaviour of simulated operands.
    pub sim: gpusim::Settings,
    /// Control plane binaries.
    pub tools: Tools,
}

impl Spec {
    /// Writes the specification into its directory.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self) -> anyhow::Result<()> {
        let path = self.dir.join("lab-spec.json");
        std::fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Reads the specification from a lab's directory.
    ///
    /// # Errors
    /// The file is not there or not readable.
    pub fn load(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join("lab-spec.json");
        let text = std::fs::read(&path)
            .with_context(|| format!("{} cannot be read: is there a lab?", path.display()))?;
        serde_json::from_slice(&text)
            .with_context(|| format!("{} is of another version", path.display()))
    }

    /// The file that identifies a process of the lab.
    pub fn pid_file(&self, name: &str) -> PathBuf {
        self.dir.join("pids").join(name)
    }
}

/// The agent's report when the lab works.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// URL of the API server.
    pub server: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Seconds from the start of the agent until the API server was ready.
    pub api_seconds: f64,
    /// Seconds from the start of the agent until all of it worked.
    pub total_seconds: f64,
}
