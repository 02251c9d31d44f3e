//! Flags.

use clap::Parser;
use tessera_api::DefaultImages;
use tessera_runtime::args::RuntimeArgs;

/// Runs DCGM exporter, DCGM host engine and node status exporter on GPU nodes, and the exporter's ServiceMonitor.
#[derive(Clone, Debug, Parser)]
#[command(name = crate::NAME, version)]
pub struct Args {
    /// What all controllers have.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
}

impl Args {
    /// Images of operands that a policy may leave out: the built-in set, each overridden by its environment variable. All of them,
    /// not only this controller's: the status shows one hash of the effective policy, and all controllers must come to the same.
    pub fn images(&self) -> DefaultImages {
        DefaultImages::from_env(|name| std::env::var(name).ok())
    }
}
