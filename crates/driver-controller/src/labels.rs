//! The labels of nodes: which pool they belong to, and which operands they admit.

use crate::context::{Adopted, Context};
use crate::controller::Key;
use crate::error::Error;
use crate::pool_labels;
use futures::{StreamExt, stream};
use std::sync::Arc;
use tessera_api::NodeFacts;
use tessera_api::nodes::desired_labels;
use tessera_runtime::Outcome;
use tessera_runtime::election::Term;

/// So many nodes are labelled at the same time: an API server under load takes 100 ms for a request.
const AT_ONCE: usize = 8;

/// Brings the labels of one node to what is wanted. `Some`: not yet, look again.
pub async fn one(
    context: &Context,
    term: &Term,
    node: &NodeFacts,
) -> Result<Option<Outcome>, Error> {
    let waiting = |reason: &str, requeue| {
        let reason = reason.to_owned();
        Some(Outcome::Progressing { reason, requeue })
    };
    let policy = match context.known.adopted() {
        // The first look at the policies wakes all nodes.
        Adopted::NotYet => return Ok(waiting("policies not read yet", None)),
        Adopted::Nothing => None,
        Adopted::Policy(policy) => Some(policy),
    };
    let wanted = context.known.pool_labels(&node.name);
    // Before the labels that admit operands: or the toolkit of another pool would start on a node that has just joined.
    context.pool_labels.reconcile(term, node, &wanted).await?;
    let labels = &context.node_labels;
    match labels.reconcile(term, node, policy.as_deref()).await? {
        Some(delay) => Ok(waiting("labels changed meanwhile", Some(delay))),
        None => Ok(None),
    }
}

/// The same for all nodes that need it, several at once. Each node's own key, which is woken too, sees to what fails here.
pub async fn all(context: &Context, term: &Term) -> Result<Outcome, Error> {
    let policy = match context.known.adopted() {
        Adopted::NotYet => return Ok(Outcome::Ready),
        Adopted::Nothing => None,
        Adopted::Policy(policy) => Some(policy),
    };
    let needs = |node: &Arc<NodeFacts>| {
        let pools = context.known.pool_labels(&node.name);
        !pool_labels::change(node, &pools).is_empty()
            || desired_labels(node, policy.as_deref()).needed
    };
    let due: Vec<Arc<NodeFacts>> = context.nodes.values().into_iter().filter(needs).collect();
    let labelled = stream::iter(due).map(|node| async move {
        match one(context, term, &node).await {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => context.queue.wake(Key::Node(node.name.clone())),
        }
    });
    labelled.buffer_unordered(AT_ONCE).collect::<()>().await;
    Ok(Outcome::Ready)
}
