//! What is said of agents.

use std::sync::Arc;

use serde_json::{Value, json};
use tessera_api::{
    SREAgent,
    judge::{self, Facts, Severity},
};

use super::{facts, node};

fn agent(name: &str, spec: &Value) -> SREAgent {
    serde_json::from_value(json!({
        "apiVersion": "aiops.local/v1", "kind": "SREAgent", "metadata": {"name": name, "namespace": "ops"}, "spec": spec,
    }))
    .expect("an agent")
}

fn texts(new: &SREAgent, old: Option<&SREAgent>, facts: &Facts) -> Vec<String> {
    let text = |finding: judge::Finding| match finding.severity {
        Severity::Refuse => format!("refuse: {finding}"),
        Severity::Warn => format!("warn: {finding}"),
    };
    judge::agent(new, old, facts)
        .into_iter()
        .map(text)
        .collect()
}

fn selecting(key: &str, value: &str) -> Value {
    json!({"nodeSelector": {"matchLabels": {key: value}}})
}

#[test]
fn specs_that_cannot_be_used() {
    for (spec, want) in [
        (
            json!({"agent": {"image": " "}}),
            "refuse: spec.agent.image: ` ` is empty; name an image or leave the field out",
        ),
        (
            json!({"agent": {"image": "a b"}}),
            "refuse: spec.agent.image: `a b` has blanks, which no image reference has; write for example",
        ),
        (
            json!({"agent": {"resources": {"limits": {"cpu": "much"}}}}),
            "refuse: spec.agent.resources.limits: `{\"cpu\":\"much\"}` has `much` for cpu, which is not a quantity; write for example 500m, 2 or 1Gi",
        ),
        (
            json!({"nodeSelector": {"matchExpressions": [{"key": "gpu", "operator": "Near", "values": ["x"]}]}}),
            "refuse: spec.nodeSelector: ",
        ),
    ] {
        let bad = agent("a", &spec);
        let found = texts(&bad, None, &facts(&[]));
        assert!(
            found.len() == 1 && found[0].starts_with(want),
            "{spec}: {found:#?}"
        );
        assert_eq!(texts(&bad, Some(&bad), &facts(&[])), Vec::<String>::new());
        let mut gone = bad.clone();
        gone.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
            ));
        assert_eq!(texts(&gone, None, &facts(&[])), Vec::<String>::new());
    }
    let good = json!({"gpuEnable": true, "autoRepair": true, "monitorInterval": 15, "agent": {"image": "r:5000/a@sha256:1"}});
    assert_eq!(
        texts(&agent("a", &good), None, &facts(&[])),
        Vec::<String>::new()
    );
}

#[test]
fn agents_that_watch_the_same_nodes() {
    let mut known = facts(&[
        node("n1", &[("gpu.present", "true"), ("pool", "x")]),
        node("n2", &[("gpu.present", "true"), ("pool", "y")]),
        node("n3", &[("pool", "y")]),
    ]);
    known.agents = vec![Arc::new(agent("first", &json!({})))];
    let tail = "give each agent nodes of its own by nodeSelector, or delete one of them";
    let all = agent("second", &json!({}));
    assert_eq!(
        texts(&all, None, &known),
        [format!(
            "warn: spec.nodeSelector: selects nodes that SREAgent ops/first watches too: n1, n2; {tail}"
        )]
    );
    let some = agent("second", &selecting("nvidia.com/pool", "y"));
    assert_eq!(
        texts(&some, None, &known),
        [format!(
            "warn: spec.nodeSelector: `{{\"matchLabels\":{{\"nvidia.com/pool\":\"y\"}}}}` selects nodes that SREAgent ops/first watches too: n2; {tail}"
        )]
    );
    assert_eq!(texts(&some, Some(&some), &known), Vec::<String>::new());
    let mut edited = some.clone();
    edited.spec.suspend = Some(true);
    assert_eq!(
        texts(&edited, Some(&some), &known),
        Vec::<String>::new(),
        "the nodes are the same"
    );
    assert_eq!(
        texts(&agent("first", &json!({})), None, &known),
        Vec::<String>::new(),
        "itself"
    );
    let none = texts(&agent("second", &selecting("pool", "z")), None, &known);
    assert!(
        none.len() == 1 && none[0].contains("selects no node of the cluster"),
        "{none:#?}"
    );
}

#[test]
fn without_nodes_only_selectors_that_may_meet_are_told() {
    let pool = |name: &str| selecting("pool", name);
    let expression = |operator: &str, values: &[&str]| json!({"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": operator, "values": values}]}});
    for (a, b, meet) in [
        (pool("x"), pool("x"), true),
        (pool("x"), pool("y"), false),
        (pool("x"), selecting("zone", "y"), true),
        (pool("x"), json!({}), true),
        (pool("x"), expression("NotIn", &["x"]), false),
        (pool("x"), expression("In", &["x", "y"]), true),
        (pool("x"), expression("DoesNotExist", &[]), false),
        (
            expression("Exists", &[]),
            expression("DoesNotExist", &[]),
            false,
        ),
        (
            expression("NotIn", &["x"]),
            expression("In", &["x", "y"]),
            true,
        ),
    ] {
        for (mine, other) in [(&a, &b), (&b, &a)] {
            let mut known = facts(&[]);
            known.agents = vec![Arc::new(agent("first", other))];
            let found = texts(&agent("second", mine), None, &known);
            assert_eq!(found.len(), usize::from(meet), "{mine} {other}: {found:#?}");
            assert!(
                found
                    .iter()
                    .all(|text| text
                        .contains("may select nodes that SREAgent ops/first watches too")),
                "{found:#?}"
            );
        }
    }
}
