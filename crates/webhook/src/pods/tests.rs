use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tessera_api::NodeFacts;
use tessera_api::effective::{EffectivePolicy, PluginConfig};
use tessera_api::plugin_file::{self, Configs, Shares};
use tessera_api::policy::MigStrategy;
use tessera_api::{ClusterPolicy, DefaultImages, resolve};

use super::*;

mod limits;
mod property;
mod refusals;

fn node(name: &str, labels: &[(&str, &str)]) -> Arc<NodeFacts> {
    let labels = labels.iter().chain(&[("gpu", "true")]);
    Arc::new(NodeFacts {
        name: name.to_owned(),
        labels: labels
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..NodeFacts::default()
    })
}

/// A node with cards of so many MiB.
fn cards(name: &str, memory: &str) -> Arc<NodeFacts> {
    node(
        name,
        &[
            ("nvidia.com/gpu.memory", memory),
            ("nvidia.com/gpu.count", "2"),
        ],
    )
}

/// A fleet under a policy with this specification; `files` is the ConfigMap that it names, if it names one.
fn fleet(mut spec: Value, files: &[(&str, &str)], nodes: &[Arc<NodeFacts>]) -> Fleet {
    spec["nodeSelector"] = json!({"gpu": "true"});
    let policy = json!({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "mine"}, "spec": spec,
    });
    let policy: ClusterPolicy = serde_json::from_value(policy).unwrap();
    let policy = effective(&policy);
    let read = |text: &str| plugin_file::parse(text, policy.mig.strategy);
    let files: BTreeMap<String, _> = files
        .iter()
        .map(|(key, text)| ((*key).to_owned(), read(text)))
        .collect();
    let configs = match &policy.device_plugin.config {
        PluginConfig::Inline(sharing) => Configs::Same(Shares::of(&policy, sharing)),
        PluginConfig::ConfigMap { name, default } => {
            Configs::by_label(name, &files, default.as_deref())
        }
    };
    Fleet::of(
        &policy,
        configs,
        nodes.iter().cloned().map(Member::of),
        false,
    )
    .unwrap()
}

fn effective(policy: &ClusterPolicy) -> Arc<EffectivePolicy> {
    let resolution = resolve([policy], &DefaultImages::builtin());
    resolution.active.unwrap().effective
}

fn with_config(config: Value) -> Value {
    json!({"devicePlugin": {"config": config}})
}

/// Whole cards by turns, four each, with more of the section.
fn turns(more: Value, nodes: &[Arc<NodeFacts>]) -> Fleet {
    let mut slicing = json!({"resources": [{"name": "gpu", "replicas": 4}]});
    json_patch::merge(&mut slicing, &more);
    fleet(
        with_config(json!({"sharing": {"timeSlicing": slicing}})),
        &[],
        nodes,
    )
}

/// Instances by turns.
fn instances(nodes: &[Arc<NodeFacts>]) -> Fleet {
    let resources = json!([{"name": "nvidia.com/mig-1g.10gb", "replicas": 2}, {"name": "nvidia.com/mig-3g.40gb", "replicas": 4}]);
    let mut spec = with_config(json!({"sharing": {"timeSlicing": {"resources": resources}}}));
    spec["mig"] = json!({"strategy": "mixed"});
    fleet(spec, &[], nodes)
}

/// Cards that nobody shares.
fn whole(nodes: &[Arc<NodeFacts>]) -> Fleet {
    fleet(json!({}), &[], nodes)
}

fn t4() -> Vec<Arc<NodeFacts>> {
    vec![cards("gpu-1", "15360"), cards("gpu-2", "15360")]
}

/// A Pod of one container with these limits; `more` is merged into it.
fn pod(limits: Value, more: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"containers": [{"name": "train", "image": "x", "resources": {"limits": limits.clone(), "requests": limits}}]},
    });
    json_patch::merge(&mut pod, &more);
    pod
}

struct Said {
    pod: Value,
    verdict: Verdict,
}

impl Said {
    fn env(&self, list: &str, index: usize) -> Vec<(String, String)> {
        let env = &self.pod["spec"][list][index]["env"];
        let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
        env.as_array()
            .into_iter()
            .flatten()
            .map(|one| (text(one, "name"), text(one, "value")))
            .collect()
    }

    fn limits(&self) -> Vec<String> {
        self.env("containers", 0)
            .into_iter()
            .map(|(name, value)| format!("{}={value}", name.trim_start_matches(VARIABLE)))
            .collect()
    }

    fn mode(&self) -> Option<&str> {
        self.pod["metadata"]["annotations"][annotation::MEMORY_LIMIT_MODE].as_str()
    }
}

/// Judges a Pod and applies the patch. Judged again, the result is left as it is.
fn said(pod: &Value, fleet: &Fleet) -> Said {
    let judged = |pod: &Value| judge(&serde_json::from_value(pod.clone()).unwrap(), fleet);
    let verdict = judged(pod);
    let mut after = pod.clone();
    json_patch::patch(&mut after, &verdict.patch).unwrap();
    if verdict.refusals.is_empty() {
        let again = judged(&after);
        assert!(again.patch.is_empty(), "{:?}\n{after:#}", again.patch);
        assert_eq!(again.refusals, Vec::<String>::new());
    } else {
        assert!(verdict.patch.is_empty());
    }
    Said {
        pod: after,
        verdict,
    }
}

fn one() -> Value {
    json!({"nvidia.com/gpu": "1"})
}

fn annotated(key: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}
