//! How much, from whom, for which containers.

use super::*;

#[test]
fn a_share_gets_its_part_of_the_smallest_card() {
    let found = said(&pod(one(), json!({})), &turns(json!({}), &t4()));
    assert_eq!(found.limits(), ["_0=3328m"]);
    assert_eq!(found.mode(), Some("advisory"));
    let [warning] = found.verdict.warnings.as_slice() else {
        panic!("{:?}", found.verdict)
    };
    assert_eq!(
        warning,
        "GPU memory limits were added: train CUDA_DEVICE_MEMORY_LIMIT_0=3328m; they are advisory: nothing on the nodes keeps a program to it"
    );
}

#[test]
fn where_the_number_comes_from() {
    let none: &[&str] = &[];
    let limit = annotation::MEMORY_LIMIT;
    let own = "gpu-memory-limit.aiops.local/train";
    for (policy, more, want) in [
        (json!({}), json!({}), &["_0=3328m"][..]),
        (json!({"memoryLimit": "Auto"}), json!({}), &["_0=3328m"]),
        (json!({"memoryLimit": "2Gi"}), json!({}), &["_0=2048m"]),
        (json!({"memoryLimit": "Off"}), json!({}), none),
        (
            json!({"memoryLimit": "2Gi"}),
            annotated(limit, "1024Mi"),
            &["_0=1024m"],
        ),
        (
            json!({"memoryLimit": "2Gi"}),
            annotated(limit, "Auto"),
            &["_0=3328m"],
        ),
        (json!({"memoryLimit": "2Gi"}), annotated(limit, "Off"), none),
        (
            json!({"memoryLimit": "Off"}),
            annotated(own, "1Gi"),
            &["_0=1024m"],
        ),
        (
            json!({}),
            json!({"metadata": {"annotations": {limit: "Off", own: "1Gi"}}}),
            &["_0=1024m"],
        ),
        (
            json!({}),
            annotated("gpu-memory-limit.aiops.local/other", "1Gi"),
            &["_0=3328m"],
        ),
        // More than any card has: the policy's fault, of which its condition tells.
        (json!({"memoryLimit": "16Gi"}), json!({}), none),
    ] {
        let found = said(&pod(one(), more.clone()), &turns(policy.clone(), &t4()));
        assert_eq!(found.limits(), want, "{policy} {more}");
        assert_eq!(found.mode().is_some(), !want.is_empty(), "{policy} {more}");
    }
}

#[test]
fn what_is_the_users_own_stays() {
    let env = |env: Value| json!({"spec": {"containers": [{"name": "train", "image": "x", "env": env, "resources": {"limits": one(), "requests": one()}}]}});
    let field = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    for own in [
        json!([{"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "1g"}]),
        json!([{"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "0"}]),
        json!([{"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "what ever"}]),
        json!([{"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "valueFrom": field}]),
        json!([{"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "1g"}]),
    ] {
        let before = pod(one(), env(own));
        let found = said(&before, &turns(json!({}), &t4()));
        assert_eq!(found.pod, before);
        assert_eq!(found.verdict, Verdict::default());
    }
    // What else is there stays before it.
    let found = said(
        &pod(one(), env(json!([{"name": "A", "value": "b"}]))),
        &turns(json!({}), &t4()),
    );
    assert_eq!(found.limits(), ["A=b", "_0=3328m"]);
    let empty = said(&pod(one(), env(json!([]))), &turns(json!({}), &t4()));
    assert_eq!(empty.limits(), ["_0=3328m"]);
    // A limit that no card has is reported to programs as the card's memory.
    let found = said(
        &pod(
            one(),
            env(json!([{"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "20g"}])),
        ),
        &turns(json!({}), &t4()),
    );
    assert_eq!(
        found.verdict.refusals,
        [
            "spec.containers[0] (train).env[CUDA_DEVICE_MEMORY_LIMIT_0]: `20g` is more than the 15360 MiB of any card on which the Pod can run; write at most 15360m"
        ]
    );
}

#[test]
fn all_kinds_of_containers_and_only_those_that_take_a_share() {
    let resources = json!({"limits": one(), "requests": one()});
    let more = json!({"spec": {
        "initContainers": [
            {"name": "none", "image": "x"},
            {"name": "init", "image": "x", "resources": resources},
            {"name": "sidecar", "image": "x", "restartPolicy": "Always", "resources": resources},
        ],
    }});
    let found = said(&pod(one(), more), &turns(json!({}), &t4()));
    let want = [("CUDA_DEVICE_MEMORY_LIMIT_0".to_owned(), "3328m".to_owned())];
    assert_eq!(found.env("initContainers", 0), []);
    for (list, index) in [
        ("initContainers", 1),
        ("initContainers", 2),
        ("containers", 0),
    ] {
        assert_eq!(found.env(list, index), want, "{list} {index}");
    }
}

#[test]
fn renamed_and_instances() {
    let renamed = turns(json!({"renameByDefault": true}), &t4());
    assert_eq!(
        said(
            &pod(json!({"nvidia.com/gpu.shared": "1"}), json!({})),
            &renamed
        )
        .limits(),
        ["_0=3328m"]
    );
    // No node offers the old name any more.
    assert_eq!(
        said(&pod(one(), json!({})), &renamed).verdict,
        Verdict::default()
    );

    let a100 = |labels: &[(&str, &str)]| {
        let all = [
            ("nvidia.com/gpu.memory", "81920"),
            ("nvidia.com/gpu.count", "1"),
        ];
        node("gpu-1", &[&all, labels].concat())
    };
    let one = |resource: &str, labels: &[(&str, &str)]| {
        let fleet = instances(&[a100(labels)]);
        said(&pod(json!({resource: "1"}), json!({})), &fleet).limits()
    };
    // By the node's own figure, else by the profile's name.
    let measured = [
        ("nvidia.com/mig-1g.10gb.count", "7"),
        ("nvidia.com/mig-1g.10gb.memory", "9728"),
    ];
    assert_eq!(one("nvidia.com/mig-1g.10gb", &measured), ["_0=4352m"]);
    assert_eq!(one("nvidia.com/mig-1g.10gb", &measured[..1]), ["_0=4608m"]);
    assert_eq!(
        one(
            "nvidia.com/mig-3g.40gb",
            &[("nvidia.com/mig-3g.40gb.count", "2")]
        ),
        ["_0=9728m"]
    );
    // Without any node, by the name as well.
    let nobody = instances(&[]);
    assert_eq!(
        said(
            &pod(json!({"nvidia.com/mig-1g.10gb": "1"}), json!({})),
            &nobody
        )
        .limits(),
        ["_0=4608m"]
    );
}

#[test]
fn no_number_without_a_reason() {
    let says = |nodes: &[Arc<NodeFacts>], policy: Value, more: Value, words: &str| {
        let found = said(&pod(one(), more), &turns(policy, nodes));
        assert_eq!(found.limits(), Vec::<String>::new());
        let all = found.verdict.warnings.join("\n");
        assert!(all.contains(words), "{all}");
        assert!(
            all.starts_with("spec.containers[0] (train) got no memory limit"),
            "{all}"
        );
    };
    let none = || json!({});
    says(&[], none(), none(), "not known how much memory");
    says(
        &[node("gpu-1", &[])],
        none(),
        none(),
        "not known how much memory",
    );
    let mixed = [cards("gpu-1", "15360"), cards("gpu-2", "81920")];
    says(
        &mixed,
        none(),
        none(),
        "from 3840 to 20480 MiB, depending on the node",
    );
    says(
        &[cards("gpu-1", "3000")],
        none(),
        none(),
        "750 MiB a share are too few",
    );
    says(
        &t4(),
        json!({"memoryLimit": "20Gi"}),
        none(),
        "20480 MiB of the policy's memoryLimit are more than the 15360 MiB",
    );
    // With a choice of nodes, there is one.
    let chosen = pod(one(), json!({"spec": {"nodeName": "gpu-2"}}));
    assert_eq!(
        said(&chosen, &turns(none(), &mixed)).limits(),
        ["_0=19968m"]
    );
}

#[test]
fn enforced_where_all_nodes_say_so() {
    let enforcing = |name: &str| {
        node(
            name,
            &[
                ("nvidia.com/gpu.memory", "15360"),
                (label::MEMORY_ENFORCER, "true"),
            ],
        )
    };
    let mode = |nodes: &[Arc<NodeFacts>]| {
        said(&pod(one(), json!({})), &turns(json!({}), nodes))
            .mode()
            .map(str::to_owned)
    };
    assert_eq!(
        mode(&[enforcing("a"), enforcing("b")]).as_deref(),
        Some("enforced")
    );
    assert_eq!(
        mode(&[enforcing("a"), cards("b", "15360")]).as_deref(),
        Some("advisory")
    );
}

#[test]
fn several_kinds_of_cards_have_no_order() {
    let slicing = json!({"resources": [{"name": "gpu", "replicas": 4}]});
    let both = pod(
        json!({"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"}),
        json!({}),
    );
    let found = said(&both, &turns(slicing, &t4()));
    assert_eq!(found.limits(), Vec::<String>::new());
    assert!(found.verdict.warnings[0].contains("several kinds of cards"));
}
