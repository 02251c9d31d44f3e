//! Nodes that no operand reaches because of their taints, and the one way to say so.

use super::name_nodes;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use tessera_api::Reason;

/// The first taint that keeps pods with these tolerations off a node (`NoSchedule` and `NoExecute` only).
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        // The DaemonSet controller adds tolerations for these to every pod.
        .filter(|taint| !taint.key.starts_with("node.kubernetes.io/"))
        .find(|taint| {
            !tolerations
                .iter()
                .any(|toleration| tolerates(toleration, taint))
        })
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let exists = toleration.operator.as_deref() == Some("Exists");
    if key.is_empty() {
        return exists;
    }
    key == taint.key
        && (exists
            || toleration.value.as_deref().unwrap_or_default()
                == taint.value.as_deref().unwrap_or_default())
}

/// What is said about a node with a taint that is not tolerated: the taint, and what to do.
pub fn taint_sentence(taint: &Taint) -> String {
    let value = taint.value.as_deref().filter(|value| !value.is_empty());
    let value = value.map_or_else(String::new, |value| format!("={value}"));
    format!(
        "taint {}{value}:{} is not tolerated: add it to spec.daemonsets.tolerations, or remove it",
        taint.key, taint.effect
    )
}

/// GPU nodes that an operand would run on, were it not for their taints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotCovered {
    /// How many.
    pub count: usize,
    /// Names of the first few, sorted.
    pub nodes: Vec<String>,
    /// What [`taint_sentence`] says about the first.
    pub sentence: String,
}

impl NotCovered {
    /// Of nodes with their sentences, sorted by name; `None` without any.
    pub fn of<'a>(nodes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let mut found = Self::default();
        for (node, sentence) in nodes {
            if found.count == 0 {
                sentence.clone_into(&mut found.sentence);
            }
            found.count += 1;
            if found.nodes.len() < super::NAMED {
                found.nodes.push(node.to_owned());
            }
        }
        (found.count > 0).then_some(found)
    }

    /// Reason and message of a condition, the same words for every operand; `gpu_nodes` are all there are.
    pub fn told(&self, gpu_nodes: usize) -> (Reason, String) {
        let message = format!(
            "{} of {gpu_nodes} GPU nodes not covered: on {}: {}",
            self.count,
            name_nodes(&self.nodes, self.count),
            self.sentence
        );
        (Reason::TaintsNotTolerated, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_follow_the_schedulers_rules() {
        let taint = |key: &str, value: &str, effect: &str| Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            effect: effect.to_owned(),
            time_added: None,
        };
        let toleration = |key: &str, operator: &str, value: &str, effect: &str| Toleration {
            key: (!key.is_empty()).then(|| key.to_owned()),
            operator: Some(operator.to_owned()),
            value: (!value.is_empty()).then(|| value.to_owned()),
            effect: (!effect.is_empty()).then(|| effect.to_owned()),
            ..Toleration::default()
        };
        let gpu = taint("gpu", "true", "NoSchedule");
        let cases = [
            (toleration("gpu", "Equal", "true", "NoSchedule"), true),
            (toleration("gpu", "Equal", "false", "NoSchedule"), false),
            (toleration("gpu", "Exists", "", ""), true),
            (toleration("", "Exists", "", ""), true),
            (toleration("gpu", "Exists", "", "NoExecute"), false),
            (toleration("other", "Exists", "", ""), false),
        ];
        for (toleration, ok) in cases {
            assert_eq!(
                untolerated(
                    std::slice::from_ref(&gpu),
                    std::slice::from_ref(&toleration)
                )
                .is_none(),
                ok,
                "{toleration:?}"
            );
        }
        let soft = taint("gpu", "true", "PreferNoSchedule");
        assert!(untolerated(&[soft], &[]).is_none());
    }

    #[test]
    fn nodes_that_are_not_covered_are_named_with_the_taint_and_the_way_out() {
        let taint = Taint {
            key: "team".to_owned(),
            value: Some(String::new()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        };
        let sentence = taint_sentence(&taint);
        let names: Vec<String> = (0..7).map(|n| format!("n{n}")).collect();
        let nodes = names.iter().map(|name| (name.as_str(), sentence.as_str()));
        let (reason, message) = NotCovered::of(nodes).unwrap().told(9);
        assert_eq!(reason, Reason::TaintsNotTolerated);
        assert_eq!(
            message,
            "7 of 9 GPU nodes not covered: on n0, n1, n2, n3, n4 and 2 more: taint team:NoSchedule is not tolerated: \
             add it to spec.daemonsets.tolerations, or remove it"
        );
        assert_eq!(NotCovered::of([]), None);
    }
}
