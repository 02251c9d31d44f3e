//! From a question to a verdict: the one place that calls the rules of `tessera_api`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tessera_api::judge::{self, Facts, Finding, MapFacts, Severity};
use tessera_api::quote::quoted;
use tessera_api::{ClusterPolicy, SREAgent};

use crate::admission::{Operation, Question, Verdict};
use crate::pods::{self, Fleet};

/// What is known of the cluster, as the rules ask for it.
pub trait Cluster {
    /// Everything but ConfigMaps.
    fn facts(&self) -> Facts;
    /// A ConfigMap of the operands' namespace.
    fn config_map(&self, name: &str) -> MapFacts;
    /// What counts when a Pod asks for a card; `None` while there is no policy, or not everything is known that it depends on.
    fn fleet(&self) -> Option<Arc<Fleet>>;
}

/// What is to be said of a Pod and changed in it. Other kinds, and Pods of clusters without a policy, pass as they are.
pub fn pod(question: &Question, cluster: &impl Cluster) -> Verdict {
    let is_new = question.operation == Operation::Create;
    let is_pod = question.group.is_empty() && question.kind == "Pod";
    let (Some(object), true) = (question.to_judge(), is_new && is_pod) else {
        return Verdict::default();
    };
    let Some(fleet) = cluster.fleet() else {
        return Verdict::default();
    };
    decoded::<Pod>(object, None, |pod, _| pods::judge(pod, &fleet))
}

/// What is to be said. Kinds that are not ours, and what goes, pass.
pub fn verdict(question: &Question, cluster: &impl Cluster) -> Verdict {
    let Some(object) = question.to_judge() else {
        return Verdict::default();
    };
    let old = question.old.as_ref();
    match (question.group.as_str(), question.kind.as_str()) {
        ("nvidia.com", "ClusterPolicy") => {
            decoded::<ClusterPolicy>(object, old, |new, old| policy(new, old, cluster))
        }
        ("aiops.local", "SREAgent") => {
            decoded::<SREAgent>(object, old, |new, old| agent(new, old, cluster))
        }
        _ => Verdict::default(),
    }
}

/// The API server has checked the object against the schema, so one that cannot be read is of a newer version than this program.
fn decoded<K: DeserializeOwned>(
    object: &Value,
    old: Option<&Value>,
    judge: impl FnOnce(&K, Option<&K>) -> Verdict,
) -> Verdict {
    match K::deserialize(object) {
        Ok(new) => {
            // An old object that cannot be read was changed to one that can: all of that is judged.
            let old = old.and_then(|old| K::deserialize(old).ok());
            judge(&new, old.as_ref())
        }
        Err(error) => Verdict {
            refusals: Vec::new(),
            warnings: vec![format!(
                "this object was let in unjudged, because the webhook cannot read it: {}",
                quoted(&error.to_string())
            )],
            ..Verdict::default()
        },
    }
}

fn policy(new: &ClusterPolicy, old: Option<&ClusterPolicy>, cluster: &impl Cluster) -> Verdict {
    let mut facts = cluster.facts();
    // The rules name what they want to know; a list of all would copy every ConfigMap for each question.
    let wanted = judge::config_maps(new, &facts);
    facts.config_maps = wanted
        .into_iter()
        .map(|name| (name.clone(), cluster.config_map(&name)))
        .collect();
    said(&judge::policy(new, old, &facts))
}

fn agent(new: &SREAgent, old: Option<&SREAgent>, cluster: &impl Cluster) -> Verdict {
    said(&judge::agent(new, old, &cluster.facts()))
}

fn said(findings: &[Finding]) -> Verdict {
    let all = |severity: Severity| {
        let some = findings.iter().filter(|found| found.severity == severity);
        some.map(ToString::to_string).collect()
    };
    Verdict {
        refusals: all(Severity::Refuse),
        warnings: all(Severity::Warn),
        ..Verdict::default()
    }
}
