//! What is left alone, what is refused, what is said.

use super::*;

#[test]
fn what_is_not_ours_is_untouched() {
    let fleet = turns(json!({}), &t4());
    let mps = |nodes: &[Arc<NodeFacts>]| {
        let file = "sharing: {mps: {resources: [{name: gpu, replicas: 4}]}}";
        let file = file.to_owned();
        let parsed = plugin_file::parse(&file, MigStrategy::None).shares;
        Fleet {
            configs: Configs::Same(parsed),
            ..turns(json!({}), nodes)
        }
    };
    for (limits, more) in [
        (json!({}), json!({})),
        (json!({"cpu": "1", "amd.com/gpu": "1"}), json!({})),
        (json!({"nvidia.com/gpu": "0"}), json!({})),
        // Whole, as it is not in the policy.
        (json!({"nvidia.com/mig-1g.10gb": "1"}), json!({})),
        (one(), json!({"spec": {"schedulerName": "hami-scheduler"}})),
        (one(), json!({"spec": {"schedulerName": "kai-scheduler"}})),
        (
            one(),
            json!({"metadata": {"labels": {"hami.io/webhook": "ignore"}}}),
        ),
        (
            one(),
            json!({"metadata": {"labels": {"aiops.local/admission": "ignore"}}}),
        ),
    ] {
        let before = pod(limits, more);
        let found = said(&before, &fleet);
        assert_eq!((&found.pod, &found.verdict), (&before, &Verdict::default()));
    }
    let before = pod(one(), json!({}));
    assert_eq!(said(&before, &mps(&t4())).verdict, Verdict::default());
    let hami = Fleet {
        hami: true,
        ..turns(json!({}), &t4())
    };
    let theirs = pod(
        json!({"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}),
        json!({}),
    );
    assert_eq!(said(&theirs, &hami).verdict, Verdict::default());
    // Another plugin's cards are not ours to judge.
    let off = json!({"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "mine"}, "spec": {"devicePlugin": {"enabled": false}}});
    let off: ClusterPolicy = serde_json::from_value(off).unwrap();
    let policy = effective(&off);
    assert!(
        Fleet::of(
            &policy,
            Configs::Same(Shares::none(MigStrategy::None)),
            [],
            false
        )
        .is_none()
    );
}

#[test]
fn more_than_one_share_is_refused_where_the_plugin_would() {
    let two = || pod(json!({"nvidia.com/gpu": "2"}), json!({}));
    let refused = said(&two(), &turns(json!({}), &t4()));
    assert_eq!(
        refused.verdict.refusals,
        [
            "spec.containers[0] (train).resources.limits[nvidia.com/gpu]: `2` is more than the one share that a container can have: nvidia.com/gpu is \
          one of 4 shares of a card, the device plugin refuses more on the node, and two shares are neither two cards nor twice the time; ask \
          for 1, for whole cards on nodes that do not share them, or set failRequestsGreaterThanOne to false in the policy"
        ]
    );
    let allowed = turns(json!({"failRequestsGreaterThanOne": false}), &t4());
    assert_eq!(said(&two(), &allowed).limits(), ["_0=3328m", "_1=3328m"]);
    let many = said(
        &pod(json!({"nvidia.com/gpu": "4000000000"}), json!({})),
        &allowed,
    );
    assert_eq!(many.limits().len(), 64);
    // One container each is fine.
    let resources = json!({"limits": one(), "requests": one()});
    let both = json!({"spec": {"initContainers": [{"name": "b", "image": "x", "restartPolicy": "Always", "resources": resources}]}});
    assert!(
        said(&pod(one(), both), &turns(json!({}), &t4()))
            .verdict
            .refusals
            .is_empty()
    );
    // A node with another configuration can give two.
    let files = [
        (
            "shared",
            "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: gpu, replicas: 4}]}}",
        ),
        ("whole", "version: v1"),
    ];
    let choose = |name: &str, key: &str| {
        node(
            name,
            &[
                ("nvidia.com/gpu.memory", "15360"),
                ("nvidia.com/device-plugin.config", key),
            ],
        )
    };
    let by_label = |nodes: &[Arc<NodeFacts>]| {
        fleet(
            with_config(json!({"name": "plugin", "default": "shared"})),
            &files,
            nodes,
        )
    };
    let some = by_label(&[cards("gpu-1", "15360"), choose("gpu-2", "whole")]);
    assert!(said(&two(), &some).verdict.refusals.is_empty());
    let placed = pod(
        json!({"nvidia.com/gpu": "2"}),
        json!({"spec": {"nodeSelector": {"nvidia.com/device-plugin.config": "shared"}}}),
    );
    let all = by_label(&[
        choose("gpu-1", "shared"),
        choose("gpu-2", "whole"),
        choose("gpu-3", "none"),
    ]);
    assert_eq!(said(&placed, &all).verdict.refusals.len(), 1);
    let whole = pod(
        json!({"nvidia.com/gpu": "2"}),
        json!({"spec": {"nodeSelector": {"nvidia.com/device-plugin.config": "whole"}}}),
    );
    assert_eq!(said(&whole, &all).verdict, Verdict::default());
}

#[test]
fn hamis_resources_are_converted_or_refused() {
    let fleet = turns(json!({}), &t4());
    let asks = |limits: Value| said(&pod(limits, json!({})), &fleet);
    let found = asks(json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}));
    assert_eq!(found.limits(), ["_0=3000m"]);
    assert_eq!(
        found.pod["metadata"]["annotations"]["gpu-memory-limit.aiops.local/train"],
        "3000Mi"
    );
    assert_eq!(
        found.pod["spec"]["containers"][0]["resources"],
        json!({"limits": one(), "requests": one()})
    );
    assert!(
        found.verdict.warnings[0]
            .contains("asks for nvidia.com/gpumem: 3000, which became annotation"),
        "{:?}",
        found.verdict
    );
    // As the API server writes 3000.
    let found = asks(json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3k"}));
    assert_eq!(found.limits(), ["_0=3000m"]);
    // What the annotation says wins, and stays.
    let both = pod(
        json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}),
        annotated("gpu-memory-limit.aiops.local/train", "2Gi"),
    );
    let found = said(&both, &fleet);
    assert_eq!(found.limits(), ["_0=2048m"]);
    assert_eq!(
        found.pod["metadata"]["annotations"]["gpu-memory-limit.aiops.local/train"],
        "2Gi"
    );

    let whole = whole(&t4());
    for (fleet, limits, words) in [
        (
            &fleet,
            json!({"nvidia.com/gpumem": "3000"}),
            "ask for a share of a card as well",
        ),
        (
            &fleet,
            json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "0"}),
            "a whole number of MiB from 1",
        ),
        (
            &fleet,
            json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3x"}),
            "a whole number of MiB from 1",
        ),
        (
            &fleet,
            json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "20000"}),
            "20000` MiB is more than the 15360 MiB",
        ),
        (
            &fleet,
            json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}),
            "annotation aiops.local/gpu-memory-limit",
        ),
        (
            &fleet,
            json!({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}),
            "would stay Pending",
        ),
        (
            &fleet,
            json!({"nvidia.com/gpu": "1", "nvidia.com/priority": "1"}),
            "nvidia.com/priority",
        ),
        (
            &whole,
            json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}),
            "a whole card with all of its memory",
        ),
    ] {
        let found = said(&pod(limits.clone(), json!({})), fleet);
        let all = found.verdict.refusals.join("\n");
        assert!(all.contains(words), "{limits}: {all}");
    }
}

#[test]
fn what_the_annotations_say_wrongly() {
    let limit = annotation::MEMORY_LIMIT;
    let fleet = turns(json!({}), &t4());
    for (value, words) in [
        (
            "4096",
            "metadata.annotations[aiops.local/gpu-memory-limit]: `4096` is not Auto, Off or an amount of memory",
        ),
        ("0Mi", "`0Mi` is not"),
        ("", "`` is not"),
        (
            "20Gi",
            "metadata.annotations[aiops.local/gpu-memory-limit]: `20480` MiB is more than the 15360 MiB of any card",
        ),
    ] {
        let found = said(&pod(one(), annotated(limit, value)), &fleet);
        assert_eq!(found.verdict.refusals.len(), 1);
        assert!(
            found.verdict.refusals[0].starts_with(words)
                || found.verdict.refusals[0].contains(words),
            "{:?}",
            found.verdict
        );
    }
    for (key, value, words) in [
        (
            limit,
            "8Gi",
            "8192 MiB is more than a share's part of a card's memory, 3840 MiB",
        ),
        (limit, "200Mi", "less than the 346 MiB"),
        (
            "gpu-memory-limit.aiops.local/other",
            "1Gi",
            "metadata.annotations[gpu-memory-limit.aiops.local/other] has no effect",
        ),
    ] {
        let found = said(&pod(one(), annotated(key, value)), &fleet);
        let all = found.verdict.warnings.join("\n");
        assert!(all.contains(words), "{all}");
    }
    let whole = whole(&t4());
    let found = said(&pod(one(), annotated(limit, "8Gi")), &whole);
    assert!(
        found.verdict.warnings[0].contains("has no effect"),
        "{:?}",
        found.verdict
    );
}
