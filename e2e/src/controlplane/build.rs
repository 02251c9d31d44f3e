//! Building tools from the pinned Go modules.

use std::fs::File;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::{KUBERNETES_VERSION, Report, Tool, modules_dir};

/// Builds the given tools into the cache.
pub(super) fn all(tools: &[Tool], cache: &Path, report: Report<'_>) -> anyhow::Result<()> {
    std::fs::create_dir_all(cache)
        .with_context(|| format!("the cache directory {} cannot be made", cache.display()))?;
    let _lock = lock(cache, report)?;
    // Whoever held the lock before us may have built them.
    let missing: Vec<Tool> = tools
        .iter()
        .copied()
        .filter(|tool| !cache.join(tool.name()).exists())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    require_go(&missing)?;
    let seconds: u64 = missing.iter().map(|tool| tool.recipe().seconds).sum();
    report(&format!(
        "building {} control plane binaries into {}, once; about {} min on 2 cores",
        missing.len(),
        cache.display(),
        seconds.div_ceil(60)
    ));
    for (index, tool) in missing.iter().enumerate() {
        one(
            *tool,
            &format!("[{}/{}]", index + 1, missing.len()),
            cache,
            report,
        )?;
    }
    Ok(())
}

/// Waits for the build lock; the file stays, its lock goes with the process.
fn lock(cache: &Path, report: Report<'_>) -> anyhow::Result<File> {
    let path = cache.join(".lock");
    let file = File::create(&path)
        .with_context(|| format!("the lock file {} cannot be made", path.display()))?;
    if file.try_lock().is_err() {
        report("waiting for another build of the control plane to end");
        file.lock()
            .with_context(|| format!("the lock {} cannot be taken", path.display()))?;
    }
    Ok(file)
}

fn require_go(missing: &[Tool]) -> anyhow::Result<()> {
    let go = Command::new("go")
        .arg("version")
        .stdin(Stdio::null())
        .output();
    if go.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|tool| tool.name()).collect();
    bail!(
        "{} not found and there is no Go toolchain to build from: install Go 1.24 or newer, or set KUBEBUILDER_ASSETS to a directory that has them",
        names.join(", ")
    )
}

fn one(tool: Tool, step: &str, cache: &Path, report: Report<'_>) -> anyhow::Result<()> {
    let started = Instant::now();
    let temporary = cache.join(format!(".{}.{}", tool.name(), std::process::id()));
    report(&format!("{step} {} ...", tool.name()));
    let outcome = compile(tool, &temporary, step, report);
    if let Err(error) = outcome {
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    let size = temporary.metadata().map_or(0, |meta| meta.len()) / 1_000_000;
    let target = cache.join(tool.name());
    std::fs::rename(&temporary, &target)
        .with_context(|| format!("{} cannot be put into place", target.display()))?;
    report(&format!(
        "{step} {} built in {} s, {size} MB",
        tool.name(),
        started.elapsed().as_secs()
    ));
    Ok(())
}

/// Runs `go build`, with a line a minute so that nobody thinks it hangs; its output is kept for the error.
fn compile(tool: Tool, output: &Path, step: &str, report: Report<'_>) -> anyhow::Result<()> {
    let recipe = tool.recipe();
    let log_path: PathBuf = output.with_extension("log");
    let log = File::create(&log_path)?;
    let mut child = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", &linker_flags(tool), "-o"])
        .arg(output)
        .arg(recipe.package)
        .current_dir(modules_dir().join(recipe.module))
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("`go build` cannot be started")?;
    let started = Instant::now();
    let mut next_line = Duration::from_secs(if std::io::stderr().is_terminal() {
        20
    } else {
        60
    });
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > next_line {
            report(&format!(
                "{step} {} ... {} s",
                tool.name(),
                started.elapsed().as_secs()
            ));
            next_line *= 2;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let text = std::fs::read_to_string(&log_path).unwrap_or_default();
    let _ = std::fs::remove_file(&log_path);
    if status.success() {
        return Ok(());
    }
    let tail: Vec<&str> = text.lines().rev().take(8).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    bail!(
        "{} could not be built ({status}): is the Go module proxy reachable? The last lines of `go build` were:\n{}",
        tool.name(),
        tail.join("\n")
    )
}

fn linker_flags(tool: Tool) -> String {
    let (major, minor) = ("1", "34");
    let version = "k8s.io/component-base/version";
    match tool {
        Tool::KubeApiserver | Tool::KubeControllerManager | Tool::KubeScheduler | Tool::Kubectl => {
            format!(
                "-s -w -X {version}.gitVersion={KUBERNETES_VERSION} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
            )
        }
        Tool::Etcd | Tool::Kwok | Tool::Helm => "-s -w".to_owned(),
    }
}
