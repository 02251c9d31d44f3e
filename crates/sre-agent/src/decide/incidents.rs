//! Incidents: one a node and signature, from its first signal until it is gone and the node is released.

use crate::memory::{NodeMemory, Opened};
use crate::signature::Signature;
use crate::snapshot::{NodeView, OperationView};
use crate::xid::Class;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Opens incidents for signals that are up. Closing is the report's, which tells people of it.
pub(super) fn open(
    view: &NodeView,
    operation: Option<&OperationView>,
    node: &mut NodeMemory,
    now: Timestamp,
) {
    for (signature, (since, gpus)) in present(operation, node, now) {
        let opened = node.opened.entry(signature).or_insert_with(|| Opened {
            id: incident_id(&view.uid, signature, since),
            since,
            gpus: BTreeSet::new(),
            told: None,
        });
        opened.gpus.extend(gpus);
    }
}

/// What is up, since when, on which cards.
pub fn present(
    operation: Option<&OperationView>,
    node: &NodeMemory,
    now: Timestamp,
) -> BTreeMap<Signature, (Timestamp, BTreeSet<String>)> {
    let mut up: BTreeMap<Signature, (Timestamp, BTreeSet<String>)> = BTreeMap::new();
    for ((signature, gpu), track) in &node.tracks {
        if track.class(*signature) < Class::Watch {
            continue;
        }
        let (since, gpus) = up
            .entry(*signature)
            .or_insert_with(|| (track.first, BTreeSet::new()));
        *since = (*since).min(track.first);
        if !gpu.is_empty() {
            gpus.insert(gpu.clone());
        }
    }
    // What we hold a node for stays open until we let it go, even if the signal is gone.
    if let Some(held) = operation.filter(|operation| operation.is_our_work())
        && let Ok(signature) = held.target.parse::<Signature>()
    {
        up.entry(signature)
            .or_insert_with(|| (held.since.unwrap_or(now), BTreeSet::new()));
    }
    up
}

/// Stable for the life of an incident, and different for the next one of its kind: FNV-1a over node UID, signature and
/// first sight, 16 hexadecimal digits.
pub fn incident_id(node_uid: &str, signature: Signature, since: Timestamp) -> String {
    let text = format!("{node_uid}/{signature}/{}", since.as_second());
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
