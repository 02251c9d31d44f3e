//! Flags.

use tessera_api::DefaultImages;
use tessera_runtime::args::RuntimeArgs;

/// Drivers, container toolkit, runtime classes and validation on the GPU nodes of a cluster.
///
/// The images that a policy leaves out come from the environment (DRIVER_IMAGE, DRIVER_MANAGER_IMAGE,
/// CONTAINER_TOOLKIT_IMAGE, VALIDATOR_IMAGE, ...: complete references), else from a built-in set.
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "driver-controller", version)]
pub struct Args {
    /// Flags of every process.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
}

impl Args {
    /// The default images.
    pub fn images(&self) -> DefaultImages {
        DefaultImages::from_env(|name| std::env::var(name).ok())
    }
}
