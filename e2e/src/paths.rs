//! Where things are: the source tree, cargo's target directory, the cache.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The root of the source tree this crate was compiled from.
pub fn root() -> PathBuf {
    let e2e = Path::new(env!("CARGO_MANIFEST_DIR"));
    e2e.parent().unwrap_or(e2e).to_path_buf()
}

/// Cargo's target directory: `CARGO_TARGET_DIR`, else `target` in the source tree.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The directory of binaries of a cargo profile (`dev` builds into `debug`).
pub fn binaries(profile: &str) -> PathBuf {
    target().join(if matches!(profile, "dev" | "test") {
        "debug"
    } else {
        profile
    })
}

/// The working directory of the lab that `cargo xtask up` starts.
pub fn default_lab() -> PathBuf {
    target().join("lab")
}

/// Where each lab of a test leaves which rights were used in it (see [`crate::rights`]).
pub fn used_rights() -> PathBuf {
    target().join("rights").join("labs")
}

/// The rights used in the last whole run of the scenarios.
pub fn whole_run() -> PathBuf {
    target().join("rights").join("last-whole-run.json")
}

/// The cache directory of this project: `$XDG_CACHE_HOME/tessera`, else `~/.cache/tessera`.
///
/// # Errors
/// Neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()) {
        return Ok(PathBuf::from(dir).join("tessera"));
    }
    let home = std::env::var_os("HOME").context(
        "neither HOME nor XDG_CACHE_HOME is set, so there is no cache directory: set one",
    )?;
    Ok(PathBuf::from(home).join(".cache").join("tessera"))
}
