//! Tables of single decisions.

mod gate;

use super::*;
use crate::upgrade::facts::{DrainRules, Want, Wanted};
use std::sync::Arc;
use tessera_api::NodeFacts;
use tessera_api::names::label;
use tessera_runtime::drain::Force;
use tessera_runtime::operands::pod::{PodFacts, Trouble, TroubleKind};
use tessera_runtime::operation::next_status;

const US: &str = "driver-controller";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn rules() -> Rules {
    Rules {
        auto: true,
        validator: true,
        ..Rules::default()
    }
}

fn pod(name: &str, hash: &str, created: i64, ready: bool) -> Arc<PodFacts> {
    Arc::new(PodFacts {
        name: name.into(),
        uid: name.into(),
        config_hash: hash.into(),
        created,
        ready,
        ..PodFacts::default()
    })
}

/// A node that we have cordoned, with the old driver.
fn cordoned() -> NodeFacts {
    let mut node = NodeFacts {
        name: "gpu-1".into(),
        uid: "u".into(),
        unschedulable: true,
        ready: true,
        ..NodeFacts::default()
    };
    node.annotations
        .insert(annotation::CORDONED_BY.into(), "DriverUpgrade".into());
    node
}

fn facts(
    node: &NodeFacts,
    driver: Option<Arc<PodFacts>>,
    validator: Option<Arc<PodFacts>>,
) -> Facts {
    let wanted = Wanted {
        hash: "new".into(),
        version: "580.1".into(),
    };
    Facts::of(node, Want::Driver(wanted), driver, validator, &rules())
}

fn operation(progress: &Progress, since: i64) -> Operation {
    let mut operation = Operation {
        node: "gpu-1".into(),
        holder: US.into(),
        ..Operation::default()
    };
    operation.status = next_status(&operation.status, progress, at(since));
    operation
}

fn phase(phase: OperationPhase, since: i64, deadline: Option<i64>) -> Operation {
    operation(
        &Progress::to(phase, OperationReason::InProgress, "m").until(deadline.map(at)),
        since,
    )
}

fn decide(facts: &Facts, operation: &Operation, looked: &Looked, rules: &Rules, now: i64) -> Step {
    step(
        &Moment {
            facts,
            looked,
            rules,
            now: at(now),
        },
        Some(operation),
        US,
    )
}

fn persisted(step: &Step) -> (OperationPhase, OperationReason, String, Option<Timestamp>) {
    let found = step.acts.iter().find_map(|act| {
        let Act::Persist(progress) = act else {
            return None;
        };
        Some((
            progress.phase,
            progress.reason,
            progress.message.clone(),
            progress.deadline,
        ))
    });
    found.unwrap_or_else(|| panic!("nothing is persisted: {step:?}"))
}

fn held(reason: OperationReason) -> Remaining {
    let blocker = Blocker {
        kind: "PodDisruptionBudget".into(),
        namespace: "web".into(),
        name: "pdb".into(),
        ..Blocker::default()
    };
    Remaining {
        pods: 1,
        reason: Some(reason),
        blockers: vec![blocker],
    }
}

#[test]
fn jobs_are_awaited_and_not_for_ever() {
    let facts = facts(&cordoned(), Some(pod("d", "old", 0, true)), None);
    let rules = Rules {
        jobs: "app=train".into(),
        jobs_limit: Some(Duration::from_secs(60)),
        ..rules()
    };
    let active = phase(OperationPhase::Active, 0, None);
    assert_eq!(
        decide(&facts, &active, &Looked::default(), &rules, 0).acts,
        [Act::LookForJobs]
    );
    let runs = Looked {
        jobs: Some(vec![Blocker::default()]),
        ..Looked::default()
    };
    let step = decide(&facts, &active, &runs, &rules, 0);
    let (now, reason, message, deadline) = persisted(&step);
    assert_eq!(
        (now, reason, deadline),
        (
            OperationPhase::WaitingForJobs,
            OperationReason::JobsRunning,
            Some(at(60))
        )
    );
    assert_eq!(message, "waiting for 1 job pod to end (waitForCompletion)");
    let waits = phase(OperationPhase::WaitingForJobs, 0, Some(60));
    let step = decide(&facts, &waits, &runs, &rules, 50);
    assert_eq!(persisted(&step).3, Some(at(60)), "the deadline stays");
    let Then::Rest(Rest::Waiting { again, .. }) = step.then else {
        panic!()
    };
    assert_eq!(
        again,
        Some(Duration::from_secs(10)),
        "the deadline comes before the next look"
    );
    assert_eq!(
        decide(&facts, &waits, &runs, &rules, 60).acts,
        [Act::EvictGpuPods]
    );
}

#[test]
fn a_blocked_eviction_is_named_then_drained_then_failed() {
    let facts = facts(&cordoned(), Some(pod("d", "old", 0, true)), None);
    let force = Force {
        unmanaged: false,
        empty_dir: false,
    };
    let drain = Rules {
        drain: Some(DrainRules {
            selector: String::new(),
            force,
            limit: Some(Duration::from_secs(9)),
        }),
        ..rules()
    };
    let blocked = Looked {
        gpu: Some(held(OperationReason::DisruptionBudget)),
        ..Looked::default()
    };
    let step = decide(
        &facts,
        &phase(OperationPhase::Active, 0, None),
        &blocked,
        &rules(),
        0,
    );
    let (now, reason, _, deadline) = persisted(&step);
    assert_eq!(
        (now, reason, deadline),
        (
            OperationPhase::EvictingPods,
            OperationReason::DisruptionBudget,
            Some(at(300))
        )
    );
    let late = phase(OperationPhase::EvictingPods, 0, Some(300));
    assert_eq!(
        decide(&facts, &late, &blocked, &drain, 300).acts,
        [Act::DrainPods]
    );
    let (now, reason, message, _) = persisted(&decide(&facts, &late, &blocked, &rules(), 300));
    assert_eq!(
        (now, reason),
        (OperationPhase::Failed, OperationReason::DisruptionBudget)
    );
    assert!(
        message.contains("300 s") && message.contains("PodDisruptionBudget web/pdb"),
        "{message}"
    );
    let both = Looked {
        drain: Some(held(OperationReason::PodsTerminating)),
        ..blocked
    };
    let draining = persisted(&decide(&facts, &late, &both, &drain, 300));
    assert_eq!(
        (draining.0, draining.3),
        (OperationPhase::Draining, Some(at(309)))
    );
    let over = phase(OperationPhase::Draining, 300, Some(309));
    assert_eq!(
        persisted(&decide(&facts, &over, &both, &drain, 309)).0,
        OperationPhase::Failed
    );
    let clear = Looked {
        gpu: Some(Remaining::default()),
        ..Looked::default()
    };
    assert_eq!(
        persisted(&decide(&facts, &over, &clear, &drain, 309)).0,
        OperationPhase::RestartingDriver
    );
}

#[test]
fn the_new_driver_is_told_from_the_old_one() {
    let blocker = Blocker {
        kind: "Pod".into(),
        name: "old-pod".into(),
        ..Blocker::default()
    };
    let progress = Progress::to(
        OperationPhase::RestartingDriver,
        OperationReason::DriverNotReady,
        "m",
    );
    let restarting = operation(&progress.blocked_by(vec![blocker]).until(Some(at(1800))), 0);
    let decide = |driver: Option<Arc<PodFacts>>, now| {
        decide(
            &facts(&cordoned(), driver, None),
            &restarting,
            &Looked::default(),
            &rules(),
            now,
        )
    };
    let delete = Act::DeletePod {
        name: "old-pod".into(),
        uid: "old-pod".into(),
    };
    // On request the old pod has the wanted template already; it is replaced all the same.
    assert_eq!(
        decide(Some(pod("old-pod", "new", 0, true)), 1).acts,
        [delete]
    );
    assert_eq!(decide(None, 1).acts, []);
    let again = persisted(&decide(Some(pod("new-pod", "newer", 5, false)), 6));
    assert_eq!(
        again.0,
        OperationPhase::RestartingDriver,
        "made from a template that has changed meanwhile"
    );
    let trouble = |kind, restarts| {
        let trouble = Some(Trouble {
            kind,
            message: "why".into(),
        });
        Some(Arc::new(PodFacts {
            trouble,
            restarts,
            ..PodFacts::clone(&pod("new-pod", "new", 5, false))
        }))
    };
    assert_eq!(
        decide(trouble(TroubleKind::Starting, 0), 9).acts,
        [],
        "starting is no news"
    );
    assert_eq!(
        persisted(&decide(trouble(TroubleKind::ImagePull, 0), 9)).1,
        OperationReason::ImagePullFailed
    );
    let crashed = persisted(&decide(trouble(TroubleKind::Crash, 11), 9));
    assert_eq!(
        (crashed.0, crashed.1),
        (OperationPhase::Failed, OperationReason::CrashLooping)
    );
    let late = persisted(&decide(trouble(TroubleKind::Starting, 0), 1800));
    assert_eq!(late.0, OperationPhase::Failed);
    assert!(
        late.2
            .starts_with("the driver is not ready after 30 min: why. The node stays cordoned"),
        "{}",
        late.2
    );
}
