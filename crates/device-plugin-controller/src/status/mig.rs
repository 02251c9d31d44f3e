//! Condition MigReady.

use super::{group, tell};
use crate::index::Summary;
use crate::verdict::Topic;
use tessera_api::conditions::{ComponentCondition, ConditionStatus, Reason};
use tessera_runtime::status::{Finding, finding as make};

const TYPE: ComponentCondition = ComponentCondition::MigReady;

/// `manager` is what the DaemonSet says.
pub(super) fn finding(manager: Finding, nodes: &Summary) -> Finding {
    if manager.reason == Reason::NoGPUNodes && manager.status == ConditionStatus::True {
        if nodes.expected.mig_unknown > 0 {
            let text = format!(
                "feature discovery has yet to say on {} nodes whether their cards can do MIG",
                nodes.expected.mig_unknown
            );
            return make(TYPE, false, Reason::Progressing, text);
        }
        return make(
            TYPE,
            true,
            Reason::NoCapableNodes,
            "no node has cards that can do MIG",
        );
    }
    for (topic, reason) in [
        (Topic::MigFailed, Reason::MigFailed),
        (Topic::MigUnusable, Reason::MigLayoutInvalid),
        (Topic::MigPending, Reason::MigPending),
    ] {
        if let Some(found) = group(nodes, topic) {
            return make(TYPE, false, reason, tell(found));
        }
    }
    manager
}
