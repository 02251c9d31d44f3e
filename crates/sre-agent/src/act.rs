//! The thin layer that carries a plan out. Every write is guarded: the operation by compare-and-swap, the node by its UID
//! and resource version, so what is changed is what was decided about.

use crate::context::Context;
use crate::decide::{Act, Stop, most_held, most_out_of_service};
use crate::error::Error;
use crate::signature::Signature;
use crate::snapshot::Snapshot;
use crate::xid::Class;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_api::NodeFacts;
use tessera_api::names::annotation;
use tessera_api::nodeoperation::{
    Found, OperationKind, OperationPhase, OperationReason, Undo, UndoAct,
};
use tessera_api::units::IntOrPercent;
use tessera_runtime::drain::{NodeChange, is_marked};
use tessera_runtime::election::Term;
use tessera_runtime::operation::{Begun, Budget, Intent, NodeState, Operation, Progress};

const KIND: OperationKind = OperationKind::Repair;

/// Carries one act out. `Some` says what held it back, in time to be told.
pub async fn carry_out(
    context: &Context,
    term: &Term,
    snapshot: &Snapshot,
    act: &Act,
) -> Result<Option<Stop>, Error> {
    let node = act.node();
    let Some(facts) = context.nodes.get_cluster(node) else {
        return Ok(None);
    };
    match act {
        Act::Isolate {
            signature, class, ..
        } => isolate(context, term, snapshot, &facts, *signature, *class).await,
        Act::Move {
            phase,
            reason,
            signature,
            message,
            ..
        } => {
            if let Some(operation) = context.operations.on(node) {
                let progress = Progress::to(*phase, *reason, message.clone())
                    .leading_to(signature.to_string());
                context
                    .operations
                    .advance(term, &operation, &progress)
                    .await?;
            }
            Ok(None)
        }
        Act::Release {
            phase,
            reason,
            message,
            ..
        } => {
            if let Some(operation) = context.operations.on(node) {
                release(
                    context,
                    term,
                    &facts,
                    &operation,
                    (*phase, *reason, message),
                )
                .await?;
            }
            Ok(None)
        }
        Act::Expire { .. } => {
            if let Some(operation) = context.operations.on(node) {
                context.operations.remove(term, &operation).await?;
            }
            Ok(None)
        }
    }
}

async fn isolate(
    context: &Context,
    term: &Term,
    snapshot: &Snapshot,
    facts: &NodeFacts,
    signature: Signature,
    class: Class,
) -> Result<Option<Stop>, Error> {
    let nodes = states(context, snapshot);
    let intent = Intent {
        node: &facts.name,
        node_uid: &facts.uid,
        kind: KIND,
        reason: OperationReason::FatalFault,
        message: format!("{signature}: the node is taken out of service"),
        target: signature.to_string(),
        found: Found {
            cordoned_before: facts.unschedulable && !is_marked(facts, KIND),
            boot_id: facts.boot_id.clone(),
            version: String::new(),
        },
        undo: vec![Undo {
            act: UndoAct::Uncordon,
            key: String::new(),
            value: String::new(),
        }],
        budget: budget(nodes.len()),
        nodes: &nodes,
    };
    let operation = match context.operations.begin(term, &intent).await? {
        Begun::Active(operation) => operation,
        Begun::NoRoom { reason, .. } | Begun::Withdrawn { reason, .. } => {
            return Ok(Some(stop(reason)));
        }
        Begun::Busy(other) => return Ok(Some(Stop::HeldBy(other.describe()))),
    };
    match context.drain.cordon(term, facts, KIND, &[], &[]).await? {
        NodeChange::Done(_) => {
            let progress = isolated(signature, class);
            context
                .operations
                .advance(term, &operation, &progress)
                .await?;
            Ok(None)
        }
        NodeChange::Foreign(_) => {
            let message = "somebody else cordoned the node in the same moment; it is left as it is";
            let progress = Progress::to(
                OperationPhase::Withdrawn,
                OperationReason::ForeignCordon,
                message,
            );
            context
                .operations
                .advance(term, &operation, &progress)
                .await?;
            Ok(Some(Stop::ForeignCordon))
        }
        // The operation goes with its Node.
        NodeChange::Gone => Ok(None),
    }
}

fn isolated(signature: Signature, class: Class) -> Progress {
    let (reason, message) = crate::decide::awaiting(signature, class);
    Progress::to(OperationPhase::AwaitingRepair, reason, message).leading_to(signature.to_string())
}

async fn release(
    context: &Context,
    term: &Term,
    facts: &NodeFacts,
    operation: &Arc<Operation>,
    (phase, reason, message): (OperationPhase, OperationReason, &str),
) -> Result<(), Error> {
    // Only our own cordon, or what a person left of it: the mark.
    if is_marked(facts, KIND) {
        context.drain.uncordon(term, facts, KIND, &[], &[]).await?;
    }
    let progress = Progress::to(phase, reason, message).undoing(Vec::new());
    context
        .operations
        .advance(term, operation, &progress)
        .await?;
    Ok(())
}

fn stop(reason: OperationReason) -> Stop {
    if reason == OperationReason::ForeignCordon {
        Stop::ForeignCordon
    } else {
        Stop::Budget
    }
}

/// The guard rails once more, this time by a quorum read that sees other holders' work too.
fn budget(total: usize) -> Budget {
    let most = u32::try_from(most_out_of_service(total)).unwrap_or(u32::MAX);
    Budget {
        max_parallel: Some(most_held(total)),
        max_unavailable: IntOrPercent::Int(most),
    }
}

fn states(context: &Context, snapshot: &Snapshot) -> BTreeMap<String, NodeState> {
    let watched = snapshot.nodes.iter().filter(|(_, view)| view.selected);
    let facts = watched.filter_map(|(name, _)| context.nodes.get_cluster(name));
    let state = |facts: &NodeFacts| NodeState {
        ready: facts.ready,
        cordoned: facts.unschedulable,
        cordoned_by: facts.annotations.get(annotation::CORDONED_BY).cloned(),
    };
    facts
        .map(|facts| (facts.name.clone(), state(&facts)))
        .collect()
}
