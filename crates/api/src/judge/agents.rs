//! Judges SREAgents.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::{
    ResourceExt,
    core::{Selector, SelectorExt},
};
use serde_json::Value;

use super::{
    Facts, Finding, Severity, in_order,
    json::{at, show, some_of},
    unknown,
};
use crate::{
    names::label,
    quote::quoted,
    sreagent::{SREAgent, SREAgentSpec},
    units::parse_quantity,
};

/// Everything that is to be said of an agent, the refusals first; as for [`super::policy`], with `old` only what depends on a field
/// that differs from it.
pub fn agent(new: &SREAgent, old: Option<&SREAgent>, facts: &Facts) -> Vec<Finding> {
    if new.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let spec = |agent: &SREAgent| serde_json::to_value(&agent.spec).unwrap_or_default();
    let (now, before) = (spec(new), old.map(spec).unwrap_or_default());
    let is_new = |path: &str| at(&now, path) != at(&before, path);
    let mut found = agent_spec(&new.spec);
    found.retain(|finding| finding.path.strip_prefix("spec.").is_none_or(is_new));
    if old.is_none() || is_new("nodeSelector") {
        let usable = Selector::try_from(selector(&new.spec));
        if let Ok(own) = usable {
            found.extend(no_node(&own, facts, &now));
            found.extend(overlaps(new, &own, facts, &now));
        }
    }
    found.extend(unknown::agent(new, old));
    in_order(found)
}

/// What cannot be used in an agent's spec. The controller reports the same.
pub fn agent_spec(spec: &SREAgentSpec) -> Vec<Finding> {
    let value = serde_json::to_value(spec).unwrap_or_default();
    let mut found = Vec::new();
    let mut refuse = |path: &str, why: String, remedy: &str| {
        found.push(Finding {
            severity: Severity::Refuse,
            path: format!("spec.{path}"),
            value: at(&value, path).map(show).unwrap_or_default(),
            why,
            remedy: remedy.to_owned(),
        });
    };
    if let Err(error) = Selector::try_from(selector(spec)) {
        let remedy = "write matchLabels, or matchExpressions with operator In, NotIn (with values), Exists or DoesNotExist";
        refuse(
            "nodeSelector",
            format!("cannot be used ({})", quoted(&error.to_string())),
            remedy,
        );
    }
    let agent = spec.agent.clone().unwrap_or_default();
    if let Some(image) = &agent.image {
        if image.trim().is_empty() {
            refuse(
                "agent.image",
                "is empty".into(),
                "name an image or leave the field out",
            );
        } else if image.chars().any(|c| c.is_whitespace() || c.is_control()) {
            refuse(
                "agent.image",
                "has blanks, which no image reference has".into(),
                "write for example registry.example/sre-agent:v1",
            );
        }
    }
    let resources = agent.resources.unwrap_or_default();
    for (kind, list) in [
        ("limits", &resources.limits),
        ("requests", &resources.requests),
    ] {
        for (name, amount) in list.iter().flatten() {
            if parse_quantity(&amount.0).is_err() {
                let path = format!("agent.resources.{kind}");
                let why = format!(
                    "has `{}` for {}, which is not a quantity",
                    quoted(&amount.0),
                    quoted(name)
                );
                refuse(&path, why, "write for example 500m, 2 or 1Gi");
            }
        }
    }
    found
}

/// The nodes of an agent; by default those with a GPU.
fn selector(spec: &SREAgentSpec) -> LabelSelector {
    spec.node_selector.clone().unwrap_or_else(|| LabelSelector {
        match_labels: Some([(label::GPU_PRESENT.to_owned(), "true".to_owned())].into()),
        match_expressions: None,
    })
}

fn warning(now: &Value, why: String, remedy: &str) -> Finding {
    Finding {
        severity: Severity::Warn,
        path: "spec.nodeSelector".to_owned(),
        value: at(now, "nodeSelector").map(show).unwrap_or_default(),
        why,
        remedy: remedy.to_owned(),
    }
}

fn no_node(own: &Selector, facts: &Facts, now: &Value) -> Option<Finding> {
    let given = at(now, "nodeSelector").is_some();
    let none = !facts.nodes.iter().any(|node| own.matches(&node.labels));
    (given && none && !facts.nodes.is_empty()).then(|| {
        let why = "selects no node of the cluster".to_owned();
        warning(
            now,
            why,
            "correct the labels, or leave it if such nodes are to come",
        )
    })
}

/// Other agents that watch the same nodes. Each would count and, if it may, repair them on its own.
fn overlaps(new: &SREAgent, own: &Selector, facts: &Facts, now: &Value) -> Vec<Finding> {
    let is_other = |agent: &&std::sync::Arc<SREAgent>| {
        agent.metadata.deletion_timestamp.is_none()
            && (&agent.metadata.namespace, &agent.metadata.name)
                != (&new.metadata.namespace, &new.metadata.name)
    };
    let with = |other: &std::sync::Arc<SREAgent>| {
        let theirs = Selector::try_from(selector(&other.spec)).ok()?;
        let name = format!(
            "{}/{}",
            other.namespace().unwrap_or_default(),
            other.name_any()
        );
        let both: Vec<String> = facts
            .nodes
            .iter()
            .filter(|node| own.matches(&node.labels) && theirs.matches(&node.labels))
            .map(|node| node.name.clone())
            .collect();
        let remedy = "give each agent nodes of its own by nodeSelector, or delete one of them";
        if !both.is_empty() {
            let why = format!(
                "selects nodes that SREAgent {name} watches too: {}",
                some_of(&both)
            );
            return Some(warning(now, why, remedy));
        }
        let unknown =
            facts.nodes.is_empty() && !exclude(&selector(&new.spec), &selector(&other.spec));
        unknown.then(|| {
            let why = format!("may select nodes that SREAgent {name} watches too, as nothing in the two selectors excludes it");
            warning(now, why, remedy)
        })
    };
    facts
        .agents
        .iter()
        .filter(is_other)
        .filter_map(with)
        .collect()
}

/// Whether no node can match both.
fn exclude(a: &LabelSelector, b: &LabelSelector) -> bool {
    let (a, b) = (demands(a), demands(b));
    a.iter().any(|one| {
        let same = b.iter().filter(|other| other.key == one.key);
        let mut same = same.map(|other| contradict(one, other) || contradict(other, one));
        same.any(|contradiction| contradiction)
    })
}

fn demands(selector: &LabelSelector) -> Vec<LabelSelectorRequirement> {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| LabelSelectorRequirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: Some(vec![value.clone()]),
    });
    labels
        .chain(selector.match_expressions.iter().flatten().cloned())
        .collect()
}

fn contradict(a: &LabelSelectorRequirement, b: &LabelSelectorRequirement) -> bool {
    let values = |one: &LabelSelectorRequirement| one.values.clone().unwrap_or_default();
    match (a.operator.as_str(), b.operator.as_str()) {
        ("In", "In") => values(a).iter().all(|value| !values(b).contains(value)),
        ("In", "NotIn") => values(a).iter().all(|value| values(b).contains(value)),
        ("In" | "Exists", "DoesNotExist") => true,
        _ => false,
    }
}
