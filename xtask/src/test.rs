//! `cargo xtask test`: every test there is, with a summary.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Options of `test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only what needs no control plane: unit, property and snapshot tests.
    #[arg(long)]
    fast: bool,
    /// Only tests whose name contains this.
    filter: Option<String>,
}

/// One part of the run.
struct Part {
    name: &'static str,
    what: &'static str,
    args: &'static [&'static str],
}

/// The levels of STYLE, in order: what is quick comes first, so that a mistake is known early.
const PARTS: [Part; 3] = [
    Part {
        name: "pure",
        what: "unit, property and snapshot tests of every crate",
        args: &[
            "test",
            "--workspace",
            "--exclude",
            "tessera-e2e",
            "--all-targets",
        ],
    },
    Part {
        name: "docs",
        what: "examples in the documentation",
        args: &["test", "--workspace", "--exclude", "tessera-e2e", "--doc"],
    },
    Part {
        name: "lab",
        what: "charts, and scenarios on a real control plane",
        // Scenarios start labs of their own: one after the other, or they would measure each other.
        args: &["test", "--package", "tessera-e2e", "--no-fail-fast", "--"],
    },
];

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let root = tessera_e2e::paths::root();
    let mut rows: Vec<(&str, &str, bool, Duration)> = Vec::new();
    for part in PARTS
        .iter()
        .filter(|part| !args.fast || part.name == "pure")
    {
        println!("\n=== {}: {}", part.name, part.what);
        let start = Instant::now();
        let passed = run_part(&root, part, args.filter.as_deref())?;
        rows.push((part.name, part.what, passed, start.elapsed()));
    }
    println!("\n{:<6} {:<7} {:>6}  what", "part", "result", "time");
    for (name, what, passed, time) in &rows {
        println!(
            "{name:<6} {:<7} {:>5.0}s  {what}",
            if *passed { "passed" } else { "FAILED" },
            time.as_secs_f32()
        );
    }
    let failed = rows.iter().filter(|(_, _, passed, _)| !passed).count();
    println!("{} passed, {failed} failed", rows.len() - failed);
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_part(root: &std::path::Path, part: &Part, filter: Option<&str>) -> anyhow::Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(part.args).current_dir(root);
    if let Some(filter) = filter {
        command.arg(filter);
    }
    // Snapshots are compared, never written, whoever runs this.
    command.env("INSTA_UPDATE", "no");
    Ok(command.status().context("cargo cannot be run")?.success())
}
