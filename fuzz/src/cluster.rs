//! The cluster that questions are judged in: something of everything that the rules compare with.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use serde::Deserialize;
use tessera_api::effective::PluginConfig;
use tessera_api::judge::{Facts, MapFacts};
use tessera_api::plugin_file::{Configs, Shares};
use tessera_api::{ClusterPolicy, DefaultImages, NodeFacts, SREAgent, resolve};
use tessera_webhook::pods::{Fleet, Member};
use tessera_webhook::rules::Cluster;

/// What is known of it.
pub(crate) struct Standing {
    facts: Facts,
    config_maps: BTreeMap<String, MapFacts>,
    fleet: Option<Arc<Fleet>>,
}

impl Cluster for Standing {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn config_map(&self, name: &str) -> MapFacts {
        self.config_maps
            .get(name)
            .cloned()
            .unwrap_or(MapFacts::Absent)
    }

    fn fleet(&self) -> Option<Arc<Fleet>> {
        self.fleet.clone()
    }
}

/// `cluster.yaml`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Objects {
    nodes: Vec<Node>,
    config_maps: Vec<ConfigMap>,
    policies: Vec<ClusterPolicy>,
    agents: Vec<SREAgent>,
}

static CLUSTER: LazyLock<Standing> = LazyLock::new(|| {
    let objects: Objects = match serde_saphyr::from_str(include_str!("cluster.yaml")) {
        Ok(objects) => objects,
        Err(error) => panic!("cluster.yaml: {error}"),
    };
    let entries = |map: ConfigMap| {
        let name = map.metadata.name.unwrap_or_default();
        let data = map.data.unwrap_or_default();
        (name, MapFacts::Present(Arc::new(data)))
    };
    let nodes = objects.nodes.iter().map(NodeFacts::from_node);
    let nodes: Vec<Arc<NodeFacts>> = nodes.map(Arc::new).collect();
    Standing {
        fleet: fleet(&objects.policies, &nodes).map(Arc::new),
        facts: Facts {
            namespace: "gpu-operator".to_owned(),
            nodes,
            config_maps: BTreeMap::new(),
            policies: objects.policies.into_iter().map(Arc::new).collect(),
            agents: objects.agents.into_iter().map(Arc::new).collect(),
        },
        config_maps: objects.config_maps.into_iter().map(entries).collect(),
    }
});

/// What the nodes offer to Pods.
fn fleet(policies: &[ClusterPolicy], nodes: &[Arc<NodeFacts>]) -> Option<Fleet> {
    let policy = resolve(policies, &DefaultImages::builtin())
        .active?
        .effective;
    let configs = match &policy.device_plugin.config {
        PluginConfig::Inline(sharing) => Configs::Same(Shares::of(&policy, sharing)),
        PluginConfig::ConfigMap { .. } => Configs::Unknown,
    };
    let members = nodes.iter().cloned().map(Member::of);
    Fleet::of(&policy, configs, members, false)
}

/// It.
pub(crate) fn cluster() -> &'static Standing {
    &CLUSTER
}
