//! Only what changed is judged, and an object that goes is left alone.

use std::sync::Arc;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use proptest::prelude::*;
use tessera_api::{ClusterPolicy, judge};

use super::{facts, t4, texts, with_map};
use crate::{base, policy};

const BAD: &str = "
driver: {image: 'r.example/driver:1', version: '2'}
mig: {strategy: single}
devicePlugin: {config: {sharing: {timeSlicing: {memoryLimit: 99Gi, resources: [{name: amd.com/gpu, replicas: 4}, {name: gpu, replicas: 100}, {name: gpu, replicas: 20}]}}}}
dcgmExporter: {serviceMonitor: {interval: 10s, scrapeTimeout: 20s}}
psp: {enabled: true}
";

fn bad() -> ClusterPolicy {
    policy("mine", 1, BAD)
}

fn edited(edit: impl FnOnce(&mut serde_json::Value)) -> ClusterPolicy {
    let mut value = serde_json::to_value(bad()).expect("JSON");
    edit(&mut value);
    serde_json::from_value(value).expect("a policy")
}

#[test]
fn all_findings_come_at_once_and_refusals_first() {
    let found = texts(&bad(), None, &facts(&[t4("a")]));
    let paths: Vec<&str> = found
        .iter()
        .filter_map(|text| text.split(": ").nth(1))
        .collect();
    let sharing = "spec.devicePlugin.config.sharing";
    let slicing = format!("{sharing}.timeSlicing");
    assert_eq!(
        paths,
        [
            "spec.dcgmExporter.serviceMonitor.scrapeTimeout",
            sharing,
            &format!("{slicing}.memoryLimit"),
            &format!("{slicing}.resources[0].name"),
            &format!("{slicing}.resources[1].replicas"),
            "spec.driver.image",
            &format!("{slicing}.resources[1].replicas"),
            &format!("{slicing}.resources[2].replicas"),
            "spec.psp",
        ],
        "{found:#?}"
    );
    assert!(
        found[5].starts_with("refuse") && found[6].starts_with("warn"),
        "{found:#?}"
    );
}

/// Trap 6: what has become invalid can still be labelled, finalised and edited elsewhere.
#[test]
fn unrelated_edits_of_an_invalid_policy_pass() {
    let none: Vec<String> = Vec::new();
    let known = facts(&[t4("a")]);
    let edits: [fn(&mut serde_json::Value); 4] = [
        |value| value["metadata"]["labels"]["team"] = "ml".into(),
        |value| value["metadata"]["finalizers"] = serde_json::json!([]),
        |value| value["spec"]["gfd"]["enabled"] = false.into(),
        |value| value["spec"]["driver"]["enabled"] = false.into(),
    ];
    for edit in edits {
        assert_eq!(texts(&edited(edit), Some(&bad()), &known), none);
    }
    let paths = |edit: fn(&mut serde_json::Value)| -> Vec<String> {
        judge::policy(&edited(edit), Some(&bad()), &known)
            .into_iter()
            .map(|finding| finding.path)
            .collect()
    };
    assert_eq!(
        paths(|value| value["spec"]["driver"]["version"] = "3".into()),
        ["spec.driver.image"]
    );
    assert_eq!(
        paths(|value| value["spec"]["dcgmExporter"]["serviceMonitor"]["interval"] = "11s".into()),
        ["spec.dcgmExporter.serviceMonitor.scrapeTimeout"]
    );
    let fixed = paths(|value| {
        value["spec"]["devicePlugin"]["config"]["sharing"]["timeSlicing"]["resources"][1]["replicas"] =
            4.into();
    });
    assert!(
        !fixed.contains(&"spec.driver.image".to_owned()) && !fixed.contains(&"spec.psp".to_owned()),
        "{fixed:?}"
    );
}

#[test]
fn an_object_that_is_being_deleted_passes() {
    let mut gone = bad();
    gone.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1).expect("a time")));
    assert_eq!(texts(&gone, None, &facts(&[t4("a")])), Vec::<String>::new());
    assert_eq!(
        texts(&gone, Some(&policy("mine", 1, "{}")), &facts(&[])),
        Vec::<String>::new()
    );
}

#[test]
fn a_policy_is_judged_over_its_base() {
    let mut known = facts(&[]);
    known.policies = vec![Arc::new(base(
        "devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}}}\ndriver: {image: 'r.example/d:1', version: '2'}",
    ))];
    let found = texts(&policy("mine", 1, "mig: {strategy: mixed}"), None, &known);
    assert_eq!(
        found.len(),
        1,
        "the base's own mistake is not the user's: {found:#?}"
    );
    assert!(
        found[0].starts_with("refuse: spec.devicePlugin.config.sharing: ")
            && found[0].contains("while mig.strategy is mixed"),
        "{found:#?}"
    );
    let same = policy(
        "mine",
        1,
        "mig: {strategy: mixed}\ndriver: {repository: r.example}",
    );
    let found = texts(
        &same,
        Some(&policy("mine", 1, "mig: {strategy: mixed}")),
        &known,
    );
    assert!(
        found.len() == 1 && found[0].contains("spec.driver.image"),
        "{found:#?}"
    );
}

#[test]
fn both_dialects_are_compared_by_what_they_mean() {
    let bad = policy(
        "mine",
        1,
        "containerRuntime: {cdi: {enabled: false}}\ncdi: {nriPluginEnabled: true}",
    );
    let found = texts(
        &bad,
        Some(&policy("mine", 1, "cdi: {nriPluginEnabled: true}")),
        &facts(&[]),
    );
    assert!(
        found.len() == 1 && found[0].starts_with("refuse: spec.cdi.nriPluginEnabled: "),
        "{found:#?}"
    );
    assert_eq!(texts(&bad, Some(&bad), &facts(&[])), Vec::<String>::new());
}

#[test]
fn a_change_of_the_advertised_name_is_told_only_when_it_changes() {
    let spec = |renamed: bool| {
        policy(
            "mine",
            1,
            &format!(
                "devicePlugin: {{config: {{sharing: {{timeSlicing: {{renameByDefault: {renamed}, resources: [{{name: gpu, replicas: 4}}]}}}}}}}}"
            ),
        )
    };
    assert_eq!(texts(&spec(true), None, &facts(&[])), Vec::<String>::new());
    let found = texts(&spec(true), Some(&spec(false)), &facts(&[]));
    assert!(found.len() == 1 && found[0].starts_with("warn: spec.devicePlugin.config.sharing.timeSlicing.renameByDefault: `true` changes the name"), "{found:#?}");
}

#[test]
fn a_second_policy_is_told_which_one_is_active() {
    let mut known = facts(&[]);
    known.policies = [
        base("{}"),
        policy("older", 500, "{}"),
        policy("oldest", 600, "{}"),
    ]
    .map(Arc::new)
    .to_vec();
    let found = texts(&policy("mine", 1, "{}"), None, &known);
    assert_eq!(
        found,
        [
            "warn: metadata.name: `mine` is a second policy, and the older one, oldest, stays active: this one has no effect; change that one, or delete \
          it: then this one takes over by itself"
        ]
    );
    assert_eq!(
        texts(
            &policy("mine", 1, "{}"),
            Some(&policy("mine", 1, "{}")),
            &known
        ),
        Vec::<String>::new()
    );
    known.policies.retain(|policy| policy.is_base());
    assert_eq!(
        texts(&policy("mine", 1, "{}"), None, &known),
        Vec::<String>::new()
    );
}

fn spec() -> impl Strategy<Value = ClusterPolicy> {
    let lines = proptest::sample::subsequence(crate::properties::LINES.to_vec(), 0..6);
    lines.prop_map(|lines| policy("mine", 1, &crate::properties::object(&lines).to_string()))
}

proptest! {
    #[test]
    fn a_policy_against_itself_gives_nothing_and_any_policy_the_same_twice(new in spec(), old in spec()) {
        let mut known = with_map(facts(&[t4("a")]), "map", &[("a", "shareing: {}")]);
        known.policies = vec![Arc::new(base(BAD))];
        prop_assert_eq!(texts(&new, Some(&new), &known), Vec::<String>::new());
        prop_assert_eq!(texts(&new, Some(&old), &known), texts(&new, Some(&old), &known));
        known.policies.clear();
        let all = judge::policy(&new, None, &known);
        for finding in judge::policy(&new, Some(&old), &known) {
            prop_assert!(finding.path.starts_with("spec.") && !finding.why.is_empty(), "{finding:?}");
            prop_assert!(all.contains(&finding), "an edit is told nothing that its result alone would not be told: {finding}");
        }
    }
}
