//! The processes of a lab: host pods to signal, and how much all of them use.

use std::collections::BTreeMap;

use anyhow::bail;
use rustix::process::Signal;

use super::{Lab, Usage};
use crate::process::Identity;

/// What to do to a pod's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// SIGTERM, as the kubelet sends.
    Terminate,
    /// SIGKILL: a crash.
    Kill,
    /// SIGSTOP: it hangs.
    Freeze,
    /// SIGCONT.
    Resume,
}

impl Lab {
    /// Signals every container process of a pod on `lab-host`.
    ///
    /// # Errors
    /// The pod has no running process.
    pub fn signal_pod(&self, namespace: &str, pod: &str, order: Order) -> anyhow::Result<()> {
        let signal = match order {
            Order::Terminate => Signal::TERM,
            Order::Kill => Signal::KILL,
            Order::Freeze => Signal::STOP,
            Order::Resume => Signal::CONT,
        };
        let prefix = format!("{namespace}_{pod}_");
        let mut any = false;
        for (name, identity) in self.processes() {
            any |= name.starts_with(&prefix) && identity.signal(signal);
        }
        if any {
            Ok(())
        } else {
            bail!("pod {namespace}/{pod} has no running process on lab-host")
        }
    }

    /// Kills the agent outright, as a crash would: for tests of what happens then.
    pub fn kill_agent(&self) {
        if let Some(agent) = Identity::of(self.agent.id()) {
            agent.signal(Signal::KILL);
        }
    }

    /// The log of a container of a pod on `lab-host`, of all its runs; empty when it never ran.
    pub fn pod_log(&self, namespace: &str, pod: &str, container: &str) -> String {
        let path = self
            .spec
            .dir
            .join("log")
            .join("pods")
            .join(format!("{namespace}_{pod}_{container}.log"));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    /// What every process of the lab uses at the moment.
    pub fn usage(&self) -> Vec<Usage> {
        let processes = self.processes();
        processes
            .into_iter()
            .filter_map(|(name, identity)| Usage::of(name, identity.pid()))
            .collect()
    }

    fn processes(&self) -> BTreeMap<String, Identity> {
        let Ok(entries) = std::fs::read_dir(self.spec.dir.join("pids")) else {
            return BTreeMap::new();
        };
        let named = entries.flatten().filter_map(|entry| {
            Some((
                entry.file_name().to_string_lossy().into_owned(),
                Identity::load(&entry.path())?,
            ))
        });
        named.filter(|(_, identity)| identity.is_alive()).collect()
    }
}
