//! A user's configuration file of the device plugin.

use serde_json::json;
use tessera_api::plugin_file::{Parsed, parse};
use tessera_api::policy::MigStrategy;

use crate::sentence;

/// Longest name of a resource that the device plugin takes.
const LONGEST_NAME: usize = 63;

/// Problems are sentences; what is to be advertised can be; and a file that says it is read back the same.
pub(crate) fn feed(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for strategy in [MigStrategy::None, MigStrategy::Single, MigStrategy::Mixed] {
        let parsed = parse(&text, strategy);
        sentence::check_all(&parsed.problems);
        sentence::check_all(&parsed.notes);
        for (name, replicas) in &parsed.shares.shared {
            assert!(*replicas >= 2, "{name} is shared {replicas} times");
            assert!(name.starts_with("nvidia.com/"), "{name}");
            assert!(name.len() <= LONGEST_NAME, "{name}");
        }
        if parsed.problems.is_empty() && !parsed.shares.shared.is_empty() {
            again(&parsed, strategy);
        }
    }
}

fn again(parsed: &Parsed, strategy: MigStrategy) {
    let shared = parsed.shares.shared.iter();
    let resources: Vec<_> = shared
        .map(|(name, replicas)| json!({"name": name, "replicas": replicas}))
        .collect();
    let stanza = json!({
        "renameByDefault": parsed.shares.renamed,
        "failRequestsGreaterThanOne": parsed.shares.one_each,
        "resources": resources,
    });
    let kind = if parsed.shares.mps {
        "mps"
    } else {
        "timeSlicing"
    };
    let file = json!({"version": "v1", "sharing": {kind: stanza}}).to_string();
    let again = parse(&file, strategy);
    let want = Parsed {
        notes: Vec::new(),
        ..parsed.clone()
    };
    assert_eq!(again, want, "{file}");
}
