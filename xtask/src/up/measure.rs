//! Numbers of one run.

use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use tessera_e2e::audit::Requests;
use tessera_e2e::lab::Usage;

/// What was measured.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Measured {
    /// GPU nodes.
    pub(super) nodes: usize,
    /// Start of the lab until all of it worked.
    pub(super) lab_seconds: Option<f64>,
    /// Start of the lab until the API server was ready.
    pub(super) api_seconds: Option<f64>,
    /// Policy applied until ready (or given up).
    pub(super) policy_seconds: f64,
    /// Start of the lab until ready (or given up).
    pub(super) total_seconds: f64,
    /// Whether it became ready.
    pub(super) ready: bool,
    /// Requests of our ServiceAccounts since the installation.
    pub(super) requests: Option<Requests>,
    /// Memory and CPU of every process.
    pub(super) processes: Vec<Usage>,
}

impl Measured {
    /// Writes them as JSON.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        std::fs::write(path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("{} cannot be written", path.display()))
    }

    /// For the person at the terminal.
    pub(super) fn sentence(&self) -> String {
        let requests = self.requests.as_ref().map_or_else(String::new, |requests| {
            format!(
                "; {} writes and {} reads by our processes",
                requests.writes, requests.reads
            )
        });
        format!(
            "\nReady {:.1} s after the policy was applied ({:.1} s after the start){requests}.",
            self.policy_seconds, self.total_seconds
        )
    }
}
