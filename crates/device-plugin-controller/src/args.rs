//! Flags of this process.

use clap::Parser;
use tessera_runtime::args::RuntimeArgs;

/// Runs the device plugin, feature discovery, sharing and MIG on the GPU nodes, as the active ClusterPolicy says.
#[derive(Clone, Debug, Parser)]
#[command(name = "device-plugin-controller", version)]
pub struct Args {
    /// Flags that every process has.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Default image of the device plugin.
    #[arg(long, env = "DEVICE_PLUGIN_IMAGE", hide_env_values = true)]
    pub device_plugin_image: Option<String>,
    /// Default image of GPU feature discovery.
    #[arg(long, env = "GFD_IMAGE", hide_env_values = true)]
    pub gfd_image: Option<String>,
    /// Default image of the MIG manager.
    #[arg(long, env = "MIG_MANAGER_IMAGE", hide_env_values = true)]
    pub mig_manager_image: Option<String>,
    /// Default image of the validator, whose shell waits for the container toolkit.
    #[arg(long, env = "VALIDATOR_IMAGE", hide_env_values = true)]
    pub validator_image: Option<String>,
}
