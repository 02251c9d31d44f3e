//! Single stories, told in the same simulated cluster.

use super::world::{Dice, Job, US};
use super::{assert_settled, look, now, outdated, rules, run, settle, world};
use crate::upgrade::facts::Rules;
use crate::upgrade::run::work;
use crate::upgrade::step::Rest;
use crate::upgrade::survey::{Survey, survey};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use tessera_api::names::annotation;
use tessera_runtime::operation::NodeState;

#[test]
fn an_upgrade_of_one_node_costs_few_requests() {
    for jobs in [0, 2] {
        let world = world(1, rules(1, 1));
        {
            let mut cluster = world.cluster.lock();
            cluster.template = 2;
            cluster.nodes.values_mut().for_each(|node| {
                node.jobs = vec![
                    Job {
                        blocked: false,
                        ending: false
                    };
                    jobs
                ];
            });
        }
        settle(&world, &mut Dice(1));
        let requests = world.cluster.lock().requests.clone();
        // The simulation has one list where the real beginning has two, and no event.
        let all: usize = requests.values().sum::<usize>() + 2;
        assert!(all <= 15, "{all}: {requests:?}");
        assert!(outdated(&world).is_empty());
    }
}

#[test]
fn a_failed_node_halts_the_rollout_until_a_person_helps() {
    let world = world(3, rules(1, 1));
    {
        let mut cluster = world.cluster.lock();
        cluster.template = 2;
        cluster.nodes.get_mut("gpu-0").unwrap().broken = true;
    }
    settle(&world, &mut Dice(1));
    assert_settled(&world);
    assert_eq!(outdated(&world), ["gpu-1", "gpu-2"]);
    let present = now(&world);
    let told = look(&world, &present);
    assert_eq!((told.failed(), told.pending(), told.done), (1, 2, 1));
    assert!(told.halted.is_some());
    let mut scene = world.scene("gpu-0", &present).unwrap();
    let rest = run(work(&world, &mut scene, &world.rules, US)).unwrap();
    let Rest::Failed { reason } = rest else {
        panic!("{rest:?}")
    };
    assert!(
        reason.contains("stays cordoned") && reason.contains(annotation::UPGRADE_REQUESTED),
        "{reason}"
    );
    // Time alone never gives it back.
    for _ in 0..50 {
        world.cluster.lock().second += 100_000;
        settle(&world, &mut Dice(2));
    }
    assert!(world.cluster.lock().nodes["gpu-0"].facts.unschedulable);
    world.cluster.lock().nodes.get_mut("gpu-0").unwrap().broken = false;
    world.cluster.lock().template = 3;
    settle(&world, &mut Dice(3));
    assert_settled(&world);
    assert!(outdated(&world).is_empty());
    let attempts: BTreeMap<String, Option<i32>> = world
        .cluster
        .lock()
        .operations
        .iter()
        .map(|(name, operation)| (name.clone(), operation.status.attempts))
        .collect();
    assert_eq!(
        attempts["gpu-0"],
        Some(1),
        "a new target is a new first attempt"
    );
}

#[test]
fn without_auto_upgrade_nothing_is_restarted_and_nodes_are_named() {
    let world = world(
        2,
        Rules {
            auto: false,
            ..rules(1, 1)
        },
    );
    world.cluster.lock().template = 2;
    settle(&world, &mut Dice(1));
    assert_eq!(outdated(&world), ["gpu-0", "gpu-1"]);
    assert_eq!(world.cluster.lock().requests, BTreeMap::new());
    let told = look(&world, &now(&world));
    let (reason, message) = told.condition().unwrap();
    assert_eq!(
        reason,
        tessera_api::conditions::Reason::DriverUpgradePending
    );
    assert!(message.ends_with("gpu-0, gpu-1"), "{message}");
}

#[test]
fn foreign_cordons_and_skipped_nodes_are_left_alone() {
    let world = world(3, rules(3, 3));
    {
        let mut cluster = world.cluster.lock();
        cluster.template = 2;
        cluster.nodes.get_mut("gpu-0").unwrap().facts.unschedulable = true;
        let labels = &mut cluster.nodes.get_mut("gpu-1").unwrap().facts.labels;
        labels.insert(
            tessera_api::names::label::UPGRADE_SKIP.into(),
            "true".into(),
        );
    }
    settle(&world, &mut Dice(1));
    assert_eq!(outdated(&world), ["gpu-0", "gpu-1"]);
    let reasons: Vec<String> = look(&world, &now(&world))
        .exceptions()
        .into_iter()
        .map(|exception| exception.reason)
        .collect();
    assert_eq!(reasons, ["ForeignCordon", "UpgradeSkipped"]);
    assert!(world.cluster.lock().nodes["gpu-0"].facts.unschedulable);
}

#[test]
fn a_first_driver_is_no_upgrade() {
    let world = world(1, rules(1, 1));
    world.cluster.lock().nodes.get_mut("gpu-0").unwrap().driver = None;
    let told = look(&world, &now(&world));
    assert_eq!(
        (told.next.len(), told.pending(), told.progress()),
        (0, 0, None)
    );
    let unknown: BTreeMap<String, NodeState> = BTreeMap::new();
    let now = Timestamp::from_second(0).unwrap();
    assert_eq!(
        survey(&[], &[], &unknown, &world.rules, US, now),
        Survey::default()
    );
}
