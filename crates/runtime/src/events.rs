//! Kubernetes events. Losing one never fails anything.

use crate::error::head;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How many notes are remembered, so that their repeats are counted.
const NOTES: usize = 128;

/// Publishes events as one reporter, repeats counted by the library.
///
/// The library counts an event as a repeat whatever its note says and keeps the first note. Ours differ in nothing but
/// the note (another fault of the same node), so each note has a recorder of its own.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    recorders: Arc<Mutex<BTreeMap<String, Recorder>>>,
    limit: Duration,
}

impl Events {
    /// As controller `controller`, pod `instance`.
    pub fn new(client: Client, controller: &str, instance: &str, limit: Duration) -> Self {
        let reporter = Reporter {
            controller: controller.to_owned(),
            instance: Some(instance.to_owned()),
        };
        Self {
            client,
            reporter,
            recorders: Arc::default(),
            limit,
        }
    }

    fn recorder(&self, note: &str) -> Recorder {
        let mut recorders = self.recorders.lock();
        if recorders.len() >= NOTES && !recorders.contains_key(note) {
            recorders.clear();
        }
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        recorders.entry(note.to_owned()).or_insert_with(new).clone()
    }

    /// Something went as it should.
    pub async fn normal(&self, about: &ObjectReference, reason: &str, action: &str, note: &str) {
        self.publish(EventType::Normal, about, reason, action, note)
            .await;
    }

    /// Somebody should look.
    pub async fn warning(&self, about: &ObjectReference, reason: &str, action: &str, note: &str) {
        self.publish(EventType::Warning, about, reason, action, note)
            .await;
    }

    async fn publish(
        &self,
        type_: EventType,
        about: &ObjectReference,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            // The API refuses notes of more than 1,024 bytes.
            note: Some(head(note, 1000).to_owned()),
            action: action.to_owned(),
            secondary: None,
        };
        let sent =
            crate::clients::within(self.limit, self.recorder(note).publish(&event, about)).await;
        if let Err(error) = sent {
            tracing::debug!(error = %crate::error::sentence(&error), reason, "event lost");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn long_notes_are_cut_at_a_character() {
        assert_eq!(super::head("äöü", 3), "ä");
        assert_eq!(super::head("abc", 3), "abc");
    }
}
