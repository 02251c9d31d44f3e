//! `cargo xtask generate`: writes what other files say already, in the form that others read.
//!
//! CRDs from the API types, RBAC from each crate's `rbac.rs`, chart schemas from `xtask/schemas` and the CRDs, `deploy/` from the
//! charts, references of flags and values. [`check`](crate::check) compares instead of writing.

mod deploy;
mod docs;
mod objects;
mod schema;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

/// Options of `generate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Path below the source tree's root -> contents.
pub(crate) type Outputs = BTreeMap<PathBuf, String>;

/// The charts that are installed by themselves, in the order of installation.
pub(crate) const COMPONENTS: [&str; 5] = [
    "driver-controller",
    "device-plugin-controller",
    "dcgm-monitor-controller",
    "sreagent-controller",
    "webhook",
];

/// Those that run operands.
pub(crate) const GPU_COMPONENTS: [&str; 3] = [
    "driver-controller",
    "device-plugin-controller",
    "dcgm-monitor-controller",
];

/// Directories in which every file is generated, so that one too many is an error.
const OWN_DIRECTORIES: [&str; 2] = ["charts/gpu-operator/charts/crds/crds", "deploy"];

/// Where a chart's files are.
pub(crate) fn chart(name: &str) -> PathBuf {
    Path::new("charts/gpu-operator/charts").join(name)
}

/// Runs the command.
pub(crate) fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    let root = tessera_e2e::paths::root();
    let mut written = write(&root, &from_code(&root)?)?;
    // These are rendered by helm from what was just written.
    written += write(&root, &from_charts(&root)?)?;
    println!(
        "{}",
        if written == 0 {
            "everything was up to date".to_owned()
        } else {
            format!("wrote {written} files")
        }
    );
    Ok(ExitCode::SUCCESS)
}

/// What follows from the code and the schema sources.
pub(crate) fn from_code(root: &Path) -> anyhow::Result<Outputs> {
    let mut outputs = objects::all()?;
    outputs.extend(schema::all(root)?);
    outputs.extend(docs::all(root)?);
    Ok(outputs)
}

/// What follows from the charts.
pub(crate) fn from_charts(root: &Path) -> anyhow::Result<Outputs> {
    deploy::all(root)
}

/// Files of `root` that differ from `outputs` or are missing, and files too many in the directories that only hold generated ones.
pub(crate) fn differences(root: &Path, outputs: &Outputs) -> anyhow::Result<Vec<PathBuf>> {
    let differs = |path: &Path, want: &str| {
        std::fs::read_to_string(root.join(path)).map_or(true, |have| have != want)
    };
    let mut paths: Vec<PathBuf> = outputs
        .iter()
        .filter(|(path, want)| differs(path, want))
        .map(|(path, _)| path.clone())
        .collect();
    for directory in OWN_DIRECTORIES {
        if outputs.keys().any(|path| path.starts_with(directory)) {
            paths.extend(stray(root, Path::new(directory), outputs)?);
        }
    }
    Ok(paths)
}

fn stray(root: &Path, directory: &Path, outputs: &Outputs) -> anyhow::Result<Vec<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(root.join(directory)) else {
        return Ok(Vec::new());
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = directory.join(entry?.file_name());
        if !outputs.contains_key(&path) {
            paths.push(path);
        }
    }
    Ok(paths)
}

fn write(root: &Path, outputs: &Outputs) -> anyhow::Result<usize> {
    let paths = differences(root, outputs)?;
    for path in &paths {
        let target = root.join(path);
        let result = match outputs.get(path) {
            Some(content) => target
                .parent()
                .map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| std::fs::write(&target, content)),
            None => std::fs::remove_file(&target),
        };
        result.with_context(|| format!("{} cannot be written", path.display()))?;
        println!("{}", path.display());
    }
    Ok(paths.len())
}
