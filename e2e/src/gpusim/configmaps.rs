//! ConfigMaps that operands mount: read when they are needed, one request for all nodes that need the same one at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::sync::Mutex;

/// How long an answer is good: nodes start together, edits by people are further apart.
const FRESH: Duration = Duration::from_millis(500);

type Data = Arc<BTreeMap<String, String>>;
/// By namespace and name: when it was read and what was there.
type Entries = HashMap<(String, String), (Instant, Option<Data>)>;

/// The cache.
pub(super) struct Cache {
    client: Client,
    entries: Mutex<Entries>,
}

impl Cache {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            entries: Mutex::new(HashMap::new()),
        }
    }

    /// The text entries of a ConfigMap; `None` when there is none (or the API server does not answer).
    pub(super) async fn get(&self, namespace: &str, name: &str) -> Option<Data> {
        let key = (namespace.to_owned(), name.to_owned());
        // Held while asking, so that others wait for the same answer.
        let mut entries = self.entries.lock().await;
        if let Some((at, data)) = entries.get(&key)
            && at.elapsed() < FRESH
        {
            return data.clone();
        }
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let data = api
            .get_opt(name)
            .await
            .ok()?
            .map(|map| Arc::new(map.data.unwrap_or_default()));
        entries.insert(key, (Instant::now(), data.clone()));
        data
    }
}
