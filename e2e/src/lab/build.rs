//! Building the binaries that stand for images.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::paths;

/// Packages whose binaries run in a lab.
const PACKAGES: [&str; 8] = [
    "tessera-e2e",
    "tessera-driver-controller",
    "tessera-device-plugin-controller",
    "tessera-dcgm-monitor-controller",
    "tessera-sreagent-controller",
    "tessera-sre-agent",
    "tessera-webhook",
    "kubectl-tessera",
];

/// Builds all binaries of a lab with a cargo profile and returns their directory. Cargo's progress goes to standard error if
/// `visible`; in any case its errors are in the error.
///
/// # Errors
/// Cargo cannot be started or a package does not compile.
pub fn binaries(profile: &str, visible: bool) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(paths::root())
        .args(["build", "--bins", "--profile", profile]);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    if !visible {
        command.arg("--quiet");
    }
    // Of the environment that cargo gives to tests and `cargo run`, what would make its own packages look changed.
    for name in [
        "CARGO_MANIFEST_DIR",
        "CARGO_PKG_NAME",
        "CARGO_PKG_VERSION",
        "CARGO_PRIMARY_PACKAGE",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    if visible {
        let status = command.status().context("cargo cannot be started")?;
        if !status.success() {
            bail!("the binaries do not compile: see cargo's words above");
        }
    } else {
        let output = command
            .stderr(Stdio::piped())
            .output()
            .context("cargo cannot be started")?;
        if !output.status.success() {
            bail!(
                "the binaries do not compile:\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    Ok(paths::binaries(profile))
}
