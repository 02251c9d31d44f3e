//! Patches, marks and the rhythm of looks.

use super::*;

fn facts(mark: Option<&str>) -> NodeFacts {
    let mut node = NodeFacts {
        name: "n".into(),
        uid: "u".into(),
        resource_version: "7".into(),
        ..NodeFacts::default()
    };
    node.annotations
        .extend(mark.map(|mark| (annotation::CORDONED_BY.to_owned(), mark.to_owned())));
    node
}

#[test]
fn a_patch_is_guarded_and_removes_by_null() {
    let built = patch(
        &facts(None),
        Some(false),
        &[("l", Some("v"))],
        &[("a", None)],
    );
    let expected = json!({
        "metadata": {"uid": "u", "resourceVersion": "7", "labels": {"l": "v"}, "annotations": {"a": null}},
        "spec": {"unschedulable": null},
    });
    assert_eq!(built, expected);
    assert_eq!(patch(&facts(None), None, &[], &[]).get("spec"), None);
}

#[test]
fn only_the_own_mark_is_ours() {
    assert!(is_marked(
        &facts(Some("DriverUpgrade")),
        OperationKind::DriverUpgrade
    ));
    assert!(!is_marked(
        &facts(Some("Repair")),
        OperationKind::DriverUpgrade
    ));
    assert!(!is_marked(&facts(None), OperationKind::DriverUpgrade));
}

#[test]
fn looks_come_ever_more_seldom() {
    let longest = Duration::from_secs(30);
    let after = |seconds| look_again(Duration::from_secs(seconds), longest).as_secs();
    assert_eq!(
        [after(0), after(2), after(4), after(8), after(300)],
        [2, 2, 4, 8, 30]
    );
}
