//! Pools: nodes that one DaemonSet can serve. Driver images differ by operating system (and kernel, when precompiled),
//! the toolkit's settings by container runtime and Kubernetes distribution.
//!
//! How a DaemonSet finds its nodes without a label of ours on each: nearly all nodes say by labels that they have anyway
//! (NFD's os-release labels, the distribution's own) to which pool they belong, their *natural* pool. Only a node whose
//! natural pool is missing or wrong gets a pool label of ours, which then decides. So a DaemonSet selects
//! "natural, and no pool label" or "pool label". That form never depends on which pools there are: a new pool changes
//! no other pool's DaemonSet, and so restarts nothing there.

mod driver;
mod toolkit;

pub use driver::DriverPool;
pub use toolkit::{RuntimePaths, ToolkitPool};

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
};
use tessera_api::NodeFacts;

/// Label of nodes (and of the pods) of a driver pool; on nodes only where their own labels do not tell.
pub const DRIVER_POOL: &str = "aiops.local/driver-pool";
/// Label of nodes (and of the pods) of a toolkit pool; on nodes only where their own labels do not tell.
pub const TOOLKIT_POOL: &str = "aiops.local/toolkit-pool";

/// Longest name of an object or value of a label that is made here.
const LONGEST: usize = 63;

/// A condition on one label of a node, as scheduler and we understand it alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// The label has this value.
    Is(&'static str, String),
    /// The label is absent or has none of these values.
    IsNot(&'static str, &'static [&'static str]),
    /// The label is there.
    Exists(&'static str),
    /// The label is absent.
    Absent(&'static str),
}

impl Requirement {
    fn holds(&self, node: &NodeFacts) -> bool {
        match self {
            Self::Is(key, value) => node.label(key) == Some(value),
            Self::IsNot(key, values) => {
                node.label(key).is_none_or(|value| !values.contains(&value))
            }
            Self::Exists(key) => node.label(key).is_some(),
            Self::Absent(key) => node.label(key).is_none(),
        }
    }

    fn selector(&self) -> NodeSelectorRequirement {
        let (key, operator, values) = match self {
            Self::Is(key, value) => (*key, "In", vec![value.clone()]),
            Self::IsNot(key, values) => (
                *key,
                "NotIn",
                values.iter().map(ToString::to_string).collect(),
            ),
            Self::Exists(key) => (*key, "Exists", Vec::new()),
            Self::Absent(key) => (*key, "DoesNotExist", Vec::new()),
        };
        NodeSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: (!values.is_empty()).then_some(values),
        }
    }
}

/// Whether a node has all of the labels.
pub(crate) fn all_hold(requirements: &[Requirement], node: &NodeFacts) -> bool {
    requirements
        .iter()
        .all(|requirement| requirement.holds(node))
}

/// "Natural and no pool label", or "pool label": a node affinity of one or two terms. A pool without natural labels has
/// `natural` `None`.
pub(crate) fn node_affinity(
    natural: Option<Vec<Requirement>>,
    label: &'static str,
    pool: &str,
) -> Affinity {
    let term = |requirements: &[Requirement]| NodeSelectorTerm {
        match_expressions: Some(requirements.iter().map(Requirement::selector).collect()),
        match_fields: None,
    };
    let natural = natural.map(|mut requirements| {
        requirements.push(Requirement::Absent(label));
        term(&requirements)
    });
    let labelled = term(&[Requirement::Is(label, pool.to_owned())]);
    let node_selector_terms = natural.into_iter().chain([labelled]).collect();
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms,
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    }
}

/// `text` as part of an object's name and as a label's value: lower case, `[a-z0-9.-]`, at most `LONGEST - taken`
/// characters. What does not fit is cut, with a hash of the whole in its place.
pub(crate) fn safe_name(text: &str, taken: usize) -> String {
    let lower = text.to_ascii_lowercase().replace('_', ".");
    let mapped: String = lower
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || ".-".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    // Each part between dots must begin and end with a letter or digit.
    let parts: Vec<&str> = mapped
        .split('.')
        .map(|part| part.trim_matches('-'))
        .filter(|part| !part.is_empty())
        .collect();
    let name = parts.join(".");
    let room = LONGEST.saturating_sub(taken);
    if name.len() <= room && !name.is_empty() {
        return name;
    }
    let hash: String = tessera_api::effective::hash_of(&text)
        .chars()
        .take(8)
        .collect();
    let kept: String = name
        .chars()
        .take(room.saturating_sub(hash.len() + 1))
        .collect();
    let kept = kept.trim_end_matches(['.', '-']);
    if kept.is_empty() {
        hash
    } else {
        format!("{kept}-{hash}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names() {
        let long = "ubuntu22.04-5.15.0-1053-nvidia-lowlatency-with-a-very-long-flavour-indeed";
        let cases = [
            ("ubuntu22.04", "ubuntu22.04"),
            ("rhel9-5.14.0-427.13.1.el9_4", "rhel9-5.14.0-427.13.1.el9.4"),
            ("Weird OS!", "weird-os"),
        ];
        for (text, want) in cases {
            assert_eq!(safe_name(text, 24), want);
        }
        assert_eq!(safe_name(long, 24).len(), LONGEST - 24);
        assert_ne!(safe_name(long, 24), safe_name(&format!("{long}x"), 24));
    }

    proptest! {
        #[test]
        fn any_text_gives_a_valid_name(text in "\\PC{0,120}") {
            let name = safe_name(&text, 24);
            prop_assert!(!name.is_empty() && name.len() <= LONGEST - 24, "{name}");
            for part in name.split('.') {
                let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
                prop_assert!(ends(part.chars().next()) && ends(part.chars().last()), "{name}");
            }
        }
    }
}
