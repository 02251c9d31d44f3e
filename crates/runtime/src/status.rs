//! Writes a controller's slice of a ClusterPolicy's status, together with the summary that is computed from all
//! component conditions of the same revision (DESIGN section 2.3).
//!
//! One server-side apply carries the controller's own conditions and sub-object, `state`, `Ready` and `Supported`, and
//! the resource version that they were computed from. If somebody else has written meanwhile, the API server answers
//! 409 and everything is computed again from a fresh read. A slice that is equal to the stored one is not written.

pub mod pacing;

use crate::clients::within;
use crate::election::{NotLeading, Term};
use crate::error::{is_conflict, is_not_found};
use crate::node_labels::Patience;
use crate::policy::Policies;
use crate::process::Process;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use pacing::{Difference, Pacing};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tessera_api::conditions::{
    ComponentCondition, ConditionStatus, Reason, computed, condition, find, set_condition,
};
use tessera_api::effective::{Active, Ignored, IgnoredWhy};
use tessera_api::names;
use tessera_api::policy::{ClusterPolicyStatus, ComponentStatus, State};
use tessera_api::{ClusterPolicy, EffectivePolicy};

/// How often a write is computed again after conflicts before it is left to the next reconcile.
const TRIES: u32 = 4;

/// One condition as a controller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which condition.
    pub component: ComponentCondition,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Why.
    pub reason: Reason,
    /// Object, cause, next step; nothing volatile.
    pub message: String,
}

/// A controller's slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Its conditions: exactly those that it owns.
    pub findings: Vec<Finding>,
    /// Its sub-object.
    pub component: ComponentStatus,
}

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
        let difference = difference(
            &current,
            &self.merge(&current, active, generation, slice),
            slice,
            self.controller,
        );
        let asked = u64::from_str_radix(&active.effective.hash(), 16).unwrap_or_default();
        let due = {
            let mut pacing = self.pacing.lock();
            let pacing = pacing.entry(active.uid.clone()).or_default();
            pacing.about(asked);
            pacing.due(difference, now)
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

    fn failed(name: &str, source: kube::Error) -> StatusError {
        StatusError::Write {
            name: name.to_owned(),
            source,
        }
    }

    /// The whole status as it should be: `current` with our slice, and what is computed from all of it.
    fn merge(
        &self,
        current: &ClusterPolicyStatus,
        active: &Active,
        generation: i64,
        slice: &Slice,
    ) -> ClusterPolicyStatus {
        let mut status = current.clone();
        let wall = crate::clock::time().0;
        for finding in &slice.findings {
            let new = condition(
                &status.conditions,
                finding.component.as_str(),
                finding.status,
                finding.reason,
                finding.message.clone(),
                generation,
                wall,
            );
            set_condition(&mut status.conditions, new);
        }
        let component = Some(slice.component.clone());
        match self.controller {
            names::controller::DRIVER => status.driver = component,
            names::controller::DEVICE_PLUGIN => status.device_plugin = component,
            _ => status.dcgm = component,
        }
        status.namespace = Some(self.namespace.clone());
        status.effective = Some(tessera_api::policy::EffectiveStatus {
            hash: active.effective.hash(),
            images: active.effective.images(),
        });
        let (state, conditions) = computed(status.conditions, &active.effective, generation, wall);
        status.state = Some(state);
        status.conditions = conditions;
        status
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

fn is_own(type_: &str, controller: &str) -> bool {
    ComponentCondition::COMPONENTS
        .iter()
        .any(|c| c.as_str() == type_ && c.controller() == Some(controller))
}

/// What `controller` applies of a status.
fn part(status: &ClusterPolicyStatus, controller: &str) -> Value {
    let is_computed = |type_: &str| {
        [ComponentCondition::Ready, ComponentCondition::Supported]
            .iter()
            .any(|c| c.as_str() == type_)
    };
    let conditions: Vec<&Condition> = status
        .conditions
        .iter()
        .filter(|c| is_own(&c.type_, controller) || is_computed(&c.type_))
        .collect();
    let mut value = json!({
        "conditions": conditions,
        "state": status.state,
        "namespace": status.namespace,
        "effective": status.effective,
    });
    let (field, component) = match controller {
        names::controller::DRIVER => ("driver", &status.driver),
        names::controller::DEVICE_PLUGIN => ("devicePlugin", &status.device_plugin),
        _ => ("dcgm", &status.dcgm),
    };
    if let Some(map) = value.as_object_mut() {
        map.insert(field.to_owned(), json!(component));
        map.retain(|_, value| !value.is_null());
    }
    value
}

/// What `controller` reads back to see whether somebody has tampered with its part.
pub(crate) fn own_part(policy: &ClusterPolicy, controller: &str) -> Value {
    part(&policy.status.clone().unwrap_or_default(), controller)
        .as_object_mut()
        .map(|map| {
            let own: Vec<Value> = map
                .get("conditions")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter(|c| {
                    c.get("type")
                        .and_then(Value::as_str)
                        .is_some_and(|type_| is_own(type_, controller))
                })
                .cloned()
                .collect();
            map.insert("conditions".to_owned(), Value::Array(own));
            map.remove("state");
            map.remove("effective");
            map.remove("namespace");
            Value::Object(std::mem::take(map))
        })
        .unwrap_or_default()
}

/// How `new` differs from `old` in what `controller` writes.
fn difference(
    old: &ClusterPolicyStatus,
    new: &ClusterPolicyStatus,
    slice: &Slice,
    controller: &str,
) -> Difference {
    if part(old, controller) == part(new, controller) {
        return Difference::None;
    }
    let own = |status: &ClusterPolicyStatus| -> BTreeMap<String, (bool, Reason, Option<i64>)> {
        let ours = status
            .conditions
            .iter()
            .filter(|c| is_own(&c.type_, controller));
        ours.map(|c| {
            let reason = c.reason.parse().unwrap_or(Reason::PodsNotReady);
            // Steps on the way to ready are one and the same to a reader.
            let reason = if c.status != "True" && is_on_its_way(reason) {
                Reason::RollingOut
            } else {
                reason
            };
            (
                c.type_.clone(),
                (c.status == "True", reason, c.observed_generation),
            )
        })
        .collect()
    };
    let (before, after) = (own(old), own(new));
    let same_policy = old.effective == new.effective;
    if before == after && same_policy && old.state == new.state {
        return Difference::Detail;
    }
    let well = slice
        .findings
        .iter()
        .all(|finding| finding.status == ConditionStatus::True || finding.reason.is_neutral());
    if well {
        return Difference::Recovered;
    }
    let settles =
        |(type_, (ready, reason, generation)): (&String, &(bool, Reason, Option<i64>))| {
            before
                .get(type_)
                .is_some_and(|(was_ready, old_reason, seen)| {
                    let passes = is_on_its_way(*reason) || *reason == Reason::SharingMismatch;
                    seen == generation
                        && ((was_ready, old_reason) == (ready, reason)
                            || *was_ready && !ready && passes)
                })
        };
    if same_policy && after.iter().all(settles) {
        Difference::Settling
    } else {
        Difference::Matters
    }
}

/// Whether pods are just being started, with nothing known to be wrong.
fn is_on_its_way(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::RollingOut
            | Reason::Progressing
            | Reason::WaitingForDependency
            | Reason::PodsNotReady
    )
}

/// The status of a policy that is not active: only the word, and why.
fn mark(policy: &Ignored, now: k8s_openapi::jiff::Timestamp) -> ClusterPolicyStatus {
    let (reason, message) = match policy.why {
        IgnoredWhy::OverlaidBase => (
            Reason::OverlaidBase,
            format!(
                "ClusterPolicy {} lies over this base and shows the status of both",
                policy.active
            ),
        ),
        IgnoredWhy::OlderPolicyActive => (
            Reason::OlderPolicyActive,
            format!(
                "ClusterPolicy {} is older and so the active one; delete it to make this one active",
                policy.active
            ),
        ),
    };
    let mut status = policy.status.clone();
    let ready = condition(
        &status.conditions,
        ComponentCondition::Ready.as_str(),
        ConditionStatus::False,
        reason,
        message,
        policy.generation,
        k8s_openapi::jiff::Timestamp::from_second(now.as_second()).unwrap_or(now),
    );
    set_condition(&mut status.conditions, ready);
    status.state = Some(State::Ignored);
    status
}

/// A finding.
pub fn finding(
    component: ComponentCondition,
    status: impl Into<ConditionStatus>,
    reason: Reason,
    message: impl Into<String>,
) -> Finding {
    Finding {
        component,
        status: status.into(),
        reason,
        message: message.into(),
    }
}

/// The finding of a component that the policy turns off, or cannot be used; `None` when it is on and usable.
pub fn off_or_invalid(
    component: ComponentCondition,
    policy: &EffectivePolicy,
    invalid: Option<&str>,
) -> Option<Finding> {
    if !component.is_enabled(policy) {
        return Some(finding(
            component,
            true,
            Reason::Disabled,
            "the policy turns it off",
        ));
    }
    invalid.map(|why| {
        let message = format!("{why}; what ran before keeps running");
        finding(component, false, Reason::InvalidSpec, message)
    })
}
