//! Who begins operations: we, and another holder that wants the same room.

use super::now;
use super::world::{Cluster, Dice, World};
use std::time::Duration;
use tessera_api::nodeoperation::{OperationKind, OperationPhase, OperationReason};
use tessera_runtime::operation::{
    Admission, Operation, Progress, admit, first_status, later, next_status,
};

const RACER: &str = "sre-agent/ops/sre";

/// A beginning that is under way: claimed, and perhaps looked around.
pub(super) struct Begin {
    pub(super) holder: &'static str,
    kind: OperationKind,
    mine: Operation,
    seen: Option<Vec<Operation>>,
}

fn opening(phase: OperationPhase, target: &str) -> Progress {
    Progress::to(phase, OperationReason::DriverOutdated, "m").leading_to(target)
}

/// The first write of a beginning; `None` if somebody else was faster or the process died.
pub(super) fn claim(
    world: &World,
    holder: &'static str,
    kind: OperationKind,
    node: &str,
    target: &str,
    stale: &Cluster,
) -> Option<Begin> {
    let mine = match stale.operations.get(node) {
        Some(ours) if ours.runs_for(holder) && ours.phase() == OperationPhase::Tentative => {
            ours.clone()
        }
        Some(running) if !running.is_ended() => return None,
        Some(ended) => world
            .replace(ended, |operation, now| {
                operation.status = first_status(
                    &ended.status,
                    kind,
                    holder,
                    &opening(OperationPhase::Tentative, target),
                    now,
                );
                operation.holder = holder.into();
            })
            .ok()?,
        None => world
            .act("create operation", |cluster| {
                let node_uid = cluster.nodes.get(node)?.facts.uid.clone();
                if cluster.operations.contains_key(node) {
                    return None;
                }
                let version = cluster.next_version();
                let created = Operation {
                    node: node.into(),
                    uid: version.clone(),
                    version,
                    node_uid,
                    holder: holder.into(),
                    ..Operation::default()
                };
                cluster.operations.insert(node.into(), created.clone());
                Some(created)
            })
            .ok()??,
    };
    Some(Begin {
        holder,
        kind,
        mine,
        seen: None,
    })
}

/// The next part of a beginning; `false` when it is over.
pub(super) fn go_on(world: &World, begin: &mut Begin) -> bool {
    let Some(seen) = &begin.seen else {
        begin.seen = world
            .act("list", |cluster| {
                cluster.operations.values().cloned().collect()
            })
            .ok();
        return begin.seen.is_some();
    };
    let states = world.cluster.lock().states();
    let target = now(world).wanted().target();
    let admission = admit(
        world.rules.budget,
        begin.kind,
        &begin.mine.node,
        seen,
        &states,
    );
    let (holder, kind) = (begin.holder, begin.kind);
    let _ = world.replace(&begin.mine, |operation, now| {
        let progress = match &admission {
            Admission::Admit => opening(OperationPhase::Active, &target),
            Admission::Withdraw { reason, .. } => {
                Progress::to(OperationPhase::Withdrawn, *reason, "w")
                    .until(Some(later(now, Duration::from_secs(2))))
            }
        };
        operation.status = match operation.kind() {
            Some(_) => next_status(&operation.status, &progress, now),
            None => first_status(&operation.status, kind, holder, &progress, now),
        };
        operation.status.holder = Some(holder.into());
    });
    false
}

/// The other holder disturbs nodes too: no pods, no cordon, only the lock.
pub(super) fn racer(world: &World, dice: &mut Dice, begins: &mut Vec<Begin>) {
    let cluster = now(world);
    let mine = cluster
        .operations
        .values()
        .find(|operation| operation.runs_for(RACER));
    match mine {
        Some(operation) if operation.phase() == OperationPhase::Active => {
            let done = Progress::to(OperationPhase::Done, OperationReason::Succeeded, "d");
            let _ = world.replace(operation, |current, now| {
                current.status = next_status(&current.status, &done, now);
            });
        }
        Some(_) => {}
        None => {
            let free: Vec<&String> = cluster
                .nodes
                .iter()
                .filter(|(_, node)| node.facts.ready && !node.facts.unschedulable)
                .map(|(name, _)| name)
                .collect();
            if let Some(node) = free.get(dice.roll(free.len())) {
                begins.extend(claim(
                    world,
                    RACER,
                    OperationKind::Repair,
                    node,
                    "r",
                    &cluster,
                ));
            }
        }
    }
}
