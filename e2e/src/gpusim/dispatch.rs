//! Two watches, and who gets their events: the task of the node concerned.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::World;
use super::node::{self, Event};
use crate::supervisor::config::OPERAND_MANAGERS;

/// Follows nodes and operand pods for ever.
pub(super) async fn run(world: Arc<World>) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    let pods: Api<Pod> = Api::all(world.client.clone());
    let operands = format!(
        "app.kubernetes.io/managed-by in ({})",
        OPERAND_MANAGERS.join(",")
    );
    let nodes = watcher(nodes, watcher::Config::default().labels("type=kwok"))
        .modify(strip_node)
        .default_backoff();
    let pods = watcher(pods, watcher::Config::default().labels(&operands))
        .modify(strip_pod)
        .default_backoff();
    let mut tasks = Tasks {
        world,
        senders: HashMap::new(),
        pod_nodes: HashMap::new(),
    };
    let (mut nodes, mut pods) = (Box::pin(nodes), Box::pin(pods));
    let (mut node_list, mut pod_list) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            event = next(&mut nodes) => tasks.node_event(event, &mut node_list),
            event = next(&mut pods) => tasks.pod_event(event, &mut pod_list),
        }
    }
}

/// Of thousands of pods only what is played is kept.
fn strip_pod(pod: &mut Pod) {
    pod.managed_fields_mut().clear();
    pod.status = None;
    let Some(spec) = pod.spec.as_mut() else {
        return;
    };
    spec.affinity = None;
    spec.tolerations = None;
    let inits = spec.init_containers.iter_mut().flatten();
    for container in inits.chain(&mut spec.containers) {
        container.command = None;
        container.args = None;
        container.resources = None;
        container.security_context = None;
        container.startup_probe = None;
        container.liveness_probe = None;
        container.readiness_probe = None;
        container.lifecycle = None;
    }
}

fn strip_node(node: &mut Node) {
    node.managed_fields_mut().clear();
    if let Some(status) = node.status.as_mut() {
        status.images = None;
    }
}

/// The next event; errors are logged, the watcher goes on by itself.
async fn next<K>(
    stream: &mut (impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Unpin),
) -> watcher::Event<K> {
    loop {
        match stream.next().await {
            Some(Ok(event)) => return event,
            Some(Err(error)) => tracing::warn!(%error, "gpusim's watch"),
            None => std::future::pending().await,
        }
    }
}

struct Tasks {
    world: Arc<World>,
    senders: HashMap<String, UnboundedSender<Event>>,
    /// The node of each known pod, by uid.
    pod_nodes: HashMap<String, String>,
}

impl Tasks {
    fn node_event(&mut self, event: watcher::Event<Node>, listed: &mut Vec<String>) {
        match event {
            watcher::Event::Apply(node) => self.node(node),
            watcher::Event::Delete(node) => self.node_gone(&node.name_any()),
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(node) => {
                listed.push(node.name_any());
                self.node(node);
            }
            watcher::Event::InitDone => {
                let listed: std::collections::HashSet<&String> = listed.iter().collect();
                let gone: Vec<String> = self
                    .senders
                    .keys()
                    .filter(|name| !listed.contains(name))
                    .cloned()
                    .collect();
                for name in gone {
                    self.node_gone(&name);
                }
            }
        }
    }

    fn pod_event(&mut self, event: watcher::Event<Pod>, listed: &mut Vec<String>) {
        match event {
            watcher::Event::Apply(pod) => self.pod(pod),
            watcher::Event::Delete(pod) => self.pod_gone(&pod.uid().unwrap_or_default()),
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(pod) => {
                listed.push(pod.uid().unwrap_or_default());
                self.pod(pod);
            }
            watcher::Event::InitDone => {
                let listed: std::collections::HashSet<&String> = listed.iter().collect();
                let gone: Vec<String> = self
                    .pod_nodes
                    .keys()
                    .filter(|uid| !listed.contains(uid))
                    .cloned()
                    .collect();
                for uid in gone {
                    self.pod_gone(&uid);
                }
            }
        }
    }

    fn node(&mut self, node: Node) {
        self.send(&node.name_any(), Event::Node(Arc::new(node)));
    }

    fn node_gone(&mut self, name: &str) {
        if self.senders.remove(name).is_some() {
            self.world.nodes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn pod(&mut self, pod: Pod) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        if let Some(node) = node.filter(|node| node != crate::lab::LAB_HOST) {
            self.pod_nodes
                .insert(pod.uid().unwrap_or_default(), node.clone());
            self.send(&node, Event::Pod(Arc::new(pod)));
        }
    }

    fn pod_gone(&mut self, uid: &str) {
        if let Some(node) = self.pod_nodes.remove(uid)
            && let Some(sender) = self.senders.get(&node)
        {
            let _ = sender.send(Event::PodGone(uid.to_owned()));
        }
    }

    fn send(&mut self, node: &str, event: Event) {
        let world = &self.world;
        let sender = self.senders.entry(node.to_owned()).or_insert_with(|| {
            let (sender, events) = unbounded_channel();
            world.nodes.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(node::run(Arc::clone(world), node.to_owned(), events));
            sender
        });
        let _ = sender.send(event);
    }
}
