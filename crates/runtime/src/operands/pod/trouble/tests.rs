use super::*;
use serde_json::json;

use crate::operands::pod::PodFacts;

fn facts(status: serde_json::Value) -> PodFacts {
    let pod = json!({
        "metadata": {"name": "p", "uid": "u", "labels": {"app": "nvidia-dcgm-exporter"}},
        "spec": {"nodeName": "gpu-1", "containers": []},
        "status": status,
    });
    PodFacts::from_pod(serde_json::from_value(pod).unwrap())
}

#[test]
fn troubles_are_told_in_a_sentence() {
    let waiting = |reason: &str, message: &str| json!({"name": "c", "image": "r/i:1", "imageID": "", "ready": false, "restartCount": 3, "state": {"waiting": {"reason": reason, "message": message}}, "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}}});
    let cases = [
        (
            json!({"phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff", "not found")]}),
            TroubleKind::ImagePull,
            "container c cannot get its image r/i:1: not found",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff", "back-off 40s")]}),
            TroubleKind::Crash,
            "container c keeps ending: exit code 2 (Error)",
        ),
        (
            json!({"phase": "Pending", "containerStatuses": [waiting("CreateContainerConfigError", "configmap \"x\" not found")]}),
            TroubleKind::Config,
            "container c cannot be started: configmap \"x\" not found",
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "toolkit-validation", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"running": {}}}], "containerStatuses": [waiting("PodInitializing", "")]}),
            TroubleKind::Dependency,
            "init container toolkit-validation waits for the container toolkit on its node (see ToolkitReady and ValidatorReady)",
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "k8s-driver-manager", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"running": {}}}]}),
            TroubleKind::Starting,
            "init container k8s-driver-manager is at work",
        ),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}),
            TroubleKind::Unschedulable,
            "no node takes the pod: 0/3 nodes are available",
        ),
        (
            json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed"}),
            TroubleKind::Rejected,
            "the node refused or ended the pod (UnexpectedAdmissionError): Allocate failed",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"running": {}}}]}),
            TroubleKind::Starting,
            "container c runs but is not ready",
        ),
        (
            json!({"phase": "Pending"}),
            TroubleKind::Starting,
            "the pod is starting",
        ),
    ];
    for (status, kind, message) in cases {
        let trouble = facts(status).trouble.unwrap();
        assert_eq!((trouble.kind, trouble.message.as_str()), (kind, message));
    }
}

/// A running pod whose container started at 10:00:00, is not Ready since `since`, and has this last end.
fn running(since: &str, restarts: i32, last: &serde_json::Value) -> Trouble {
    let container = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": restarts,
        "state": {"running": {"startedAt": "2026-01-01T10:00:00Z"}}, "lastState": last});
    let conditions = json!([{"type": "Ready", "status": "False", "lastTransitionTime": since}]);
    let status =
        json!({"phase": "Running", "conditions": conditions, "containerStatuses": [container]});
    facts(status).trouble.unwrap()
}

#[test]
fn a_first_start_is_on_its_way_and_what_was_ready_is_not() {
    let none = json!({});
    let created = running("2026-01-01T09:59:58Z", 0, &none);
    assert_eq!(created.kind, TroubleKind::Starting);
    let fallen = running("2026-01-01T10:05:00Z", 0, &none);
    assert_eq!(fallen.kind, TroubleKind::NotReady);
    assert_eq!(fallen.message, created.message);
    let restarted = running("2026-01-01T09:59:58Z", 1, &none);
    assert_eq!(restarted.kind, TroubleKind::NotReady);
}

#[test]
fn a_crash_loop_is_one_trouble_in_all_its_phases() {
    let end = |started: &str, code: i32| {
        json!({"terminated": {"exitCode": code, "reason": "Error",
        "startedAt": started, "finishedAt": "2026-01-01T09:59:00Z"}})
    };
    let (short, long) = (
        end("2026-01-01T09:58:00Z", 1),
        end("2026-01-01T09:00:00Z", 1),
    );
    let phase = |state: serde_json::Value, last: &serde_json::Value| {
        let container = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 2,
            "state": state, "lastState": last});
        facts(json!({"phase": "Running", "containerStatuses": [container]}))
            .trouble
            .unwrap()
    };
    let told = [
        phase(short.clone(), &json!({})),
        phase(json!({"waiting": {"reason": "CrashLoopBackOff"}}), &short),
        running("2026-01-01T09:00:00Z", 2, &short),
    ];
    for one in &told {
        assert_eq!(one.kind, TroubleKind::Crash, "{one:?}");
        assert_eq!(one.message, "container c keeps ending: exit code 1 (Error)");
    }
    // One that ran for an hour, or ended well, is no loop.
    for last in [long, end("2026-01-01T09:58:00Z", 0)] {
        assert_eq!(
            running("2026-01-01T09:00:00Z", 2, &last).kind,
            TroubleKind::NotReady
        );
    }
}

#[test]
fn a_ready_pod_has_no_trouble() {
    let pod =
        facts(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
    assert!(pod.ready && pod.trouble.is_none());
    assert_eq!(pod.node, "gpu-1");
}
