//! The one engine that writes owned objects.
//!
//! It compares what is wanted with what its stores hold and sends only what differs: server-side apply under the
//! controller's own field manager for new and changed objects, a delete with a UID precondition for objects of ours
//! that are no longer wanted. Each call needs a [`Term`], checked before every single write.
//!
//! One object that fails does not stop the others; the failures are returned.

mod compare;
mod desired;
mod live;
mod outcome;
mod refused;

pub use compare::covers;
pub use desired::{Desired, DesiredObject, SerializeError};
pub use live::{Live, Owned, project, wake};
pub use outcome::{Applied, WriteError};

use crate::clients::within;
use crate::election::{NotLeading, Term};
use crate::error::is_not_found;
use crate::metrics::Metrics;
use crate::process::Process;
use crate::watch::{Change, ObjectKey, Store, version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, Resource};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tessera_api::names;

/// One kind that the engine may write.
#[derive(Clone)]
pub struct OwnedKind {
    resource: ApiResource,
    namespaced: bool,
    store: Store<Owned>,
}

impl OwnedKind {
    /// Its live objects that carry our label.
    pub fn store(&self) -> &Store<Owned> {
        &self.store
    }

    /// Its API resource.
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }
}

/// The engine of one controller.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    controller: &'static str,
    manager: String,
    limit: Duration,
    metrics: Arc<Metrics>,
    kinds: BTreeMap<String, OwnedKind>,
    refused: refused::Refused,
}

/// Which of our objects a call is about.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// All objects of this controller: those not wanted are removed.
    All,
    /// Objects with this label and value; the label is put on all that is applied.
    Label(&'a str, &'a str),
}

impl Applier {
    /// Of `controller`; kinds are added with [`Applier::own`].
    pub fn new(process: &Process, controller: &'static str) -> Self {
        Self {
            client: process.client(),
            controller,
            manager: names::controller::field_manager(controller),
            limit: process.args().request_timeout,
            metrics: process.metrics(),
            kinds: BTreeMap::new(),
            refused: refused::Refused::default(),
        }
    }

    /// Owns objects of `K` and watches those that carry our label, in `namespace` or cluster-wide.
    pub fn own<K: Resource<DynamicType = ()>>(
        &mut self,
        process: &mut Process,
        namespace: Option<&str>,
        on_change: impl Fn(&Change<Owned>) + Send + Sync + 'static,
    ) -> Store<Owned> {
        let kind = self.prepare::<K>(namespace.is_some(), on_change);
        let api = self.api(&kind, namespace.unwrap_or_default());
        process.watch_into(api, self.watch_config(), kind.store.clone(), project);
        kind.store
    }

    /// Registers a kind whose watch is started and stopped elsewhere ([`crate::optional`]).
    pub fn prepare<K: Resource<DynamicType = ()>>(
        &mut self,
        namespaced: bool,
        on_change: impl Fn(&Change<Owned>) + Send + Sync + 'static,
    ) -> OwnedKind {
        let resource = ApiResource::erase::<K>(&());
        let store = Store::new(&resource.kind, on_change);
        let kind = OwnedKind {
            resource,
            namespaced,
            store,
        };
        self.kinds.insert(kind.resource.kind.clone(), kind.clone());
        kind
    }

    /// The selector of our own objects.
    pub fn watch_config(&self) -> watcher::Config {
        watcher::Config::default().labels(&format!(
            "{}={}",
            names::label::MANAGED_BY,
            self.controller
        ))
    }

    /// Brings all objects of `scope` to `desired`.
    pub async fn apply(
        &self,
        term: &Term,
        scope: Scope<'_>,
        owners: &[OwnerReference],
        mut desired: Desired,
    ) -> Result<Applied, NotLeading> {
        let labels = match scope {
            Scope::All => BTreeMap::new(),
            Scope::Label(name, value) => BTreeMap::from([(name.to_owned(), value.to_owned())]),
        };
        desired.stamp(self.controller, owners, &labels);
        let mut applied = Applied::default();
        for object in desired.objects() {
            if !component_of(&object.value).is_some_and(|component| desired.keeps(component)) {
                self.apply_one(term, object, &mut applied).await?;
            }
        }
        self.prune(term, scope, &desired, &mut applied).await?;
        Ok(applied)
    }

    async fn apply_one(
        &self,
        term: &Term,
        object: &DesiredObject,
        applied: &mut Applied,
    ) -> Result<(), NotLeading> {
        let Some(kind) = self.kinds.get(&object.resource.kind) else {
            tracing::error!(kind = %object.resource.kind, "this kind was never registered with the engine");
            return Ok(());
        };
        let live = kind.store.get(&object.key);
        if live
            .as_ref()
            .is_some_and(|live| live.deleting || covers(&object.value, &live.value))
        {
            // What is being deleted is made again when it is gone: its deletion wakes us.
            return Ok(());
        }
        let (name, now) = (
            format!("{} {}", object.resource.kind, object.key),
            crate::clock::now(),
        );
        if let Some(source) = self.refused.recall(object, live.as_deref(), now) {
            applied.failed.push(not_applied(object, name, source));
            return Ok(());
        }
        let api = self.api(kind, &object.key.namespace);
        let mut sent = self.send(term, &api, object).await?;
        if let (Some(live), Err(error)) = (&live, &sent)
            && is_duplicate(error)
            && let Ok(replaced) = self.replace(term, &api, object, &live.uid).await?
        {
            sent = Ok(replaced);
        }
        self.refused
            .learn(object, live.as_deref(), sent.as_ref().err(), now);
        match sent {
            Ok(written) => {
                let verb = if live.is_some() { "changed" } else { "created" };
                tracing::info!(object = %name, verb, "Reconcile: {verb} {name}");
                self.metrics.object(&object.resource.kind, "applied");
                let version = version(&written);
                if let Some(owned) = project(written) {
                    kind.store.observe(object.key.clone(), version, owned);
                }
                applied.written.push(name);
            }
            Err(source) => applied.failed.push(not_applied(object, name, source)),
        }
        Ok(())
    }

    /// Server-side apply of the whole object.
    async fn send(
        &self,
        term: &Term,
        api: &Api<Live>,
        object: &DesiredObject,
    ) -> Result<Result<Live, kube::Error>, NotLeading> {
        term.check()?;
        let params = PatchParams::apply(&self.manager).force();
        let patch = Patch::Apply(&object.value);
        Ok(within(self.limit, api.patch(&object.key.name, &params, &patch)).await)
    }

    /// Server-side apply cannot take out what a stranger has put into a keyed list (a Service port of our name under
    /// another number), and then refuses the whole. Replacing the lists, by a merge patch, does.
    async fn replace(
        &self,
        term: &Term,
        api: &Api<Live>,
        object: &DesiredObject,
        uid: &str,
    ) -> Result<Result<Live, kube::Error>, NotLeading> {
        term.check()?;
        let params = PatchParams {
            field_manager: Some(self.manager.clone()),
            ..PatchParams::default()
        };
        let replacement = replacement(&object.value, uid);
        let patch: Patch<&Value> = Patch::Merge(&replacement);
        Ok(within(self.limit, api.patch(&object.key.name, &params, &patch)).await)
    }

    async fn prune(
        &self,
        term: &Term,
        scope: Scope<'_>,
        desired: &Desired,
        applied: &mut Applied,
    ) -> Result<(), NotLeading> {
        let wanted: BTreeSet<(&str, &ObjectKey)> = desired
            .objects()
            .iter()
            .map(|object| (object.resource.kind.as_str(), &object.key))
            .collect();
        for kind in self.kinds.values() {
            for (key, live) in kind.store.list() {
                let in_scope = match scope {
                    Scope::All => true,
                    Scope::Label(name, value) => live.label(name) == Some(value),
                };
                let kept = live
                    .label(names::label::COMPONENT)
                    .is_some_and(|component| desired.keeps(component));
                let is_wanted = wanted.contains(&(kind.resource.kind.as_str(), &key));
                if in_scope && !kept && !is_wanted && !live.deleting {
                    self.delete_one(term, kind, &key, &live, applied).await?;
                }
            }
        }
        Ok(())
    }

    async fn delete_one(
        &self,
        term: &Term,
        kind: &OwnedKind,
        key: &ObjectKey,
        live: &Owned,
        applied: &mut Applied,
    ) -> Result<(), NotLeading> {
        term.check()?;
        let name = format!("{} {key}", kind.resource.kind);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(live.uid.clone()),
                resource_version: None,
            }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        match within(
            self.limit,
            self.api(kind, &key.namespace).delete(&key.name, &params),
        )
        .await
        {
            Ok(_) => {
                tracing::info!(object = %name, "Reconcile: removed {name}, which is no longer wanted");
                self.metrics.object(&kind.resource.kind, "deleted");
                kind.store.forget(key);
                applied.removed.push(name);
            }
            // Gone already, or another object of that name: nothing of ours is left.
            Err(error) if is_not_found(&error) || crate::error::is_conflict(&error) => {}
            Err(source) => {
                let component = live.label(names::label::COMPONENT).map(str::to_owned);
                applied.failed.push(WriteError {
                    verb: "delete",
                    object: name,
                    component,
                    source,
                });
            }
        }
        Ok(())
    }

    fn api(&self, kind: &OwnedKind, namespace: &str) -> Api<Live> {
        if kind.namespaced && !namespace.is_empty() {
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        }
    }

    /// The API of a registered kind, for a watch that is started elsewhere.
    pub fn api_of(&self, kind: &OwnedKind, namespace: &str) -> Api<Live> {
        self.api(kind, namespace)
    }
}

/// Whether the API server refused an object only because a list holds an entry twice.
fn is_duplicate(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let causes = status.details.as_ref().map(|details| &details.causes);
    causes.is_some_and(|causes| {
        // Reason FieldValueDuplicate of apimachinery's field errors.
        !causes.is_empty()
            && causes
                .iter()
                .all(|cause| cause.reason == "FieldValueDuplicate")
    })
}

/// A merge patch of what we want; the UID makes sure that it is still the same object.
fn replacement(desired: &Value, uid: &str) -> Value {
    let mut patch = desired.clone();
    if let Some(meta) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.insert("uid".to_owned(), Value::String(uid.to_owned()));
    }
    patch
}

fn not_applied(object: &DesiredObject, name: String, source: kube::Error) -> WriteError {
    WriteError {
        verb: "apply",
        object: name,
        component: component_of(&object.value).map(str::to_owned),
        source,
    }
}

fn component_of(value: &Value) -> Option<&str> {
    value
        .pointer("/metadata/labels")?
        .get(names::label::COMPONENT)?
        .as_str()
}

/// SHA-256 over the JSON text, 16 hexadecimal digits: maps are sorted, so equal values give equal hashes.
pub fn content_hash(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string().as_bytes());
    let first = digest.iter().take(8);
    let number = first.fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_a_replacement_mends_is_tried_again() {
        let refused = |code: u16, reasons: &[&str]| {
            let causes: Vec<Value> = reasons.iter().map(|r| json!({"reason": r})).collect();
            let status = json!({"code": code, "message": "", "reason": "Invalid", "details": {"causes": causes}});
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
        };
        assert!(is_duplicate(&refused(422, &["FieldValueDuplicate"])));
        let mixed = ["FieldValueDuplicate", "FieldValueInvalid"];
        assert!(!is_duplicate(&refused(422, &mixed)));
        assert!(!is_duplicate(&refused(422, &[])));
        assert!(!is_duplicate(&refused(403, &[])));
    }
}
