//! Watches, and who is woken by what.

use crate::args::Args;
use crate::build::{DRIVER, VALIDATOR};
use crate::context::{Context, Known, config_hash};
use crate::fleet::DriverPlace;
use crate::pool_labels::PoolLabels;
use crate::upgrade::Upgrades;
use crate::validate::ConfigFacts;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use kube::runtime::watcher;
use std::sync::Arc;
use tessera_api::NodeFacts;
use tessera_api::names::controller::DRIVER as NAME;
use tessera_api::names::label;
use tessera_runtime::Process;
use tessera_runtime::apply::{self, Applier, Owned};
use tessera_runtime::node_labels::{NodeLabels, watch_nodes};
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::operation::watch_operations;
use tessera_runtime::policy::Policies;
use tessera_runtime::queue::Queue;
use tessera_runtime::status::StatusWriter;
use tessera_runtime::watch::{Change, Part};

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The policies together: all objects, and the status.
    Policy,
    /// The labels of all nodes, after a change that concerns many.
    Labels,
    /// Which nodes' drivers are upgraded next.
    Rollout,
    /// One node: its labels, and an upgrade of its driver.
    Node(String),
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Policy => f.write_str("policy"),
            Self::Labels => f.write_str("labels"),
            Self::Rollout => f.write_str("rollout"),
            Self::Node(name) => write!(f, "node/{name}"),
        }
    }
}

/// Starts all watches.
pub fn context(process: &mut Process, args: &Args, queue: &Queue<Key>) -> Context {
    let namespace = process.args().namespace.clone();
    let known = Arc::new(Known::default());
    let wake = |queue: &Queue<Key>| {
        let queue = queue.clone();
        move || queue.wake(Key::Policy)
    };
    let policies = Policies::watch(process, args.images(), NAME, wake(queue));
    let nodes = {
        let (queue, known) = (queue.clone(), known.clone());
        watch_nodes(process, move |change| {
            if known.node(change) {
                queue.wake(Key::Policy);
            }
            if changes_rollout(change) {
                queue.wake_soon(Key::Rollout);
            }
            queue.wake(Key::Node(change.key.name.clone()));
        })
    };
    let mut applier = Applier::new(process, NAME);
    let sets = {
        let (queue, known) = (queue.clone(), known.clone());
        applier.own::<DaemonSet>(process, Some(&namespace), move |change| {
            apply::wake(&queue, Key::Policy, change);
            if changes_driver(change) {
                queue.wake(Key::Rollout);
                wake_pool(&queue, &known, &change.key.name);
            }
        })
    };
    let (wake_map, wake_class, wake_config) = (wake(queue), wake(queue), wake(queue));
    applier.own::<ConfigMap>(process, Some(&namespace), move |_| wake_map());
    applier.own::<RuntimeClass>(process, None, move |_| wake_class());
    let configs = process.watch(
        Api::<ConfigMap>::namespaced(process.client(), &namespace),
        watcher::Config::default(),
        |map: ConfigMap| Some(ConfigFacts::of(&map)),
        move |_| wake_config(),
    );
    let pods = {
        let (queue, known) = (queue.clone(), known.clone());
        process.watch(
            Api::<Part<Pod>>::namespaced(process.client(), &namespace),
            applier.watch_config(),
            |Part(pod)| Some(PodFacts::from_pod(pod)),
            move |change| {
                known.pod(change);
                queue.wake_soon(Key::Policy);
                wake_nodes_of(&queue, change);
            },
        )
    };
    let operations = {
        let queue = queue.clone();
        watch_operations(process, move |change| {
            queue.wake(Key::Node(change.key.name.clone()));
            queue.wake(Key::Rollout);
            // The roll-out's progress is part of the status.
            queue.wake(Key::Policy);
        })
    };
    Context {
        status: StatusWriter::new(process, policies.clone(), NAME),
        node_labels: NodeLabels::new(process, NAME, nodes.clone()),
        pool_labels: PoolLabels::new(process, nodes.clone()),
        upgrades: Upgrades::new(process, nodes.clone(), operations),
        queue: queue.clone(),
        namespace,
        applier,
        policies,
        nodes,
        pods,
        configs,
        sets,
        known,
    }
}

/// Whether a node's change can make room for an upgrade, take it, or ask for one: cordons, readiness, annotations,
/// upgrade labels. A node that joins gets its first driver without an upgrade.
fn changes_rollout(change: &Change<NodeFacts>) -> bool {
    let facts = |node: &Option<Arc<NodeFacts>>| {
        node.as_ref().map(|node| {
            let labels = [label::UPGRADE_STATE, label::UPGRADE_SKIP]
                .map(|key| node.label(key).map(str::to_owned));
            (
                node.ready,
                node.unschedulable,
                node.deleting,
                node.annotations.clone(),
                labels,
            )
        })
    };
    facts(&change.old) != facts(&change.new)
}

/// Whether the pods of a DaemonSet should now be made from something else.
fn changes_driver(change: &Change<Owned>) -> bool {
    let hash = |set: &Option<Arc<Owned>>| {
        set.as_ref()
            .and_then(|set| config_hash(set).map(str::to_owned))
    };
    hash(&change.old) != hash(&change.new)
}

fn wake_pool(queue: &Queue<Key>, known: &Known, daemon_set: &str) {
    let fleet = known.fleet.read();
    for name in fleet.names() {
        let driver = fleet.get(name).map(|placement| &placement.driver);
        if let Some(DriverPlace::Pool(pool)) = driver
            && pool.daemon_set() == daemon_set
        {
            queue.wake(Key::Node(name.to_owned()));
        }
    }
}

/// An upgrade waits for the driver's and the validator's pods.
fn wake_nodes_of(queue: &Queue<Key>, change: &Change<PodFacts>) {
    for pod in [&change.old, &change.new].into_iter().flatten() {
        if !pod.node.is_empty() && [DRIVER, VALIDATOR].contains(&pod.component.as_str()) {
            queue.wake(Key::Node(pod.node.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_as_people_write_them() {
        for (key, want) in [
            (Key::Policy, "policy"),
            (Key::Labels, "labels"),
            (Key::Rollout, "rollout"),
            (Key::Node("gpu-1".to_owned()), "node/gpu-1"),
        ] {
            assert_eq!(key.to_string(), want);
        }
    }
}
