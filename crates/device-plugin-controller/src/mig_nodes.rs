//! What the MIG manager's protocol asks of us on each node: a layout for nodes that have none, and an end to changes that
//! have got stuck.

use crate::context::Context;
use crate::controller::Key;
use crate::error::Error;
use crate::mig::deadline::{Act, Stage, decide};
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tessera_api::EffectivePolicy;
use tessera_api::names::controller::{DEVICE_PLUGIN as NAME, field_manager};
use tessera_api::names::label;
use tessera_api::nodes::{NodeFacts, is_gpu_node, is_mig_capable};
use tessera_runtime::clock;
use tessera_runtime::election::Term;

/// A stage on the way to a layout.
type Step = (Stage, Option<String>);

/// Since when nodes are in the middle of a change, as this process has seen it.
#[derive(Debug, Default)]
pub struct Changes {
    since: Mutex<BTreeMap<String, (Step, Instant)>>,
}

impl Changes {
    /// How long `node` has been at this step.
    fn lasted(&self, node: &str, step: Step, now: Instant) -> Duration {
        let mut since = self.since.lock();
        let known = since
            .get(node)
            .filter(|(known, _)| *known == step)
            .map(|(_, at)| *at);
        let at = known.unwrap_or(now);
        since.insert(node.to_owned(), (step, at));
        now.saturating_duration_since(at)
    }

    /// `node` is in the middle of nothing, or gone.
    pub fn forget(&self, node: &str) {
        self.since.lock().remove(node);
    }
}

/// Looks at one node.
pub async fn look_after(
    context: &Context,
    term: &Term,
    node: &NodeFacts,
    policy: Option<&EffectivePolicy>,
) -> Result<(), Error> {
    let policy =
        policy.filter(|policy| policy.mig_manager.operand.enabled && is_gpu_node(node, policy));
    let stage = policy.and_then(|_| Stage::of(node));
    let (Some(policy), Some(stage)) = (policy, stage) else {
        context.changes.forget(&node.name);
        overdue(context, node, false);
        return match policy {
            Some(policy) => ask_for_default(context, term, node, policy).await,
            None => Ok(()),
        };
    };
    let step = (stage, node.label(label::MIG_CONFIG).map(str::to_owned));
    match decide(
        node,
        stage,
        context.changes.lasted(&node.name, step, clock::now()),
    ) {
        Act::Wait(left) => {
            overdue(context, node, false);
            context.queue.wake_after(Key::Node(node.name.clone()), left);
        }
        Act::Report => overdue(context, node, true),
        Act::Restore => {
            overdue(context, node, true);
            let again = context
                .labels
                .restore(term, node, Some(policy), label::PAUSED_FOR_MIG_CHANGE)
                .await?;
            tell(context, node, stage).await;
            if let Some(pause) = again {
                context
                    .queue
                    .wake_after(Key::Node(node.name.clone()), pause);
            }
        }
    }
    Ok(())
}

/// The policy's layout for nodes that have none: written once, and never over a value.
async fn ask_for_default(
    context: &Context,
    term: &Term,
    node: &NodeFacts,
    policy: &EffectivePolicy,
) -> Result<(), Error> {
    let Some(layout) = &policy.mig_manager.config_default else {
        return Ok(());
    };
    if node.deleting || !is_mig_capable(node) || node.label(label::MIG_CONFIG).is_some() {
        return Ok(());
    }
    let labels = BTreeMap::from([(label::MIG_CONFIG.to_owned(), layout.clone())]);
    let again = context
        .labels
        .set(term, node, &field_manager(NAME), &labels)
        .await?;
    if let Some(pause) = again {
        context
            .queue
            .wake_after(Key::Node(node.name.clone()), pause);
    }
    Ok(())
}

fn overdue(context: &Context, node: &NodeFacts, is_overdue: bool) {
    if context.index.overdue(&node.name, is_overdue) {
        context.queue.wake(Key::Policy);
    }
}

async fn tell(context: &Context, node: &NodeFacts, stage: Stage) {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.clone()),
        // The kubelet's own events name nodes by this UID.
        uid: Some(node.name.clone()),
        ..ObjectReference::default()
    };
    let minutes = stage.limit().as_secs() / 60;
    let message = format!(
        "the MIG manager left operands paused for more than {minutes} minutes; they were given back to the node"
    );
    context
        .events
        .warning(&about, "MigChangeOverdue", "RestoreLabels", &message)
        .await;
}
