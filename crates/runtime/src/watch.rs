//! Watches that keep a projection of each object, and wake somebody only when the projection changes.
//!
//! The projection replaces caches of whole objects and event predicates alike: what no decision reads is cut off
//! as the object is decoded, and an event that changes nothing we read wakes nobody.
//!
//! A store also learns from our own writes ([`Store::observe`]), so that the next reconcile never decides on a copy
//! that is older than what this process has written itself.

use crate::health::Health;
use crate::metrics::Metrics;
use futures::{StreamExt, TryStreamExt};
use kube::core::Resource;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_stream};
use kube::{Api, ResourceExt};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::watch as flag;
use tokio_util::sync::CancellationToken;

/// Namespace (empty for cluster-scoped objects) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Of a cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self {
            namespace: String::new(),
            name: name.into(),
        }
    }

    /// Of an object in a namespace.
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn of(object: &impl ResourceExt) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One change of a projection.
#[derive(Debug)]
pub struct Change<T> {
    /// Which object.
    pub key: ObjectKey,
    /// What was known before.
    pub old: Option<Arc<T>>,
    /// What is known now; `None` when the object is gone.
    pub new: Option<Arc<T>>,
}

type OnChange<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;

struct Entry<T> {
    version: u64,
    value: Arc<T>,
}

struct Inner<T> {
    kind: String,
    entries: RwLock<BTreeMap<ObjectKey, Entry<T>>>,
    synced: flag::Sender<bool>,
    trouble: RwLock<Option<String>>,
    on_change: OnChange<T>,
}

/// The projections of all objects of one watch.
pub struct Store<T> {
    inner: Arc<Inner<T>>,
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<T: PartialEq> Store<T> {
    /// An empty store; `on_change` is called for each change, outside of the lock.
    pub fn new(kind: &str, on_change: impl Fn(&Change<T>) + Send + Sync + 'static) -> Self {
        let inner = Inner {
            kind: kind.to_owned(),
            entries: RwLock::new(BTreeMap::new()),
            synced: flag::channel(false).0,
            trouble: RwLock::new(None),
            on_change: Box::new(on_change),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The kind that this store holds.
    pub fn kind(&self) -> &str {
        &self.inner.kind
    }

    /// One projection.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.inner
            .entries
            .read()
            .get(key)
            .map(|entry| entry.value.clone())
    }

    /// One cluster-scoped object's projection.
    pub fn get_cluster(&self, name: &str) -> Option<Arc<T>> {
        self.get(&ObjectKey::cluster(name))
    }

    /// All projections in the order of their keys.
    pub fn list(&self) -> Vec<(ObjectKey, Arc<T>)> {
        let entries = self.inner.entries.read();
        entries
            .iter()
            .map(|(key, entry)| (key.clone(), entry.value.clone()))
            .collect()
    }

    /// All values in the order of their keys.
    pub fn values(&self) -> Vec<Arc<T>> {
        self.inner
            .entries
            .read()
            .values()
            .map(|entry| entry.value.clone())
            .collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.inner.entries.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        let mut receiver = self.inner.synced.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|synced| *synced).await;
    }

    /// Why the watch does not work just now, in a sentence; `None` while it does.
    pub fn trouble(&self) -> Option<String> {
        self.inner.trouble.read().clone()
    }

    /// Takes over an object that this process has just written and got back, unless the store knows a newer one.
    pub fn observe(&self, key: ObjectKey, version: u64, value: T) {
        self.put(key, version, Some(value));
    }

    /// Drops an object that this process has just deleted; the watch brings it back if its deletion takes time.
    pub fn forget(&self, key: &ObjectKey) {
        let version = self
            .inner
            .entries
            .read()
            .get(key)
            .map(|entry| entry.version);
        if let Some(version) = version {
            self.put(key.clone(), version, None);
        }
    }

    /// Empties the store, for a kind that is gone; not synced any more.
    pub fn reset(&self) {
        self.inner.synced.send_replace(false);
        let old = std::mem::take(&mut *self.inner.entries.write());
        for (key, entry) in old {
            (self.inner.on_change)(&Change {
                key,
                old: Some(entry.value),
                new: None,
            });
        }
    }

    fn put(&self, key: ObjectKey, version: u64, value: Option<T>) {
        let mut entries = self.inner.entries.write();
        let known = entries.get(&key);
        if known.is_some_and(|entry| entry.version > version) {
            return;
        }
        let old = known.map(|entry| entry.value.clone());
        let Some(value) = value else {
            entries.remove(&key);
            drop(entries);
            if old.is_some() {
                (self.inner.on_change)(&Change {
                    key,
                    old,
                    new: None,
                });
            }
            return;
        };
        if let Some(entry) = entries.get_mut(&key)
            && *entry.value == value
        {
            entry.version = version;
            return;
        }
        let value = Arc::new(value);
        entries.insert(
            key.clone(),
            Entry {
                version,
                value: value.clone(),
            },
        );
        drop(entries);
        (self.inner.on_change)(&Change {
            key,
            old,
            new: Some(value),
        });
    }

    /// Takes over a complete list. Objects that we wrote after the list was made stay.
    fn replace(&self, list: BTreeMap<ObjectKey, (u64, T)>) {
        let newest = list
            .values()
            .map(|(version, _)| *version)
            .max()
            .unwrap_or(0);
        let gone: Vec<(ObjectKey, u64)> = {
            let entries = self.inner.entries.read();
            let missing = entries
                .iter()
                .filter(|(key, entry)| !list.contains_key(*key) && entry.version <= newest);
            missing
                .map(|(key, entry)| (key.clone(), entry.version))
                .collect()
        };
        for (key, version) in gone {
            self.put(key, version, None);
        }
        for (key, (version, value)) in list {
            self.put(key, version, Some(value));
        }
        self.inner.synced.send_replace(true);
    }
}

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
                        *store.inner.trouble.write() = None;
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
                    let told = store.inner.trouble.write().replace(text.clone());
                    if told.as_ref() != Some(&text) && !is_routine(&error) {
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
        Event::Init => list.clear(),
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
    use parking_lot::Mutex;

    type Seen = Arc<Mutex<Vec<(String, Option<u8>)>>>;

    fn store() -> (Store<u8>, Seen) {
        let seen = Seen::default();
        let log = seen.clone();
        let store = Store::new("Test", move |change: &Change<u8>| {
            log.lock()
                .push((change.key.name.clone(), change.new.as_deref().copied()));
        });
        (store, seen)
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::cluster(name)
    }

    #[test]
    fn equal_projections_wake_nobody() {
        let (store, seen) = store();
        store.put(key("a"), 1, Some(7));
        store.put(key("a"), 2, Some(7));
        store.put(key("a"), 3, Some(8));
        store.put(key("b"), 3, None);
        assert_eq!(
            *seen.lock(),
            [("a".to_owned(), Some(7)), ("a".to_owned(), Some(8))]
        );
    }

    #[test]
    fn an_older_event_does_not_undo_our_own_write() {
        let (store, _) = store();
        store.observe(key("a"), 10, 9);
        store.put(key("a"), 9, Some(1));
        store.put(key("a"), 9, None);
        assert_eq!(store.get_cluster("a").as_deref(), Some(&9));
    }

    #[test]
    fn a_list_removes_what_it_lacks_but_not_what_is_newer() {
        let (store, seen) = store();
        store.put(key("old"), 1, Some(1));
        store.observe(key("ours"), 99, 2);
        seen.lock().clear();
        store.replace(BTreeMap::from([(key("new"), (50, 3))]));
        assert!(store.get_cluster("old").is_none());
        assert_eq!(store.get_cluster("ours").as_deref(), Some(&2));
        assert_eq!(
            *seen.lock(),
            [("old".to_owned(), None), ("new".to_owned(), Some(3))]
        );
        assert!(store.is_synced());
    }
}
