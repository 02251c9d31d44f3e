//! What the API server refused as invalid, so that the same is not sent again at each event of a busy cluster.

use super::{DesiredObject, Owned, content_hash};
use crate::watch::ObjectKey;
use kube::core::Status;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so long the same is sent again: what stands in the way may have gone, and not every object is watched.
const AGAIN: Duration = Duration::from_secs(30);

struct Refusal {
    wanted: String,
    live: Option<String>,
    at: Instant,
    status: Box<Status>,
}

/// The refusals of one engine.
#[derive(Clone, Default)]
pub(super) struct Refused(Arc<Mutex<BTreeMap<(String, ObjectKey), Refusal>>>);

impl Refused {
    /// The answer to the same request a moment ago, if neither what is wanted nor what is there has changed since.
    pub(super) fn recall(
        &self,
        object: &DesiredObject,
        live: Option<&Owned>,
        now: Instant,
    ) -> Option<kube::Error> {
        let known = self.0.lock();
        let refusal = known.get(&key(object))?;
        let same = now.saturating_duration_since(refusal.at) < AGAIN
            && refusal.wanted == content_hash(&object.value)
            && refusal.live == live.map(spec_hash);
        same.then(|| kube::Error::Api(refusal.status.clone()))
    }

    /// Takes over the answer to a request; `None`: it was accepted.
    pub(super) fn learn(
        &self,
        object: &DesiredObject,
        live: Option<&Owned>,
        error: Option<&kube::Error>,
        now: Instant,
    ) {
        let mut known = self.0.lock();
        match error {
            Some(kube::Error::Api(status)) if status.code == 422 => {
                let refusal = Refusal {
                    wanted: content_hash(&object.value),
                    live: live.map(spec_hash),
                    at: now,
                    status: status.clone(),
                };
                known.insert(key(object), refusal);
            }
            _ => {
                known.remove(&key(object));
            }
        }
    }
}

fn key(object: &DesiredObject) -> (String, ObjectKey) {
    (object.resource.kind.clone(), object.key.clone())
}

/// Of all but the status, which changes with every pod.
fn spec_hash(live: &Owned) -> String {
    let mut value = live.value.clone();
    if let Value::Object(map) = &mut value {
        map.remove("status");
    }
    content_hash(&value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ApiResource;
    use serde_json::json;

    fn wanted(data: &str) -> DesiredObject {
        DesiredObject {
            resource: ApiResource::erase::<ConfigMap>(&()),
            key: ObjectKey::namespaced("ns", "x"),
            value: json!({"data": {"a": data}}),
        }
    }

    fn live(spec: u8, status: u8) -> Owned {
        Owned {
            uid: "u".to_owned(),
            deleting: false,
            value: json!({"spec": spec, "status": status}),
        }
    }

    #[test]
    fn a_refusal_holds_until_something_changes_or_a_while_has_passed() {
        let (refused, now) = (Refused::default(), Instant::now());
        let answer =
            |code| kube::Error::Api(Status::failure("no", "Invalid").with_code(code).boxed());
        let recalled = |data, live: Option<&Owned>, after: u64| {
            let at = now + Duration::from_secs(after);
            refused.recall(&wanted(data), live, at).is_some()
        };
        assert!(!recalled("1", Some(&live(1, 1)), 0));
        refused.learn(&wanted("1"), Some(&live(1, 1)), Some(&answer(422)), now);
        assert!(
            recalled("1", Some(&live(1, 2)), 29),
            "only its status changed"
        );
        assert!(!recalled("2", Some(&live(1, 1)), 1), "another wish");
        assert!(!recalled("1", Some(&live(2, 1)), 1), "another object");
        assert!(!recalled("1", None, 1), "it has gone");
        assert!(!recalled("1", Some(&live(1, 1)), 30), "a while has passed");
        for other in [Some(answer(409)), None] {
            refused.learn(&wanted("1"), None, Some(&answer(422)), now);
            refused.learn(&wanted("1"), None, other.as_ref(), now);
            assert!(!recalled("1", None, 1));
        }
    }
}
