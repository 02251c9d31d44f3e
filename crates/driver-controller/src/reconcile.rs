//! The five stages, for the policies and for one node.

use crate::build::build;
use crate::context::Context;
use crate::controller::Key;
use crate::error::Error;
use crate::labels;
use crate::observe::{observe, rolled};
use crate::status::{self, Failures};
use crate::validate::validate;
use std::sync::Arc;
use tessera_api::effective::Active;
use tessera_api::names::controller;
use tessera_runtime::apply::{Desired, Scope};
use tessera_runtime::election::Term;
use tessera_runtime::{Outcome, Reconciler};

/// The driver-controller's work.
pub struct DriverReconciler {
    /// What it works with.
    pub context: Arc<Context>,
}

impl Reconciler for DriverReconciler {
    type Key = Key;
    type Error = Error;

    fn name(&self) -> &'static str {
        controller::DRIVER
    }

    fn keys(&self) -> Vec<Key> {
        let nodes = self
            .context
            .nodes
            .list()
            .into_iter()
            .map(|(key, _)| Key::Node(key.name));
        [Key::Policy, Key::Rollout]
            .into_iter()
            .chain(nodes)
            .collect()
    }

    async fn reconcile(&self, key: &Key, term: &Term) -> Result<Outcome, Error> {
        match key {
            // What the policy says is large, and is held over requests.
            Key::Policy => Box::pin(policy(&self.context, term)).await,
            Key::Labels => labels::all(&self.context, term).await,
            Key::Rollout => Ok(self
                .context
                .upgrades
                .reconcile_rollout(&*self.context, term)
                .await?),
            Key::Node(name) => node(&self.context, term, name).await,
        }
    }
}

async fn policy(context: &Context, term: &Term) -> Result<Outcome, Error> {
    let observed = observe(context);
    let active = observed.resolution.active.as_ref();
    if context.known.unreadable(&observed.unreadable) {
        for (name, error) in &observed.unreadable {
            tracing::warn!(policy = %name, %error, "Reconcile: ClusterPolicy {name} cannot be read: correct it or delete it");
        }
    }
    if active.is_none() && !observed.unreadable.is_empty() {
        // Somebody wants something: what was made before stays until we can read it.
        return Ok(Outcome::Blocked {
            reason: "a ClusterPolicy that counts cannot be read; nothing is changed until it can"
                .to_owned(),
        });
    }
    if context
        .known
        .adopt(active.map(|active| &active.effective), &context.nodes)
    {
        context.queue.wake(Key::Labels);
        context.queue.wake(Key::Rollout);
        for (key, _) in context.nodes.list() {
            context.queue.wake(Key::Node(key.name));
        }
    }
    let Some(active) = active else {
        return nothing_wanted(context, term).await;
    };
    let census = context.known.fleet.read().census().clone();
    let validated = validate(
        &active.effective,
        &context.namespace,
        &census,
        &observed.configs,
    );
    let desired = build(&validated, &context.namespace).desired()?;
    let applied = context
        .applier
        .apply(term, Scope::All, &active.owners, desired)
        .await?;
    let upgrades = context.upgrades.survey(context);
    let slice = status::slice(
        &validated,
        &rolled(context),
        &Failures::of(&applied.failed),
        &upgrades,
    );
    Box::pin(report(context, term, active, &slice)).await?;
    context
        .status
        .mark_ignored(term, &observed.resolution.ignored)
        .await?;
    match applied.first_error() {
        Some(error) => Err(error.into()),
        None => Ok(status::outcome(&slice)),
    }
}

async fn report(
    context: &Context,
    term: &Term,
    active: &Active,
    slice: &tessera_runtime::status::Slice,
) -> Result<(), Error> {
    if let Some(delay) = Box::pin(context.status.report(term, active, slice)).await? {
        context.queue.wake_after(Key::Policy, delay);
    }
    Ok(())
}

async fn nothing_wanted(context: &Context, term: &Term) -> Result<Outcome, Error> {
    let applied = context
        .applier
        .apply(term, Scope::All, &[], Desired::new())
        .await?;
    match applied.first_error() {
        Some(error) => Err(error.into()),
        None => Ok(Outcome::Ready),
    }
}

async fn node(context: &Context, term: &Term, name: &str) -> Result<Outcome, Error> {
    let Some(node) = context.nodes.get_cluster(name) else {
        context.node_labels.forget(name);
        return Ok(Outcome::Gone);
    };
    if let Some(waiting) = labels::one(context, term, &node).await? {
        return Ok(waiting);
    }
    Ok(context.upgrades.reconcile_node(context, name, term).await?)
}
