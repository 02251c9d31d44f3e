//! The five stages, and the orderly end of an agent.

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;
use tessera_api::SREAgent;
use tessera_api::names::controller;
use tessera_runtime::apply::{Applied, Desired, Scope};
use tessera_runtime::clients::within;
use tessera_runtime::election::Term;
use tessera_runtime::error::{is_conflict, is_not_found};
use tessera_runtime::watch::Store;
use tessera_runtime::{Outcome, Reconciler, clock};

use crate::NAME;
use crate::build::{self, CLUSTER_SCOPE, SCOPE, scope};
use crate::context::{Context, Key};
use crate::error::Error;
use crate::observe::{Agent, is_held, observe, reference, sreagent_of, uid};
use crate::status::{self, Trouble};
use crate::validate::{agent_name, validate};

/// Keeps an SREAgent until its cluster-scoped bindings are gone.
pub(crate) const FINALIZER: &str = "aiops.local/sreagent";

/// How long an agent may take to stop before its SREAgent goes all the same, seconds: its grace period, twice.
const STOP_LIMIT: i64 = 60;

/// Reconciles SREAgents.
pub(crate) struct Controller {
    pub(crate) context: Context,
}

impl Reconciler for Controller {
    type Key = Key;
    type Error = Error;

    fn name(&self) -> &'static str {
        NAME
    }

    /// SREAgents, and those whose objects are still there although they are gone.
    fn keys(&self) -> Vec<Key> {
        let context = &self.context;
        let agents = context.agents.list().into_iter().map(|(key, _)| key);
        let stores = context.namespaced.iter().chain([&context.cluster_bindings]);
        let made_for = stores
            .flat_map(Store::values)
            .filter_map(|owned| sreagent_of(&owned));
        let all: std::collections::BTreeSet<Key> = agents.chain(made_for).collect();
        all.into_iter().collect()
    }

    async fn reconcile(&self, key: &Key, term: &Term) -> Result<Outcome, Error> {
        match self.context.agents.get(key) {
            None => self.remove_all(key, term).await.map(|()| Outcome::Gone),
            Some(agent) if agent.is_deleting() => self.end(key, &agent, term).await,
            Some(agent) => match &*agent {
                Agent::Good(object) => self.run(key, &agent, object, term).await,
                Agent::Unreadable { error, .. } => {
                    let reason = format!(
                        "it cannot be read: {error}; correct its spec, what was made of it before stays"
                    );
                    self.context
                        .events
                        .warning(&reference(&agent), "InvalidSpec", "Reconcile", &reason)
                        .await;
                    Ok(Outcome::Blocked { reason })
                }
            },
        }
    }
}

impl Controller {
    /// Brings one agent to what its SREAgent says, and reports.
    async fn run(
        &self,
        key: &Key,
        agent: &Arc<Agent>,
        object: &SREAgent,
        term: &Term,
    ) -> Result<Outcome, Error> {
        let (trouble, failed) = match validate(object, &self.context.settings) {
            Err(invalid) => (Some(Trouble::Invalid(invalid.to_string())), None),
            Ok(validated) => {
                let held = is_held(&object.metadata) || self.hold(key, object, term).await?;
                if !held {
                    // Somebody changed or removed it in the same moment: the watch tells.
                    return Ok(Outcome::Progressing {
                        reason: "changed meanwhile".to_owned(),
                        requeue: None,
                    });
                }
                let objects = build::objects(&validated, &self.context.settings)?;
                let cluster = self
                    .apply(key, term, CLUSTER_SCOPE, &[], objects.cluster)
                    .await?;
                let namespaced = self
                    .apply(key, term, SCOPE, &[objects.owner], objects.namespaced)
                    .await?;
                let error = cluster.first_error().or(namespaced.first_error());
                (
                    error
                        .as_ref()
                        .map(|error| Trouble::Apply(error.to_string())),
                    error,
                )
            }
        };
        let observed = observe(&self.context, key, &agent_name(&key.name));
        let wanted = status::status(
            object,
            &observed,
            trouble.as_ref(),
            &self.context.settings,
            &clock::time(),
        );
        self.report(key, agent, object, &wanted, term).await?;
        let ready = wanted
            .conditions
            .first()
            .map(|ready| (ready.status == "True", ready.message.clone()));
        match (failed, trouble, ready) {
            (Some(error), _, _) => Err(error.into()),
            (None, Some(Trouble::Invalid(reason)), _) => Ok(Outcome::Blocked { reason }),
            (None, _, Some((false, reason))) => Ok(Outcome::Progressing {
                reason,
                requeue: None,
            }),
            (None, _, _) => Ok(Outcome::Ready),
        }
    }

    /// Ends one agent: first its pod, which still needs its rights to release its Lease, then the rest, then the SREAgent.
    async fn end(&self, key: &Key, agent: &Arc<Agent>, term: &Term) -> Result<Outcome, Error> {
        let held = is_held(agent.metadata());
        if let (true, Agent::Good(object)) = (held, &**agent)
            && let Ok(validated) = validate(object, &self.context.settings)
        {
            let standing = build::standing(&validated)?;
            let applied = self
                .apply(key, term, SCOPE, &[build::owner(&validated)], standing)
                .await?;
            if let Some(error) = applied.first_error() {
                return Err(error.into());
            }
        }
        let observed = observe(&self.context, key, &agent_name(&key.name));
        let since = agent
            .metadata()
            .deletion_timestamp
            .as_ref()
            .map_or(0, |time| time.0.as_second());
        let left = STOP_LIMIT.saturating_sub(clock::wall().as_second().saturating_sub(since));
        if held && !observed.pods.is_empty() && left > 0 {
            let requeue = std::time::Duration::from_secs(left.unsigned_abs());
            return Ok(Outcome::Progressing {
                reason: "the agent is stopping".to_owned(),
                requeue: Some(requeue),
            });
        }
        self.remove_all(key, term).await?;
        if held {
            self.tell_what_stays(agent).await;
            self.let_go(key, agent, term).await?;
        }
        Ok(Outcome::Gone)
    }

    /// Removes everything that was made for a key.
    async fn remove_all(&self, key: &Key, term: &Term) -> Result<(), Error> {
        let namespaced = self.apply(key, term, SCOPE, &[], Desired::new()).await?;
        let cluster = self
            .apply(key, term, CLUSTER_SCOPE, &[], Desired::new())
            .await?;
        match namespaced.first_error().or(cluster.first_error()) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    async fn apply(
        &self,
        key: &Key,
        term: &Term,
        label: &str,
        owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference],
        desired: Desired,
    ) -> Result<Applied, Error> {
        Ok(self
            .context
            .applier
            .apply(term, Scope::Label(label, &scope(key)), owners, desired)
            .await?)
    }

    /// Puts our finalizer on, before anything is made that only it would clean up. False if the object changed meanwhile.
    async fn hold(&self, key: &Key, object: &SREAgent, term: &Term) -> Result<bool, Error> {
        let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(FINALIZER.to_owned());
        self.set_finalizers(key, &object.metadata, &finalizers, term)
            .await
    }

    async fn let_go(&self, key: &Key, agent: &Agent, term: &Term) -> Result<(), Error> {
        let mut finalizers = agent.metadata().finalizers.clone().unwrap_or_default();
        finalizers.retain(|name| name != FINALIZER);
        self.set_finalizers(key, agent.metadata(), &finalizers, term)
            .await
            .map(|_| ())
    }

    async fn set_finalizers(
        &self,
        key: &Key,
        meta: &kube::core::ObjectMeta,
        finalizers: &[String],
        term: &Term,
    ) -> Result<bool, Error> {
        term.check()?;
        let patch = json!({"metadata": {
            "finalizers": finalizers, "uid": meta.uid, "resourceVersion": meta.resource_version}});
        let params = PatchParams {
            field_manager: Some(controller::field_manager(NAME)),
            ..PatchParams::default()
        };
        let api: Api<SREAgent> = Api::namespaced(self.context.client.clone(), &key.namespace);
        let sent = within(
            self.context.limit,
            api.patch_metadata(&key.name, &params, &Patch::Merge(&patch)),
        )
        .await;
        match sent {
            Ok(_) => Ok(true),
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(false),
            Err(source) => Err(Error::Own {
                verb: "hold",
                name: key.to_string(),
                source,
            }),
        }
    }

    /// Writes our part of the status, if it says anything new, and tells of conditions that changed.
    async fn report(
        &self,
        key: &Key,
        agent: &Agent,
        object: &SREAgent,
        wanted: &tessera_api::sreagent::SREAgentStatus,
        term: &Term,
    ) -> Result<(), Error> {
        if status::says(object.status.as_ref(), wanted) {
            return Ok(());
        }
        term.check()?;
        let patch = json!({
            "apiVersion": "aiops.local/v1",
            "kind": "SREAgent",
            "metadata": {"name": key.name, "uid": uid(object)},
            "status": wanted,
        });
        let params = PatchParams::apply(&controller::field_manager(NAME)).force();
        let api: Api<SREAgent> = Api::namespaced(self.context.client.clone(), &key.namespace);
        match within(
            self.context.limit,
            api.patch_status(&key.name, &params, &Patch::Apply(&patch)),
        )
        .await
        {
            Ok(written) => {
                let version = tessera_runtime::watch::version(&written);
                let known = Agent::project(kube::core::DeserializeGuard(Ok(written)));
                self.context.agents.observe(key.clone(), version, known);
                self.announce(agent, object, wanted).await;
                Ok(())
            }
            Err(error) if is_not_found(&error) || is_conflict(&error) => Ok(()),
            Err(source) => Err(Error::Own {
                verb: "write the status of",
                name: key.to_string(),
                source,
            }),
        }
    }

    /// One event for each of our own conditions that changed; the agent tells of nodes and telemetry itself.
    async fn announce(
        &self,
        agent: &Agent,
        object: &SREAgent,
        wanted: &tessera_api::sreagent::SREAgentStatus,
    ) {
        let old = object
            .status
            .as_ref()
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default();
        for new in wanted
            .conditions
            .iter()
            .filter(|new| ["AgentAvailable", "RepairsAllowed"].contains(&new.type_.as_str()))
        {
            let before = old
                .iter()
                .find(|old| old.type_ == new.type_)
                .map(|old| (&old.status, &old.reason));
            if before == Some((&new.status, &new.reason))
                || ["Deploying", "BindingPending"].contains(&new.reason.as_str())
            {
                continue;
            }
            let about = reference(agent);
            let bad =
                new.status == "False" && new.reason != "AutoRepairOff" && new.reason != "Suspended";
            if before.is_none() && !bad {
                // A first status that is as asked for is no transition.
                continue;
            }
            if bad {
                self.context
                    .events
                    .warning(&about, &new.reason, &new.type_, &new.message)
                    .await;
            } else {
                self.context
                    .events
                    .normal(&about, &new.reason, &new.type_, &new.message)
                    .await;
            }
        }
    }

    /// Nodes that the agent isolated stay isolated: nobody has found them healthy.
    async fn tell_what_stays(&self, agent: &Agent) {
        let Agent::Good(object) = agent else { return };
        let report = object
            .status
            .as_ref()
            .and_then(|status| status.agent.as_ref());
        let held = ["Isolated", "Probation", "Manual"];
        let incidents = report
            .map(|report| report.incidents.as_slice())
            .unwrap_or_default();
        let nodes: std::collections::BTreeSet<&str> = incidents
            .iter()
            .filter(|one| held.contains(&one.state.as_str()))
            .map(|one| one.node.as_str())
            .collect();
        if nodes.is_empty() {
            return;
        }
        let names = nodes.into_iter().collect::<Vec<_>>().join(", ");
        let note = format!(
            "isolated nodes stay cordoned, for nobody found them healthy: {names}. When they are, delete the NodeOperation of the node and uncordon it"
        );
        self.context
            .events
            .warning(&reference(agent), "NodesStayIsolated", "Delete", &note)
            .await;
    }
}
