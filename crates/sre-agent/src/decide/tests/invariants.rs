//! What must hold on any timeline.

use super::world::World;
use super::*;
use crate::snapshot::Telemetry;
use crate::xid;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Xid(usize, u32),
    Count(usize, u32),
    Recovery(usize, u32),
    RemapFailed(usize, bool),
    Silent(usize),
    Garbage(usize),
    Back(usize),
    Reboot(usize),
    Cordon(usize, bool),
    NotReady(usize, bool),
    Restart,
    Suspend(bool),
    AutoRepair(bool),
    Quiet(usize),
}

fn event(nodes: usize) -> impl Strategy<Value = Event> {
    let xids = proptest::sample::select(vec![
        0_u32, 13, 31, 45, 48, 63, 64, 79, 94, 109, 119, 154, 500,
    ]);
    prop_oneof![
        4 => (0..nodes, xids.clone()).prop_map(|(node, xid)| Event::Xid(node, xid)),
        1 => (0..nodes, xids).prop_map(|(node, xid)| Event::Count(node, xid)),
        1 => (0..nodes, 0..9_u32).prop_map(|(node, action)| Event::Recovery(node, action)),
        1 => (0..nodes, any::<bool>()).prop_map(|(node, up)| Event::RemapFailed(node, up)),
        1 => (0..nodes).prop_map(Event::Silent),
        1 => (0..nodes).prop_map(Event::Garbage),
        2 => (0..nodes).prop_map(Event::Back),
        2 => (0..nodes).prop_map(Event::Reboot),
        1 => (0..nodes, any::<bool>()).prop_map(|(node, on)| Event::Cordon(node, on)),
        1 => (0..nodes, any::<bool>()).prop_map(|(node, on)| Event::NotReady(node, on)),
        1 => Just(Event::Restart),
        1 => any::<bool>().prop_map(Event::Suspend),
        1 => any::<bool>().prop_map(Event::AutoRepair),
        2 => (1..40_usize).prop_map(Event::Quiet),
    ]
}

fn play(world: &mut World, event: &Event) {
    let healthy =
        |node: usize| World::new(node + 1).snapshot.telemetry[&format!("n{node}")].clone();
    let good = |world: &mut World, node: usize| {
        if !matches!(
            world.snapshot.telemetry.get(&format!("n{node}")),
            Some(Telemetry::Good(_))
        ) {
            world
                .snapshot
                .telemetry
                .insert(format!("n{node}"), healthy(node));
        }
    };
    match event {
        Event::Xid(node, xid) => {
            good(world, *node);
            world.gpu(*node, 0).xid = Some(*xid);
        }
        Event::Count(node, xid) => {
            good(world, *node);
            *world.gpu(*node, 1).xid_counts.entry(*xid).or_default() += 1.0;
        }
        Event::Recovery(node, action) => {
            good(world, *node);
            world.gpu(*node, 0).recovery_action = Some(*action);
        }
        Event::RemapFailed(node, up) => {
            good(world, *node);
            world.gpu(*node, 1).remap_failed = Some(*up);
        }
        Event::Silent(node) => drop(world.snapshot.telemetry.remove(&format!("n{node}"))),
        Event::Garbage(node) => {
            world
                .snapshot
                .telemetry
                .insert(format!("n{node}"), Telemetry::Malformed("garbage".into()));
        }
        Event::Back(node) => {
            world
                .snapshot
                .telemetry
                .insert(format!("n{node}"), healthy(*node));
        }
        Event::Reboot(node) => {
            world.node(*node).boot_id.push('x');
            world
                .snapshot
                .telemetry
                .insert(format!("n{node}"), healthy(*node));
        }
        Event::Cordon(node, on) => world.node(*node).unschedulable = *on,
        Event::NotReady(node, on) => world.node(*node).not_ready_since = on.then_some(world.now),
        Event::Restart => {
            let last = world
                .reports
                .last()
                .map(|report| report.status.clone())
                .unwrap_or_default();
            world.memory = Memory::default();
            report::restore(&last, &world.snapshot, &mut world.memory, world.now);
        }
        Event::Suspend(on) => world.policy.suspended = *on,
        Event::AutoRepair(on) => (world.policy.may_act, world.policy.auto_repair) = (*on, *on),
        Event::Quiet(_) => {}
    }
}

/// What must be true of every plan.
fn judge(world: &World, before: &Snapshot, plan: &Plan) -> Result<(), TestCaseError> {
    if !world.policy.may_act {
        prop_assert!(plan.acts.is_empty(), "acts without the right to act");
    }
    let new: Vec<&Act> = plan
        .acts
        .iter()
        .filter(|act| {
            matches!(act, Act::Isolate { .. })
                && !before
                    .operations
                    .get(act.node())
                    .is_some_and(OperationView::is_our_work)
        })
        .collect();
    prop_assert!(new.len() <= 1);
    for act in &plan.acts {
        let held = before.operations.get(act.node());
        match act {
            Act::Isolate {
                node,
                signature,
                class,
            } => {
                prop_assert!(class.is_fatal());
                if let Signature::Xid(number) = signature {
                    prop_assert!(
                        xid::rule(*number).class != Class::App
                            && xid::rule(*number).class != Class::Ignore
                    );
                }
                prop_assert!(!world.policy.suspended);
                prop_assert!(!before.nodes[node].unschedulable, "a foreign cordon");
                prop_assert!(world.memory.breaker.is_none());
                let telemetry = before.telemetry.get(node);
                prop_assert!(
                    telemetry.is_some() || world.memory.nodes[node].telemetry.stale.is_none()
                );
            }
            Act::Move { .. } => prop_assert!(held.is_some_and(OperationView::is_our_work)),
            Act::Release { .. } => prop_assert!(
                held.is_some_and(OperationView::is_our_work),
                "only what we isolated"
            ),
            Act::Expire { .. } => {
                prop_assert!(held.is_some_and(|held| held.ours && held.phase.is_ended()));
            }
        }
    }
    let total = before.nodes.len();
    let cordoned = world
        .snapshot
        .nodes
        .values()
        .filter(|view| view.unschedulable || view.not_ready_since.is_some())
        .count();
    if !new.is_empty() {
        prop_assert!(
            total - cordoned >= (total * Policy::MIN_SCHEDULABLE_PERCENT).div_ceil(100),
            "too few stay"
        );
        let held = world
            .snapshot
            .operations
            .values()
            .filter(|operation| operation.is_our_work())
            .count();
        prop_assert!(held <= most_held(total), "{held} of {total} are held");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_any_timeline((nodes, events) in (1..9_usize).prop_flat_map(|nodes| {
        (Just(nodes), proptest::collection::vec(event(nodes), 1..60))
    })) {
        let mut world = World::new(nodes);
        world.check();
        for event in &events {
            play(&mut world, event);
            let quiet = if let Event::Quiet(checks) = event { *checks } else { 1 };
            for _ in 0..quiet {
                let before = world.snapshot.clone();
                let (mut memory, now) = (world.memory.clone(), world.now + world.policy.interval);
                let again = decide(&before, &mut memory, &world.policy, now);
                let plan = world.check();
                prop_assert_eq!(&again, &plan, "the same input gives the same plan");
                judge(&world, &before, &plan)?;
                let status = &world.reports.last().unwrap().status;
                prop_assert!(status.incidents.len() <= 50);
                let unique: std::collections::BTreeSet<_> = status.incidents.iter().map(|i| &i.id).collect();
                prop_assert_eq!(unique.len(), status.incidents.len());
            }
        }
    }

    /// Whatever the gauges showed before the agent looked: alone they move nothing.
    #[test]
    fn first_sight_is_not_acted_on(xids in proptest::collection::vec(0..200_u32, 6)) {
        let mut world = World::new(6);
        for (node, xid) in xids.iter().enumerate() {
            world.gpu(node, 0).xid = Some(*xid);
        }
        for _ in 0..30 {
            prop_assert!(world.check().acts.is_empty());
        }
    }

    /// A quiet world is told once and then not again.
    #[test]
    fn nothing_new_means_no_news(xids in proptest::collection::vec(proptest::sample::select(vec![0_u32, 13, 45, 63, 79, 119]), 5)) {
        let mut world = World::new(5);
        world.check();
        for (node, xid) in xids.iter().enumerate() {
            world.gpu(node, 0).xid = Some(*xid);
        }
        world.checks(60);
        let settled = world.reports.last().unwrap().status.clone();
        world.reports.clear();
        world.checks(10);
        for report in &world.reports {
            prop_assert_eq!(&report.status, &settled);
            prop_assert!(report.notices.is_empty());
        }
    }
}
