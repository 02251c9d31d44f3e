//! Limits of memory, against nodes and tables.

use tessera_api::{
    cards::{Cards, PRODUCTS},
    judge,
};

use super::{facts, limited, node, said, t4};

const LIMIT: &str = "spec.devicePlugin.config.sharing.timeSlicing.memoryLimit";

#[test]
fn limits_of_memory_by_nodes() {
    let unlabelled = node("b", &[("gpu.product", "NVIDIA-A100-SXM4-80GB-SHARED")]);
    let known = facts(&[unlabelled.clone(), t4("a")]);
    for (limit, replicas, want) in [
        ("3840Mi", 4, None),
        (
            "3841Mi",
            4,
            Some(
                "`3841Mi` is 3841 MiB, and 4 shares of nvidia.com/gpu with so much are 15364 MiB, more than the 15360 MiB of a card of node a (Tesla-T4); write at most 3840Mi, or Auto, or fewer replicas",
            ),
        ),
        (
            "16Gi",
            4,
            Some(
                "`16Gi` is 16384 MiB, more than the 15360 MiB of a card of node a (Tesla-T4); write at most 3840Mi, or Auto",
            ),
        ),
    ] {
        let want: Vec<String> = want
            .iter()
            .map(|text| format!("refuse: {LIMIT}: {text}"))
            .collect();
        assert_eq!(said(&limited(limit, replicas), &known), want, "{limit}");
    }
    // The product's figure may be two percent less than the card has.
    let table = facts(&[unlabelled]);
    assert_eq!(said(&limited("40Gi", 2), &table), Vec::<String>::new());
    assert_eq!(said(&limited("41Gi", 2), &table).len(), 1);
    let selected = format!(
        "{}\nnodeSelector: {{nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB-SHARED}}",
        limited("20Gi", 4)
    );
    assert_eq!(
        said(&selected, &known),
        Vec::<String>::new(),
        "the small card is not meant"
    );
}

#[test]
fn limits_of_memory_without_nodes() {
    let want = format!(
        "warn: {LIMIT}: `8Gi` cannot be compared with the memory of cards, as no node says yet what it has; look at condition SharingApplied once \
         there are GPU nodes"
    );
    assert_eq!(said(&limited("8Gi", 4), &facts(&[])), [want]);
    let found = said(&limited("300Gi", 2), &facts(&[]));
    assert!(
        found.len() == 1 && found[0].starts_with(&format!("refuse: {LIMIT}: `300Gi` is 307200 MiB, more than the 284672 MiB of the largest card that is known")),
        "{found:#?}"
    );
    let found = said(&limited("0Mi", 2), &facts(&[]));
    assert!(
        found[0].starts_with(&format!(
            "refuse: {LIMIT}: `0Mi` is not Auto, Off or an amount of memory; write for example"
        )),
        "{found:#?}"
    );
}

#[test]
fn limits_of_memory_that_do_little() {
    let small = said(&limited("256Mi", 4), &facts(&[t4("a")]));
    let want = format!(
        "warn: {LIMIT}: `256Mi` is less than the 346 MiB that CUDA itself needs to tell how much memory is left; write at least 512Mi"
    );
    assert_eq!(small, [want]);
    let unshared = said(&limited("1Gi", 1), &facts(&[t4("a")]));
    let want = format!(
        "warn: {LIMIT}: `1Gi` has no effect, as no resource is time-sliced with 2 replicas or more; remove it, or share a resource"
    );
    assert!(unshared.contains(&want), "{unshared:#?}");
}

#[test]
fn limits_of_memory_of_instances() {
    let spec = |limit: &str| {
        format!(
            "mig: {{strategy: mixed}}\ndevicePlugin: {{config: {{sharing: {{timeSlicing: {{memoryLimit: {limit}, resources: [{{name: mig-1g.10gb, replicas: 2}}]}}}}}}}}"
        )
    };
    assert_eq!(said(&spec("5Gi"), &facts(&[])), Vec::<String>::new());
    let want = format!(
        "refuse: {LIMIT}: `6Gi` is 6144 MiB, and 2 shares of nvidia.com/mig-1g.10gb with so much are 12288 MiB, more than the 10240 MiB of such an \
         instance; write at most 5120Mi, or Auto, or fewer replicas"
    );
    assert_eq!(said(&spec("6Gi"), &facts(&[])), [want]);
}

#[test]
fn every_product_holds_its_own_memory_and_no_more() {
    for product in PRODUCTS {
        let Some(memory) = product.memory else {
            continue;
        };
        let label = product.pattern.replace('*', "X");
        let known = facts(&[node("a", &[("gpu.product", &label)])]);
        let at_most = limited(&format!("{}Mi", memory / 2), 2);
        assert_eq!(said(&at_most, &known), Vec::<String>::new(), "{label}");
        let over = limited(&format!("{}Mi", memory / 2 * 103 / 100 + 1), 2);
        let found = said(&over, &known);
        assert!(
            found.len() == 1 && found[0].starts_with("refuse") && found[0].contains(&label),
            "{found:#?}"
        );
    }
}

#[test]
fn one_node_against_the_policy() {
    let old = node(
        "old",
        &[
            ("gpu.product", "Tesla-V100-SXM2-16GB"),
            ("gpu.compute.major", "7"),
        ],
    );
    let mps = "devicePlugin: {config: {sharing: {mps: {resources: [{name: gpu, replicas: 17}]}}}}";
    let clients = "nvidia.com/gpu has 17 MPS clients, and a card of compute capability 7.0 takes 16: write at most 16 replicas, or leave the node out by \
                   nodeSelector";
    let memory = "4 shares of nvidia.com/gpu with memoryLimit 8192Mi are 32768 MiB, and a card has 15360 MiB: write at most 3840Mi, or Auto";
    for (spec, node, want) in [
        (mps, old.clone(), Some(clients)),
        (mps, t4("a"), None),
        (&limited("8Gi", 4), t4("a"), Some(memory)),
        (&limited("3840Mi", 4), t4("a"), None),
        (&limited("Auto", 4), t4("a"), None),
        (&limited("8Gi", 4), node("unknown", &[]), None),
        (&limited("4Gi", 4), old, None),
    ] {
        let found = judge::node(&crate::effective(spec), &Cards::of(&node));
        assert_eq!(found.as_deref(), want, "{spec}");
    }
}
