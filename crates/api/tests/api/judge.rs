//! What is said of policies and agents. Every text is asserted whole where it is new, so that path, value, reason and next step stay.

mod agents;
mod changes;
mod facts;
mod memory;
mod references;
mod sharing;
mod unknown;

use std::{collections::BTreeMap, sync::Arc};

use tessera_api::{
    ClusterPolicy, NodeFacts,
    judge::{self, Facts, MapFacts, Severity},
};

use crate::policy;

/// A node with feature discovery's labels.
fn node(name: &str, labels: &[(&str, &str)]) -> Arc<NodeFacts> {
    let labels = labels
        .iter()
        .map(|(key, value)| (format!("nvidia.com/{key}"), (*value).to_owned()))
        .collect();
    Arc::new(NodeFacts {
        name: name.to_owned(),
        labels,
        ..NodeFacts::default()
    })
}

/// A Tesla T4.
fn t4(name: &str) -> Arc<NodeFacts> {
    node(
        name,
        &[
            ("gpu.product", "Tesla-T4"),
            ("gpu.memory", "15360"),
            ("gpu.count", "1"),
            ("gpu.compute.major", "7"),
            ("gpu.compute.minor", "5"),
        ],
    )
}

fn facts(nodes: &[Arc<NodeFacts>]) -> Facts {
    Facts {
        namespace: "gpu-operator".to_owned(),
        nodes: nodes.to_vec(),
        ..Facts::default()
    }
}

fn with_map(mut facts: Facts, name: &str, entries: &[(&str, &str)]) -> Facts {
    let entries: BTreeMap<String, String> = entries
        .iter()
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect();
    facts
        .config_maps
        .insert(name.to_owned(), MapFacts::Present(Arc::new(entries)));
    facts
}

/// What is said of a new policy with this spec: `refuse: ...` or `warn: ...`.
fn said(spec: &str, facts: &Facts) -> Vec<String> {
    texts(&policy("mine", 1, spec), None, facts)
}

fn texts(new: &ClusterPolicy, old: Option<&ClusterPolicy>, facts: &Facts) -> Vec<String> {
    let found = judge::policy(new, old, facts);
    let text = |finding: &judge::Finding| {
        let severity = match finding.severity {
            Severity::Refuse => "refuse",
            Severity::Warn => "warn",
        };
        format!("{severity}: {finding}")
    };
    found.iter().map(text).collect()
}

/// Checks each spec against everything that must be said of it.
fn table(facts: &Facts, rows: &[(&str, &[&str])]) {
    for (spec, want) in rows {
        let found = said(spec, facts);
        assert_eq!(found, *want, "{spec}");
    }
}

/// Whole cards, time-sliced under a limit of memory.
fn limited(limit: &str, replicas: u32) -> String {
    format!(
        "devicePlugin: {{config: {{sharing: {{timeSlicing: {{memoryLimit: {limit}, resources: [{{name: gpu, replicas: {replicas}}}]}}}}}}}}"
    )
}
