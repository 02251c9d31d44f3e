//! What the rules compare with: stores of projections, and nothing that is read while a question waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::PartialObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use parking_lot::Mutex;
use tessera_api::effective::{EffectivePolicy, PluginConfig};
use tessera_api::judge::{Facts, MapFacts};
use tessera_api::plugin_file::{self, Configs, Parsed, Shares};
use tessera_api::{ClusterPolicy, DefaultImages, NodeFacts, SREAgent, resolve};
use tessera_runtime::Process;
use tessera_runtime::watch::{ObjectKey, Store};

use crate::pods::{Fleet, Member};
use crate::rules::Cluster;

/// Prefix of the annotations by which HAMi's device plugin announces a node.
const HAMI: &str = "hami.io/node-";

/// The stores.
pub(crate) struct Stores {
    namespace: String,
    nodes: Store<NodeFacts>,
    config_maps: Store<BTreeMap<String, String>>,
    policies: Store<ClusterPolicy>,
    agents: Store<SREAgent>,
    fleet: Mutex<Option<Known>>,
}

/// The fleet when the stores had changed so often: policies, ConfigMaps, nodes.
struct Known {
    changes: [u64; 3],
    fleet: Option<Arc<Fleet>>,
    members: BTreeMap<String, Member>,
}

impl Stores {
    /// Starts the watches.
    pub(crate) fn watch(process: &mut Process, namespace: &str) -> Self {
        let client = process.client();
        let all = watcher::Config::default;
        let nodes = Store::new("Node", |_| {});
        let api: Api<PartialObjectMeta<Node>> = Api::all(client.clone());
        process.watch_into(api, all(), nodes.clone(), |node| Some(slim_node(node)));
        let config_maps = process.watch(
            Api::<ConfigMap>::namespaced(client.clone(), namespace),
            all(),
            |map: ConfigMap| Some(map.data.unwrap_or_default()),
            |_| {},
        );
        // One that cannot be decoded is nothing to compare with.
        let policies = Store::new("ClusterPolicy", |_| {});
        let api: Api<DeserializeGuard<ClusterPolicy>> = Api::all(client.clone());
        process.watch_into(api, all(), policies.clone(), |object| {
            let mut policy = object.0.ok()?;
            policy.metadata.managed_fields = None;
            policy.annotations_mut().clear();
            policy.status = None;
            Some(policy)
        });
        let agents = Store::new("SREAgent", |_| {});
        let api: Api<DeserializeGuard<SREAgent>> = Api::all(client);
        process.watch_into(api, all(), agents.clone(), |object| {
            let mut agent = object.0.ok()?;
            agent.metadata.managed_fields = None;
            agent.annotations_mut().clear();
            agent.status = None;
            Some(agent)
        });
        Self {
            namespace: namespace.to_owned(),
            nodes,
            config_maps,
            policies,
            agents,
            fleet: Mutex::default(),
        }
    }

    fn fleet_of(&self, members: &BTreeMap<String, Member>) -> Option<Fleet> {
        if !self.policies.is_synced() || !self.nodes.is_synced() {
            return None;
        }
        let policies = self.policies.values();
        let policies = policies.iter().map(Arc::as_ref);
        let active = resolve(policies, &DefaultImages::builtin()).active?;
        let policy = active.effective;
        let hami = |member: &Member| member.node.annotations.contains_key(HAMI);
        let is_hami = members.values().any(hami);
        let configs = self.configs(&policy);
        Fleet::of(&policy, configs, members.values().cloned(), is_hami)
    }

    /// The device plugin's configurations. A ConfigMap with a mistake in it is not used by anybody.
    fn configs(&self, policy: &EffectivePolicy) -> Configs {
        let (name, default) = match &policy.device_plugin.config {
            PluginConfig::Inline(sharing) => return Configs::Same(Shares::of(policy, sharing)),
            PluginConfig::ConfigMap { name, default } => (name, default.as_deref()),
        };
        let MapFacts::Present(data) = self.config_map(name) else {
            return Configs::Unknown;
        };
        let read = |(key, text): (&String, &String)| {
            (key.clone(), plugin_file::parse(text, policy.mig.strategy))
        };
        let files: BTreeMap<String, Parsed> = data.iter().map(read).collect();
        if files.values().any(|file| !file.problems.is_empty()) {
            return Configs::Unknown;
        }
        Configs::by_label(name, &files, default)
    }
}

impl Cluster for Stores {
    fn facts(&self) -> Facts {
        Facts {
            namespace: self.namespace.clone(),
            nodes: self.nodes.values(),
            config_maps: BTreeMap::new(),
            policies: self.policies.values(),
            agents: self.agents.values(),
        }
    }

    /// While the watch does not work, nothing is known.
    fn config_map(&self, name: &str) -> MapFacts {
        if !self.config_maps.is_synced() || self.config_maps.trouble().is_some() {
            return MapFacts::Unknown;
        }
        let key = ObjectKey::namespaced(&self.namespace, name);
        let entries = self.config_maps.get(&key);
        entries.map_or(MapFacts::Absent, MapFacts::Present)
    }

    /// Worked out once for each change of a policy, ConfigMap or node, and of a node only what has changed.
    fn fleet(&self) -> Option<Arc<Fleet>> {
        let changes = [
            self.policies.changes(),
            self.config_maps.changes(),
            self.nodes.changes(),
        ];
        let mut known = self.fleet.lock();
        if let Some(known) = known.as_ref().filter(|known| known.changes == changes) {
            return known.fleet.clone();
        }
        let mut before = known.take().map(|known| known.members).unwrap_or_default();
        let members: BTreeMap<String, Member> = self
            .nodes
            .values()
            .into_iter()
            .map(|node| {
                let same = before
                    .remove(&node.name)
                    .filter(|member| Arc::ptr_eq(&member.node, &node));
                (node.name.clone(), same.unwrap_or_else(|| Member::of(node)))
            })
            .collect();
        let fleet = self.fleet_of(&members).map(Arc::new);
        *known = Some(Known {
            changes,
            fleet: fleet.clone(),
            members,
        });
        fleet
    }
}

/// Labels are all that counts; a heartbeat must not look like a change.
fn slim_node(node: PartialObjectMeta<Node>) -> NodeFacts {
    let is_hami = node.annotations().keys().any(|key| key.starts_with(HAMI));
    let mut facts = NodeFacts::from_node(&Node {
        metadata: node.metadata,
        ..Node::default()
    });
    facts.resource_version.clear();
    // Its value is a heartbeat.
    facts.annotations = is_hami
        .then(|| (HAMI.to_owned(), String::new()))
        .into_iter()
        .collect();
    facts.owned_labels.clear();
    facts
}
