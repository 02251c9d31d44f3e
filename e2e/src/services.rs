//! Services, for the API server: the part of kube-proxy without which no admission webhook and no aggregated API can be called.
//!
//! The API server dials everything of the cluster through a CONNECT proxy (an egress selector), which is here. A target that is a
//! Service's address goes to one of its ready pods, in turn; anything else is dialled as it is (node agents, for `kubectl logs`).
//! As with kube-proxy, a pod that is not ready or is being deleted gets no new connection, and nobody tries a second pod.
//! EndpointSlices are not used, because they may not hold the loopback addresses that pods have here.

use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

/// How long a connection may take to be made.
const DIAL: Duration = Duration::from_secs(5);

/// The proxy's socket, by the API server's port, which no other lab has. Abstract: a path below a deep working directory would be
/// longer than the 108 bytes that the kernel allows.
pub(crate) fn socket_name(api_port: u16) -> String {
    format!("tessera-lab-{api_port}")
}

/// Opens a connection as the API server does: through the proxy of the lab whose API server listens on `api_port`.
///
/// # Errors
/// There is no such lab, or nothing could be reached; the message holds the proxy's words.
pub(crate) async fn connect(api_port: u16, target: &str) -> anyhow::Result<UnixStream> {
    let address = std::os::unix::net::SocketAddr::from_abstract_name(socket_name(api_port))?;
    let stream = std::os::unix::net::UnixStream::connect_addr(&address)
        .context("the lab's proxy does not listen")?;
    stream.set_nonblocking(true)?;
    let mut stream = UnixStream::from_std(stream)?;
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let head = read_head(&mut stream).await?;
    let status = head.lines().next().unwrap_or_default();
    if status.split_whitespace().nth(1) != Some("200") {
        bail!("{status}");
    }
    Ok(stream)
}

/// Serves until `cancel`.
pub(crate) fn start(
    client: Client,
    api_port: u16,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let address = std::os::unix::net::SocketAddr::from_abstract_name(socket_name(api_port))?;
    let listener = std::os::unix::net::UnixListener::bind_addr(&address)
        .with_context(|| format!("the socket @{} is taken", socket_name(api_port)))?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let (services, writer) = reflector::store();
    let watch = watcher(
        Api::<Service>::all(client.clone()),
        watcher::Config::default(),
    );
    let events = reflector::reflector(writer, watch.default_backoff());
    let routes = Arc::new(Routes {
        client,
        services,
        turn: AtomicUsize::new(0),
    });
    tokio::spawn(async move {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = events.for_each(|_| std::future::ready(())) => {}
            () = accept(listener, routes) => {}
        }
    });
    Ok(())
}

async fn accept(listener: UnixListener, routes: Arc<Routes>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(tunnel(stream, Arc::clone(&routes)))),
            // Out of files: the next try may be luckier.
            Err(error) => {
                tracing::warn!(%error, "the proxy cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn tunnel(mut stream: UnixStream, routes: Arc<Routes>) {
    let Ok(head) = read_head(&mut stream).await else {
        return;
    };
    let target = head.split_whitespace().nth(1).unwrap_or_default();
    let answer = match routes.dial(target).await {
        Ok(mut pod) => {
            if stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_ok() {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut pod).await;
            }
            return;
        }
        // The API server shows the status line to whoever asked.
        Err(error) => format!("HTTP/1.1 503 {error:#}\r\nContent-Length: 0\r\n\r\n"),
    };
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// Up to the blank line; nobody sends more before the answer.
async fn read_head(stream: &mut UnixStream) -> anyhow::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    // One byte at a time, because what follows the blank line is the tunnel's.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > 8 * 1024 || stream.read(&mut byte).await? == 0 {
            bail!("no HTTP head");
        }
        head.extend_from_slice(&byte);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

struct Routes {
    client: Client,
    services: Store<Service>,
    turn: AtomicUsize,
}

impl Routes {
    async fn dial(&self, target: &str) -> anyhow::Result<TcpStream> {
        let address = match self.service(target) {
            Some((service, port)) => self.pod_of(&service, &port).await?,
            None => target.to_owned(),
        };
        let stream = tokio::time::timeout(DIAL, TcpStream::connect(&address))
            .await
            .with_context(|| format!("{address} does not answer"))?
            .with_context(|| format!("{address} cannot be reached"))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// The Service and the port that a target is the address of.
    fn service(&self, target: &str) -> Option<(Arc<Service>, ServicePort)> {
        let target: SocketAddr = target.parse().ok()?;
        let ip = target.ip().to_string();
        let service = self.services.find(|service| {
            let spec = service.spec.as_ref();
            spec.and_then(|spec| spec.cluster_ip.as_deref()) == Some(ip.as_str())
        })?;
        let ports = service.spec.as_ref()?.ports.as_ref()?;
        let port = ports
            .iter()
            .find(|port| port.port == i32::from(target.port()))?
            .clone();
        Some((service, port))
    }

    /// `address:port` of the ready pod whose turn it is. Asked anew for each connection, so that a pod gets none from the moment that
    /// the API server knows it is not ready.
    async fn pod_of(&self, service: &Service, port: &ServicePort) -> anyhow::Result<String> {
        let name = format!(
            "Service {}/{}",
            service.namespace().unwrap_or_default(),
            service.name_any()
        );
        let selector = service
            .spec
            .as_ref()
            .and_then(|spec| spec.selector.as_ref())
            .filter(|selector| !selector.is_empty())
            .with_context(|| format!("{name} selects no pods"))?;
        let selector: Vec<String> = selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let pods: Api<Pod> = Api::namespaced(
            self.client.clone(),
            &service.namespace().unwrap_or_default(),
        );
        let params = ListParams::default().labels(&selector.join(","));
        let list = pods.list(&params).await?;
        let ready: Vec<String> = list
            .iter()
            .filter(|pod| is_ready(pod))
            .filter_map(|pod| endpoint(pod, port))
            .collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        ready
            .get(turn % ready.len().max(1))
            .cloned()
            .with_context(|| format!("{name} has no ready pod"))
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Where a pod serves a Service's port; `targetPort` is a number, or the name of a container's port.
fn endpoint(pod: &Pod, port: &ServicePort) -> Option<String> {
    let ip = pod.status.as_ref()?.pod_ip.clone()?;
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.as_ref()?.containers.iter();
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            ports
                .find(|port| port.name.as_ref() == Some(name))?
                .container_port
        }
    };
    Some(format!("{ip}:{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"podIP": "127.1.2.3", "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn port(target: serde_json::Value) -> ServicePort {
        serde_json::from_value(json!({"port": 443, "targetPort": target})).unwrap()
    }

    #[test]
    fn a_target_port_is_a_name_or_a_number() {
        let pod = pod("True");
        let at = |target| endpoint(&pod, &port(target));
        assert_eq!(at(json!("http")).as_deref(), Some("127.1.2.3:8080"));
        assert_eq!(at(json!(9000)).as_deref(), Some("127.1.2.3:9000"));
        assert_eq!(at(json!(null)).as_deref(), Some("127.1.2.3:443"));
        assert_eq!(at(json!("other")), None);
    }

    #[test]
    fn only_ready_pods_that_stay() {
        assert!(is_ready(&pod("True")) && !is_ready(&pod("False")));
        let mut going = pod("True");
        going.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(!is_ready(&going));
    }
}
