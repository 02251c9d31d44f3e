//! The files that the control plane's processes read: kubeconfigs, audit policy, scheduler and egress
//! configuration, kwok's stages.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::pki::{Pki, User, secret};
use crate::lab::Ports;
use crate::services;

/// Values of `app.kubernetes.io/managed-by` whose pods gpusim plays and kwok leaves alone.
pub(crate) const OPERAND_MANAGERS: [&str; 3] = [
    "driver-controller",
    "device-plugin-controller",
    "dcgm-monitor-controller",
];

/// Where the files are.
pub(super) struct Files {
    dir: PathBuf,
}

impl Files {
    /// Writes all of them under `dir`.
    pub(super) fn create(
        dir: &Path,
        pki: &Pki,
        server: &str,
        ports: Ports,
    ) -> anyhow::Result<Self> {
        let files = Self {
            dir: dir.to_path_buf(),
        };
        for user in User::ALL {
            let content = kubeconfig(
                server,
                &pki.ca(),
                &pki.token_file(user),
                "default",
                user == User::Admin,
            )?;
            secret(&files.kubeconfig(user), &content)?;
        }
        std::fs::write(
            files.audit_policy(),
            serde_json::to_string_pretty(&audit_policy())?,
        )?;
        let scheduler = scheduler_configuration(&files.kubeconfig(User::Scheduler));
        std::fs::write(files.scheduler(), serde_json::to_string_pretty(&scheduler)?)?;
        std::fs::write(files.kwok(), kwok_stages(ports.kubelet))?;
        std::fs::write(
            files.egress(),
            serde_json::to_string_pretty(&egress_configuration(ports.api))?,
        )?;
        Ok(files)
    }

    pub(super) fn kubeconfig(&self, user: User) -> PathBuf {
        self.dir.join(user.file())
    }

    pub(super) fn audit_policy(&self) -> PathBuf {
        self.dir.join("audit-policy.json")
    }

    pub(super) fn scheduler(&self) -> PathBuf {
        self.dir.join("kube-scheduler.json")
    }

    pub(super) fn egress(&self) -> PathBuf {
        self.dir.join("egress.json")
    }

    pub(super) fn kwok(&self) -> PathBuf {
        self.dir.join("kwok.yaml")
    }
}

/// A kubeconfig. With `inline` it can be copied elsewhere: certificate and token are read now.
pub(crate) fn kubeconfig(
    server: &str,
    ca: &Path,
    token: &Path,
    namespace: &str,
    inline: bool,
) -> anyhow::Result<String> {
    let user = if inline {
        json!({ "token": std::fs::read_to_string(token)? })
    } else {
        json!({ "tokenFile": token })
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "lab", "cluster": { "server": server, "certificate-authority": ca } }],
        "users": [{ "name": "lab", "user": user }],
        "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": "lab", "namespace": namespace } }],
        "current-context": "lab",
    });
    Ok(serde_json::to_string_pretty(&config)?)
}

/// One line for each request of a ServiceAccount, the control plane's own ones left out (two for a watch: start and end).
///
/// Bindings come with what was written: which role somebody bound is not in their names. So does the status of ClusterPolicies: what it
/// was that changed is the first question about a write too many.
fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": true,
        "rules": [
            { "level": "None", "userGroups": ["system:serviceaccounts:kube-system"] },
            {
                "level": "Request",
                "userGroups": ["system:serviceaccounts"],
                "verbs": ["create", "update", "patch"],
                "resources": [{
                    "group": "rbac.authorization.k8s.io",
                    "resources": ["clusterrolebindings", "rolebindings"],
                }],
            },
            {
                "level": "Request",
                "userGroups": ["system:serviceaccounts"],
                "verbs": ["patch"],
                "resources": [{ "group": "nvidia.com", "resources": ["clusterpolicies/status"] }],
            },
            { "level": "Metadata", "userGroups": ["system:serviceaccounts"] },
            { "level": "None" },
        ],
    })
}

/// Everything of the cluster is reached through the proxy of [`crate::services`].
fn egress_configuration(api_port: u16) -> Value {
    // Go takes a leading @ for an abstract name.
    let socket = format!("@{}", services::socket_name(api_port));
    json!({
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{
            "name": "cluster",
            "connection": { "proxyProtocol": "HTTPConnect", "transport": { "uds": { "udsName": socket } } },
        }],
    })
}

fn scheduler_configuration(kubeconfig: &Path) -> Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": { "kubeconfig": kubeconfig, "qps": 500, "burst": 1000 },
        "leaderElection": { "leaderElect": false },
    })
}

/// kwok's own fast stages, except that pods played by gpusim are only ever removed.
fn kwok_stages(kubelet_port: u16) -> String {
    let mut operands = String::new();
    for name in OPERAND_MANAGERS {
        operands.push_str("      - ");
        operands.push_str(name);
        operands.push('\n');
    }
    include_str!("kwok-stages.yaml")
        .replace("      - OPERAND_MANAGERS\n", &operands)
        // Where the API server asks for the logs of pods on these nodes.
        .replace("KUBELET_PORT", &kubelet_port.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kwok_leaves_operand_pods_alone() {
        let stages = kwok_stages(10250);
        assert_eq!(
            stages.matches("- device-plugin-controller\n").count(),
            2,
            "{stages}"
        );
        assert!(!stages.contains("OPERAND_MANAGERS"));
    }
}
