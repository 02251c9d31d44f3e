//! `cargo xtask test`: every test there is, with a summary.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use tessera_fuzz::{TARGETS, Target};

use crate::{fuzz, rights};

/// Options of `test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only what needs no control plane: unit, property and snapshot tests.
    #[arg(long)]
    fast: bool,
    /// Only tests whose name contains this.
    filter: Option<String>,
}

/// A part of the run that cargo does.
struct Part {
    name: &'static str,
    what: &'static str,
    cargo: Vec<String>,
    harness: &'static [&'static str],
}

/// How a part went.
struct Row {
    name: &'static str,
    what: &'static str,
    passed: bool,
    time: Duration,
}

/// The part before the fuzzer's.
const CHARTS: &str = "charts";
/// What the fuzzer's part does.
const FUZZ: &str = "inputs that nobody thought of, a minute for each of the fuzzer's targets";
/// The part that runs the scenarios.
const LAB: &str = "lab";
/// What the part after it does.
const RIGHTS: &str = "every right that a chart grants was used by a scenario";

/// The levels of STYLE, in order: what is quick comes first, so that a mistake is known early.
fn parts(root: &Path) -> anyhow::Result<Vec<Part>> {
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut lab = words("test --package tessera-e2e --no-fail-fast");
    for scenario in scenarios(root)? {
        lab.extend(["--test".to_owned(), scenario]);
    }
    Ok(vec![
        Part {
            name: "pure",
            what: "unit, property and snapshot tests of every crate",
            cargo: words("test --workspace --exclude tessera-e2e --all-targets --no-fail-fast"),
            harness: &[],
        },
        Part {
            name: "docs",
            what: "examples in the documentation",
            cargo: words("test --workspace --doc --no-fail-fast"),
            harness: &[],
        },
        Part {
            name: CHARTS,
            what: "the lab's own parts, and what the charts render and refuse",
            cargo: words("test --package tessera-e2e --lib --bins --test charts --no-fail-fast"),
            harness: &[],
        },
        Part {
            name: LAB,
            what: "scenarios on a real control plane",
            cargo: lab,
            // Each starts a lab of its own: together they would measure each other.
            harness: &["--test-threads=1"],
        },
    ])
}

/// The test targets of the lab: the files in `e2e/tests`. The charts' tests are a directory there.
fn scenarios(root: &Path) -> anyhow::Result<Vec<String>> {
    let directory = root.join("e2e/tests");
    let entries = std::fs::read_dir(&directory)
        .with_context(|| format!("{} cannot be read", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        names.extend(
            path.file_stem()
                .filter(|_| is_rust)
                .map(|stem| stem.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    Ok(names)
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let root = tessera_e2e::paths::root();
    let mut rows: Vec<Row> = Vec::new();
    for part in parts(&root)? {
        if args.fast && part.name != "pure" {
            continue;
        }
        let is_whole = part.name == LAB && args.filter.is_none();
        if is_whole {
            rights::forget()?;
        }
        let passed = rows_add(&mut rows, part.name, part.what, || {
            run_part(&root, &part, args.filter.as_deref())
        })?;
        if part.name == CHARTS {
            let targets = fuzzed(args.filter.as_deref());
            if !targets.is_empty() {
                rows_add(&mut rows, "fuzz", FUZZ, || {
                    fuzz::all(&targets, fuzz::SECONDS)
                })?;
            }
        }
        if is_whole {
            rows_add(&mut rows, "rights", RIGHTS, || {
                if !passed {
                    println!("a scenario failed: what it did not come to may be named here");
                }
                rights::judge(&root, &rights::conclude()?)
            })?;
        }
    }
    let failed = report(&rows);
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The targets that a filter leaves.
fn fuzzed(filter: Option<&str>) -> Vec<&'static Target> {
    let is_meant = |target: &&Target| filter.is_none_or(|filter| target.name.contains(filter));
    TARGETS.iter().filter(is_meant).collect()
}

/// Does a part and keeps how it went.
fn rows_add(
    rows: &mut Vec<Row>,
    name: &'static str,
    what: &'static str,
    run: impl FnOnce() -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    println!("\n=== {name}: {what}");
    let start = Instant::now();
    let passed = run()?;
    rows.push(Row {
        name,
        what,
        passed,
        time: start.elapsed(),
    });
    Ok(passed)
}

/// The table at the end; returns how many parts failed.
fn report(rows: &[Row]) -> usize {
    println!("\n{:<7} {:<7} {:>6}  what", "part", "result", "time");
    for row in rows {
        let result = if row.passed { "passed" } else { "FAILED" };
        println!(
            "{:<7} {result:<7} {:>5.0}s  {}",
            row.name,
            row.time.as_secs_f32(),
            row.what
        );
    }
    let failed = rows.iter().filter(|row| !row.passed).count();
    println!("parts: {} passed, {failed} failed", rows.len() - failed);
    failed
}

fn run_part(root: &Path, part: &Part, filter: Option<&str>) -> anyhow::Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(&part.cargo)
        .arg("--")
        .args(part.harness)
        .args(filter)
        .current_dir(root)
        // Snapshots are compared, never written, whoever runs this.
        .env("INSTA_UPDATE", "no");
    Ok(command.status().context("cargo cannot be run")?.success())
}
