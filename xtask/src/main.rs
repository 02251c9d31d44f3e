//! The project's commands: `cargo xtask up`, `down`, ... One module a command; see `cargo xtask help`.

mod down;
mod up;

use clap::{Parser, Subcommand};

/// Everything a developer of Tessera types.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster, install everything, show it become ready.
    Up(up::Args),
    /// Stop what `up --keep` (or a killed `up`) left running.
    Down(down::Args),
}

fn main() -> std::process::ExitCode {
    let result = match Cli::parse().command {
        Command::Up(args) => up::run(args),
        Command::Down(args) => down::run(args),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            report(&error);
            std::process::ExitCode::FAILURE
        }
    }
}

/// One sentence for the person at the terminal: the error and its causes, outermost first.
#[allow(clippy::print_stderr)]
fn report(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
