//! Watches, and what each of their events wakes.

use crate::args::Args;
use crate::context::Context;
use crate::index::Index;
use crate::mig_nodes::Changes;
use crate::pods::TroubledPods;
use crate::reconcile::DevicePluginController;
use crate::referenced::Referenced;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use parking_lot::RwLock;
use tessera_api::DefaultImages;
use tessera_api::image::ImageKind;
use tessera_api::names::controller::DEVICE_PLUGIN as NAME;
use tessera_runtime::apply::{self, Applier};
use tessera_runtime::node_labels::{NodeLabels, watch_nodes};
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::policy::Policies;
use tessera_runtime::process::{Process, StartError};
use tessera_runtime::queue::Queue;
use tessera_runtime::status::StatusWriter;
use tessera_runtime::watch::Part;

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Everything that follows from the policies.
    Policy,
    /// The labels of one node.
    Node(String),
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Policy => f.write_str("policy"),
            Self::Node(name) => write!(f, "node/{name}"),
        }
    }
}

/// Starts the watches; the process is then ready to run.
pub async fn prepare(
    args: Args,
) -> Result<(Process, Queue<Key>, DevicePluginController), StartError> {
    let images = images(&args);
    let mut process = Process::start(NAME, args.runtime).await?;
    let namespace = process.args().namespace.clone();
    let queue = Queue::<Key>::new();
    let wake = |queue: &Queue<Key>| {
        let queue = queue.clone();
        move || queue.wake(Key::Policy)
    };

    let policies = Policies::watch(&mut process, images, NAME, wake(&queue));
    let mut applier = Applier::new(&process, NAME);
    let on_change = wake(&queue);
    applier.own::<ConfigMap>(&mut process, Some(&namespace), move |_| on_change());
    let woken = queue.clone();
    let daemon_sets = applier.own::<DaemonSet>(&mut process, Some(&namespace), move |change| {
        apply::wake(&woken, Key::Policy, change);
    });

    let troubled = TroubledPods::default();
    let (pods, woken) = (troubled.clone(), queue.clone());
    let api: Api<Part<Pod>> = Api::namespaced(process.client(), &namespace);
    let config = applier.watch_config();
    process.watch(
        api,
        config,
        |Part(pod)| Some(PodFacts::from_pod(pod)),
        move |change| {
            if pods.changed(change) {
                woken.wake_soon(Key::Policy);
            }
        },
    );

    let index = Index::default();
    let (verdicts, changed) = (index.clone(), queue.clone());
    let nodes = watch_nodes(&mut process, move |change| {
        changed.wake(Key::Node(change.key.name.clone()));
        if verdicts.changed(change) {
            changed.wake_soon(Key::Policy);
        }
    });

    let (client, context) = (process.client(), process.watch_context());
    let (referenced, watching) = Referenced::new(client, context, &namespace, wake(&queue));
    process.spawn(watching);

    let context = Context {
        status: StatusWriter::new(&process, policies.clone(), NAME),
        labels: NodeLabels::new(&process, NAME, nodes.clone()),
        current: RwLock::default(),
        changes: Changes::default(),
        events: process.events(),
        queue: queue.clone(),
        namespace,
        policies,
        nodes,
        index,
        daemon_sets,
        troubled,
        referenced,
        applier,
    };
    Ok((process, queue, DevicePluginController { context }))
}

fn images(args: &Args) -> DefaultImages {
    DefaultImages::from_env(|name| {
        let given = [
            (ImageKind::DevicePlugin, &args.device_plugin_image),
            (ImageKind::Gfd, &args.gfd_image),
            (ImageKind::MigManager, &args.mig_manager_image),
            (ImageKind::Validator, &args.validator_image),
        ];
        given
            .into_iter()
            .find(|(kind, _)| kind.env_name() == name)
            .and_then(|(_, image)| image.clone())
            // The other operands' too: the status shows one hash of the whole policy, on which all controllers must agree.
            .or_else(|| std::env::var(name).ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_as_people_write_them() {
        for (key, want) in [
            (Key::Policy, "policy"),
            (Key::Node("gpu-1".to_owned()), "node/gpu-1"),
        ] {
            assert_eq!(key.to_string(), want);
        }
    }
}
