//! Watches, what wakes whom, concurrency.

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Pod, Service},
};
use kube::{Api, runtime::watcher};
use tessera_api::{DefaultImages, NodeFacts, names::label};
use tessera_runtime::{
    Process,
    apply::{self, Applier, Owned},
    node_labels::{NodeLabels, watch_nodes},
    operands::pod::PodFacts,
    optional::{Presence, follow_optional},
    policy::Policies,
    process::RunError,
    queue::Queue,
    status::StatusWriter,
    watch::{Change, Part, Store},
};

use crate::{
    NAME,
    context::{Context, Key, Memory},
    metrics_source::UserMap,
    reconcile::Controller,
    service_monitor::{self, ServiceMonitor},
};

/// Starts the watches and reconciles until the process is told to stop.
pub(crate) async fn run(mut process: Process, images: DefaultImages) -> Result<(), RunError> {
    let namespace = process.args().namespace.clone();
    let queue = Queue::new();
    let memory = Arc::new(Memory::default());
    let policies = Policies::watch(&mut process, images, NAME, wake(&queue));
    let nodes = nodes(&mut process, &queue, &memory);
    let mut applier = Applier::new(&process, NAME);
    let woken = queue.clone();
    let daemon_sets = applier.own::<DaemonSet>(&mut process, Some(&namespace), move |change| {
        apply::wake(&woken, Key::Policy, change);
    });
    let config_maps = applier.own::<ConfigMap>(&mut process, Some(&namespace), on_change(&queue));
    applier.own::<Service>(&mut process, Some(&namespace), on_change(&queue));
    let monitors = monitors(&mut process, &mut applier, &namespace, &queue);
    let context = Context {
        pods: pods(&mut process, &namespace, &queue),
        user_maps: user_maps(&mut process, &namespace, &queue),
        status: StatusWriter::new(&process, policies.clone(), NAME),
        labels: NodeLabels::new(&process, NAME, nodes.clone()),
        queue: queue.clone(),
        namespace,
        policies,
        nodes,
        daemon_sets,
        config_maps,
        monitors,
        applier,
        memory,
    };
    process.run(queue, Controller::new(context)).await
}

fn wake(queue: &Queue<Key>) -> impl Fn() + Clone + Send + Sync + 'static {
    let queue = queue.clone();
    move || queue.wake(Key::Policy)
}

fn on_change<T>(queue: &Queue<Key>) -> impl Fn(&Change<T>) + Send + Sync + 'static {
    let wake = wake(queue);
    move |_: &Change<T>| wake()
}

/// A node's own labels are its own key; the policy's status asks only how many nodes should run what.
fn nodes(process: &mut Process, queue: &Queue<Key>, memory: &Arc<Memory>) -> Store<NodeFacts> {
    let (queue, memory) = (queue.clone(), memory.clone());
    watch_nodes(process, move |change| {
        let matters = match (&change.old, &change.new) {
            (Some(old), Some(new)) => !same_essence(old, new),
            _ => true,
        };
        if matters {
            memory.census.lock().changed(&change.key.name);
            queue.wake(Key::Node(change.key.name.clone()));
            queue.wake_soon(Key::Policy);
        }
    })
}

fn same_essence(old: &NodeFacts, new: &NodeFacts) -> bool {
    old.labels == new.labels
        && old.owned_labels == new.owned_labels
        && old.taints == new.taints
        && old.deleting == new.deleting
}

fn monitors(
    process: &mut Process,
    applier: &mut Applier,
    namespace: &str,
    queue: &Queue<Key>,
) -> Presence {
    let kind = applier.prepare::<ServiceMonitor>(true, on_change::<Owned>(queue));
    follow_optional(
        process,
        applier,
        kind,
        service_monitor::CRD,
        namespace,
        wake(queue),
    )
}

/// Pods of our own operands only.
fn pods(process: &mut Process, namespace: &str, queue: &Queue<Key>) -> Store<PodFacts> {
    let api: Api<Part<Pod>> = Api::namespaced(process.client(), namespace);
    let config = watcher::Config::default().labels(&format!("{}={NAME}", label::MANAGED_BY));
    process.watch(api, config, |Part(pod)| Some(PodFacts::from_pod(pod)), {
        let queue = queue.clone();
        move |_| queue.wake_soon(Key::Policy)
    })
}

/// Any ConfigMap that is not ours may be the one that a policy names.
fn user_maps(process: &mut Process, namespace: &str, queue: &Queue<Key>) -> Store<UserMap> {
    let api: Api<ConfigMap> = Api::namespaced(process.client(), namespace);
    let config = watcher::Config::default().labels(&format!("{}!={NAME}", label::MANAGED_BY));
    let store = Store::new("UserConfigMap", on_change(queue));
    process.watch_into(api, config, store.clone(), UserMap::from_config_map);
    store
}
