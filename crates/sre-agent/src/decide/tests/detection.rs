//! What is a fault, and what is only missing data.

use super::world::World;
use crate::snapshot::Telemetry;

#[test]
fn scenario_9_a_gauge_from_before_the_agent_needs_a_second_signal() {
    let mut world = World::new(4);
    world.gpu(1, 0).xid = Some(79);
    assert!(world.checks(20).acts.is_empty());
    assert_eq!(world.states(), ["n1 xid-79 Suspect"]);
    world.gpu(1, 0).recovery_action = Some(2);
    world.check();
    assert_eq!(world.isolated(), ["n1"]);
}

#[test]
fn scenario_10_a_rising_count_is_new_although_the_gauge_stands_still() {
    let mut world = World::new(4);
    world.gpu(1, 0).xid = Some(119);
    world.checks(3);
    assert_eq!(world.states(), ["n1 xid-119 Suspect"]);
    world.gpu(1, 0).xid_counts.insert(119, 1.0);
    world.check();
    assert_eq!(world.isolated(), ["n1"]);
}

#[test]
fn scenario_15_a_counter_that_drops_is_not_a_repair() {
    let mut world = World::new(4);
    world.gpu(1, 0).double_bit_errors = Some(3.0);
    world.check();
    world.gpu(1, 0).double_bit_errors = Some(4.0);
    world.checks(2);
    assert_eq!(world.states(), ["n1 xid-48 Isolated"]);
    world.gpu(1, 0).double_bit_errors = Some(0.0);
    world.checks(30);
    assert_eq!(world.states(), ["n1 xid-48 Isolated"]);
}

#[test]
fn scenario_18_a_missing_gpu_needs_time_and_a_second_source() {
    let mut world = World::new(4);
    world.check();
    let Some(Telemetry::Good(sample)) = world.snapshot.telemetry.get_mut("n1") else {
        panic!()
    };
    sample.gpus.remove("GPU-1-1");
    world.checks(30);
    assert!(
        world.states().is_empty(),
        "the exporter alone proves nothing: {:?}",
        world.states()
    );
    (world.node(1).capacity, world.node(1).allocatable) = (Some(1), Some(1));
    world.check();
    assert_eq!(world.states(), ["n1 missing-gpu Isolated"]);
}

#[test]
fn scenario_22_an_exporter_that_is_down_is_no_fault() {
    let mut world = World::new(4);
    world.check();
    world.snapshot.telemetry.insert(
        "n1".into(),
        Telemetry::Unreachable("connection refused".into()),
    );
    world.checks(5);
    assert!(
        world.told().is_empty(),
        "a restart of the exporter is no news"
    );
    world.checks(5);
    let status = &world.reports.last().unwrap().status;
    let telemetry = status.telemetry.as_ref().unwrap();
    assert_eq!((telemetry.scraped, telemetry.stale), (3, 1));
    assert_eq!(telemetry.stale_nodes[0].cause, "connection refused");
    assert!(world.isolated().is_empty() && status.incidents.is_empty());
    assert_eq!(world.told(), ["TelemetryStale"]);
}

#[test]
fn scenario_22b_an_isolated_node_stays_isolated_without_data() {
    let mut world = World::new(4);
    world.check();
    world.gpu(1, 0).xid = Some(79);
    world.check();
    world
        .snapshot
        .telemetry
        .insert("n1".into(), Telemetry::Malformed("not text".into()));
    world.node(1).boot_id = "boot-2".into();
    world.checks(100);
    assert_eq!(world.isolated(), ["n1"]);
}

#[test]
fn scenario_23_blind_means_no_acts() {
    let mut world = World::new(4);
    world.check();
    for node in 1..4 {
        world
            .snapshot
            .telemetry
            .insert(format!("n{node}"), Telemetry::Unreachable("timeout".into()));
    }
    world.checks(10);
    world.gpu(0, 0).xid = Some(79);
    world.checks(3);
    assert!(world.isolated().is_empty());
    assert_eq!(world.memory.breaker.as_ref().unwrap().reason, "Blind");
}

#[test]
fn scenario_24_frozen_values_are_stale() {
    let mut world = World::new(4);
    (0..2).for_each(|gpu| world.gpu(1, gpu).energy = Some(1000.0));
    world.checks(6);
    let status = &world.reports.last().unwrap().status;
    assert!(
        status.telemetry.as_ref().unwrap().stale_nodes[0]
            .cause
            .contains("repeats old values")
    );
    world.gpu(1, 0).energy = Some(1001.0);
    world.check();
    assert_eq!(world.told(), ["TelemetryStale", "TelemetryRestored"]);
}

#[test]
fn scenario_35_heat_is_told_after_minutes_and_never_acted_on() {
    let mut world = World::new(4);
    world.check();
    world.gpu(1, 0).temperature = Some(90.0);
    world.check();
    world.gpu(1, 0).temperature = Some(60.0);
    world.checks(12);
    assert!(world.told().is_empty());
    world.gpu(1, 0).temperature = Some(90.0);
    world.checks(12);
    assert_eq!(world.states(), ["n1 temperature Watching"]);
    world.gpu(1, 0).temperature = Some(85.0);
    world.check();
    assert_eq!(
        world.states().len(),
        1,
        "it must cool down by the hysteresis"
    );
    world.gpu(1, 0).temperature = Some(80.0);
    world.check();
    assert!(world.states().is_empty() && world.isolated().is_empty());
}
