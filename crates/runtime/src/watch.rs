//! Watches that keep a projection of each object, and wake somebody only when the projection changes.
//!
//! The projection replaces caches of whole objects and event predicates alike: what no decision reads is cut off
//! as the object is decoded, and an event that changes nothing we read wakes nobody.
//!
//! A store also learns from our own writes ([`Store::observe`]), so that the next reconcile never decides on a copy
//! that is older than what this process has written itself.

mod part;
mod store;

pub use part::{InPart, Part};
pub use store::{Change, ObjectKey, Store};

use crate::health::Health;
use crate::metrics::Metrics;
use futures::{StreamExt, TryStreamExt};
use kube::core::Resource;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_stream};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A resource version as a number: ordered since Kubernetes made that promise (KEP-5504), and so in practice before.
pub fn version(object: &impl ResourceExt) -> u64 {
    object
        .resource_version()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// What a watch needs of its process.
#[derive(Clone)]
pub struct WatchContext {
    /// For restart counters.
    pub metrics: Arc<Metrics>,
    /// Not ready until each store is filled.
    pub health: Health,
    /// Ends the watch.
    pub end: CancellationToken,
    /// Whether the API server lists through the watch (Kubernetes 1.32 and later); set to false when it refuses.
    pub streaming: Arc<std::sync::atomic::AtomicBool>,
}

/// Follows `api` until the process ends, keeping `project` of each object in `store`. Objects for which it returns
/// `None` are treated as absent. Never returns early: a broken watch is started again with growing pauses.
pub async fn follow<K, T>(
    context: WatchContext,
    api: Api<K>,
    config: watcher::Config,
    store: Store<T>,
    project: impl Fn(K) -> Option<T> + Send + 'static,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    T: PartialEq + Send + Sync + 'static,
{
    use std::sync::atomic::Ordering;
    let part = format!("store {}", store.kind());
    context
        .health
        .not_ready(&part, "the first list is not complete");
    loop {
        let streaming = context.streaming.load(Ordering::Relaxed);
        let config = if streaming {
            config.clone().streaming_lists()
        } else {
            config.clone().page_size(1000)
        };
        let mut stream = watch_stream(api.clone(), config).default_backoff().boxed();
        let mut list = BTreeMap::new();
        loop {
            let event = tokio::select! {
                () = context.end.cancelled() => return,
                event = stream.try_next() => event,
            };
            match event {
                Ok(Some(event)) => {
                    handle(event, &store, &project, &mut list);
                    if store.is_synced() {
                        context.health.ready(&part);
                        store.works();
                    }
                    context.metrics.set_stored(store.kind(), store.len());
                }
                Ok(None) => break,
                Err(error) => {
                    context.metrics.watch_error(store.kind());
                    let text = explain(store.kind(), &error);
                    if streaming && refuses_streaming(&error) {
                        tracing::info!(
                            "this API server cannot list through a watch; listing in pages instead"
                        );
                        context.streaming.store(false, Ordering::Relaxed);
                        break;
                    }
                    if store.fails(&text) && !is_routine(&error) {
                        tracing::warn!(kind = store.kind(), "{text}");
                    }
                    if !store.is_synced() {
                        context.health.not_ready(&part, text);
                    }
                }
            }
        }
    }
}

fn handle<K, T>(
    event: Event<K>,
    store: &Store<T>,
    project: &impl Fn(K) -> Option<T>,
    list: &mut BTreeMap<ObjectKey, (u64, T)>,
) where
    K: Resource + Clone,
    T: PartialEq,
{
    match event {
        Event::Init => {
            list.clear();
            store.begin_list();
        }
        Event::InitApply(object) => {
            let (key, version) = (ObjectKey::of(&object), version(&object));
            if let Some(value) = project(object) {
                list.insert(key, (version, value));
            }
        }
        Event::InitDone => store.replace(std::mem::take(list)),
        Event::Apply(object) => {
            let (key, version) = (ObjectKey::of(&object), version(&object));
            store.put(key, version, project(object));
        }
        Event::Delete(object) => store.put(ObjectKey::of(&object), version(&object), None),
    }
}

fn refuses_streaming(error: &watcher::Error) -> bool {
    let (watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::InitialListFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.code == 422 || (status.code == 400 && status.message.contains("sendInitialEvents"))
}

/// Ends that every long-lived watch meets now and then.
fn is_routine(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchError(status) if status.code == 410)
        || matches!(error, watcher::Error::WatchFailed(_))
}

pub(crate) fn explain(kind: &str, error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(inner) | watcher::Error::WatchStartFailed(inner)
            if crate::error::is_not_found(inner) =>
        {
            format!(
                "cannot watch {kind}: the cluster does not know this kind; install its CustomResourceDefinition"
            )
        }
        watcher::Error::InitialListFailed(inner) | watcher::Error::WatchStartFailed(inner) => {
            format!("cannot watch {kind}: {}", crate::error::sentence(inner))
        }
        watcher::Error::WatchError(status) => {
            format!("the watch of {kind} was ended: {}", status.message)
        }
        watcher::Error::WatchFailed(inner) => format!(
            "the watch of {kind} broke: {}",
            crate::error::sentence(inner)
        ),
        watcher::Error::NoResourceVersion => {
            format!("{kind} cannot be watched: no resource version in the answer")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_not_installed_is_told_with_the_remedy() {
        let status = kube::core::Status::failure("404 page not found", "").with_code(404);
        let error = watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()));
        let text = explain("ClusterPolicy", &error);
        assert!(
            text.contains("install its CustomResourceDefinition"),
            "{text}"
        );
    }
}
