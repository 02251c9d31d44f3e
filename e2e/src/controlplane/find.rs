//! Looking for tools that are there already.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Tool;

/// Every tool that can be had without a build.
pub(super) fn all(cache: &Path) -> BTreeMap<Tool, PathBuf> {
    Tool::ALL
        .into_iter()
        .filter_map(|tool| Some((tool, find(tool, cache)?)))
        .collect()
}

fn find(tool: Tool, cache: &Path) -> Option<PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS")
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from);
    // A directory that the user named is taken as it is: no version check.
    let named = assets
        .into_iter()
        .chain([cache.to_path_buf()])
        .map(|dir| dir.join(tool.name()));
    named
        .into_iter()
        .find(|path| is_executable(path))
        .or_else(|| on_path(tool))
}

fn on_path(tool: Tool) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(tool.name()))
        .find(|path| {
            is_executable(path) && version_of(tool, path).is_some_and(|version| fits(tool, version))
        })
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// (major, minor) as the program itself reports it.
fn version_of(tool: Tool, path: &Path) -> Option<(u32, u32)> {
    let args: &[&str] = match tool {
        Tool::Kubectl => &["version", "--client"],
        Tool::Helm => &["version", "--short"],
        Tool::KubeApiserver
        | Tool::KubeControllerManager
        | Tool::KubeScheduler
        | Tool::Etcd
        | Tool::Kwok => &["--version"],
    };
    let output = Command::new(path)
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

/// The first `X.Y.` in a text.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .find_map(|word| {
            let mut parts = word.split('.');
            let major = parts.next()?.parse().ok()?;
            let minor = parts.next()?.parse().ok()?;
            parts.next()?.parse::<u32>().ok()?;
            Some((major, minor))
        })
}

/// Whether a version that happens to be on PATH may stand in for the pinned one. The control plane's own parts must be the
/// pinned minor, because the tests' numbers are only comparable on one; clients may be a minor apart, as Kubernetes' skew policy allows.
fn fits(tool: Tool, version: (u32, u32)) -> bool {
    match tool {
        Tool::KubeApiserver | Tool::KubeControllerManager | Tool::KubeScheduler => {
            version == (1, 34)
        }
        Tool::Kubectl => matches!(version, (1, 33..=35)),
        Tool::Etcd => matches!(version, (3, 5..)),
        Tool::Kwok => matches!(version, (0, 7..)),
        Tool::Helm => matches!(version, (3, 14..)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_the_programs_print_them() {
        for (text, want) in [
            ("Kubernetes v1.34.4\n", Some((1, 34))),
            (
                "Client Version: v1.32.4-x\nKustomize Version: v5.5.0\n",
                Some((1, 32)),
            ),
            ("etcd Version: 3.6.4\nGit SHA: Not provided\n", Some((3, 6))),
            ("kwok version v0.7.0 go1.26 (linux/amd64)\n", Some((0, 7))),
            ("v3.22.0+g1234567\n", Some((3, 22))),
            ("v3.22\n", None),
            ("", None),
        ] {
            assert_eq!(parse_version(text), want, "{text}");
        }
    }

    #[test]
    fn only_the_pinned_minor_of_the_server() {
        assert!(fits(Tool::KubeApiserver, (1, 34)));
        assert!(!fits(Tool::KubeApiserver, (1, 33)));
        assert!(!fits(Tool::Kubectl, (1, 32)));
        assert!(!fits(Tool::Helm, (4, 3)));
    }
}
