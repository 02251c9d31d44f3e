//! The machine in a simulated cluster in which processes die after any act, watches lag, people cordon and uncordon,
//! nodes vanish, budgets block evictions, and another holder races for the same room.

mod actors;
mod cases;
mod hands;
mod world;

use super::facts::{KIND, Rules};
use super::run::work;
use super::survey::{Survey, survey};
use actors::{Begin, claim, go_on, racer};
use proptest::prelude::*;
use std::sync::Arc;
use tessera_api::names::annotation;
use tessera_api::nodeoperation::OperationPhase;
use tessera_api::units::IntOrPercent;
use tessera_runtime::operation::{Budget, Operation};
use world::{Cluster, Dice, Job, US, World};

fn rules(parallel: usize, unavailable: u32) -> Rules {
    Rules {
        auto: true,
        budget: Budget {
            max_parallel: Some(parallel),
            max_unavailable: IntOrPercent::Int(unavailable),
        },
        validator: true,
        ..Rules::default()
    }
}

fn world(nodes: usize, rules: Rules) -> World {
    let mut cluster = Cluster {
        template: 1,
        ..Cluster::default()
    };
    for number in 0..nodes {
        cluster.add_node(&format!("gpu-{number}"));
    }
    let mut dice = Dice(7);
    for _ in 0..3 {
        cluster.live(&mut dice);
    }
    World {
        cluster: Arc::new(parking_lot::Mutex::new(cluster)),
        rules,
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn look(world: &World, stale: &Cluster) -> Survey {
    let nodes: Vec<_> = stale
        .nodes
        .keys()
        .filter_map(|name| world.scene(name, stale))
        .map(|scene| (scene.facts(&world.rules), scene.operation.map(Arc::new)))
        .collect();
    let operations: Vec<_> = stale.operations.values().cloned().map(Arc::new).collect();
    survey(
        &nodes,
        &operations,
        &stale.states(),
        &world.rules,
        US,
        world.cluster.lock().now(),
    )
}

/// The lock must not be held while somebody looks.
fn now(world: &World) -> Cluster {
    world.cluster.lock().clone()
}

/// What people and hardware do.
fn chaos(world: &World, dice: &mut Dice) {
    let mut cluster = world.cluster.lock();
    let version = cluster.next_version();
    let names: Vec<String> = cluster.nodes.keys().cloned().collect();
    let Some(name) = names.get(dice.roll(names.len())).cloned() else {
        return;
    };
    let what = dice.roll(10);
    if what == 9 {
        cluster.daemon_set_gone = !cluster.daemon_set_gone;
        return;
    }
    let node = cluster.nodes.get_mut(&name).unwrap();
    match what {
        // Who uncordons and cordons again before we have seen it cannot be told from us.
        0 if !node.facts.unschedulable
            && !node.facts.annotations.contains_key(annotation::CORDONED_BY) =>
        {
            (node.facts.unschedulable, node.cordoned_by_us) = (true, false);
        }
        // Somebody else's uncordon, of a foreign cordon or (rarely) of ours.
        1 if !node.cordoned_by_us || dice.one_in(4) => node.facts.unschedulable = false,
        2 => node.facts.ready = !node.facts.ready,
        3 if !node.facts.unschedulable => node.jobs.push(Job {
            blocked: dice.one_in(3),
            ending: false,
        }),
        4 => node.jobs.iter_mut().for_each(|job| job.blocked = false),
        5 => node.broken = !node.broken && dice.one_in(3),
        6 => {
            node.facts
                .annotations
                .insert(annotation::UPGRADE_REQUESTED.into(), "true".into());
        }
        7 if dice.one_in(6) => {
            cluster.nodes.remove(&name);
            cluster.operations.remove(&name);
            return;
        }
        8 if dice.one_in(4) => cluster.template += 1,
        _ => {}
    }
    if let Some(node) = cluster.nodes.get_mut(&name) {
        node.facts.resource_version = version;
    }
}

/// What a process that has just been started, or whose watches lag, knows.
fn reconcile(world: &World, dice: &mut Dice, stale: &mut Cluster, begins: &mut Vec<Begin>) {
    let cluster = now(world);
    match dice.roll(4) {
        0 => {}
        1 => stale.nodes = cluster.nodes,
        2 => stale.operations = cluster.operations,
        _ => *stale = cluster,
    }
    let ours = begins.iter().any(|begin| begin.holder == US);
    if dice.one_in(2) && !ours {
        if let Some(next) = look(world, stale).next.first() {
            begins.extend(claim(world, US, KIND, &next.node, &next.target, stale));
        }
        return;
    }
    let names: Vec<String> = stale.nodes.keys().cloned().collect();
    let Some(mut scene) = names
        .get(dice.roll(names.len()))
        .and_then(|name| world.scene(name, stale))
    else {
        return;
    };
    // Errors are crashes and conflicts: the next look goes on.
    let _ = run(work(world, &mut scene, &world.rules, US));
}

/// Runs the controller alone until nothing changes any more.
fn settle(world: &World, dice: &mut Dice) {
    let mut begins: Vec<Begin> = Vec::new();
    for round in 0..400 {
        let before = world.cluster.lock().version;
        let present = now(world);
        for next in look(world, &present).next {
            begins.extend(claim(world, US, KIND, &next.node, &next.target, &present));
        }
        while !begins.is_empty() {
            begins.retain_mut(|begin| go_on(world, begin));
        }
        let names: Vec<String> = present.nodes.keys().cloned().collect();
        for name in names {
            let fresh = now(world);
            let Some(mut scene) = world.scene(&name, &fresh) else {
                continue;
            };
            if let Err(error) = run(work(world, &mut scene, &world.rules, US)) {
                panic!("{name}: {error}");
            }
        }
        let after = world.cluster.lock().version;
        let waits = world
            .cluster
            .lock()
            .operations
            .values()
            .any(|operation| operation.runs_for(US))
            || look(world, &now(world)).again.is_some();
        if round > 3 && before == after && !waits {
            return;
        }
        world.cluster.lock().live(dice);
        // Pods take versions too; compare only what we wrote.
        let mut cluster = world.cluster.lock();
        cluster.version = cluster.version.max(after);
    }
    panic!(
        "the roll-out does not end: {:#?}",
        world.cluster.lock().operations
    );
}

/// No node is left in between.
fn assert_settled(world: &World) {
    let cluster = world.cluster.lock();
    for (name, node) in &cluster.nodes {
        let operation = cluster.operations.get(name);
        let failed = operation.is_some_and(|operation| operation.phase() == OperationPhase::Failed);
        let ours = node.facts.unschedulable && node.cordoned_by_us;
        assert!(
            !ours || failed,
            "{name} stays cordoned, and nobody says why: {operation:?}"
        );
        assert!(
            operation.is_none_or(Operation::is_ended),
            "{name}: {operation:?}"
        );
        let mark = node.facts.annotations.contains_key(annotation::CORDONED_BY);
        assert_eq!(mark, ours && failed, "{name} keeps a mark");
    }
}

fn outdated(world: &World) -> Vec<String> {
    let cluster = world.cluster.lock();
    let wanted = cluster.template.to_string();
    let old = cluster.nodes.iter().filter(|(_, node)| {
        node.driver
            .as_ref()
            .is_some_and(|pod| pod.config_hash != wanted)
    });
    old.map(|(name, _)| name.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The checks of the world hold at every write, and when the chaos is over the roll-out ends.
    #[test]
    fn whatever_happens(seed: u64, nodes in 1usize..6, parallel in 1usize..4, unavailable in 1u32..4) {
        let (world, mut dice) = (world(nodes, rules(parallel, unavailable)), Dice(seed));
        world.cluster.lock().template = 2;
        let (mut begins, mut stale) = (Vec::new(), now(&world));
        for _ in 0..250 {
            if dice.one_in(12) {
                world.cluster.lock().crash = Some((dice.roll(4), dice.one_in(2)));
            }
            match dice.roll(8) {
                0 => chaos(&world, &mut dice),
                1 => racer(&world, &mut dice, &mut begins),
                2 => world.cluster.lock().live(&mut dice),
                3 | 4 if !begins.is_empty() => {
                    let one = dice.roll(begins.len());
                    let mut begin = begins.swap_remove(one);
                    // A process may die in the middle of it too.
                    if !dice.one_in(20) && go_on(&world, &mut begin) {
                        begins.push(begin);
                    }
                }
                _ => reconcile(&world, &mut dice, &mut stale, &mut begins),
            }
        }
        let mut cluster = world.cluster.lock();
        cluster.crash = None;
        cluster.daemon_set_gone = false;
        cluster.operations.retain(|_, operation| operation.holder == US);
        for node in cluster.nodes.values_mut() {
            node.facts.ready = true;
            node.jobs.iter_mut().for_each(|job| job.blocked = false);
        }
        drop(cluster);
        settle(&world, &mut dice);
        assert_settled(&world);
        // Without faults, and when people have asked for another try and undone their cordons, all nodes get the driver.
        let mut cluster = world.cluster.lock();
        for node in cluster.nodes.values_mut() {
            node.broken = false;
            if node.facts.unschedulable && !node.cordoned_by_us {
                node.facts.unschedulable = false;
            }
            node.facts.annotations.insert(annotation::UPGRADE_REQUESTED.into(), "true".into());
        }
        drop(cluster);
        settle(&world, &mut dice);
        assert_settled(&world);
        prop_assert_eq!(outdated(&world), Vec::<String>::new());
        let cordoned = world.cluster.lock().nodes.values().any(|node| node.facts.unschedulable);
        prop_assert!(!cordoned);
    }

    /// A process that dies after (or before) the n-th act, for every n, goes on where it was.
    #[test]
    fn a_crash_anywhere(n in 0usize..40, after: bool, jobs in 0usize..3) {
        let (world, mut dice) = (world(2, rules(1, 1)), Dice(n as u64));
        {
            let mut cluster = world.cluster.lock();
            cluster.template = 2;
            for node in cluster.nodes.values_mut() {
                node.jobs = vec![Job { blocked: false, ending: false }; jobs];
            }
            cluster.crash = Some((n, after));
        }
        let mut begins = Vec::new();
        let mut stale = now(&world);
        for _ in 0..300 {
            reconcile(&world, &mut dice, &mut stale, &mut begins);
            begins.retain_mut(|begin| go_on(&world, begin));
            world.cluster.lock().live(&mut dice);
        }
        settle(&world, &mut dice);
        assert_settled(&world);
        prop_assert_eq!(outdated(&world), Vec::<String>::new());
    }
}
