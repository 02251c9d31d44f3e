//! Watches, what wakes whom.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::Api;
use kube::core::{DeserializeGuard, Resource};
use kube::runtime::watcher;
use tessera_api::SREAgent;
use tessera_api::names::label;
use tessera_runtime::Process;
use tessera_runtime::apply::{Applier, Owned, project};
use tessera_runtime::process::RunError;
use tessera_runtime::queue::Queue;
use tessera_runtime::watch::{Change, ObjectKey, Store};

use crate::NAME;
use crate::args::Settings;
use crate::context::{Context, Key};
use crate::observe::{Agent, AgentPod, sreagent_of};
use crate::reconcile::Controller;

/// Starts the watches and reconciles until the process is told to stop.
pub(crate) async fn run(mut process: Process, settings: Settings) -> Result<(), RunError> {
    let queue: Queue<Key> = Queue::new();
    let agents = agents(&mut process, &queue);
    let mut applier = Applier::new(&process, NAME);
    let deployments = everywhere::<Deployment>(&mut process, &mut applier, &queue);
    let accounts = everywhere::<ServiceAccount>(&mut process, &mut applier, &queue);
    let bindings = everywhere::<RoleBinding>(&mut process, &mut applier, &queue);
    let cluster_bindings =
        applier.own::<ClusterRoleBinding>(&mut process, None, wake_owner(&queue));
    let context = Context {
        client: process.client(),
        limit: process.args().request_timeout,
        events: process.events(),
        settings,
        namespaced: vec![deployments.clone(), accounts, bindings],
        pods: pods(&mut process, &queue, &agents),
        applier,
        agents,
        deployments,
        cluster_bindings,
    };
    process.run(queue, Controller { context }).await
}

fn agents(process: &mut Process, queue: &Queue<Key>) -> Store<Agent> {
    let queue = queue.clone();
    let api: Api<DeserializeGuard<SREAgent>> = Api::all(process.client());
    let wake = move |change: &Change<Agent>| queue.wake(change.key.clone());
    process.watch(
        api,
        watcher::Config::default(),
        |object| Some(Agent::project(object)),
        wake,
    )
}

/// Owns objects of `K` in all namespaces: agents live where their SREAgents do.
fn everywhere<K: Resource<DynamicType = ()>>(
    process: &mut Process,
    applier: &mut Applier,
    queue: &Queue<Key>,
) -> Store<Owned> {
    let kind = applier.prepare::<K>(true, wake_owner(queue));
    process.watch_into(
        applier.api_of(&kind, ""),
        applier.watch_config(),
        kind.store().clone(),
        project,
    );
    kind.store().clone()
}

fn wake_owner(queue: &Queue<Key>) -> impl Fn(&Change<Owned>) + Send + Sync + 'static {
    let queue = queue.clone();
    move |change: &Change<Owned>| {
        // An edit may have changed the annotation that names the owner, so both are asked.
        for owned in change.old.iter().chain(&change.new) {
            if let Some(key) = sreagent_of(owned) {
                queue.wake(key);
            }
        }
    }
}

/// Agents' pods. What they carry does not tell the SREAgent when its name was long, so all of the namespace's are woken.
fn pods(process: &mut Process, queue: &Queue<Key>, agents: &Store<Agent>) -> Store<AgentPod> {
    let (queue, agents) = (queue.clone(), agents.clone());
    let api: Api<Pod> = Api::all(process.client());
    let config = watcher::Config::default().labels(&format!("{}={NAME}", label::MANAGED_BY));
    let wake = move |change: &Change<AgentPod>| {
        for (key, _) in agents.list() {
            if is_beside(&key, &change.key) {
                queue.wake(key);
            }
        }
    };
    process.watch(api, config, |pod| Some(AgentPod::of(pod)), wake)
}

fn is_beside(one: &ObjectKey, other: &ObjectKey) -> bool {
    one.namespace == other.namespace
}
