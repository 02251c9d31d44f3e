//! The budget in tables, and in every order of racers.

use super::*;
use tessera_api::nodeoperation::OperationPhase;

const UPGRADE: OperationKind = OperationKind::DriverUpgrade;

fn nodes(names: &[&str]) -> BTreeMap<String, NodeState> {
    let state = NodeState {
        ready: true,
        ..NodeState::default()
    };
    names
        .iter()
        .map(|name| ((*name).to_owned(), state.clone()))
        .collect()
}

fn operation(node: &str, kind: Option<OperationKind>, phase: Option<OperationPhase>) -> Operation {
    let mut operation = Operation {
        node: node.to_owned(),
        ..Operation::default()
    };
    (operation.status.operation, operation.status.phase) = (kind, phase);
    operation
}

fn reason(admission: &Admission) -> Option<OperationReason> {
    match admission {
        Admission::Admit => None,
        Admission::Withdraw { reason, .. } => Some(*reason),
    }
}

#[test]
fn the_budget_counts_whatever_keeps_a_node_out_of_service() {
    let full = Some(OperationReason::BudgetExceeded);
    let one = Budget {
        max_parallel: Some(1),
        max_unavailable: IntOrPercent::Int(1),
    };
    let many = Budget {
        max_parallel: None,
        max_unavailable: IntOrPercent::Percent(50),
    };
    let none = Budget {
        max_parallel: None,
        max_unavailable: IntOrPercent::Int(0),
    };
    let all = ["a", "b", "c", "d"];
    let set = |node: &str, change: fn(&mut NodeState)| {
        let mut nodes = nodes(&all);
        change(nodes.get_mut(node).unwrap());
        nodes
    };
    let ours = |phase| operation("b", Some(UPGRADE), Some(phase));
    let repair = operation(
        "b",
        Some(OperationKind::Repair),
        Some(OperationPhase::Active),
    );
    let fresh = operation("b", None, None);
    let cases = [
        ("an idle cluster", one, vec![], nodes(&all), None),
        ("a budget of none", none, vec![], nodes(&all), full),
        (
            "a tentative one counts",
            one,
            vec![ours(OperationPhase::Tentative)],
            nodes(&all),
            full,
        ),
        (
            "one without status counts",
            one,
            vec![fresh],
            nodes(&all),
            full,
        ),
        (
            "a running one counts",
            one,
            vec![ours(OperationPhase::Validating)],
            nodes(&all),
            full,
        ),
        (
            "an ended one does not",
            one,
            vec![ours(OperationPhase::Done)],
            nodes(&all),
            None,
        ),
        (
            "another kind is out of service too",
            one,
            vec![repair.clone()],
            nodes(&all),
            full,
        ),
        (
            "another kind is not parallel",
            Budget {
                max_parallel: Some(1),
                ..many
            },
            vec![repair],
            nodes(&all),
            None,
        ),
        (
            "a failed one counts by its cordon",
            one,
            vec![ours(OperationPhase::Failed)],
            set("b", |n| n.cordoned = true),
            full,
        ),
        (
            "a foreign cordon counts",
            one,
            vec![],
            set("c", |n| n.cordoned = true),
            full,
        ),
        (
            "a node that is not Ready counts",
            one,
            vec![],
            set("c", |n| n.ready = false),
            full,
        ),
        (
            "percentages have room",
            many,
            vec![ours(OperationPhase::Active)],
            nodes(&all),
            None,
        ),
        (
            "and an end",
            many,
            vec![ours(OperationPhase::Active)],
            set("c", |n| n.ready = false),
            full,
        ),
        (
            "the own node is not counted twice",
            one,
            vec![],
            set("a", |n| n.ready = false),
            None,
        ),
        (
            "but it needs room all the same",
            none,
            vec![],
            set("a", |n| n.ready = false),
            full,
        ),
        (
            "a foreign cordon is left alone",
            many,
            vec![],
            set("a", |n| n.cordoned = true),
            Some(OperationReason::ForeignCordon),
        ),
    ];
    for (name, budget, operations, nodes, expected) in cases {
        let admission = admit(budget, UPGRADE, "a", &operations, &nodes);
        assert_eq!(reason(&admission), expected, "{name}: {admission:?}");
    }
}

#[test]
fn an_own_cordon_is_gone_on_with() {
    let mut nodes = nodes(&["a"]);
    let own = NodeState {
        ready: true,
        cordoned: true,
        cordoned_by: Some("DriverUpgrade".to_owned()),
    };
    nodes.insert("a".to_owned(), own);
    let budget = Budget {
        max_parallel: Some(1),
        max_unavailable: IntOrPercent::Int(1),
    };
    assert_eq!(admit(budget, UPGRADE, "a", &[], &nodes), Admission::Admit);
    let none = Budget {
        max_unavailable: IntOrPercent::Int(0),
        ..budget
    };
    assert_eq!(admit(none, UPGRADE, "a", &[], &nodes), Admission::Admit);
    assert_eq!(
        reason(&admit(budget, OperationKind::Repair, "a", &[], &nodes)),
        Some(OperationReason::ForeignCordon)
    );
}

#[test]
fn refusals_say_who_takes_the_room() {
    let budget = Budget {
        max_parallel: Some(1),
        max_unavailable: IntOrPercent::Percent(25),
    };
    let mut running = operation("b", Some(UPGRADE), Some(OperationPhase::Active));
    running.holder = "driver-controller".to_owned();
    let Admission::Withdraw { message, .. } =
        admit(budget, UPGRADE, "a", &[running], &nodes(&["a", "b"]))
    else {
        panic!("admitted");
    };
    assert_eq!(
        message,
        "1 at once is the limit of DriverUpgrade, and there is already b (DriverUpgrade by driver-controller)"
    );
}

/// Every order in which racers create, list and decide: never more than the budget become active.
#[test]
fn in_no_order_do_racers_exceed_the_budget() {
    for (racers, limit) in [(2, 1), (3, 1), (3, 2)] {
        explore(&vec![0; racers], &mut World::new(racers), limit);
    }
}

#[derive(Clone)]
struct World {
    operations: Vec<Option<Operation>>,
    seen: Vec<Vec<Operation>>,
}

impl World {
    fn new(racers: usize) -> Self {
        Self {
            operations: vec![None; racers],
            seen: vec![Vec::new(); racers],
        }
    }
}

fn explore(steps: &[usize], world: &mut World, limit: usize) {
    let name = |racer: usize| format!("n{racer}");
    let active = world
        .operations
        .iter()
        .flatten()
        .filter(|op| op.phase() == OperationPhase::Active)
        .count();
    assert!(active <= limit, "{active} are active at once");
    for (racer, step) in steps.iter().enumerate() {
        let (mut next, mut world) = (steps.to_vec(), world.clone());
        match step {
            0 => world.operations[racer] = Some(operation(&name(racer), None, None)),
            1 => world.seen[racer] = world.operations.iter().flatten().cloned().collect(),
            2 => {
                let nodes = (0..steps.len())
                    .map(|n| {
                        (
                            name(n),
                            NodeState {
                                ready: true,
                                ..NodeState::default()
                            },
                        )
                    })
                    .collect();
                let budget = Budget {
                    max_parallel: None,
                    max_unavailable: IntOrPercent::Int(limit.try_into().unwrap()),
                };
                let admission = admit(budget, UPGRADE, &name(racer), &world.seen[racer], &nodes);
                let phase = if admission == Admission::Admit {
                    OperationPhase::Active
                } else {
                    OperationPhase::Withdrawn
                };
                world.operations[racer] = Some(operation(&name(racer), Some(UPGRADE), Some(phase)));
            }
            _ => continue,
        }
        next[racer] += 1;
        explore(&next, &mut world, limit);
    }
}
