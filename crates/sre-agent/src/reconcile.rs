//! One check: observe, scrape, decide, act, report.

use crate::context::Context;
use crate::controller::Key;
use crate::decide::{self, Act, Plan};
use crate::error::Error;
use crate::memory::Memory;
use crate::observe::{Own, observe, targets};
use crate::policy::Policy;
use crate::report::{self, About, Notice};
use crate::snapshot::{Snapshot, Telemetry};
use crate::{act, scrape, status};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use std::sync::Arc;
use tessera_api::names::controller;
use tessera_runtime::election::Term;
use tessera_runtime::{Classify, Outcome, Reconciler, clock};

/// The agent's only reconciler.
pub struct Check {
    /// What it works with.
    pub context: Arc<Context>,
}

impl Reconciler for Check {
    type Key = Key;
    type Error = Error;

    fn name(&self) -> &'static str {
        controller::SRE_AGENT
    }

    fn keys(&self) -> Vec<Key> {
        vec![Key::Check]
    }

    async fn reconcile(&self, _: &Key, term: &Term) -> Result<Outcome, Error> {
        let context = &*self.context;
        let Some(own) = context.own.values().into_iter().next() else {
            let reason = format!(
                "SREAgent {}/{} is gone or cannot be read",
                context.namespace, context.name
            );
            return Ok(Outcome::Blocked { reason });
        };
        let started = clock::now();
        let mut snapshot = observe(context, &own);
        if own.spec.watches_gpus() {
            snapshot.telemetry = scrape::all(targets(context, &snapshot), context.limits).await;
        }
        // The memory is put back when the check is over; a check that is cut off starts from the last report again.
        let now = clock::wall();
        let mut memory = context
            .memory
            .lock()
            .take()
            .unwrap_or_else(|| remembered(&own, &snapshot, now));
        log_failures(&snapshot, &memory);
        let policy = policy(context, &own);
        let mut plan = decide::decide(&snapshot, &mut memory, &policy, now);
        let mut failed = carry_out(context, term, &snapshot, &mut plan).await;
        if !plan.acts.is_empty() {
            let after = observe(context, &own);
            (snapshot.operations, snapshot.nodes) =
                (after.operations, keep(&snapshot, after.nodes));
        }
        let report = report::build(&snapshot, &mut memory, &plan, &policy, now);
        context
            .metrics
            .checked(&snapshot, &memory, &plan, &report, now, started.elapsed());
        *context.memory.lock() = Some(memory);
        failed = failed.or(status::write(context, term, &own, &report.status)
            .await
            .err());
        announce(context, &own, &report.notices).await;
        match failed {
            Some(error) => Err(error),
            None => Ok(Outcome::Progressing {
                reason: "watching".to_owned(),
                requeue: Some(own.spec.interval()),
            }),
        }
    }
}

/// Nodes that came while acts were carried out wait for the next check: nothing is known of them yet.
fn keep(
    before: &Snapshot,
    mut after: std::collections::BTreeMap<String, crate::snapshot::NodeView>,
) -> std::collections::BTreeMap<String, crate::snapshot::NodeView> {
    after.retain(|name, _| before.nodes.contains_key(name));
    after
}

fn remembered(own: &Own, snapshot: &Snapshot, now: jiff::Timestamp) -> Memory {
    let mut memory = Memory::default();
    if let Some(last) = &own.report {
        report::restore(last, snapshot, &mut memory, now);
    }
    memory
}

fn policy(context: &Context, own: &Own) -> Policy {
    Policy {
        watch_gpus: own.spec.watches_gpus(),
        may_act: own.spec.may_repair() && own.has_rights == Some(true),
        // Until the controller has decided, plans are told as without autoRepair: in a moment they are carried out.
        auto_repair: own.spec.may_repair() && own.has_rights.is_some(),
        suspended: own.spec.is_suspended(),
        interval: SignedDuration::try_from(own.spec.interval())
            .unwrap_or(SignedDuration::from_secs(30)),
        probation: context.probation,
        boot_grace: context.boot_grace,
    }
}

/// Carries the acts out one after the other; one that fails does not stop the others. Returns the first error.
async fn carry_out(
    context: &Context,
    term: &Term,
    snapshot: &Snapshot,
    plan: &mut Plan,
) -> Option<Error> {
    let mut failed = None;
    for node in plan
        .would
        .keys()
        .filter(|node| !plan.stops.contains_key(*node))
    {
        tracing::debug!(%node, "autoRepair is false: nothing is done");
        context.metrics.would_have_acted("isolate");
    }
    for act in plan.acts.clone() {
        match act::carry_out(context, term, snapshot, &act).await {
            Ok(None) => context.metrics.acted(act.verb(), "done"),
            Ok(Some(stop)) => {
                context.metrics.acted(act.verb(), "blocked");
                plan.stops.insert(act.node().to_owned(), stop);
            }
            Err(error) => {
                context.metrics.acted(act.verb(), error.reason());
                audit(&act, &error);
                failed = failed.or(Some(error));
            }
        }
    }
    failed
}

fn audit(act: &Act, error: &Error) {
    let text = tessera_runtime::error::chain(error);
    tracing::warn!(node = act.node(), verb = act.verb(), error = %text, "cannot {} node {}", act.verb(), act.node());
}

/// One line when an exporter begins to fail or fails otherwise; the status follows when it lasts.
fn log_failures(snapshot: &Snapshot, memory: &Memory) {
    for (node, telemetry) in &snapshot.telemetry {
        let (Telemetry::Unreachable(cause) | Telemetry::Malformed(cause)) = telemetry else {
            continue;
        };
        let known = memory.nodes.get(node).map(|known| &known.telemetry);
        if known.is_none_or(|known| known.last_cause.as_ref() != Some(cause)) {
            tracing::warn!(%node, %cause, "no usable GPU data of node {node}: {cause}; the last good state is kept");
        }
    }
}

async fn announce(context: &Context, own: &Own, notices: &[Notice]) {
    let agent = ObjectReference {
        api_version: Some("aiops.local/v1".to_owned()),
        kind: Some("SREAgent".to_owned()),
        name: Some(context.name.clone()),
        namespace: Some(context.namespace.clone()),
        uid: Some(own.uid.clone()),
        ..ObjectReference::default()
    };
    for notice in notices {
        let mut about = vec![agent.clone()];
        if let About::Node(name) = &notice.about {
            about.push(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(name.clone()),
                uid: context
                    .nodes
                    .get_cluster(name)
                    .map(|facts| facts.uid.clone()),
                ..ObjectReference::default()
            });
        }
        for object in about {
            if notice.warning {
                context
                    .events
                    .warning(&object, notice.reason, notice.action, &notice.note)
                    .await;
            } else {
                context
                    .events
                    .normal(&object, notice.reason, notice.action, &notice.note)
                    .await;
            }
        }
        tracing::info!(reason = notice.reason, "Reconcile: {}", notice.note);
    }
}
