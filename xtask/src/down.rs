//! `cargo xtask down`: stops what an earlier `up` left running.

use std::process::ExitCode;

/// Options of `down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn run(Args {}: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the lab is not built yet")
}
