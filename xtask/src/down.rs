//! `cargo xtask down`: stops what an earlier `up` left running.

use std::process::ExitCode;

use tessera_e2e::lab::{self, Stopped};
use tessera_e2e::paths;

/// Options of `down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
#[allow(clippy::print_stdout)]
pub(crate) fn run(Args {}: Args) -> anyhow::Result<ExitCode> {
    let dir = paths::default_lab();
    let words = match lab::down(&dir)? {
        Stopped::Lab => "the lab is stopped",
        Stopped::Remains => "a lab that had been killed is cleared away",
        Stopped::Nothing => "no lab is running",
    };
    println!(
        "{words}; logs of the last one are in {}",
        dir.join("log").display()
    );
    Ok(ExitCode::SUCCESS)
}
