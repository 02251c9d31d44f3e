//! The five stages, in order.

use crate::context::{Context, Current};
use crate::controller::Key;
use crate::error::Error;
use crate::validate::{Validated, validate};
use crate::verdict::Asked;
use crate::{build, mig_nodes, observe, status};
use std::time::Duration;
use tessera_api::names::controller::DEVICE_PLUGIN as NAME;
use tessera_runtime::apply::{Desired, Scope};
use tessera_runtime::election::Term;
use tessera_runtime::{Outcome, Reconciler};

/// The reconciler.
pub struct DevicePluginController {
    /// What it works with.
    pub context: Context,
}

impl Reconciler for DevicePluginController {
    type Key = Key;
    type Error = Error;

    fn name(&self) -> &'static str {
        NAME
    }

    fn keys(&self) -> Vec<Key> {
        // Another leader may have worked on since: the policy comes first, and then the nodes with it.
        *self.context.current.write() = Current::Unknown;
        vec![Key::Policy]
    }

    async fn reconcile(&self, key: &Key, term: &Term) -> Result<Outcome, Error> {
        match key {
            // Boxed: the state of many writes is large, and rarely alive.
            Key::Policy => Box::pin(self.policy(term)).await,
            Key::Node(name) => self.node(name, term).await,
        }
    }
}

impl DevicePluginController {
    async fn policy(&self, term: &Term) -> Result<Outcome, Error> {
        let context = &self.context;
        let resolution = observe::resolution(context);
        let maps = observe::maps(
            context,
            resolution.active.as_ref().map(|active| &*active.effective),
        );
        let marks = context
            .status
            .mark_ignored(term, &resolution.ignored)
            .await?;
        let Some(active) = &resolution.active else {
            // A policy that cannot be read may want everything: then nothing is touched.
            return match context.policies.unreadable().first() {
                Some((name, why)) => Ok(Outcome::Blocked {
                    reason: format!("ClusterPolicy {name} cannot be read: {why}"),
                }),
                None => self.no_policy(term).await,
            };
        };
        let policy = active.effective.clone();
        let validated = match validate(policy, &maps, &context.namespace) {
            Ok(validated) => validated,
            Err(name) => {
                let reason = format!("reading ConfigMap {name}");
                return Ok(Outcome::Progressing {
                    reason,
                    requeue: None,
                });
            }
        };
        self.tell_nodes(&validated);
        let desired = build::build(&validated, &context.namespace)?;
        let applied = context
            .applier
            .apply(term, Scope::All, &active.owners, desired)
            .await?;
        let report = status::report(&validated, &observe::observe(context), &applied.failed);
        let pause = Box::pin(context.status.report(term, active, &report.slice)).await?;
        self.look_again([pause, marks]);
        match applied.first_error() {
            Some(error) => Err(error.into()),
            None => Ok(report.outcome),
        }
    }

    /// No policy asks for anything: our objects and labels go.
    async fn no_policy(&self, term: &Term) -> Result<Outcome, Error> {
        let context = &self.context;
        context.index.ask(None, &context.nodes);
        if !matches!(
            std::mem::replace(&mut *context.current.write(), Current::None),
            Current::None
        ) {
            self.wake_nodes();
        }
        let applied = context
            .applier
            .apply(term, Scope::All, &[], Desired::new())
            .await?;
        match applied.first_error() {
            Some(error) => Err(error.into()),
            None => Ok(Outcome::Ready),
        }
    }

    /// What nodes are labelled and judged by; all are looked at again when it changes.
    fn tell_nodes(&self, validated: &Validated) {
        let context = &self.context;
        let asked = Asked {
            policy: validated.policy.clone(),
            configs: validated.configs.clone(),
            layouts: validated.layouts.clone(),
        };
        context.index.ask(Some(asked), &context.nodes);
        let is_new = !matches!(&*context.current.read(), Current::Policy(known) if *known == validated.policy);
        if is_new {
            *context.current.write() = Current::Policy(validated.policy.clone());
            self.wake_nodes();
        }
    }

    fn wake_nodes(&self) {
        for (key, _) in self.context.nodes.list() {
            self.context.queue.wake(Key::Node(key.name));
        }
    }

    fn look_again(&self, pauses: [Option<Duration>; 2]) {
        if let Some(pause) = pauses.into_iter().flatten().min() {
            self.context.queue.wake_after(Key::Policy, pause);
        }
    }

    async fn node(&self, name: &str, term: &Term) -> Result<Outcome, Error> {
        let context = &self.context;
        let Some(node) = context.nodes.get_cluster(name) else {
            context.labels.forget(name);
            context.changes.forget(name);
            context.index.overdue(name, false);
            return Ok(Outcome::Gone);
        };
        let policy = match context.current.read().clone() {
            // The policy is looked at soon, and wakes all nodes then.
            Current::Unknown => return Ok(Outcome::Ready),
            Current::None => None,
            Current::Policy(policy) => Some(policy),
        };
        if let Some(pause) = context
            .labels
            .reconcile(term, &node, policy.as_deref())
            .await?
        {
            context.queue.wake_after(Key::Node(name.to_owned()), pause);
            return Ok(Outcome::Ready);
        }
        mig_nodes::look_after(context, term, &node, policy.as_deref()).await?;
        Ok(Outcome::Ready)
    }
}
