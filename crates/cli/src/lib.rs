//! The commands of `kubectl-tessera`, and the rights that its hooks need.

#![allow(
    clippy::print_stdout,
    reason = "a command line program talks to its caller"
)]

pub mod connect;
pub mod crds;
pub mod rbac;
pub mod status;
pub mod uninstall;

use clap::{Parser, Subcommand};

/// Look at, update and remove an installed Tessera.
#[derive(Debug, Parser)]
#[command(name = "kubectl-tessera", version, about, max_term_width = 100)]
pub struct Cli {
    /// Which cluster to talk to.
    #[command(flatten)]
    pub connect: connect::Args,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the policy, its state and why, the operands, the operations and the agents.
    Status(status::Args),
    /// Stop the controllers and take away what they made; custom resources of yours and CRDs stay.
    Uninstall(uninstall::Args),
    /// Work with the custom resource definitions.
    #[command(subcommand)]
    Crds(crds::Command),
}

/// Runs one command.
///
/// # Errors
/// What could not be done, in a sentence for the person at the terminal.
pub async fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Status(args) => status::run(cli.connect.client().await?, &args).await,
        Command::Uninstall(args) => uninstall::run(cli.connect.client().await?, &args).await,
        Command::Crds(command) => crds::run(&cli.connect, &command).await,
    }
}
