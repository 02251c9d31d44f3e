//! Which of our operands' pods are not ready, kept up to date pod by pod.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_runtime::operands::pod::PodFacts;
use tessera_runtime::watch::{Change, ObjectKey};

/// The pods that are not ready; clones share them.
#[derive(Clone, Default)]
pub struct TroubledPods {
    pods: Arc<Mutex<BTreeMap<ObjectKey, Arc<PodFacts>>>>,
}

impl TroubledPods {
    /// Takes over a change of one pod. True when something is now to be said differently.
    pub fn changed(&self, change: &Change<PodFacts>) -> bool {
        let mut pods = self.pods.lock();
        let old = match change.new.as_ref().filter(|pod| pod.trouble.is_some()) {
            Some(pod) => pods.insert(change.key.clone(), pod.clone()),
            None => pods.remove(&change.key),
        };
        let new = pods.get(&change.key);
        let said = |pod: &Arc<PodFacts>| (pod.app.clone(), pod.node.clone(), pod.trouble.clone());
        old.as_ref().map(said) != new.map(said)
    }

    /// All of them.
    pub fn list(&self) -> Vec<Arc<PodFacts>> {
        self.pods.lock().values().cloned().collect()
    }
}
