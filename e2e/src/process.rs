//! Operating system processes: identity that survives the reuse of pids, signals, and children that never outlive their parent.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal};

/// A process, named so that a reused pid is not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pid: u32,
    /// Start time in clock ticks after boot (field 22 of proc_pid_stat(5)).
    started: u64,
}

impl Identity {
    /// The identity of a running process; `None` when it is gone (or a zombie).
    pub fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command's name is in parentheses and may hold blanks and parentheses itself.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        let started = fields.nth(18)?.parse().ok()?;
        Some(Self { pid, started })
    }

    /// The process id.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Whether that very process still runs.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Sends a signal to the process; false when it is gone.
    pub fn signal(self, signal: Signal) -> bool {
        self.is_alive()
            && raw(self.pid).is_some_and(|pid| rustix::process::kill_process(pid, signal).is_ok())
    }

    /// Sends a signal to the process group that the process leads; false when it is gone.
    pub fn signal_group(self, signal: Signal) -> bool {
        self.is_alive()
            && raw(self.pid)
                .is_some_and(|pid| rustix::process::kill_process_group(pid, signal).is_ok())
    }

    /// SIGTERM, and SIGKILL when it is still there after `patience`. Blocks.
    pub fn stop(self, patience: Duration) {
        if !self.signal(Signal::TERM) {
            return;
        }
        let started = Instant::now();
        while self.is_alive() {
            if started.elapsed() > patience {
                self.signal(Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes the identity to a file, for [`Identity::load`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(self, path: &Path) -> anyhow::Result<()> {
        std::fs::write(path, format!("{} {}\n", self.pid, self.started))
            .with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Reads an identity; `None` when the file is not there or holds something else.
    pub fn load(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
        })
    }
}

fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Resident memory (RSS) and CPU time of a process, in MiB and seconds.
pub fn usage(pid: u32) -> Option<(f64, f64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rss = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = rss.trim().trim_end_matches("kB").trim().parse().ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: f64 = fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?;
    // USER_HZ is 100 on every architecture Rust's Linux targets support (time(7)).
    Some((kib / 1024.0, ticks / 100.0))
}

/// Proportional set size of a process in MiB (shared pages counted by their share).
pub fn proportional_memory(pid: u32) -> Option<f64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: f64 = pss.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// The first argument that makes `lab-agent` a launcher instead of an agent.
pub const LAUNCH: &str = "exec-with-parent";

/// A command whose process gets SIGKILL when this one ends, however it ends, in a process group of its own.
///
/// It goes through the launcher mode of this same executable, which must therefore be `lab-agent`: asking for the signal between
/// fork and exec would need unsafe code.
///
/// # Errors
/// The path of the running executable is unknown.
pub fn command(program: &Path, log: &File) -> anyhow::Result<tokio::process::Command> {
    let launcher =
        std::env::current_exe().context("the path of the running executable is unknown")?;
    let mut command = tokio::process::Command::new(launcher);
    command
        .arg(LAUNCH)
        .arg(std::process::id().to_string())
        .arg(program)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);
    Ok(command)
}

/// The launcher: asks to be killed with the parent, then becomes the program. Returns only on failure.
pub fn launch(mut args: impl Iterator<Item = std::ffi::OsString>) -> std::io::Error {
    let parent = args
        .next()
        .and_then(|text| text.to_str()?.parse::<i32>().ok());
    let Some(program) = args.next() else {
        return std::io::Error::other("no program to launch");
    };
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // The parent may have died before the request: then nobody is left to send the signal.
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != parent {
        return std::io::Error::other("the parent is gone");
    }
    std::process::Command::new::<&OsStr>(&program)
        .args(args)
        .exec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_a_file_and_ends_with_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let identity = Identity::of(child.id()).unwrap();
        let path = dir.path().join("pid");
        identity.save(&path).unwrap();
        assert_eq!(Identity::load(&path), Some(identity));
        assert!(identity.is_alive());
        // A zombie counts as gone: its parent alone keeps the entry.
        identity.stop(Duration::from_secs(5));
        assert!(!identity.is_alive());
        child.wait().unwrap();
        assert!(!identity.signal(Signal::TERM));
    }

    #[test]
    fn a_reused_pid_is_somebody_else() {
        let me = Identity::of(std::process::id()).unwrap();
        let other = Identity {
            pid: me.pid,
            started: me.started + 1,
        };
        assert!(me.is_alive());
        assert!(!other.is_alive());
    }
}
