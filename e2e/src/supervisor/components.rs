//! The command line of each process of the control plane, and why each flag is there.

use std::ffi::OsString;
use std::path::Path;

use super::config::Files;
use super::pki::{Pki, User};
use crate::controlplane::Tool;
use crate::lab::Ports;

/// Controllers the lab needs. No node-lifecycle controller: simulated nodes send no heartbeats. No endpoint controllers: pods have
/// loopback addresses here, which no Endpoints or EndpointSlice object may hold, so each would fail for ever.
const CONTROLLERS: &str = "daemonset-controller,deployment-controller,replicaset-controller,job-controller,ttl-after-finished-controller,\
garbage-collector-controller,pod-garbage-collector-controller,namespace-controller,serviceaccount-controller,\
serviceaccount-token-controller,root-ca-certificate-publisher-controller,resourcequota-controller,disruption-controller,\
clusterrole-aggregation-controller";

/// Arguments of etcd. Without fsync, because a lab's data is worth nothing after a crash and every write would wait for the disk.
pub(super) fn etcd(data: &Path, ports: Ports) -> Vec<OsString> {
    let (client, peer) = (local("http", ports.etcd), local("http", ports.etcd_peer));
    vec![
        flag("--data-dir", data),
        "--unsafe-no-fsync".into(),
        "--quota-backend-bytes=8589934592".into(),
        "--log-level=error".into(),
        flag("--listen-client-urls", &client),
        flag("--advertise-client-urls", &client),
        flag("--listen-peer-urls", &peer),
        flag("--initial-advertise-peer-urls", &peer),
        format!("--initial-cluster=default={peer}").into(),
    ]
}

/// Arguments of the API server.
pub(super) fn api_server(dir: &Path, pki: &Pki, files: &Files, ports: Ports) -> Vec<OsString> {
    vec![
        flag("--etcd-servers", local("http", ports.etcd)),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={}", ports.api).into(),
        // A loopback address is no valid endpoint of Service `kubernetes`.
        "--endpoint-reconciler-type=none".into(),
        flag("--tls-cert-file", pki.server_certificate()),
        flag("--tls-private-key-file", pki.server_key()),
        flag("--token-auth-file", pki.tokens()),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        flag(
            "--service-account-key-file",
            pki.service_account_public_key(),
        ),
        flag(
            "--service-account-signing-key-file",
            pki.service_account_key(),
        ),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--authorization-mode=Node,RBAC".into(),
        // Services, which no kube-proxy serves here.
        flag("--egress-selector-config-file", files.egress()),
        // Nobody resolves the names of nodes.
        "--kubelet-preferred-address-types=InternalIP".into(),
        // GPU operands are privileged by nature.
        "--allow-privileged=true".into(),
        // The not-ready taint of new nodes would stay: its remover, the node-lifecycle controller, does not run.
        "--disable-admission-plugins=TaintNodesByCondition".into(),
        flag("--audit-policy-file", files.audit_policy()),
        flag("--audit-log-path", dir.join("audit.log")),
        // One file, never rotated: readers hold an offset into it.
        "--audit-log-maxsize=4096".into(),
        // The default is to write each line at once: a test that reads after an action sees it.
        "--audit-log-mode=blocking".into(),
        "--event-ttl=1h".into(),
        "--profiling=false".into(),
    ]
}

/// Arguments of the controller manager. The default client limits (20 requests a second) are too slow for hundreds of nodes.
pub(super) fn controller_manager(pki: &Pki, files: &Files) -> Vec<OsString> {
    vec![
        flag("--kubeconfig", files.kubeconfig(User::ControllerManager)),
        "--leader-elect=false".into(),
        "--use-service-account-credentials=true".into(),
        flag(
            "--service-account-private-key-file",
            pki.service_account_key(),
        ),
        flag("--root-ca-file", pki.ca()),
        "--secure-port=0".into(),
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
        "--concurrent-daemonset-syncs=4".into(),
        format!("--controllers={CONTROLLERS}").into(),
    ]
}

/// Arguments of the scheduler.
pub(super) fn scheduler(files: &Files) -> Vec<OsString> {
    vec![
        flag("--config", files.scheduler()),
        "--secure-port=0".into(),
    ]
}

/// Arguments of kwok. Lease duration 0: no node Leases, which nobody would read.
pub(super) fn kwok(files: &Files) -> Vec<OsString> {
    vec![
        flag("--kubeconfig", files.kubeconfig(User::Kwok)),
        flag("--config", files.kwok()),
        "--manage-all-nodes=false".into(),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".into(),
        "--node-lease-duration-seconds=0".into(),
        "--node-ip=127.0.0.1".into(),
    ]
}

/// The order in which they are stopped.
pub(super) const STOP_ORDER: [Tool; 5] = [
    Tool::Kwok,
    Tool::KubeScheduler,
    Tool::KubeControllerManager,
    Tool::KubeApiserver,
    Tool::Etcd,
];

fn local(scheme: &str, port: u16) -> String {
    format!("{scheme}://127.0.0.1:{port}")
}

fn flag(name: &str, value: impl AsRef<std::ffi::OsStr>) -> OsString {
    let mut text = OsString::from(name);
    text.push("=");
    text.push(value);
    text
}
