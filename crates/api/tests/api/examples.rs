//! The example objects that end-to-end tests bring to a real API server: here, what the types make of them.

use std::{fs, path::Path};

use serde_json::Value;
use tessera_api::{ClusterPolicy, DefaultImages, SREAgent, resolve};

fn files(directory: &str) -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(directory);
    let entries = fs::read_dir(directory)
        .expect("the directory")
        .map(|entry| entry.expect("an entry").path());
    let yaml = entries.filter(|path| path.extension().is_some_and(|e| e == "yaml"));
    yaml.map(|path| {
        (
            path.display().to_string(),
            fs::read_to_string(&path).expect("text"),
        )
    })
    .collect()
}

#[test]
fn accepted_objects_decode_and_have_no_problem() {
    for (file, text) in files("accepted") {
        let value: Value = serde_saphyr::from_str(&text).expect(&file);
        if value.get("kind").and_then(Value::as_str) == Some("SREAgent") {
            serde_json::from_value::<SREAgent>(value).expect(&file);
            continue;
        }
        let policy: ClusterPolicy = serde_json::from_value(value).expect(&file);
        let active = resolve([&policy], &DefaultImages::builtin())
            .active
            .expect(&file);
        assert_eq!(active.effective.problems, [], "{file}");
    }
}

#[test]
fn refused_objects_say_what_the_user_must_see() {
    let found = files("refused");
    assert!(found.len() > 30);
    for (file, text) in found {
        assert!(
            text.lines()
                .next()
                .is_some_and(|line| line.starts_with("# refused: ") && line.len() > 20),
            "{file}"
        );
    }
}

/// What the schema refuses, but an older one let in, must still resolve, and never silently.
#[test]
fn refused_policies_resolve_with_a_problem() {
    let mut decoded = 0;
    for (file, text) in files("refused") {
        let value: Value = serde_saphyr::from_str(&text).expect(&file);
        if value.get("kind").and_then(Value::as_str) != Some("ClusterPolicy") {
            continue;
        }
        // A value of the wrong type cannot be decoded at all; the runtime reports such an object by name.
        let Ok(policy) = serde_json::from_value::<ClusterPolicy>(value) else {
            assert!(file.contains("not-a-number"), "{file}");
            continue;
        };
        let active = resolve([&policy], &DefaultImages::builtin())
            .active
            .expect(&file);
        assert_ne!(active.effective.problems, [], "{file}");
        decoded += 1;
    }
    assert!(decoded > 25);
}
