//! The five stages, in order.

use tessera_runtime::{
    Outcome, Reconciler,
    apply::{Desired, Scope},
    election::Term,
};

use crate::{
    NAME,
    build::build,
    context::{Context, Key},
    error::Error,
    observe::{Observed, Progress},
    status,
    validate::validate,
};

/// The reconciler.
pub(crate) struct Controller {
    context: Context,
}

impl Controller {
    /// Of `context`.
    pub(crate) fn new(context: Context) -> Self {
        Self { context }
    }

    async fn policy(&self, term: &Term) -> Result<Outcome, Error> {
        let context = &self.context;
        let observed = Observed::read(context);
        let Some(active) = &observed.resolution.active else {
            return self.no_policy(term, &observed).await;
        };
        self.look_at_nodes(&active.hash);
        let wanted = validate(&active.effective, observed.facts(&context.namespace));
        let desired = build(&wanted).into_desired()?;
        let applied = context
            .applier
            .apply(term, Scope::All, &active.owners, desired)
            .await?;
        let progress = Progress::read(context, &active.effective, &active.hash);
        let slice = status::slice(
            &active.effective,
            &wanted,
            &active.status.conditions,
            &progress,
            &applied.failed,
        );
        let later = Box::pin(context.status.report(term, active, &slice)).await?;
        let marks = context
            .status
            .mark_ignored(term, &observed.resolution.ignored)
            .await?;
        match applied.first_error() {
            Some(error) => Err(error.into()),
            None => Ok(status::outcome(
                &slice,
                [later, marks].into_iter().flatten().min(),
            )),
        }
    }

    /// Nothing is wanted. But a policy that cannot be read may want everything: then nothing is touched.
    async fn no_policy(&self, term: &Term, observed: &Observed) -> Result<Outcome, Error> {
        if let Some((name, why)) = observed.unreadable.first() {
            return Ok(Outcome::Blocked {
                reason: format!("ClusterPolicy {name} cannot be read: {why}"),
            });
        }
        self.look_at_nodes("");
        let applied = self
            .context
            .applier
            .apply(term, Scope::All, &[], Desired::new())
            .await?;
        applied
            .first_error()
            .map_or(Ok(Outcome::Ready), |error| Err(error.into()))
    }

    /// Another policy may want other labels of every node.
    fn look_at_nodes(&self, hash: &str) {
        if self.context.memory.is_new_policy(hash) {
            for (key, _) in self.context.nodes.list() {
                self.context.queue.wake(Key::Node(key.name));
            }
        }
    }

    async fn node(&self, term: &Term, name: &str) -> Result<Outcome, Error> {
        let context = &self.context;
        let Some(node) = context.nodes.get_cluster(name) else {
            context.labels.forget(name);
            return Ok(Outcome::Gone);
        };
        let resolution = context.policies.resolve();
        if resolution.active.is_none() && !context.policies.unreadable().is_empty() {
            return Ok(Outcome::Ready);
        }
        let policy = resolution.active.as_ref().map(|active| &*active.effective);
        Ok(match context.labels.reconcile(term, &node, policy).await? {
            None => Outcome::Ready,
            Some(delay) => Outcome::Progressing {
                reason: "labels are missing".to_owned(),
                requeue: Some(delay),
            },
        })
    }
}

impl Reconciler for Controller {
    type Key = Key;
    type Error = Error;

    fn name(&self) -> &'static str {
        NAME
    }

    fn keys(&self) -> Vec<Key> {
        let nodes = self
            .context
            .nodes
            .list()
            .into_iter()
            .map(|(key, _)| Key::Node(key.name));
        std::iter::once(Key::Policy).chain(nodes).collect()
    }

    async fn reconcile(&self, key: &Key, term: &Term) -> Result<Outcome, Error> {
        match key {
            // Large: it holds all that is built and sent.
            Key::Policy => Box::pin(self.policy(term)).await,
            Key::Node(name) => self.node(term, name).await,
        }
    }
}
