//! What people read, for what there is.

use super::*;
use serde_json::{Value, json};
use std::sync::Arc;
use tessera_runtime::operands::pod::{PodFacts, Trouble as PodTrouble, TroubleKind};

fn object(spec: &Value, report: &Value) -> SREAgent {
    let status = if report.is_null() {
        json!({})
    } else {
        json!({"agent": report})
    };
    serde_json::from_value(json!({"apiVersion": "aiops.local/v1", "kind": "SREAgent",
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 3}, "spec": spec, "status": status}))
    .unwrap()
}

fn deployment(available: i32) -> Observed {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "sre-agent-a", "generation": 2},
        "spec": {"selector": {}, "template": {}},
        "status": {"observedGeneration": 2, "availableReplicas": available, "updatedReplicas": 1}});
    Observed {
        deployment: Some(serde_json::from_value(deployment).unwrap()),
        bindings: vec![
            binding_name("n", "a", "observe"),
            binding_name("n", "a", "repair"),
        ],
        pods: Vec::new(),
    }
}

fn now() -> Time {
    Time("2026-11-30T17:00:00Z".parse().unwrap())
}

fn healthy() -> Value {
    json!({"nodes": {"observed": 3, "healthy": 3}, "telemetry": {"scraped": 3, "stale": 0}, "openIncidents": 0})
}

/// `phase: type=status/reason ...`
fn told(spec: &Value, report: &Value, observed: &Observed) -> String {
    let status = status(
        &object(spec, report),
        observed,
        None,
        &Settings::default(),
        &now(),
    );
    let conditions = status
        .conditions
        .iter()
        .map(|c| format!("{}={}/{}", c.type_, c.status, c.reason));
    format!(
        "{:?}: {}",
        status.phase.unwrap(),
        conditions.collect::<Vec<_>>().join(" ")
    )
}

#[test]
fn phases_and_reasons() {
    let repair = || json!({"autoRepair": true});
    let up = deployment(1);
    let mut unbound = deployment(1);
    unbound.bindings.pop();
    let mut broken = healthy();
    broken["breaker"] = json!({"reason": "Blind", "message": "m"});
    let stale = json!({"nodes": {"observed": 2}, "telemetry": {"scraped": 0, "stale": 2, "staleNodes": [{"node": "x", "cause": "c"}]}, "openIncidents": 0});
    let table = [
        (
            "nothing yet",
            told(&repair(), &Value::Null, &Observed::default()),
        ),
        ("starting", told(&repair(), &Value::Null, &deployment(0))),
        ("no report", told(&repair(), &Value::Null, &up)),
        ("active", told(&repair(), &healthy(), &up)),
        ("binding", told(&repair(), &healthy(), &unbound)),
        ("dry run", told(&json!({}), &healthy(), &up)),
        (
            "suspended",
            told(
                &json!({"autoRepair": true, "suspend": true}),
                &healthy(),
                &up,
            ),
        ),
        ("breaker", told(&repair(), &broken, &up)),
        (
            "no gpus",
            told(
                &json!({"gpuEnable": false, "autoRepair": true}),
                &json!({"nodes": {"observed": 3}, "openIncidents": 0}),
                &up,
            ),
        ),
        ("blind", told(&repair(), &stale, &up)),
    ];
    insta::assert_yaml_snapshot!(table);
}

#[test]
fn messages_name_node_cause_and_next_step() {
    let report = json!({
        "nodes": {"observed": 9}, "openIncidents": 5,
        "telemetry": {"scraped": 7, "stale": 2, "staleNodes": [
            {"node": "gpu-1", "cause": "the answer is not Prometheus text"}, {"node": "gpu-2", "cause": "the exporter refuses connections"}]},
        "incidents": [{"id": "1", "node": "gpu-3", "signature": "xid-79", "class": "B", "state": "Isolated"}]});
    let status = status(
        &object(&json!({"autoRepair": true}), &report),
        &deployment(1),
        None,
        &Settings::default(),
        &now(),
    );
    insta::assert_yaml_snapshot!(
        status
            .conditions
            .iter()
            .map(|c| c.message.clone())
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_pod_that_cannot_run_says_why() {
    let mut observed = deployment(0);
    let message = "container sre-agent cannot get its image x: not found".to_owned();
    observed.pods = vec![Arc::new(PodFacts {
        trouble: Some(PodTrouble {
            kind: TroubleKind::ImagePull,
            message,
        }),
        ..PodFacts::default()
    })];
    let status = status(
        &object(&json!({}), &Value::Null),
        &observed,
        None,
        &Settings::default(),
        &now(),
    );
    assert_eq!(status.phase, Some(SREAgentPhase::Degraded));
    assert_eq!(
        status.conditions[0].message,
        "the agent's pod cannot run: container sre-agent cannot get its image x: not found"
    );
    assert_eq!(status.conditions[3].status, "Unknown");
}

#[test]
fn a_namespace_that_may_not_repair_is_told() {
    let settings = Settings {
        repair_namespaces: Some(["other".to_owned()].into()),
        ..Settings::default()
    };
    let status = status(
        &object(&json!({"autoRepair": true}), &healthy()),
        &deployment(1),
        None,
        &settings,
        &now(),
    );
    assert_eq!(status.conditions[2].reason, "RepairNotPermitted");
    assert_eq!(status.phase, Some(SREAgentPhase::DryRun));
}

#[test]
fn times_change_only_with_the_status_and_an_equal_status_is_not_written() {
    let mut object = object(&json!({"autoRepair": true}), &healthy());
    let first = status(&object, &deployment(1), None, &Settings::default(), &now());
    object.status = Some(SREAgentStatus {
        agent: object.status.clone().unwrap().agent,
        ..first.clone()
    });
    let later = Time("2026-11-30T18:00:00Z".parse().unwrap());
    let second = status(&object, &deployment(1), None, &Settings::default(), &later);
    assert_eq!(first, second);
    assert!(says(object.status.as_ref(), &second));
    let trouble = Trouble::Apply("cannot apply Deployment".into());
    let third = status(
        &object,
        &deployment(1),
        Some(&trouble),
        &Settings::default(),
        &later,
    );
    assert_eq!(
        (
            third.conditions[0].last_transition_time.clone(),
            third.conditions[1].last_transition_time.clone()
        ),
        (later, now())
    );
}
