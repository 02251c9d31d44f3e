//! The reference's table of decisions (section 9), row by row: sharing, MIG, limits of memory, intervals.

use proptest::prelude::*;
use tessera_api::{
    judge::Facts,
    mig::parts::{PARTS, label_form},
};

use super::{facts, limited, node, said, t4, table, with_map};

/// Time-slicing with these entries.
fn slicing(entries: &str) -> String {
    format!("devicePlugin: {{config: {{sharing: {{timeSlicing: {{resources: [{entries}]}}}}}}}}")
}

fn mps(replicas: u32) -> String {
    format!(
        "devicePlugin: {{config: {{sharing: {{mps: {{resources: [{{name: gpu, replicas: {replicas}}}]}}}}}}}}"
    )
}

const ENTRY: &str = "spec.devicePlugin.config.sharing.timeSlicing.resources[0]";

#[test]
fn good_ones() {
    let facts = facts(&[t4("a")]);
    let limit = limited("3Gi", 4);
    let off = limited("\"Off\"", 4);
    table(
        &facts,
        &[
            ("{}", &[]),
            (&slicing("{name: nvidia.com/gpu, replicas: 4}"), &[]),
            (&slicing("{name: gpu, replicas: 16}"), &[]),
            (&mps(16), &[]),
            (&limit, &[]),
            (&off, &[]),
        ],
    );
}

#[test]
fn numbers_of_replicas() {
    let at = |severity: &str, rest: &str| format!("{severity}: {ENTRY}.replicas: {rest}");
    let zero = at(
        "refuse",
        "is `0`, and nvidia.com/gpu can be shared by at most 64 containers; write a number from 1 (not shared) to 64",
    );
    let less = at(
        "refuse",
        "is `-3`, and nvidia.com/gpu can be shared by at most 64 containers; write a number from 1 (not shared) to 64",
    );
    let one = at(
        "warn",
        "`1` means that nvidia.com/gpu is not shared, and the entry is left out of the plugin's configuration; write 2 or more, or remove the entry",
    );
    let many = at(
        "warn",
        "`17` is a large number of containers for one card: they take turns, and share its memory without protection from each other; check that it is meant; 16 or fewer is usual",
    );
    let most = at("warn", "`64` is a large number");
    let more = at(
        "refuse",
        "is `65`, and nvidia.com/gpu can be shared by at most 64 containers; write a number from 1 (not shared) to 64",
    );
    for (replicas, want) in [
        (0, zero),
        (-3, less),
        (1, one),
        (17, many),
        (64, most),
        (65, more),
    ] {
        let found = said(
            &slicing(&format!("{{name: gpu, replicas: {replicas}}}")),
            &facts(&[]),
        );
        let hit = found.iter().any(|text| text.starts_with(&want));
        assert!(hit, "{replicas}: {found:#?}");
        let refused = found
            .iter()
            .filter(|text| text.starts_with("refuse"))
            .count();
        assert_eq!(
            refused,
            usize::from(!(1..=64).contains(&replicas)),
            "{found:#?}"
        );
    }
}

#[test]
fn mps_clients_by_compute_capability() {
    let old = node(
        "old",
        &[
            ("gpu.product", "Tesla-V100-SXM2-16GB"),
            ("gpu.compute.major", "7"),
            ("gpu.compute.minor", "0"),
        ],
    );
    let path = "spec.devicePlugin.config.sharing.mps.resources[0].replicas";
    let refusal = format!(
        "refuse: {path}: `17` is more than the 16 MPS clients of a card before compute capability 7.5, and there are such nodes: old (7.0); \
         write at most 16, or leave these nodes out by nodeSelector"
    );
    assert_eq!(said(&mps(17), &facts(&[t4("new"), old.clone()])), [refusal]);
    assert_eq!(
        said(&mps(16), &facts(&[t4("new"), old.clone()])),
        Vec::<String>::new()
    );
    let apart = format!(
        "{}\nnodeSelector: {{nvidia.com/gpu.product: Tesla-T4}}",
        mps(17)
    );
    assert!(said(&apart, &facts(&[t4("new"), old]))[0].starts_with("warn"));
    let known = said(&mps(48), &facts(&[t4("new")]));
    assert!(
        known.len() == 1 && known[0].starts_with("warn"),
        "{known:#?}"
    );
    let more = said(&mps(49), &facts(&[]));
    assert!(
        more[0].starts_with(&format!(
            "refuse: {path}: is `49`, and nvidia.com/gpu can be shared by at most 48 containers"
        )),
        "{more:#?}"
    );
}

#[test]
fn names_of_resources() {
    let long = "a".repeat(60);
    let cases = [
        (
            "amd.com/gpu",
            "`amd.com/gpu` cannot be shared, as its domain is not nvidia.com; write nvidia.com/gpu or nvidia.com/mig-<profile>",
        ),
        (
            "gpu.shared",
            "`nvidia.com/gpu.shared` cannot be shared, as it ends with .shared, which renameByDefault adds; write the name without it",
        ),
        (
            long.as_str(),
            "cannot be shared, as it has more than 63 characters",
        ),
        (
            "GPU",
            "cannot be shared, as a resource's name has lower-case letters",
        ),
        ("mig-1g.10gb+me", "with `.` for the `+` of a profile"),
    ];
    for (name, want) in cases {
        let found = said(
            &slicing(&format!("{{name: {name}, replicas: 2}}")),
            &facts(&[]),
        );
        let refused = found
            .iter()
            .find(|text| text.starts_with(&format!("refuse: {ENTRY}.name: ")));
        assert!(
            refused.is_some_and(|text| text.contains(want)),
            "{name}: {found:#?}"
        );
    }
}

#[test]
fn lists_of_resources() {
    let list = "spec.devicePlugin.config.sharing.timeSlicing.resources";
    let empty = format!(
        "refuse: {list}: `[]` is empty, which the device plugin does not accept; name a resource such as {{name: nvidia.com/gpu, replicas: 4}}, or remove the section"
    );
    assert_eq!(said(&slicing(""), &facts(&[])), [empty]);
    let twice =
        format!("refuse: {list}[1].name: is `nvidia.com/gpu` a second time; keep one entry");
    let found = said(
        &slicing("{name: gpu, replicas: 2}, {name: nvidia.com/gpu, replicas: 3}"),
        &facts(&[]),
    );
    assert_eq!(found, [twice]);
}

#[test]
fn ways_of_sharing_exclude_each_other() {
    let both = "devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}, mps: {resources: [{name: gpu, replicas: 2}]}}}}";
    let found = said(both, &facts(&[]));
    assert!(
        found[0].starts_with("refuse: spec.devicePlugin.config.sharing: ") && found[0].ends_with("has both timeSlicing and mps, and a card can be shared in one way only; remove one of them"),
        "{found:#?}"
    );
    for (strategy, spec, want) in [
        (
            "mixed",
            mps(2),
            "uses mps while mig.strategy is mixed; set mig.strategy to none, or remove mps",
        ),
        (
            "single",
            mps(2),
            "uses mps while mig.strategy is single; set mig.strategy to none, or remove mps",
        ),
        (
            "single",
            slicing("{name: gpu, replicas: 2}"),
            "shares whole cards while mig.strategy is single",
        ),
        (
            "mixed",
            slicing("{name: gpu, replicas: 2}"),
            "shares whole cards while mig.strategy is mixed",
        ),
        (
            "none",
            slicing("{name: mig-1g.5gb, replicas: 2}"),
            "which exists only with mig.strategy mixed; set it to mixed",
        ),
        (
            "single",
            slicing("{name: mig-1g.5gb, replicas: 2}"),
            "set mig.strategy to none, or to mixed and share only",
        ),
    ] {
        let found = said(
            &format!("mig: {{strategy: {strategy}}}\n{spec}"),
            &facts(&[]),
        );
        assert!(
            found
                .iter()
                .any(|text| text.starts_with("refuse: ") && text.contains(want)),
            "{strategy} {spec}: {found:#?}"
        );
    }
}

#[test]
fn every_profile_of_every_product_can_be_time_sliced_as_an_instance() {
    for part in PARTS {
        for (profile, _) in part.profiles {
            let entry = format!("{{name: mig-{}, replicas: 2}}", label_form(profile));
            let spec = format!("mig: {{strategy: mixed}}\n{}", slicing(&entry));
            assert_eq!(said(&spec, &facts(&[])), Vec::<String>::new(), "{profile}");
        }
    }
}

/// Trap 4: one valid and one invalid profile.
#[test]
fn an_unknown_profile_beside_a_known_one_is_a_warning() {
    let spec = format!(
        "mig: {{strategy: mixed}}\n{}",
        slicing("{name: mig-1g.10gb.me, replicas: 2}, {name: mig-9g.1gb, replicas: 2}")
    );
    let want = "warn: spec.devicePlugin.config.sharing.timeSlicing.resources[1].name: `mig-9g.1gb` is an instance of a MIG profile that no known \
                product has, and a name that a node does not have is skipped without a word; check the profile; nvidia-smi mig -lgip lists those of a card";
    assert_eq!(said(&spec, &facts(&[])), [want]);
}

#[test]
fn a_profile_that_the_chosen_layouts_do_not_make_is_a_warning() {
    let layouts = "{version: v1, mig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]}}";
    let known = with_map(facts(&[]), "layouts", &[("config.yaml", layouts)]);
    let spec = |profile: &str| {
        format!(
            "mig: {{strategy: mixed}}\nmigManager: {{config: {{name: layouts}}}}\n{}",
            slicing(&format!("{{name: mig-{profile}, replicas: 2}}"))
        )
    };
    assert_eq!(said(&spec("1g.10gb"), &known), Vec::<String>::new());
    let want = format!(
        "warn: {ENTRY}.name: `mig-2g.20gb` is an instance of profile 2g.20gb, which no layout of ConfigMap layouts makes; add a layout with 2g.20gb \
         there, or remove the entry"
    );
    assert_eq!(said(&spec("2g.20gb"), &known), [want]);
}

#[test]
fn intervals() {
    let spec = |interval: &str, timeout: &str| {
        format!(
            "dcgmExporter: {{serviceMonitor: {{interval: {interval}, scrapeTimeout: {timeout}}}}}"
        )
    };
    let path = "refuse: spec.dcgmExporter.serviceMonitor";
    for (interval, timeout, want) in [
        (
            "soon",
            "10s",
            "interval: `soon` is not a duration; write for example 15s, 1m30s or 500ms",
        ),
        (
            "0s",
            "10s",
            "interval: is `0s`; write a duration greater than zero, such as 15s",
        ),
        (
            "500ms",
            "100ms",
            "interval: is `500ms`, less than a second; write 1s or more",
        ),
        (
            "1m",
            "2m",
            "scrapeTimeout: is `2m`, longer than the interval of 1m, which Prometheus refuses; make it shorter",
        ),
        (
            "1d",
            "2d",
            "scrapeTimeout: is `2d`, longer than the interval of 1d, which Prometheus refuses; make it shorter",
        ),
    ] {
        let found = said(&spec(interval, timeout), &facts(&[]));
        assert_eq!(found, [format!("{path}.{want}")]);
    }
    assert_eq!(said(&spec("1s", "1s"), &facts(&[])), Vec::<String>::new());
    let short = said(
        "dcgm: {exporter: {serviceMonitor: {interval: 500ms}}}",
        &facts(&[]),
    );
    assert_eq!(
        short,
        [
            "refuse: spec.dcgm.exporter.serviceMonitor.interval: is `500ms`, less than a second; write 1s or more"
        ],
        "the path is told as it was written"
    );
}

proptest! {
    #[test]
    fn any_numbers_are_judged_without_a_panic_and_alike(
        replicas in any::<i32>(),
        limit in any::<u32>(),
        name in "[a-z0-9./+-]{0,70}",
        memory in any::<u32>(),
    ) {
        let spec = format!(
            "devicePlugin: {{config: {{sharing: {{timeSlicing: {{memoryLimit: {limit}Mi, resources: [{{name: '{name}', replicas: {replicas}}}, \
             {{name: gpu, replicas: {replicas}}}]}}}}}}}}"
        );
        let known: Facts = facts(&[node("a", &[("gpu.memory", &memory.to_string()), ("gpu.product", "x")])]);
        let first = said(&spec, &known);
        prop_assert_eq!(&first, &said(&spec, &known));
        for text in &first {
            prop_assert!(text.contains("spec.devicePlugin.config.sharing") && text.contains("; "), "{}", text);
        }
    }
}
