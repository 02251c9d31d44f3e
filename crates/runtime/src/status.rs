//! Writes a controller's slice of a ClusterPolicy's status, together with the summary that is computed from all
//! component conditions of the same revision (DESIGN section 2.3).
//!
//! One server-side apply carries the controller's own conditions and sub-object, `state`, `Ready` and `Supported`, and
//! the resource version that they were computed from. If somebody else has written meanwhile, the API server answers
//! 409 and everything is computed again from a fresh read. A slice that is equal to the stored one is not written.

mod merge;
pub mod pacing;

pub(crate) use merge::own_part;
pub use merge::{Finding, Slice, finding, off_or_invalid};

use crate::clients::within;
use crate::election::{NotLeading, Term};
use crate::error::{is_conflict, is_not_found};
use crate::node_labels::{Patience, patience};
use crate::policy::Policies;
use crate::process::Process;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use merge::{About, difference, is_own, mark, merge, part};
use pacing::{Difference, Pacing};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tessera_api::ClusterPolicy;
use tessera_api::conditions::{ComponentCondition, find};
use tessera_api::effective::{Active, Ignored};
use tessera_api::names;
use tessera_api::policy::ClusterPolicyStatus;

/// How often a write is computed again after conflicts before it is left to the next reconcile.
const TRIES: u32 = 4;

/// A write that failed.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The API server refused or did not answer.
    #[error(
        "cannot write the status of ClusterPolicy {name}: {}",
        crate::error::sentence(source)
    )]
    Write {
        /// The policy.
        name: String,
        /// The client's error.
        #[source]
        source: kube::Error,
    },
    /// No longer the leader.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

impl crate::Classify for StatusError {
    fn class(&self) -> crate::Class {
        match self {
            Self::Write { source, .. } => crate::error::classify(source),
            Self::NotLeading(_) => crate::Class::LostLeadership,
        }
    }
    fn reason(&self) -> &'static str {
        "StatusWriteFailed"
    }
}

/// The writer of one controller.
pub struct StatusWriter {
    api: Api<ClusterPolicy>,
    policies: Policies,
    controller: &'static str,
    namespace: String,
    limit: Duration,
    events: crate::events::Events,
    pacing: Mutex<BTreeMap<String, Pacing>>,
    patience: Patience,
}

impl StatusWriter {
    /// Of `controller`.
    pub fn new(process: &Process, policies: Policies, controller: &'static str) -> Self {
        let client: Client = process.client();
        Self {
            api: Api::all(client),
            policies,
            controller,
            namespace: process.args().namespace.clone(),
            limit: process.args().request_timeout,
            events: process.events(),
            pacing: Mutex::new(BTreeMap::new()),
            patience: Patience::of(controller),
        }
    }

    /// Reports `slice` on the active policy. `Some(delay)`: it differs, but is to be written only after `delay`
    /// ([`pacing`]); reconcile again then.
    pub async fn report(
        &self,
        term: &Term,
        active: &Active,
        slice: &Slice,
    ) -> Result<Option<Duration>, StatusError> {
        let mut current = active.status.clone();
        let (mut generation, mut version) = (active.generation, active.resource_version.clone());
        let now = crate::clock::now();
        let wanted = self.merge(&current, active, generation, slice);
        let difference = difference(&current, &wanted, slice, self.controller);
        let asked = u64::from_str_radix(&active.hash, 16).unwrap_or_default();
        let due = {
            let mut pacing = self.pacing.lock();
            let pacing = pacing
                .entry(active.uid.clone())
                .or_insert_with(|| Pacing::of(turn(self.controller)));
            pacing.about(asked);
            pacing
                .due(difference, now)
                .map(|at| self.in_turn(difference, at, now))
        };
        match due {
            None => return Ok(None),
            Some(at) if at > now => return Ok(Some(at - now)),
            Some(_) => {}
        }
        for _ in 0..TRIES {
            let merged = self.merge(&current, active, generation, slice);
            if merged == current {
                break;
            }
            term.check()?;
            match self.write(&active.name, &version, &merged).await {
                Ok(written) => {
                    self.pacing
                        .lock()
                        .entry(active.uid.clone())
                        .or_default()
                        .wrote(difference, crate::clock::now());
                    self.announce(active, &current, &merged).await;
                    self.policies.observe(written);
                    return Ok(None);
                }
                Err(error) if is_conflict(&error) => {
                    let read = within(self.limit, self.api.get_opt(&active.name)).await;
                    let Some(fresh) = read.map_err(|source| Self::failed(&active.name, source))?
                    else {
                        return Ok(None);
                    };
                    if fresh.metadata.generation != Some(active.generation)
                        || fresh.uid().as_deref() != Some(&active.uid)
                    {
                        // Another spec: the watch brings it, and everything is decided anew.
                        return Ok(None);
                    }
                    generation = fresh.metadata.generation.unwrap_or_default();
                    version = fresh.resource_version().unwrap_or_default();
                    current = fresh.status.clone().unwrap_or_default();
                    self.policies.observe(fresh);
                }
                Err(error) if is_not_found(&error) => return Ok(None),
                Err(source) => return Err(Self::failed(&active.name, source)),
            }
        }
        Ok(Some(Duration::from_millis(500)))
    }

    /// Marks policies that are not active. The rank decides who does it ([`crate::node_labels::patience`]);
    /// `Some(delay)`: it is another controller's turn, look again after `delay`.
    pub async fn mark_ignored(
        &self,
        term: &Term,
        ignored: &[Ignored],
    ) -> Result<Option<Duration>, StatusError> {
        let mut again = None;
        for policy in ignored {
            let marked = mark(policy, crate::clock::wall());
            if marked == policy.status {
                self.patience.clear(&policy.uid, crate::clock::now());
                continue;
            }
            if let Some(left) = self.patience.wait(&policy.uid, crate::clock::now()) {
                again = Some(again.map_or(left, |other: Duration| other.min(left)));
                continue;
            }
            term.check()?;
            match self
                .write(&policy.name, &policy.resource_version, &marked)
                .await
            {
                Ok(written) => self.policies.observe(written),
                // The watch brings the newer one and wakes us.
                Err(error) if is_conflict(&error) || is_not_found(&error) => {}
                Err(source) => return Err(Self::failed(&policy.name, source)),
            }
        }
        Ok(again)
    }

    /// When to write what may be written at `at`: what can wait, in this controller's turn.
    fn in_turn(&self, difference: Difference, at: Instant, now: Instant) -> Instant {
        match difference {
            Difference::Detail | Difference::Settling => {
                let at = at.max(now);
                let wall = crate::clock::wall().duration_since(Timestamp::UNIX_EPOCH);
                let wall = Duration::try_from(wall).unwrap_or_default() + (at - now);
                at + pacing::until_turn(rank(self.controller), wall)
            }
            Difference::None | Difference::Matters | Difference::Recovered => at,
        }
    }

    fn failed(name: &str, source: kube::Error) -> StatusError {
        StatusError::Write {
            name: name.to_owned(),
            source,
        }
    }

    fn merge(
        &self,
        current: &ClusterPolicyStatus,
        active: &Active,
        generation: i64,
        slice: &Slice,
    ) -> ClusterPolicyStatus {
        let about = About {
            controller: self.controller,
            namespace: &self.namespace,
            effective: &active.effective,
            hash: &active.hash,
            generation,
        };
        merge(current, slice, &about, crate::clock::time().0)
    }

    /// Applies our part of `status`: own conditions and sub-object, and what is computed.
    async fn write(
        &self,
        name: &str,
        version: &str,
        status: &ClusterPolicyStatus,
    ) -> Result<ClusterPolicy, kube::Error> {
        let body = json!({
            "apiVersion": ClusterPolicy::api_version(&()),
            "kind": ClusterPolicy::kind(&()),
            "metadata": {"name": name, "resourceVersion": version},
            "status": part(status, self.controller),
        });
        let params = PatchParams::apply(&names::controller::field_manager(self.controller)).force();
        within(
            self.limit,
            self.api.patch_status(name, &params, &Patch::Apply(&body)),
        )
        .await
    }

    /// One event for each of our conditions, and for Ready, that has changed its status.
    async fn announce(
        &self,
        active: &Active,
        old: &ClusterPolicyStatus,
        new: &ClusterPolicyStatus,
    ) {
        let about = ObjectReference {
            api_version: Some(ClusterPolicy::api_version(&()).into_owned()),
            kind: Some(ClusterPolicy::kind(&()).into_owned()),
            name: Some(active.name.clone()),
            uid: Some(active.uid.clone()),
            ..ObjectReference::default()
        };
        for condition in &new.conditions {
            let before = find(&old.conditions, &condition.type_);
            let is_ours = is_own(&condition.type_, self.controller)
                || condition.type_ == ComponentCondition::Ready.as_str();
            // The first False of a fresh install is no news.
            let changed = before.map_or(condition.status == "True", |old| {
                old.status != condition.status
            });
            if !is_ours || !changed {
                continue;
            }
            let (reason, note) = (
                format!("{}{}", condition.type_, condition.status),
                format!("{}: {}", condition.reason, condition.message),
            );
            if condition.status == "True" {
                self.events
                    .normal(&about, &reason, "Reconcile", &note)
                    .await;
            } else {
                self.events
                    .warning(&about, &reason, "Reconcile", &note)
                    .await;
            }
        }
    }
}

/// The place of a controller among the writers of one status.
fn rank(controller: &str) -> u64 {
    patience(controller).as_secs() / 3
}

/// How long a controller lets those of lower rank write first: each step longer than the news of one event may be apart
/// ([`crate::queue::SOON`]).
fn turn(controller: &str) -> Duration {
    patience(controller) / 6
}
