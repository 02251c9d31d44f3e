//! Timelines through the core, with a clock of their own; the numbers are those of `reference/self-healing.md` section 5.

mod detection;
mod invariants;
mod world;

use super::*;
use crate::report;
use crate::snapshot::OperationView;
use world::{World, at};

#[test]
fn scenario_1_a_lost_gpu_is_isolated_at_once_and_released_after_a_reboot_and_the_probation() {
    let mut world = World::new(4);
    assert!(world.checks(2).acts.is_empty());
    world.gpu(1, 0).xid = Some(79);
    world.check();
    assert_eq!(world.isolated(), ["n1"]);
    assert_eq!(world.states(), ["n1 xid-79 Isolated"]);
    // Sticky: it stays.
    assert!(world.checks(50).acts.is_empty());
    world.node(1).boot_id = "boot-2".into();
    world.gpu(1, 0).xid = Some(0);
    let plan = world.check();
    assert!(
        matches!(
            plan.acts.as_slice(),
            [Act::Move {
                phase: OperationPhase::Probation,
                ..
            }]
        ),
        "{plan:?}"
    );
    assert_eq!(world.states(), ["n1 xid-79 Probation"]);
    assert!(world.checks(19).acts.is_empty());
    assert!(matches!(
        world.check().acts.as_slice(),
        [Act::Release {
            phase: OperationPhase::Done,
            ..
        }]
    ));
    assert!(world.states().is_empty() && !world.snapshot.nodes["n1"].unschedulable);
    assert_eq!(
        world.told(),
        [
            "GPUFaultDetected",
            "NodeIsolated",
            "ProbationStarted",
            "NodeReleased"
        ]
    );
}

#[test]
fn scenario_2_without_autorepair_the_same_plan_is_only_told() {
    let mut world = World::new(4);
    (world.policy.may_act, world.policy.auto_repair) = (false, false);
    world.check();
    world.gpu(1, 0).xid = Some(79);
    assert!(world.check().acts.is_empty());
    let incident = world.reports.last().unwrap().status.incidents[0].clone();
    assert_eq!(incident.state, "Confirmed");
    assert_eq!(
        incident.would_do.as_deref(),
        Some("cordon node n1 because of xid-79 (reboot the node)")
    );
    assert_eq!(world.told(), ["GPUFaultDetected", "ActionPlanned"]);
    world.checks(5);
    assert_eq!(world.told().len(), 2, "a repeat says nothing");
}

#[test]
fn scenario_3_many_at_once_open_the_breaker_and_nothing_is_isolated() {
    let mut world = World::new(10);
    world.check();
    for (node, xid) in [(0, 48), (1, 79), (2, 119)] {
        world.gpu(node, 0).xid = Some(xid);
    }
    world.check();
    // 79 is believed at once and is one of ten; the others need their second sample.
    assert_eq!(world.isolated(), ["n1"]);
    world.checks(3);
    assert_eq!(world.isolated(), ["n1"]);
    assert_eq!(world.stop("n0"), Some("CircuitBreaker"));
    assert_eq!(
        world
            .reports
            .last()
            .unwrap()
            .status
            .breaker
            .as_ref()
            .unwrap()
            .reason,
        "TooManyUnhealthy"
    );
    assert_eq!(
        world
            .told()
            .iter()
            .filter(|reason| **reason == "BreakerOpened")
            .count(),
        1
    );
}

#[test]
fn scenario_4_the_same_signature_on_three_nodes_opens_the_breaker() {
    let mut world = World::new(100);
    world.check();
    for node in 0..3 {
        world.gpu(node, 0).xid = Some(119);
    }
    world.checks(2);
    assert!(world.isolated().is_empty());
    assert_eq!(
        world.memory.breaker.as_ref().unwrap().reason,
        "SameSignature"
    );
    // It closes by itself, and then nothing old is replayed: what is still up is looked at again.
    (0..3).for_each(|node| world.gpu(node, 0).xid = Some(0));
    world.checks(31);
    assert_eq!(world.memory.breaker, None);
    assert!(world.isolated().is_empty() && world.states().is_empty());
}

#[test]
fn scenarios_5_to_8_application_faults_touch_no_node() {
    let mut world = World::new(4);
    world.check();
    world.gpu(0, 0).xid = Some(13);
    world.gpu(1, 0).xid = Some(45);
    (0..2).for_each(|gpu| world.gpu(2, gpu).xid = Some(31));
    world.checks(3);
    assert!(world.isolated().is_empty() && world.states().is_empty());
    assert_eq!(world.told(), ["AppFault", "AppFault", "AppFault"]);
    // The same card again within a day deserves a look, and no more.
    world.gpu(0, 0).xid = Some(0);
    world.check();
    world.gpu(0, 0).xid = Some(13);
    world.check();
    world.gpu(0, 0).xid = Some(43);
    world.check();
    world.gpu(0, 0).xid = Some(13);
    world.check();
    assert_eq!(world.states(), ["n0 xid-13 Watching"]);
    assert!(world.isolated().is_empty());
}

#[test]
fn scenario_14_remap_failure_waits_for_a_person() {
    let mut world = World::new(4);
    world.check();
    world.gpu(1, 0).remap_failed = Some(true);
    world.checks(2);
    assert_eq!(world.states(), ["n1 row-remap-failed Manual"]);
    world.gpu(1, 0).remap_failed = Some(false);
    world.node(1).boot_id = "boot-2".into();
    world.checks(100);
    assert_eq!(world.isolated(), ["n1"]);
    // The person uncordons: that ends it.
    world.node(1).unschedulable = false;
    world.check();
    assert!(world.isolated().is_empty());
    assert!(world.told().contains(&"ManualOverrideSeen"));
}

#[test]
fn scenario_26_a_foreign_cordon_is_left_alone() {
    let mut world = World::new(4);
    world.node(1).unschedulable = true;
    world.check();
    world.gpu(1, 0).xid = Some(79);
    world.checks(5);
    assert_eq!(world.stop("n1"), Some("ForeignCordon"));
    assert!(world.snapshot.nodes["n1"].unschedulable);
}

#[test]
fn scenario_27_a_person_wins_for_an_hour() {
    let mut world = World::new(4);
    world.check();
    world.gpu(1, 0).xid = Some(79);
    world.check();
    world.node(1).unschedulable = false;
    world.check();
    assert!(world.isolated().is_empty());
    // Also after a restart of the agent: the record tells.
    world.memory = Memory::default();
    world.checks(100);
    assert!(world.isolated().is_empty());
}

#[test]
fn scenario_31_small_pool() {
    let mut world = World::new(4);
    world.check();
    world.gpu(0, 0).xid = Some(79);
    world.gpu(1, 0).recovery_action = Some(1);
    world.checks(2);
    assert_eq!(world.isolated(), ["n0", "n1"]);
    world.gpu(2, 0).xid = Some(119);
    world.checks(3);
    assert_eq!(world.isolated(), ["n0", "n1"]);
    assert_eq!(world.stop("n2"), Some("CircuitBreaker"));
}

#[test]
fn a_single_node_is_never_isolated() {
    let mut world = World::new(1);
    world.check();
    world.gpu(0, 0).xid = Some(79);
    world.checks(3);
    assert_eq!(world.stop("n0"), Some("MinSchedulable"));
}

#[test]
fn scenario_32_boot_grace_and_foreign_operations() {
    let mut world = World::new(4);
    world.node(1).created = Some(at(0));
    let upgrade = OperationView {
        ours: false,
        holder: "driver-controller".into(),
        phase: OperationPhase::Validating,
        reason: None,
        since: None,
        target: "580".into(),
        attempts: 1,
    };
    world.snapshot.operations.insert("n2".into(), upgrade);
    world.check();
    world.gpu(1, 0).xid = Some(79);
    world.gpu(2, 0).xid = Some(62);
    world.checks(2);
    assert_eq!(
        (world.stop("n1"), world.stop("n2")),
        (Some("BootGrace"), Some("HeldByOther"))
    );
    world.checks(20);
    assert_eq!(world.isolated(), ["n1"]);
}

#[test]
fn suspend_starts_nothing_but_releases() {
    let mut world = World::new(6);
    world.check();
    world.gpu(1, 0).xid = Some(79);
    world.check();
    world.policy.suspended = true;
    world.gpu(2, 0).xid = Some(79);
    world.node(1).boot_id = "boot-2".into();
    world.gpu(1, 0).xid = Some(0);
    world.checks(25);
    assert!(world.isolated().is_empty());
    assert_eq!(world.stop("n2"), Some("Suspended"));
}

#[test]
fn a_restart_tells_nothing_again_and_forgets_nothing() {
    let mut world = World::new(4);
    world.check();
    world.gpu(1, 0).xid = Some(79);
    world.gpu(2, 0).remap_pending = Some(true);
    world.checks(2);
    let before = world.reports.last().unwrap().status.clone();
    let mut memory = Memory::default();
    report::restore(&before, &world.snapshot, &mut memory, world.now);
    world.memory = memory;
    world.reports.clear();
    assert!(world.check().acts.is_empty());
    assert_eq!(world.reports[0].status, before);
    assert!(world.told().is_empty());
}

#[test]
fn another_node_of_the_same_name_starts_afresh() {
    let mut world = World::new(4);
    world.check();
    world.gpu(1, 0).xid = Some(119);
    world.check();
    world.node(1).uid = "another".into();
    world.gpu(1, 0).xid = Some(0);
    world.check();
    assert!(world.states().is_empty());
}

#[test]
fn a_fault_that_comes_back_for_the_third_time_is_for_a_person() {
    let mut world = World::new(4);
    world.check();
    for _ in 0..2 {
        world.gpu(1, 0).xid = Some(119);
        world.checks(3);
        world.gpu(1, 0).xid = Some(0);
        world.checks(30);
        assert!(world.isolated().is_empty());
    }
    world.gpu(1, 0).xid = Some(119);
    world.checks(3);
    world.gpu(1, 0).xid = Some(0);
    world.checks(100);
    assert_eq!(world.isolated(), ["n1"]);
    assert_eq!(world.states(), ["n1 xid-119 Manual"]);
    world.node(1).unschedulable = false;
    world.check();
    assert!(world.isolated().is_empty());
}

#[test]
fn records_are_removed_after_a_day() {
    let mut world = World::new(4);
    world.check();
    world.gpu(1, 0).xid = Some(79);
    world.check();
    world.node(1).boot_id = "boot-2".into();
    world.gpu(1, 0).xid = Some(0);
    world.checks(30);
    assert_eq!(world.snapshot.operations["n1"].phase, OperationPhase::Done);
    world.checks(24 * 120);
    assert!(world.snapshot.operations.is_empty());
}
