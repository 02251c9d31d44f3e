//! The projections of all objects of one watch.

use kube::ResourceExt;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch as flag;

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

    pub(super) fn of(object: &impl ResourceExt) -> Self {
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
    /// The list under way, if this process wrote the object since it began; else 0.
    written_during: u64,
}

struct Inner<T> {
    kind: String,
    entries: RwLock<BTreeMap<ObjectKey, Entry<T>>>,
    /// How often something has changed.
    changes: AtomicU64,
    /// Number of the newest list, counted from 1.
    lists: AtomicU64,
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
            changes: AtomicU64::new(0),
            lists: AtomicU64::new(0),
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

    /// How often a projection has come, changed or gone: what was worked out from the store holds while this is the same.
    pub fn changes(&self) -> u64 {
        self.inner.changes.load(Ordering::Acquire)
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
        self.put(key.clone(), version, Some(value));
        let list = self.inner.lists.load(Ordering::Relaxed);
        if let Some(entry) = self.inner.entries.write().get_mut(&key) {
            entry.written_during = list;
        }
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
        self.inner.changes.fetch_add(1, Ordering::Release);
        for (key, entry) in old {
            (self.inner.on_change)(&Change {
                key,
                old: Some(entry.value),
                new: None,
            });
        }
    }

    /// The watch works (again).
    pub(super) fn works(&self) {
        *self.inner.trouble.write() = None;
    }

    /// The watch does not work; whether that is news.
    pub(super) fn fails(&self, why: &str) -> bool {
        let told = self.inner.trouble.write().replace(why.to_owned());
        told.as_deref() != Some(why)
    }

    /// A list begins, which ends with [`Store::replace`].
    pub(super) fn begin_list(&self) {
        self.inner.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn put(&self, key: ObjectKey, version: u64, value: Option<T>) {
        let mut entries = self.inner.entries.write();
        let known = entries.get(&key);
        if known.is_some_and(|entry| entry.version > version) {
            return;
        }
        let old = known.map(|entry| entry.value.clone());
        let Some(value) = value else {
            entries.remove(&key);
            self.inner.changes.fetch_add(1, Ordering::Release);
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
            entry.written_during = 0;
            return;
        }
        let value = Arc::new(value);
        entries.insert(
            key.clone(),
            Entry {
                version,
                value: value.clone(),
                written_during: 0,
            },
        );
        self.inner.changes.fetch_add(1, Ordering::Release);
        drop(entries);
        (self.inner.on_change)(&Change {
            key,
            old,
            new: Some(value),
        });
    }

    /// Takes over a complete list. What it lacks is gone, but for what this process wrote after the list was made.
    pub(super) fn replace(&self, list: BTreeMap<ObjectKey, (u64, T)>) {
        let newest = list.values().map(|(version, _)| *version).max();
        let number = self.inner.lists.load(Ordering::Relaxed);
        let is_younger = |entry: &Entry<T>| {
            entry.written_during == number && newest.is_none_or(|newest| entry.version > newest)
        };
        let gone: Vec<(ObjectKey, u64)> = {
            let entries = self.inner.entries.read();
            let missing = entries
                .iter()
                .filter(|(key, entry)| !list.contains_key(*key) && !is_younger(entry));
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
        store.begin_list();
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

    #[test]
    fn a_list_removes_even_the_newest_object_that_went_while_the_watch_was_broken() {
        let (store, seen) = store();
        store.put(key("a"), 5, Some(1));
        store.observe(key("b"), 10, 2);
        seen.lock().clear();
        store.begin_list();
        store.replace(BTreeMap::from([(key("a"), (5, 1))]));
        assert_eq!(*seen.lock(), [("b".to_owned(), None)]);
        store.begin_list();
        store.replace(BTreeMap::new());
        assert!(store.is_empty());
    }
}
