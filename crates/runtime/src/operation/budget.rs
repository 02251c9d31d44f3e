//! Whether one more node may be disturbed: pure.

use super::record::Operation;
use std::collections::{BTreeMap, BTreeSet};
use tessera_api::nodeoperation::{OperationKind, OperationReason};
use tessera_api::units::IntOrPercent;

/// How much may be disturbed at once, in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Operations of one kind that may run at once; `None` is no limit.
    pub max_parallel: Option<usize>,
    /// GPU nodes that may be out of service at once, whatever the reason; percentages are of the GPU nodes, rounded up.
    pub max_unavailable: IntOrPercent,
}

/// What the budget needs to know of a GPU node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Its kubelet reports Ready.
    pub ready: bool,
    /// It is cordoned.
    pub cordoned: bool,
    /// The operation that cordoned it, from our annotation; a cordon without it is somebody else's.
    pub cordoned_by: Option<String>,
}

impl NodeState {
    /// Cordoned by anything but an operation of `kind`.
    pub fn is_foreign_cordon(&self, kind: OperationKind) -> bool {
        self.cordoned && self.cordoned_by.as_deref() != Some(kind.as_str())
    }
}

/// The answer to a tentative operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may become active.
    Admit,
    /// It must step back.
    Withdraw {
        /// Why.
        reason: OperationReason,
        /// In words.
        message: String,
    },
}

/// Whether the operation of `kind` on node `mine` may become active, seeing all `operations` of the cluster (tentative
/// ones count) and all GPU `nodes`.
///
/// A node is out of service if an operation runs on it, or it is cordoned by anybody, or it is not Ready. Only a node that
/// an earlier operation of this kind has left cordoned may go on when the room is used up: it takes no more of it, and
/// nothing else gives it back. It still counts against `max_parallel`.
pub fn admit(
    budget: Budget,
    kind: OperationKind,
    mine: &str,
    operations: &[Operation],
    nodes: &BTreeMap<String, NodeState>,
) -> Admission {
    let me = nodes.get(mine).cloned().unwrap_or(NodeState {
        ready: true,
        ..NodeState::default()
    });
    if me.is_foreign_cordon(kind) {
        let by = me
            .cordoned_by
            .map_or_else(|| "somebody".to_owned(), |by| format!("operation {by}"));
        let message = format!("{by} has cordoned the node; it is left alone until that is undone");
        return Admission::Withdraw {
            reason: OperationReason::ForeignCordon,
            message,
        };
    }
    let others: Vec<&Operation> = operations
        .iter()
        .filter(|op| op.node != mine && !op.is_ended())
        .collect();
    // Between creation and its first status nobody can tell what an operation will be.
    let parallel: Vec<&&Operation> = others
        .iter()
        .filter(|op| op.kind().is_none_or(|other| other == kind))
        .collect();
    if let Some(limit) = budget.max_parallel.filter(|limit| parallel.len() >= *limit) {
        let running = parallel.iter().map(|op| op.describe());
        return full(format!(
            "{limit} at once is the limit of {kind}, and there is already {}",
            named(running)
        ));
    }
    let mut out: BTreeSet<&str> = others.iter().map(|op| op.node.as_str()).collect();
    out.extend(
        nodes
            .iter()
            .filter(|(_, node)| node.cordoned || !node.ready)
            .map(|(name, _)| name.as_str()),
    );
    out.remove(mine);
    let limit = budget.max_unavailable.of(nodes.len());
    if !me.cordoned && out.len() >= limit {
        let why = if out.is_empty() {
            "none may be".to_owned()
        } else {
            format!(
                "already are: {}",
                named(out.iter().map(|name| (*name).to_owned()))
            )
        };
        let of = budget.max_unavailable;
        return full(format!(
            "{limit} of {} GPU nodes (maxUnavailable {of}) may be out of service, and {why}",
            nodes.len()
        ));
    }
    Admission::Admit
}

fn full(message: String) -> Admission {
    Admission::Withdraw {
        reason: OperationReason::BudgetExceeded,
        message,
    }
}

/// The first five, and how many more.
fn named(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let shown: Vec<&str> = names.iter().take(5).map(String::as_str).collect();
    let more = names.len().saturating_sub(shown.len());
    let rest = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("{}{rest}", shown.join(", "))
}

#[cfg(test)]
mod tests;
