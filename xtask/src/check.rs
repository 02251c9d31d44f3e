//! `cargo xtask check`: fails when a generated file is not what `generate` would write, or when a chart grants a right that no
//! scenario of the last whole run used.

use std::path::Path;
use std::process::ExitCode;

use crate::{generate, rights};

/// Options of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    let root = tessera_e2e::paths::root();
    let code = generate::from_code(&root)?;
    let mut differences = generate::differences(&root, &code)?;
    let mut count = code.len();
    // What helm renders from stale charts would only repeat the same news.
    if differences.is_empty() {
        let charts = generate::from_charts(&root)?;
        differences = generate::differences(&root, &charts)?;
        count += charts.len();
    }
    if differences.is_empty() {
        println!("{count} generated files are up to date");
        return unused_rights(&root);
    }
    println!("not what `cargo xtask generate` writes; run it and commit the result:");
    for path in differences {
        println!("  {}", path.display());
    }
    Ok(ExitCode::FAILURE)
}

/// Rights are judged only by all scenarios together, which takes too long to do here.
fn unused_rights(root: &Path) -> anyhow::Result<ExitCode> {
    let Some(used) = rights::recorded()? else {
        println!(
            "rights not judged: no whole run of the scenarios is on record here (`cargo xtask test` without a filter makes one)"
        );
        return Ok(ExitCode::SUCCESS);
    };
    Ok(if rights::judge(root, &used)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
