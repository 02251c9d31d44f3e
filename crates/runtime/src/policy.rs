//! The ClusterPolicies that all three GPU controllers follow, and what they mean together.

use crate::process::Process;
use crate::watch::{Change, ObjectKey, Store};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use std::sync::Arc;
use tessera_api::effective::{Resolution, first};
use tessera_api::{ClusterPolicy, DefaultImages, resolve};

/// A policy as read: one that cannot be decoded stops no other.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyView {
    /// Decoded.
    Valid(Box<ClusterPolicy>),
    /// Stored before a rule existed, or by a newer version: its metadata, and why it cannot be read.
    Invalid {
        /// Its metadata.
        metadata: Box<ObjectMeta>,
        /// What the decoder says.
        error: String,
    },
}

impl PolicyView {
    /// Its metadata, which can be read in any case.
    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Valid(policy) => &policy.metadata,
            Self::Invalid { metadata, .. } => metadata,
        }
    }
}

/// The policies.
#[derive(Clone)]
pub struct Policies {
    store: Store<PolicyView>,
    images: Arc<DefaultImages>,
    resolved: Arc<Mutex<Resolved>>,
}

/// What the policies meant when they had changed so often.
type Resolved = Option<(u64, Arc<Resolution>)>;

impl Policies {
    /// Watches all policies; `wake` is called when what they ask for changes, or the status that `controller` owns
    /// (somebody may have removed it), but not when another controller reports.
    pub fn watch(
        process: &mut Process,
        images: DefaultImages,
        controller: &'static str,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let api: Api<DeserializeGuard<ClusterPolicy>> = Api::all(process.client());
        let store = Store::new("ClusterPolicy", move |change: &Change<PolicyView>| {
            if concerns(change, controller) {
                wake();
            }
        });
        process.watch_into(api, watcher::Config::default(), store.clone(), |object| {
            Some(view(object))
        });
        Self {
            store,
            images: Arc::new(images),
            resolved: Arc::default(),
        }
    }

    /// What the policies mean now. Nothing, as if there were none, while one that counts cannot be read
    /// ([`Policies::unreadable`]): without it the others would ask for something that nobody wants.
    ///
    /// Worked out once for each change of a policy: every event of a node or pod asks.
    pub fn resolve(&self) -> Arc<Resolution> {
        // Read first: what changes meanwhile makes the answer old, never new.
        let changes = self.store.changes();
        if let Some((known, resolution)) = &*self.resolved.lock()
            && *known == changes
        {
            return resolution.clone();
        }
        let resolution = Arc::new(self.resolve_anew());
        *self.resolved.lock() = Some((changes, resolution.clone()));
        resolution
    }

    fn resolve_anew(&self) -> Resolution {
        let views = self.store.values();
        if hides_a_layer(&views) {
            return Resolution::default();
        }
        let valid = views.iter().filter_map(|view| match view.as_ref() {
            PolicyView::Valid(policy) => Some(policy.as_ref()),
            PolicyView::Invalid { .. } => None,
        });
        resolve(valid, &self.images)
    }

    /// Name and reason of each policy that cannot be read.
    pub fn unreadable(&self) -> Vec<(String, String)> {
        let invalid = self
            .store
            .list()
            .into_iter()
            .filter_map(|(key, view)| match view.as_ref() {
                PolicyView::Invalid { error, .. } => Some((key.name, error.clone())),
                PolicyView::Valid(_) => None,
            });
        invalid.collect()
    }

    /// Takes over a policy that this process has just written.
    pub(crate) fn observe(&self, policy: ClusterPolicy) {
        let (key, version) = (
            ObjectKey::cluster(policy.name_any()),
            crate::watch::version(&policy),
        );
        self.store
            .observe(key, version, view(DeserializeGuard(Ok(policy))));
    }

    /// The underlying store.
    pub fn store(&self) -> &Store<PolicyView> {
        &self.store
    }
}

/// Whether the base, or the user's policy that would be the active one, is among those that cannot be read.
fn hides_a_layer(views: &[Arc<PolicyView>]) -> bool {
    [true, false].into_iter().any(|base| {
        let layer = first(views, |view| view.metadata(), base);
        layer.is_some_and(|view| matches!(view.as_ref(), PolicyView::Invalid { .. }))
    })
}

fn view(DeserializeGuard(result): DeserializeGuard<ClusterPolicy>) -> PolicyView {
    match result {
        Ok(mut policy) => {
            policy.metadata.managed_fields = None;
            policy.annotations_mut().clear();
            PolicyView::Valid(Box::new(policy))
        }
        Err(invalid) => {
            let mut metadata = Box::new(invalid.metadata);
            metadata.managed_fields = None;
            PolicyView::Invalid {
                metadata,
                error: invalid.error,
            }
        }
    }
}

/// Whether a change must be looked at by `controller`.
fn concerns(change: &Change<PolicyView>, controller: &str) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else {
        return true;
    };
    let (PolicyView::Valid(old), PolicyView::Valid(new)) = (old.as_ref(), new.as_ref()) else {
        return old != new;
    };
    let identity = |policy: &ClusterPolicy| {
        let meta = &policy.metadata;
        (
            meta.uid.clone(),
            meta.generation,
            meta.deletion_timestamp.clone(),
            meta.labels.clone(),
        )
    };
    identity(old) != identity(new)
        || crate::status::own_part(old, controller) != crate::status::own_part(new, controller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(generation: i64, status: serde_json::Value) -> Arc<PolicyView> {
        let object = json!({
            "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
            "metadata": {"name": "p", "uid": "u", "generation": generation, "resourceVersion": "1"},
            "spec": {}, "status": status,
        });
        Arc::new(view(serde_json::from_value(object).unwrap()))
    }

    fn condition(type_: &str, status: &str) -> serde_json::Value {
        json!({"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn another_controllers_report_wakes_nobody() {
        let base = policy(1, json!({"conditions": [condition("DriverReady", "True")]}));
        let cases = [
            (
                "other's condition",
                policy(
                    1,
                    json!({"conditions": [condition("DriverReady", "True"), condition("ExporterReady", "True")]}),
                ),
                false,
            ),
            ("own condition removed", policy(1, json!({})), true),
            (
                "own condition edited",
                policy(
                    1,
                    json!({"conditions": [condition("DriverReady", "False")]}),
                ),
                true,
            ),
            (
                "spec",
                policy(2, json!({"conditions": [condition("DriverReady", "True")]})),
                true,
            ),
        ];
        for (name, new, want) in cases {
            let change = Change {
                key: ObjectKey::cluster("p"),
                old: Some(base.clone()),
                new: Some(new),
            };
            assert_eq!(concerns(&change, "driver-controller"), want, "{name}");
        }
    }

    #[test]
    fn an_unreadable_layer_is_never_left_out_but_a_spare_policy_is() {
        let object = |name: &str, created: u8, base: bool, readable: bool| {
            let labels = if base {
                json!({"aiops.local/policy-role": "base"})
            } else {
                json!({})
            };
            let spec = if readable {
                json!({})
            } else {
                json!({"driver": "no object"})
            };
            let object = json!({
                "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "spec": spec,
                "metadata": {"name": name, "labels": labels,
                    "creationTimestamp": format!("2026-01-01T00:00:0{created}Z")},
            });
            Arc::new(view(serde_json::from_value(object).unwrap()))
        };
        let cases = [
            (
                "all readable",
                vec![object("b", 0, true, true), object("u", 1, false, true)],
                false,
            ),
            (
                "the base is not",
                vec![object("b", 0, true, false), object("u", 1, false, true)],
                true,
            ),
            (
                "the active one is not",
                vec![object("b", 0, true, true), object("u", 1, false, false)],
                true,
            ),
            (
                "a younger one is not",
                vec![object("u", 1, false, true), object("v", 2, false, false)],
                false,
            ),
            (
                "of two of one second, the later name is not",
                vec![object("u", 1, false, true), object("v", 1, false, false)],
                false,
            ),
            (
                "the only one is not",
                vec![object("u", 1, false, false)],
                true,
            ),
            ("none", vec![], false),
        ];
        for (name, views, want) in cases {
            assert_eq!(hides_a_layer(&views), want, "{name}");
        }
    }

    #[test]
    fn a_policy_that_cannot_be_decoded_is_kept_apart() {
        let object = json!({
            "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
            "metadata": {"name": "bad"}, "spec": {"driver": "no object"},
        });
        let PolicyView::Invalid { metadata, error } = view(serde_json::from_value(object).unwrap())
        else {
            panic!("decoded");
        };
        assert_eq!(metadata.name.as_deref(), Some("bad"));
        assert!(!error.is_empty());
    }
}
