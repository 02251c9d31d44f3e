//! The project's commands: `cargo xtask up`, `down`, ... One module a command; see `cargo xtask help`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "commands talk to the person at the terminal"
)]

mod bench;
mod check;
mod down;
mod fuzz;
mod generate;
mod rights;
mod test;
mod tools;
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
    /// Run every test: pure ones, charts, and scenarios on a real control plane.
    Test(test::Args),
    /// Look for inputs that break what reads strangers' texts.
    Fuzz(fuzz::Args),
    /// Measure requests, times and memory against the design's budgets.
    Bench(bench::Args),
    /// Write generated files: CRDs, RBAC, chart schemas, deploy/, references.
    Generate(generate::Args),
    /// Fail when a generated file is out of date, or a granted right is used by no scenario.
    Check(check::Args),
}

fn main() -> std::process::ExitCode {
    let result = match Cli::parse().command {
        Command::Up(args) => up::run(args),
        Command::Down(args) => down::run(args),
        Command::Test(args) => test::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Generate(args) => generate::run(&args),
        Command::Check(args) => check::run(&args),
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
fn report(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
