//! Ports of a lab.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::bail;
use serde::{Deserialize, Serialize};

/// Which ports a lab takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChoice {
    /// The API server's port; the next three are etcd's and the node agent's.
    Fixed(u16),
    /// Any that are free.
    Free,
}

/// Ports of a lab, all on 127.0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// kube-apiserver.
    pub api: u16,
    /// etcd's clients.
    pub etcd: u16,
    /// etcd's peers (there are none, but it listens).
    pub etcd_peer: u16,
    /// The node agent, for `kubectl logs`.
    pub kubelet: u16,
}

/// Chooses the ports, and makes sure that they can be taken.
pub(super) fn choose(choice: PortChoice) -> anyhow::Result<Ports> {
    match choice {
        PortChoice::Fixed(base) => fixed(base),
        PortChoice::Free => {
            // Held together, so that they differ.
            let held = [free()?, free()?, free()?, free()?];
            let [api, etcd, etcd_peer, kubelet] = held
                .each_ref()
                .map(|listener| listener.local_addr().map(|addr| addr.port()));
            Ok(Ports {
                api: api?,
                etcd: etcd?,
                etcd_peer: etcd_peer?,
                kubelet: kubelet?,
            })
        }
    }
}

fn free() -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}

fn fixed(base: u16) -> anyhow::Result<Ports> {
    let Some(last) = base.checked_add(3) else {
        bail!("port {base} leaves no room for three more: choose one below 65533");
    };
    for port in base..=last {
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            bail!(
                "port {port} on 127.0.0.1 cannot be used ({error}): stop what listens there, or choose other ports with --port"
            );
        }
    }
    Ok(Ports {
        api: base,
        etcd: base + 1,
        etcd_peer: base + 2,
        kubelet: last,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let ports = choose(PortChoice::Free).unwrap();
        assert!(
            ports.api != ports.etcd
                && ports.etcd != ports.etcd_peer
                && ports.api != ports.etcd_peer
        );
    }

    #[test]
    fn a_taken_port_is_named_with_the_remedy() {
        let held = free().unwrap();
        let port = held.local_addr().unwrap().port();
        let error = choose(PortChoice::Fixed(port)).unwrap_err().to_string();
        assert!(
            error.contains(&format!("port {port}")) && error.contains("--port"),
            "{error}"
        );
    }
}
