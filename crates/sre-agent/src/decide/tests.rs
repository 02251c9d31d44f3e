//! Timelines through the core, with a clock of their own; the numbers are those of `reference/self-healing.md` section 5.

mod invariants;

use super::*;
use crate::dcgm::{Gpu, Sample};
use crate::report::{self, Report};
use crate::snapshot::{NodeView, OperationView, Telemetry};
use jiff::SignedDuration;

pub(super) const HOLDER: &str = "sre-agent/default/a";

/// A little cluster: what the agent sees, and what its acts do to it.
pub(super) struct World {
    pub(super) snapshot: Snapshot,
    pub(super) memory: Memory,
    pub(super) policy: Policy,
    pub(super) now: Timestamp,
    pub(super) reports: Vec<Report>,
}

impl World {
    pub(super) fn new(nodes: usize) -> Self {
        let mut snapshot = Snapshot::default();
        for index in 0..nodes {
            let name = format!("n{index}");
            let view = NodeView {
                uid: format!("uid-{name}"),
                selected: true,
                boot_id: "boot-1".into(),
                created: Some(at(-10_000)),
                capacity: Some(2),
                allocatable: Some(2),
                labelled: Some(2),
                ..NodeView::default()
            };
            snapshot.nodes.insert(name.clone(), view);
            let mut sample = Sample::default();
            for gpu in 0..2 {
                let healthy = Gpu {
                    xid: Some(0),
                    temperature: Some(50.0),
                    remap_failed: Some(false),
                    remap_pending: Some(false),
                    recovery_action: Some(0),
                    ..Gpu::default()
                };
                sample.gpus.insert(format!("GPU-{index}-{gpu}"), healthy);
            }
            snapshot.telemetry.insert(name, Telemetry::Good(sample));
        }
        let policy = Policy {
            watch_gpus: true,
            may_act: true,
            auto_repair: true,
            suspended: false,
            interval: SignedDuration::from_secs(30),
            probation: SignedDuration::from_secs(600),
            boot_grace: SignedDuration::from_secs(600),
        };
        Self { snapshot, memory: Memory::default(), policy, now: at(0), reports: Vec::new() }
    }

    pub(super) fn gpu(&mut self, node: usize, gpu: usize) -> &mut Gpu {
        match self.snapshot.telemetry.get_mut(&format!("n{node}")) {
            Some(Telemetry::Good(sample)) => sample.gpus.get_mut(&format!("GPU-{node}-{gpu}")).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn node(&mut self, node: usize) -> &mut NodeView {
        self.snapshot.nodes.get_mut(&format!("n{node}")).unwrap()
    }

    /// One check, an interval later; its acts take effect at once.
    pub(super) fn check(&mut self) -> Plan {
        self.now += self.policy.interval;
        let plan = decide(&self.snapshot, &mut self.memory, &self.policy, self.now);
        for act in &plan.acts {
            self.carry_out(act);
        }
        let told = report::build(&self.snapshot, &mut self.memory, &plan, &self.policy, self.now);
        self.reports.push(told);
        plan
    }

    pub(super) fn checks(&mut self, count: usize) -> Plan {
        (1..count).for_each(|_| drop(self.check()));
        self.check()
    }

    pub(super) fn carry_out(&mut self, act: &Act) {
        let name = act.node().to_owned();
        let mut set = |phase, reason, target: Option<String>| {
            let old = self.snapshot.operations.get(&name);
            let target = target.or_else(|| old.map(|old| old.target.clone())).unwrap_or_default();
            let same = old.is_some_and(|old| old.phase == phase);
            let since = if same { old.and_then(|old| old.since) } else { Some(self.now) };
            let operation = OperationView { ours: true, holder: HOLDER.into(), phase, reason: Some(reason), since, target };
            self.snapshot.operations.insert(name.clone(), operation);
        };
        match act {
            Act::Isolate { signature, .. } => {
                set(OperationPhase::AwaitingRepair, OperationReason::FaultPresent, Some(signature.to_string()));
                self.snapshot.nodes.get_mut(&name).unwrap().unschedulable = true;
            }
            Act::Move { phase, reason, signature, .. } => set(*phase, *reason, Some(signature.to_string())),
            Act::Release { phase, reason, .. } => {
                set(*phase, *reason, None);
                self.snapshot.nodes.get_mut(&name).unwrap().unschedulable = false;
            }
            Act::Expire { .. } => drop(self.snapshot.operations.remove(&name)),
        }
    }

    pub(super) fn states(&self) -> Vec<String> {
        let report = self.reports.last().unwrap();
        report.status.incidents.iter().map(|i| format!("{} {} {}", i.node, i.signature, i.state)).collect()
    }

    fn told(&self) -> Vec<&'static str> {
        self.reports.iter().flat_map(|report| &report.notices).map(|notice| notice.reason).collect()
    }

    fn isolated(&self) -> Vec<&str> {
        let held = self.snapshot.operations.iter().filter(|(_, operation)| operation.is_our_work());
        held.map(|(name, _)| name.as_str()).collect()
    }

    fn stop(&self, node: &str) -> Option<&str> {
        let incidents = &self.reports.last()?.status.incidents;
        incidents.iter().find(|incident| incident.node == node)?.blocked_by.as_deref()?.split(':').next()
    }
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

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
    assert!(matches!(plan.acts.as_slice(), [Act::Move { phase: OperationPhase::Probation, .. }]), "{plan:?}");
    assert_eq!(world.states(), ["n1 xid-79 Probation"]);
    assert!(world.checks(19).acts.is_empty());
    assert!(matches!(world.check().acts.as_slice(), [Act::Release { phase: OperationPhase::Done, .. }]));
    assert!(world.states().is_empty() && !world.snapshot.nodes["n1"].unschedulable);
    assert_eq!(world.told(), ["GPUFaultDetected", "NodeIsolated", "ProbationStarted", "NodeReleased"]);
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
    assert_eq!(incident.would_do.as_deref(), Some("cordon node n1 because of xid-79 (reboot the node)"));
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
    assert_eq!(world.reports.last().unwrap().status.breaker.as_ref().unwrap().reason, "TooManyUnhealthy");
    assert_eq!(world.told().iter().filter(|reason| **reason == "BreakerOpened").count(), 1);
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
    assert_eq!(world.memory.breaker.as_ref().unwrap().reason, "SameSignature");
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
    let Some(Telemetry::Good(sample)) = world.snapshot.telemetry.get_mut("n1") else { panic!() };
    sample.gpus.remove("GPU-1-1");
    world.checks(30);
    assert!(world.states().is_empty(), "the exporter alone proves nothing: {:?}", world.states());
    (world.node(1).capacity, world.node(1).allocatable) = (Some(1), Some(1));
    world.check();
    assert_eq!(world.states(), ["n1 missing-gpu Isolated"]);
}

#[test]
fn scenario_22_an_exporter_that_is_down_is_no_fault() {
    let mut world = World::new(4);
    world.check();
    world.snapshot.telemetry.insert("n1".into(), Telemetry::Unreachable("connection refused".into()));
    world.checks(5);
    assert!(world.told().is_empty(), "a restart of the exporter is no news");
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
    world.snapshot.telemetry.insert("n1".into(), Telemetry::Malformed("not text".into()));
    world.node(1).boot_id = "boot-2".into();
    world.checks(100);
    assert_eq!(world.isolated(), ["n1"]);
}

#[test]
fn scenario_23_blind_means_no_acts() {
    let mut world = World::new(4);
    world.check();
    for node in 1..4 {
        world.snapshot.telemetry.insert(format!("n{node}"), Telemetry::Unreachable("timeout".into()));
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
    assert!(status.telemetry.as_ref().unwrap().stale_nodes[0].cause.contains("repeats old values"));
    world.gpu(1, 0).energy = Some(1001.0);
    world.check();
    assert_eq!(world.told(), ["TelemetryStale", "TelemetryRestored"]);
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
    };
    world.snapshot.operations.insert("n2".into(), upgrade);
    world.check();
    world.gpu(1, 0).xid = Some(79);
    world.gpu(2, 0).xid = Some(62);
    world.checks(2);
    assert_eq!((world.stop("n1"), world.stop("n2")), (Some("BootGrace"), Some("HeldByOther")));
    world.checks(20);
    assert_eq!(world.isolated(), ["n1"]);
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
    assert_eq!(world.states().len(), 1, "it must cool down by the hysteresis");
    world.gpu(1, 0).temperature = Some(80.0);
    world.check();
    assert!(world.states().is_empty() && world.isolated().is_empty());
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
