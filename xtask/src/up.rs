//! `cargo xtask up`: from nothing to a cluster whose policy is `ready`.

use std::process::ExitCode;

/// Options of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of simulated GPU nodes.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the lab is not built yet (asked for {} nodes)", args.nodes)
}
