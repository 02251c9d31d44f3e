//! Programs that commands here run.

use std::path::PathBuf;

use tessera_e2e::controlplane::{self, Tool};

/// The Kubernetes version that charts are rendered for where no cluster says it.
pub(crate) const KUBERNETES: &str = controlplane::KUBERNETES_VERSION;

/// The helm binary, found or built as the lab does it.
pub(crate) fn helm() -> anyhow::Result<PathBuf> {
    let tools = controlplane::ensure(&|line| eprintln!("{line}"))?;
    Ok(tools.path(Tool::Helm).to_path_buf())
}
