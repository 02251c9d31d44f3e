//! `kubectl-tessera`: what people and hooks do with an installed Tessera.
//!
//! Installed on the PATH it is the kubectl plug-in `kubectl tessera`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks to its caller"
)]

use std::process::ExitCode;

use clap::Parser as _;
use kubectl_tessera::{Cli, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
