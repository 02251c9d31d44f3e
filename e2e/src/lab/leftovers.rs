//! Labs of an earlier time under the same directory: running ones are reported, dead ones are cleared away.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::process::Signal;

use crate::controlplane::Report;
use crate::process::Identity;
use crate::supervisor::etcd_data;

/// What `down` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// A running lab, which is stopped now.
    Lab,
    /// The remains of one that had been killed.
    Remains,
    /// Nothing.
    Nothing,
}

/// Stops the lab under `dir`, or clears away what is left of one. Logs stay.
///
/// # Errors
/// A process cannot be stopped.
pub fn down(dir: &Path) -> anyhow::Result<Stopped> {
    let agent =
        Identity::load(&dir.join("pids").join("lab-agent")).filter(|agent| agent.is_alive());
    if let Some(agent) = agent {
        agent.signal(Signal::TERM);
        let started = Instant::now();
        while agent.is_alive() && started.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(50));
        }
        agent.stop(Duration::ZERO);
    }
    let remains = clear_dead(dir)?;
    Ok(match (agent, remains) {
        (Some(_), _) => Stopped::Lab,
        (None, true) => Stopped::Remains,
        (None, false) => Stopped::Nothing,
    })
}

/// Removes the directories of earlier runs of a test, `<name>-<pid>`, whose process has ended.
pub(super) fn forget_runs(labs: &Path, name: &str) {
    for entry in std::fs::read_dir(labs).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let pid = file
            .to_str()
            .and_then(|file| file.strip_prefix(name)?.strip_prefix('-')?.parse().ok());
        if pid.is_some_and(|pid| pid != std::process::id() && Identity::of(pid).is_none()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes `dir` ready for a new lab.
///
/// # Errors
/// A lab runs there.
pub(super) fn clear(dir: &Path, report: Report<'_>) -> anyhow::Result<()> {
    let lock = File::create(dir.join("lock"))?;
    if lock.try_lock().is_err() {
        let pid = Identity::load(&dir.join("pids").join("lab-agent"))
            .map_or_else(String::new, |agent| {
                format!(" (lab-agent, pid {})", agent.pid())
            });
        bail!(
            "a lab is already running under {}{pid}: stop it with `cargo xtask down`",
            dir.display()
        );
    }
    if clear_dead(dir)? {
        report(&format!(
            "an earlier lab under {} was killed; its remains are cleared away",
            dir.display()
        ));
    }
    for name in ["pods", "pki", "audit.log", "log"] {
        let path = dir.join(name);
        let _ = if path.is_dir() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        };
    }
    Ok(())
}

/// Kills processes that a dead agent left and removes their traces; true when there were any.
fn clear_dead(dir: &Path) -> anyhow::Result<bool> {
    let mut found = false;
    if let Ok(entries) = std::fs::read_dir(dir.join("pids")) {
        for entry in entries {
            let path = entry?.path();
            if let Some(identity) = Identity::load(&path) {
                found = true;
                identity.stop(Duration::ZERO);
            }
            let _ = std::fs::remove_file(path);
        }
    }
    let _ = std::fs::remove_dir_all(dir.join("etcd"));
    let _ = std::fs::remove_dir_all(dir.join("pods"));
    etcd_data::sweep();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_lab_is_reported_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let lock = File::create(dir.path().join("lock")).unwrap();
        lock.lock().unwrap();
        let error = clear(dir.path(), &|_| {}).unwrap_err().to_string();
        assert!(error.contains("cargo xtask down"), "{error}");
    }

    #[test]
    fn remains_of_a_killed_lab_are_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("pids")).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        Identity::of(child.id())
            .unwrap()
            .save(&dir.path().join("pids/etcd"))
            .unwrap();
        assert_eq!(down(dir.path()).unwrap(), Stopped::Remains);
        assert!(child.wait().unwrap().code().is_none());
        assert_eq!(down(dir.path()).unwrap(), Stopped::Nothing);
    }
}
