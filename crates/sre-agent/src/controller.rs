//! Watches, and what wakes a check: time, and what people change on the SREAgent. Changes of nodes and pods do not; they are
//! seen by the next check.

use crate::args::Args;
use crate::context::Context;
use crate::metrics::Metrics;
use crate::observe::{Exporter, Own};
use crate::reconcile::Check;
use crate::scrape::Limits;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use parking_lot::Mutex;
use std::sync::Arc;
use tessera_api::names::{app, controller, label};
use tessera_api::{NodeFacts, SREAgent};
use tessera_runtime::Process;
use tessera_runtime::drain::Drain;
use tessera_runtime::operation::{Operations, watch_operations};
use tessera_runtime::queue::Queue;
use tessera_runtime::watch::{Change, Part, Store};

/// There is one thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Look at everything.
    Check,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Check => f.write_str("check"),
        }
    }
}

/// Sets the watches up.
pub fn set_up(process: &mut Process, args: &Args, queue: &Queue<Key>) -> Check {
    let client = process.client();
    let limit = process.args().request_timeout;
    let manager = controller::field_manager(controller::SRE_AGENT);
    let holder = format!(
        "{}/{}/{}",
        controller::SRE_AGENT,
        args.sreagent_namespace,
        args.sreagent_name
    );
    let nodes: Store<NodeFacts> = process.watch(
        Api::<Part<Node>>::all(client.clone()),
        watcher::Config::default(),
        |Part(node)| Some(NodeFacts::from_node(&node)),
        |_| {},
    );
    let exporters = process.watch(
        Api::<Pod>::all(client.clone()),
        watcher::Config::default().labels(&format!("{}={}", label::APP, app::DCGM_EXPORTER)),
        Exporter::project,
        |_| {},
    );
    let operations = watch_operations(process, |_| {});
    let context = Context {
        request_timeout: limit,
        name: args.sreagent_name.clone(),
        namespace: args.sreagent_namespace.clone(),
        events: process.events(),
        metrics: Metrics::new(&process.metrics()),
        own: watch_own(process, args, queue),
        drain: Drain::new(&client, &manager, limit, nodes.clone()),
        operations: Operations::new(&client, &holder, &manager, limit, operations),
        nodes,
        exporters,
        limits: Limits {
            time: args.scrape_timeout,
            concurrency: usize::from(args.scrape_concurrency),
        },
        probation: SignedDuration::try_from(args.probation_seconds).unwrap_or(SignedDuration::MAX),
        boot_grace: SignedDuration::try_from(args.boot_grace_seconds)
            .unwrap_or(SignedDuration::MAX),
        memory: Mutex::new(None),
        client,
    };
    Check {
        context: Arc::new(context),
    }
}

fn watch_own(process: &mut Process, args: &Args, queue: &Queue<Key>) -> Store<Own> {
    let api: Api<DeserializeGuard<SREAgent>> =
        Api::namespaced(process.client(), &args.sreagent_namespace);
    let config =
        watcher::Config::default().fields(&format!("metadata.name={}", args.sreagent_name));
    let queue = queue.clone();
    process.watch(api, config, Own::project, move |change: &Change<Own>| {
        let asked =
            |own: &Option<Arc<Own>>| own.as_ref().map(|own| (own.spec.clone(), own.has_rights));
        if asked(&change.old) != asked(&change.new) {
            queue.wake(Key::Check);
        }
    })
}
