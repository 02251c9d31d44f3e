use serde_json::{Value, json};

use super::*;
use crate::audit::Request;

const OWN: &str = "system:serviceaccount:gpu-operator:some-controller";

fn request(user: &str, verb: &str, resource: &str, namespace: &str, name: &str) -> Request {
    Request {
        at: jiff::Timestamp::UNIX_EPOCH,
        user: user.to_owned(),
        verb: verb.to_owned(),
        group: String::new(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        code: 200,
        uri: String::new(),
        agent: String::new(),
        bound_role: None,
        changes: Vec::new(),
    }
}

/// A Role or ClusterRole of one rule, and its binding.
fn role(kind: &str, component: &str, account: &str, rule: Value) -> Vec<Value> {
    let metadata =
        json!({"name": "some-role", "labels": {"app.kubernetes.io/component": component}});
    let mut rule = rule;
    if rule.get("apiGroups").is_none() {
        rule["apiGroups"] = json!([""]);
    }
    vec![
        json!({"kind": kind, "metadata": metadata, "rules": [rule]}),
        json!({
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": {"kind": kind, "name": "some-role"},
            "subjects": [{"kind": "ServiceAccount", "name": account}],
        }),
    ]
}

fn granted(kind: &str, rule: Value) -> Granted {
    let mut granted = Granted::default();
    let objects = role(kind, "controller", "some-controller", rule);
    granted.add("some-chart", &objects, &[]).unwrap();
    granted
}

#[test]
fn what_is_a_reason_for_a_right() {
    let pods = |verbs: &[&str]| json!({"resources": ["pods"], "verbs": verbs});
    let one = json!({"resources": ["pods"], "resourceNames": ["a", "b"], "verbs": ["get"]});
    let other = "system:serviceaccount:gpu-operator:another";
    // kind of role, rule, user, verb, resource, namespace, name, how many rights are left unused
    let table = [
        (
            "Role",
            pods(&["get"]),
            OWN,
            "get",
            "pods",
            "gpu-operator",
            "a",
            0,
        ),
        (
            "Role",
            pods(&["get"]),
            OWN,
            "delete",
            "pods",
            "gpu-operator",
            "a",
            1,
        ),
        (
            "Role",
            pods(&["get"]),
            OWN,
            "get",
            "pods/log",
            "gpu-operator",
            "a",
            1,
        ),
        (
            "Role",
            pods(&["get"]),
            other,
            "get",
            "pods",
            "gpu-operator",
            "a",
            1,
        ),
        // A Role grants nothing elsewhere; a ClusterRole is too much for what happens here only.
        (
            "Role",
            pods(&["get"]),
            OWN,
            "get",
            "pods",
            "elsewhere",
            "a",
            1,
        ),
        (
            "ClusterRole",
            pods(&["get"]),
            OWN,
            "get",
            "pods",
            "elsewhere",
            "a",
            0,
        ),
        ("ClusterRole", pods(&["get"]), OWN, "get", "pods", "", "", 0),
        (
            "ClusterRole",
            pods(&["get"]),
            OWN,
            "get",
            "pods",
            "gpu-operator",
            "a",
            1,
        ),
        // A watch is a reason to list as well, a list is none to watch.
        (
            "Role",
            pods(&["list", "watch"]),
            OWN,
            "watch",
            "pods",
            "gpu-operator",
            "",
            0,
        ),
        (
            "Role",
            pods(&["list", "watch"]),
            OWN,
            "list",
            "pods",
            "gpu-operator",
            "",
            1,
        ),
        (
            "Role",
            pods(&["list"]),
            OWN,
            "watch",
            "pods",
            "gpu-operator",
            "",
            1,
        ),
        // What only chance needs is not asked for; its neighbour is.
        (
            "Role",
            json!({"resources": ["events"], "verbs": ["create", "patch"]}),
            OWN,
            "get",
            "pods",
            "gpu-operator",
            "a",
            1,
        ),
        // Every name counts by itself.
        ("Role", one, OWN, "get", "pods", "gpu-operator", "a", 1),
    ];
    for (kind, rule, user, verb, resource, namespace, name, left) in table {
        let case = format!("{kind} {rule}: {user} {verb} {resource} {namespace}/{name}");
        let used = Used::of(&[request(user, verb, resource, namespace, name)]);
        assert_eq!(unused(&granted(kind, rule), &used).len(), left, "{case}");
    }
}

#[test]
fn an_unused_right_is_named_with_account_rule_and_chart() {
    let rule = json!({"apiGroups": ["apps"], "resources": ["daemonsets"], "resourceNames": ["x"], "verbs": ["get"]});
    assert_eq!(
        unused(&granted("ClusterRole", rule), &Used::of(&[])),
        [
            "some-controller: get daemonsets.apps `x` beyond its own namespace, by ClusterRole some-role of some-chart"
        ]
    );
}

#[test]
fn what_is_refused_is_not_used() {
    let mut refused = request(OWN, "get", "pods", "gpu-operator", "a");
    refused.code = 403;
    let rule = json!({"resources": ["pods"], "verbs": ["get"]});
    assert_eq!(
        unused(&granted("Role", rule), &Used::of(&[refused])).len(),
        1
    );
}

#[test]
fn an_apply_that_makes_an_object_is_a_creation() {
    let rule = json!({"resources": ["pods"], "verbs": ["create", "patch"]});
    let granted = granted("Role", rule);
    let mut apply = request(OWN, "patch", "pods", "gpu-operator", "a");
    let left = unused(&granted, &Used::of(std::slice::from_ref(&apply)));
    assert_eq!(left.len(), 1);
    assert!(left[0].contains("create pods"), "{left:?}");
    apply.code = 201;
    assert!(unused(&granted, &Used::of(&[apply])).is_empty());
}

#[test]
fn binding_a_role_is_seen_by_the_binding() {
    let group = "rbac.authorization.k8s.io";
    let rule = json!({"apiGroups": [group], "resources": ["clusterroles"], "resourceNames": ["a", "b"], "verbs": ["bind"]});
    let mut write = request(OWN, "patch", "rolebindings", "elsewhere", "x");
    write.group = group.to_owned();
    write.bound_role = Some("a".to_owned());
    let left = unused(&granted("ClusterRole", rule), &Used::of(&[write]));
    assert_eq!(left.len(), 1);
    assert!(
        left[0].contains("bind") && left[0].contains("`b`"),
        "{left:?}"
    );
}

#[test]
fn operands_are_left_out_and_agents_are_one() {
    let rule = || json!({"resources": ["pods"], "verbs": ["get"]});
    let mut granted = Granted::default();
    let operand = role("ClusterRole", "operand", "nvidia-driver", rule());
    granted.add("some-chart", &operand, &[]).unwrap();
    assert_eq!(granted.rights().count(), 0);
    let agents = role("ClusterRole", "agent", "x", rule());
    let later = RoleBoundLater {
        role: "some-role".to_owned(),
        account: Account::of("sre-agent"),
        scope: Scope::Cluster,
    };
    // Only the role is in the chart.
    assert!(granted.add("some-chart", &agents[..1], &[]).is_err());
    granted.add("some-chart", &agents[..1], &[later]).unwrap();
    let agent = "system:serviceaccount:jobs:sre-agent-of-team-a";
    let used = Used::of(&[request(agent, "get", "pods", "", "a")]);
    assert_eq!(unused(&granted, &Used::of(&[])).len(), 1);
    assert!(unused(&granted, &used).is_empty());
}

#[test]
fn records_are_joined_and_survive_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("labs/one.json");
    assert_eq!(Used::load(&path).unwrap(), None);
    let first = Used::of(&[request(OWN, "get", "pods", "gpu-operator", "a")]);
    first.save(&path).unwrap();
    let second = Used::of(&[
        request(OWN, "get", "pods", "gpu-operator", "b"),
        request(OWN, "get", "/version", "", ""),
    ]);
    let joined = Used::join([Used::load(&path).unwrap().unwrap(), second]);
    let seen: Vec<&Seen> = joined.seen().collect();
    assert_eq!(seen.len(), 1);
    assert_eq!(Vec::from_iter(&seen[0].names), ["a", "b"]);
}

#[test]
fn rendered_documents_become_objects() {
    let text = "---\n# Source: x\nkind: Role\n---\n# nothing\n---\nkind: Secret\n";
    let kinds: Vec<Value> = objects(text).unwrap();
    assert_eq!(kinds, [json!({"kind": "Role"}), json!({"kind": "Secret"})]);
}
