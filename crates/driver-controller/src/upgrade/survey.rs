//! All nodes at a glance: who has the wanted driver, who waits for what, who is next. Pure.

mod report;

use super::facts::{Cordon, Facts, KIND, Rules};
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tessera_api::nodeoperation::{OperationPhase, OperationReason};
use tessera_runtime::operation::{Admission, NodeState, Operation, admit, retry_at};

/// Where a node stands in the roll-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing to do: it has the wanted driver, or gets its first one, or none.
    Current,
    /// It has to be upgraded, but for now is not.
    Pending {
        /// Why not.
        why: Why,
        /// In words.
        message: String,
    },
    /// It is being upgraded.
    InProgress,
    /// Its upgrade failed; a person is needed.
    Failed {
        /// Why.
        message: String,
    },
}

/// Why a node that has to be upgraded is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It is begun now.
    Next,
    /// It waits for its turn.
    BudgetExceeded,
    /// It lost a race and is tried again soon.
    Retrying,
    /// The policy begins no upgrades.
    AutoUpgradeOff,
    /// A label keeps it out.
    Skipped,
    /// Somebody else cordoned it.
    ForeignCordon,
    /// It is not Ready.
    NodeNotReady,
    /// Somebody else works on it.
    Busy,
    /// Failures have halted the roll-out.
    Halted,
}

impl Why {
    /// As an exception's reason; `None` for the usual waiting of a roll-out.
    fn exception(self) -> Option<&'static str> {
        match self {
            Self::Next | Self::BudgetExceeded | Self::Retrying => None,
            Self::AutoUpgradeOff => Some("DriverUpgradePending"),
            Self::Skipped => Some("UpgradeSkipped"),
            Self::ForeignCordon => Some("ForeignCordon"),
            Self::NodeNotReady => Some("NodeNotReady"),
            Self::Busy => Some("NodeBusy"),
            Self::Halted => Some("UpgradeHalted"),
        }
    }
}

/// A node whose operation should begin now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: String,
    /// Why.
    pub reason: OperationReason,
    /// What it leads to.
    pub target: String,
}

/// The whole roll-out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Every GPU node's standing.
    pub standings: BTreeMap<String, Standing>,
    /// Nodes with the wanted driver.
    pub done: usize,
    /// Whose operations begin now, in this order.
    pub next: Vec<Candidate>,
    /// Why no further node is begun, if failures have halted the roll-out.
    pub halted: Option<String>,
    /// When to survey again although nothing has changed.
    pub again: Option<Duration>,
    /// The wanted drivers' versions.
    versions: BTreeSet<String>,
}

/// A node that could be begun, and its turn: lower ranks first, then by name.
struct Contender<'a> {
    rank: u8,
    facts: &'a Facts,
    reason: OperationReason,
}

/// Surveys `nodes` (each with the operation on it, whoever's). `states` are all GPU nodes as the budget sees them.
pub fn survey(
    nodes: &[(Facts, Option<Arc<Operation>>)],
    operations: &[Arc<Operation>],
    states: &BTreeMap<String, NodeState>,
    rules: &Rules,
    holder: &str,
    now: Timestamp,
) -> Survey {
    let mut survey = Survey::default();
    let mut contenders = Vec::new();
    for (facts, operation) in nodes {
        let operation = operation.as_deref();
        if let Some(wanted) = &facts.wanted {
            survey.versions.insert(wanted.version.clone());
            let has = facts
                .driver
                .as_ref()
                .is_some_and(|driver| driver.config_hash == wanted.hash);
            survey.done +=
                usize::from(has && !operation.is_some_and(|operation| operation.runs_for(holder)));
        }
        let standing = match stand(facts, operation, rules, holder, now) {
            Ok(standing) => standing,
            Err(contender) => {
                contenders.push(contender);
                continue;
            }
        };
        if let (
            Standing::Pending {
                why: Why::Retrying, ..
            },
            Some(at),
        ) = (
            &standing,
            operation.and_then(|operation| retry_at(operation, now)),
        ) {
            let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            survey.again = survey
                .again
                .into_iter()
                .chain([left.max(Duration::from_millis(100))])
                .min();
        }
        survey.standings.insert(facts.node.clone(), standing);
    }
    survey.halted = halted(&survey.standings, rules);
    choose(&mut survey, contenders, operations, states, rules);
    survey
}

/// `Err`: it could be begun, if the roll-out is not halted and the budget has room.
fn stand<'a>(
    facts: &'a Facts,
    operation: Option<&Operation>,
    rules: &Rules,
    holder: &str,
    now: Timestamp,
) -> Result<Standing, Contender<'a>> {
    let needed = facts.needs_restart();
    match operation {
        Some(operation)
            if operation.runs_for(holder) && operation.phase() == OperationPhase::Tentative =>
        {
            return Err(Contender {
                rank: 0,
                facts,
                reason: why_begun(facts),
            });
        }
        Some(operation) if operation.runs_for(holder) => return Ok(Standing::InProgress),
        Some(operation) if !operation.is_ended() => {
            let busy = pending(Why::Busy, format!("{} is under way", operation.describe()));
            return Ok(if needed { busy } else { Standing::Current });
        }
        _ => {}
    }
    let mine = operation.filter(|operation| operation.holder == holder);
    let failed = mine.filter(|operation| operation.phase() == OperationPhase::Failed);
    let stuck = facts.cordon == Cordon::Ours;
    if let Some(failed) = failed.filter(|_| stuck || facts.outdated()) {
        let unknown = facts.wanted.is_none() && !facts.driverless;
        let same = unknown || failed.status.target.as_deref() == Some(facts.target().as_str());
        if !rules.auto || (same && !facts.requested) {
            return Ok(Standing::Failed {
                message: failed.status.message.clone().unwrap_or_default(),
            });
        }
    }
    if !stuck && !needed {
        return Ok(Standing::Current);
    }
    // Our cordon without an operation of ours: the record is lost, and the node must be given back in any case.
    let lost = stuck && failed.is_none();
    let blocked = if !rules.auto && !lost {
        Some((
            Why::AutoUpgradeOff,
            "driver.upgradePolicy.autoUpgrade is false: set it to true to replace the driver",
        ))
    } else if facts.skip && !stuck {
        Some((
            Why::Skipped,
            "label nvidia.com/gpu-driver-upgrade.skip=true keeps the node out of upgrades",
        ))
    } else if facts.cordon == Cordon::Foreign {
        Some((
            Why::ForeignCordon,
            "somebody else has cordoned the node: it is upgraded when that is undone",
        ))
    } else if !facts.ready {
        Some((
            Why::NodeNotReady,
            "the node is not Ready: it is upgraded when it is",
        ))
    } else {
        None
    };
    if let Some((why, message)) = blocked {
        return Ok(pending(why, message.to_owned()));
    }
    if mine.is_some_and(|operation| retry_at(operation, now).is_some()) {
        return Ok(pending(
            Why::Retrying,
            "another operation got the room in the same moment".to_owned(),
        ));
    }
    let rank = match (stuck, facts.requested) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 3,
    };
    Err(Contender {
        rank,
        facts,
        reason: why_begun(facts),
    })
}

fn why_begun(facts: &Facts) -> OperationReason {
    if facts.outdated() {
        OperationReason::DriverOutdated
    } else if facts.requested {
        OperationReason::Requested
    } else {
        OperationReason::InProgress
    }
}

fn pending(why: Why, message: String) -> Standing {
    Standing::Pending { why, message }
}

fn halted(standings: &BTreeMap<String, Standing>, rules: &Rules) -> Option<String> {
    let failed = standings
        .iter()
        .filter(|(_, standing)| matches!(standing, Standing::Failed { .. }));
    let failed: Vec<&str> = failed.map(|(node, _)| node.as_str()).collect();
    let shown = failed
        .iter()
        .take(5)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    (rules.failures > 0 && failed.len() >= rules.failures).then(|| {
        let nodes = if failed.len() == 1 {
            "1 node".to_owned()
        } else {
            format!("{} nodes", failed.len())
        };
        format!("no further node is begun, because the driver upgrade failed on {nodes}: {shown}")
    })
}

/// Gives the room that there is to the first in turn.
fn choose(
    survey: &mut Survey,
    mut contenders: Vec<Contender<'_>>,
    operations: &[Arc<Operation>],
    states: &BTreeMap<String, NodeState>,
    rules: &Rules,
) {
    contenders.sort_by(|a, b| (a.rank, &a.facts.node).cmp(&(b.rank, &b.facts.node)));
    let mut taken: Vec<Operation> = operations
        .iter()
        .map(|operation| Operation::clone(operation))
        .collect();
    let mut full: Option<String> = None;
    for Contender {
        rank,
        facts,
        reason,
    } in contenders
    {
        let standing = if let (3, Some(halted)) = (rank, &survey.halted) {
            pending(Why::Halted, halted.clone())
        } else if let (3, Some(message)) = (rank, &full) {
            // All of this rank are alike: in service, and one more out of it is one too many.
            pending(Why::BudgetExceeded, message.clone())
        } else {
            match admit(rules.budget, KIND, &facts.node, &taken, states) {
                Admission::Admit => {
                    let mut begun = Operation {
                        node: facts.node.clone(),
                        ..Operation::default()
                    };
                    begun.status.operation = Some(KIND);
                    taken.retain(|operation| operation.node != facts.node);
                    taken.push(begun);
                    survey.next.push(Candidate {
                        node: facts.node.clone(),
                        reason,
                        target: facts.target(),
                    });
                    pending(Why::Next, "its operation begins".to_owned())
                }
                // A tentative operation that was left behind must be ended, room or not.
                Admission::Withdraw { message, .. } if rank == 0 => {
                    survey.next.push(Candidate {
                        node: facts.node.clone(),
                        reason,
                        target: facts.target(),
                    });
                    pending(Why::Next, message)
                }
                Admission::Withdraw { message, .. } => {
                    full = Some(message.clone()).filter(|_| rank == 3);
                    pending(Why::BudgetExceeded, message)
                }
            }
        };
        survey.standings.insert(facts.node.clone(), standing);
    }
}
