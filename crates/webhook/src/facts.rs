//! What the rules compare with: stores of projections, and nothing that is read while a question waits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::PartialObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use tessera_api::judge::{Facts, MapFacts};
use tessera_api::{ClusterPolicy, NodeFacts, SREAgent};
use tessera_runtime::Process;
use tessera_runtime::watch::{ObjectKey, Store};

/// The stores.
pub(crate) struct Stores {
    namespace: String,
    nodes: Store<NodeFacts>,
    config_maps: Store<BTreeMap<String, String>>,
    policies: Store<ClusterPolicy>,
    agents: Store<SREAgent>,
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
        }
    }

    /// What is known now, but for ConfigMaps.
    pub(crate) fn facts(&self) -> Facts {
        Facts {
            namespace: self.namespace.clone(),
            nodes: self.nodes.values(),
            config_maps: BTreeMap::new(),
            policies: self.policies.values(),
            agents: self.agents.values(),
        }
    }

    /// A ConfigMap of our namespace. While the watch does not work, nothing is known.
    pub(crate) fn config_map(&self, name: &str) -> MapFacts {
        if !self.config_maps.is_synced() || self.config_maps.trouble().is_some() {
            return MapFacts::Unknown;
        }
        let key = ObjectKey::namespaced(&self.namespace, name);
        let entries = self.config_maps.get(&key);
        entries.map_or(MapFacts::Absent, MapFacts::Present)
    }
}

/// Labels are all that counts; a heartbeat must not look like a change.
fn slim_node(node: PartialObjectMeta<Node>) -> NodeFacts {
    let mut facts = NodeFacts::from_node(&Node {
        metadata: node.metadata,
        ..Node::default()
    });
    facts.resource_version.clear();
    facts.annotations.clear();
    facts.owned_labels.clear();
    facts
}
