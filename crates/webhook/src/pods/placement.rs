//! On which nodes a Pod may run, as far as it says so itself: `nodeName`, `nodeSelector` and the required node affinity.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec};
use std::collections::BTreeMap;
use tessera_api::NodeFacts;
use tessera_api::nodes::keep_label;

/// Where a Pod may run. Taints, preferences and the other Pods do not count: a node too many only makes a limit more careful.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Placement<'a> {
    node: Option<&'a str>,
    selector: Option<&'a BTreeMap<String, String>>,
    terms: Option<&'a [NodeSelectorTerm]>,
}

impl<'a> Placement<'a> {
    /// Reads a Pod's specification.
    pub(super) fn of(spec: &'a PodSpec) -> Self {
        let affinity = spec
            .affinity
            .as_ref()
            .and_then(|all| all.node_affinity.as_ref());
        let required = affinity.and_then(|node| {
            node.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
        Self {
            node: spec.node_name.as_deref().filter(|name| !name.is_empty()),
            selector: spec.node_selector.as_ref(),
            terms: required.map(|required| required.node_selector_terms.as_slice()),
        }
    }

    /// Whether it may run on a node.
    pub(super) fn allows(&self, node: &NodeFacts) -> bool {
        let selected =
            |(key, value): (&String, &String)| !keep_label(key) || node.label(key) == Some(value);
        self.node.is_none_or(|name| name == node.name)
            && self.selector.into_iter().flatten().all(selected)
            && self
                .terms
                .is_none_or(|terms| terms.iter().any(|term| matches(term, node)))
    }
}

/// An empty term matches no node (Kubernetes API, `NodeSelectorTerm`).
fn matches(term: &NodeSelectorTerm, node: &NodeFacts) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let by_label =
        |one: &NodeSelectorRequirement| !keep_label(&one.key) || holds(one, node.label(&one.key));
    // The only field there is.
    let by_field =
        |one: &NodeSelectorRequirement| one.key == "metadata.name" && holds(one, Some(&node.name));
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(by_label)
        && fields.iter().all(by_field)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || value.is_some_and(|value| values.iter().any(|one| one == value));
    let compared = |compare: fn(&i64, &i64) -> bool| {
        let numbers = value
            .and_then(|value| value.parse::<i64>().ok())
            .zip(values.first().and_then(|one| one.parse::<i64>().ok()));
        numbers.is_some_and(|(value, bound)| compare(&value, &bound))
    };
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(i64::gt),
        "Lt" => compared(i64::lt),
        // Younger than this program: any node may be meant.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn allows(spec: Value) -> bool {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let labels = [("pool", "a"), ("gpus", "8")];
        let node = NodeFacts {
            name: "gpu-1".to_owned(),
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..NodeFacts::default()
        };
        Placement::of(&spec).allows(&node)
    }

    fn affinity(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn names_selectors_and_affinity() {
        for (spec, want) in [
            (json!({}), true),
            (json!({"nodeName": "gpu-1"}), true),
            (json!({"nodeName": "gpu-2"}), false),
            (json!({"nodeSelector": {"pool": "a"}}), true),
            (json!({"nodeSelector": {"pool": "a", "gpus": "4"}}), false),
            (json!({"nodeSelector": {"none": ""}}), false),
            // Not known of any node here.
            (
                json!({"nodeSelector": {"feature.node.kubernetes.io/cpu-model.id": "1"}}),
                true,
            ),
            (affinity(json!([])), false),
            (affinity(json!([{}])), false),
        ] {
            assert_eq!(allows(spec.clone()), want, "{spec}");
        }
        let expression = |key: &str, operator: &str, values: &[&str]| {
            affinity(
                json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]),
            )
        };
        for (key, operator, values, want) in [
            ("pool", "In", &["a", "b"][..], true),
            ("pool", "In", &["b"], false),
            ("pool", "NotIn", &["b"], true),
            ("none", "NotIn", &["b"], true),
            ("pool", "NotIn", &["a"], false),
            ("pool", "Exists", &[], true),
            ("none", "Exists", &[], false),
            ("none", "DoesNotExist", &[], true),
            ("gpus", "Gt", &["4"], true),
            ("gpus", "Gt", &["8"], false),
            ("gpus", "Lt", &["16"], true),
            ("pool", "Lt", &["16"], false),
            ("pool", "Younger", &[], true),
        ] {
            let spec = expression(key, operator, values);
            assert_eq!(allows(spec.clone()), want, "{spec}");
        }
        let field = |name: &str| {
            affinity(
                json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]),
            )
        };
        assert!(allows(field("gpu-1")) && !allows(field("gpu-2")));
        // Any one of the terms is enough.
        let two = json!([{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["b"]}]}, {"matchExpressions": [{"key": "gpus", "operator": "Exists"}]}]);
        assert!(allows(affinity(two)));
    }
}
