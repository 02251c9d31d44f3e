//! The node agent of Node `lab-host`: a kubelet in small, whose containers are processes of this machine.
//!
//! What a pod specification says is done as it says: init containers in order, arguments and environment with `$(VAR)`
//! expansion, ServiceAccount token (TokenRequest, renewed), probes with their timings, restart policy, SIGTERM and SIGKILL after
//! the grace period. What differs from a kubelet:
//!
//! - An image is the program in the lab's image directory that is named as the image reference's last path element, without tag
//!   or digest. With `command`, it is the program named as the command's last path element, else that path on this machine.
//! - A pod has an address of 127.0.0.0/8 of its own, and shares everything else with the host.
//! - Volumes cannot be mounted at absolute paths without root. A container finds its mounts below `$LAB_ROOT`
//!   (`$LAB_ROOT/etc/x` for a mount at `/etc/x`). ConfigMaps and Secrets in volumes are not refreshed. `hostPath` is an empty directory.
//! - A pod with a ServiceAccount token gets `KUBECONFIG`, which points to a file that uses that token; a value in the pod's own
//!   specification wins.
//! - The back-off after a crash is none, 1 s, 2 s, 4 s, ... 30 s instead of 10 s to 5 min.
//! - `kubectl logs` works, for all runs of a container at once; `exec`, `attach` and `port-forward` do not.
//! - Resource limits, security contexts and `exec`, `grpc` and TLS-verifying probes are not played. An HTTPS probe only connects.

mod container;
mod environment;
mod expand;
mod files;
mod logs;
mod net;
mod node;
mod pod;
mod probe;
mod status;
mod token;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::container::image_name;
pub(crate) use self::net::Net;
use crate::lab::LAB_HOST;

/// What the agent needs to know about its lab.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The lab's directory: pods, logs and pid files are below it.
    pub(crate) dir: PathBuf,
    /// Directory of the binaries that stand for images.
    pub(crate) images: PathBuf,
    /// URL of the API server.
    pub(crate) server: String,
    /// File of its certificate authority.
    pub(crate) ca: PathBuf,
    /// Its port on 127.0.0.1.
    pub(crate) api_port: u16,
    /// The agent's own port on 127.0.0.1.
    pub(crate) kubelet_port: u16,
    /// Its certificate.
    pub(crate) kubelet_tls: Arc<rustls::ServerConfig>,
}

/// What all pods share.
pub(crate) struct Context {
    client: Client,
    settings: Settings,
    net: Arc<Net>,
}

/// What a pod is told.
#[derive(Clone, Debug)]
enum Order {
    /// This is what the API server has.
    Be(Arc<Pod>),
    /// The object is gone, or the lab ends: stop within this many seconds.
    Stop(Duration),
}

/// The running agent.
pub(crate) struct Handle {
    stop: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Handle {
    /// Stops all pods: SIGTERM, and SIGKILL after at most 3 s. The API objects stay.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(()).await;
        let _ = self.task.await;
    }
}

/// Creates the Node and starts playing its pods.
pub(crate) async fn start(
    client: Client,
    settings: Settings,
    net: Arc<Net>,
    cancel: CancellationToken,
) -> anyhow::Result<Handle> {
    logs::serve(&settings)?;
    node::create(&client, settings.kubelet_port).await?;
    let context = Arc::new(Context {
        client,
        settings,
        net,
    });
    let (stop, stopped) = mpsc::channel(1);
    let agent = Agent {
        context,
        pods: HashMap::new(),
        tracker: TaskTracker::new(),
    };
    let task = tokio::spawn(agent.run(stopped, cancel));
    Ok(Handle { stop, task })
}

struct Agent {
    context: Arc<Context>,
    /// By uid.
    pods: HashMap<String, watch::Sender<Order>>,
    tracker: TaskTracker,
}

impl Agent {
    async fn run(mut self, mut stop: mpsc::Receiver<()>, cancel: CancellationToken) {
        let api: Api<Pod> = Api::all(self.context.client.clone());
        let config = watcher::Config::default().fields(&format!("spec.nodeName={LAB_HOST}"));
        let stream = watcher(api, config).default_backoff();
        pin_mut!(stream);
        let mut listed = Vec::new();
        loop {
            let event = tokio::select! {
                event = stream.next() => event,
                _ = stop.recv() => break,
                () = cancel.cancelled() => break,
            };
            match event {
                Some(Ok(watcher::Event::Apply(pod))) => self.apply(pod),
                Some(Ok(watcher::Event::Delete(pod))) => self.gone(&pod.uid().unwrap_or_default()),
                Some(Ok(watcher::Event::Init)) => listed.clear(),
                Some(Ok(watcher::Event::InitApply(pod))) => {
                    listed.push(pod.uid().unwrap_or_default());
                    self.apply(pod);
                }
                Some(Ok(watcher::Event::InitDone)) => {
                    let gone: Vec<String> = self
                        .pods
                        .keys()
                        .filter(|uid| !listed.contains(uid))
                        .cloned()
                        .collect();
                    for uid in gone {
                        self.gone(&uid);
                    }
                }
                Some(Err(error)) => tracing::warn!(%error, "watch of pods"),
                None => break,
            }
        }
        self.stop_all().await;
    }

    fn apply(&mut self, pod: Pod) {
        let uid = pod.uid().unwrap_or_default();
        let pod = Arc::new(pod);
        if let Some(sender) = self.pods.get(&uid) {
            let _ = sender.send(Order::Be(pod));
            return;
        }
        let (sender, orders) = watch::channel(Order::Be(Arc::clone(&pod)));
        self.pods.insert(uid, sender);
        self.tracker
            .spawn(pod::run(Arc::clone(&self.context), pod, orders));
    }

    fn gone(&mut self, uid: &str) {
        if let Some(sender) = self.pods.remove(uid) {
            let _ = sender.send(Order::Stop(Duration::ZERO));
        }
    }

    async fn stop_all(&mut self) {
        for sender in self.pods.values() {
            let _ = sender.send(Order::Stop(Duration::from_secs(3)));
        }
        self.tracker.close();
        self.tracker.wait().await;
    }
}
