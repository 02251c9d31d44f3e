//! The gate, and what ends an operation early.

use super::*;

#[test]
fn only_a_validator_that_has_seen_the_driver_counts() {
    let validating = phase(OperationPhase::Validating, 0, Some(600));
    let driver = || Some(pod("d", "new", 100, true));
    let decide = |driver, validator, now| {
        decide(
            &facts(&cordoned(), driver, validator),
            &validating,
            &Looked::default(),
            &rules(),
            now,
        )
    };
    let fresh = Act::DeletePod {
        name: "v".into(),
        uid: "v".into(),
    };
    assert_eq!(
        decide(driver(), Some(pod("v", "", 99, true)), 101).acts,
        [fresh]
    );
    let waits = persisted(&decide(driver(), Some(pod("v", "", 101, false)), 102));
    assert_eq!(
        (waits.0, waits.3),
        (OperationPhase::Validating, Some(at(600)))
    );
    let passed = decide(driver(), Some(pod("v", "", 101, true)), 103);
    assert_eq!(passed.acts.first(), Some(&Act::Uncordon));
    assert_eq!(persisted(&passed).0, OperationPhase::Done);
    let failed = decide(driver(), Some(pod("v", "", 101, false)), 600);
    assert_eq!(failed.acts.first(), Some(&Act::MarkFailed));
    assert_eq!(
        (persisted(&failed).0, persisted(&failed).1),
        (OperationPhase::Failed, OperationReason::ValidatorNotReady)
    );
    let lost = persisted(&decide(
        Some(pod("d", "new", 100, false)),
        Some(pod("v", "", 101, true)),
        104,
    ));
    assert_eq!(
        lost.0,
        OperationPhase::Validating,
        "a driver that is not ready gives no node back"
    );
}

#[test]
fn without_its_daemon_set_an_operation_waits_and_without_a_driver_it_ends() {
    let of = |want| Facts::of(&cordoned(), want, None, None, &rules());
    for running in [
        OperationPhase::Active,
        OperationPhase::EvictingPods,
        OperationPhase::RestartingDriver,
        OperationPhase::Validating,
    ] {
        let waits = decide(
            &of(Want::Unknown),
            &phase(running, 0, Some(1)),
            &Looked::default(),
            &rules(),
            9,
        );
        assert!(
            waits.acts.is_empty() && matches!(waits.then, Then::Rest(Rest::Waiting { .. })),
            "{running}: {waits:?}"
        );
        let ends = decide(
            &of(Want::Nothing),
            &phase(running, 0, Some(1)),
            &Looked::default(),
            &rules(),
            9,
        );
        assert_eq!(ends.acts.first(), Some(&Act::Uncordon), "{running}");
        assert_eq!(persisted(&ends).0, OperationPhase::Done);
    }
}

#[test]
fn a_foreign_hand_on_the_cordon_ends_what_has_not_begun() {
    let old = || Some(pod("d", "old", 0, true));
    let mut foreign = cordoned();
    foreign.annotations.clear();
    let step = decide(
        &facts(&foreign, old(), None),
        &phase(OperationPhase::Active, 0, None),
        &Looked::default(),
        &rules(),
        1,
    );
    assert_eq!(
        (persisted(&step).0, persisted(&step).1),
        (OperationPhase::Withdrawn, OperationReason::ForeignCordon)
    );
    let mut open = cordoned();
    open.unschedulable = false;
    let evicting = phase(OperationPhase::EvictingPods, 0, None);
    assert_eq!(
        decide(
            &facts(&open, old(), None),
            &evicting,
            &Looked::default(),
            &rules(),
            1
        )
        .acts,
        [Act::Unmark]
    );
    open.annotations.clear();
    let facts = facts(&open, old(), None);
    assert_eq!(
        decide(&facts, &evicting, &Looked::default(), &rules(), 1).acts,
        [Act::ReadNode]
    );
    let sure = Looked {
        node: true,
        ..Looked::default()
    };
    let failed = persisted(&decide(&facts, &evicting, &sure, &rules(), 1));
    assert_eq!(
        (failed.0, failed.1),
        (OperationPhase::Failed, OperationReason::ManualRequired)
    );
}

#[test]
fn requests_are_made_by_annotation_or_by_nvidias_label() {
    let current = || Some(pod("d", "new", 0, true));
    let mut node = NodeFacts::default();
    assert!(!facts(&node, current(), None).needs_restart());
    node.labels
        .insert(label::UPGRADE_STATE.into(), "upgrade-required".into());
    assert!(facts(&node, current(), None).needs_restart());
    node.labels.clear();
    node.annotations
        .insert(annotation::UPGRADE_REQUESTED.into(), "true".into());
    assert!(facts(&node, current(), None).needs_restart());
    let restarting = phase(OperationPhase::RestartingDriver, 0, None);
    node.unschedulable = true;
    assert_eq!(
        decide(
            &facts(&node, current(), None),
            &restarting,
            &Looked::default(),
            &rules(),
            1
        )
        .acts,
        [Act::ClearRequest]
    );
}
