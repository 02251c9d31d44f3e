//! ConfigMaps of the user that the policy names: each is watched alone, for as long as it is named.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_runtime::watch::{ObjectKey, Store, WatchContext, follow};
use tokio::sync::watch as flag;

/// The text entries of a ConfigMap.
pub type Data = BTreeMap<String, String>;

/// What is known of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapState {
    /// Not looked at yet.
    Loading,
    /// It does not exist.
    Absent,
    /// Its entries.
    Present(Arc<Data>),
}

type Stores = Arc<Mutex<BTreeMap<String, Store<Data>>>>;

/// The watches.
pub struct Referenced {
    namespace: String,
    names: flag::Sender<BTreeSet<String>>,
    stores: Stores,
}

impl Referenced {
    /// Starts with no name; the future must run as long as the process. `wake` is called when one of them changes.
    pub fn new(
        client: Client,
        context: WatchContext,
        namespace: &str,
        wake: impl Fn() + Clone + Send + Sync + 'static,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (names, receiver) = flag::channel(BTreeSet::new());
        let stores = Stores::default();
        let api = Api::namespaced(client, namespace);
        let running = run(api, context, receiver, stores.clone(), wake);
        (
            Self {
                namespace: namespace.to_owned(),
                names,
                stores,
            },
            running,
        )
    }

    /// Watches these and no others.
    pub fn watch(&self, names: BTreeSet<String>) {
        let mut stores = self.stores.lock();
        stores.retain(|name, _| names.contains(name));
        drop(stores);
        self.names.send_if_modified(|known| {
            let changed = *known != names;
            *known = names;
            changed
        });
    }

    /// What is known of one of them.
    pub fn get(&self, name: &str) -> MapState {
        let stores = self.stores.lock();
        let Some(store) = stores.get(name).filter(|store| store.is_synced()) else {
            return MapState::Loading;
        };
        let key = ObjectKey::namespaced(&self.namespace, name);
        store.get(&key).map_or(MapState::Absent, MapState::Present)
    }
}

async fn run(
    api: Api<ConfigMap>,
    context: WatchContext,
    mut names: flag::Receiver<BTreeSet<String>>,
    stores: Stores,
    wake: impl Fn() + Clone + Send + Sync + 'static,
) {
    loop {
        let wanted = names.borrow_and_update().clone();
        let watches = wanted.into_iter().map(|name| {
            one(
                api.clone(),
                context.clone(),
                name,
                stores.clone(),
                wake.clone(),
            )
        });
        let all = futures::future::join_all(watches);
        tokio::select! {
            () = context.end.cancelled() => return,
            changed = names.changed() => if changed.is_err() {
                // The reconciler is gone: the process ends.
                context.end.cancelled().await;
                return;
            },
            // Only watches that are told to end do end; with no name there is nothing to wait for but a change.
            () = async { all.await; std::future::pending::<()>().await } => {}
        }
    }
}

async fn one(
    api: Api<ConfigMap>,
    context: WatchContext,
    name: String,
    stores: Stores,
    wake: impl Fn() + Clone + Send + Sync + 'static,
) {
    let on_change = wake.clone();
    let store = Store::new("referenced ConfigMap", move |_| on_change());
    stores.lock().insert(name.clone(), store.clone());
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let synced = {
        let store = store.clone();
        async move {
            store.synced().await;
            // An absent ConfigMap is no change of the store, and still news.
            wake();
        }
    };
    let project = |map: ConfigMap| Some(map.data.unwrap_or_default());
    futures::future::join(follow(context, api, config, store, project), synced).await;
}
