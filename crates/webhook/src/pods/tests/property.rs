//! Whatever the Pod.

use super::*;
use proptest::prelude::*;

fn any_container() -> impl Strategy<Value = Value> {
    let resource = prop::sample::select(vec![
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/gpumem",
        "nvidia.com/gpucores",
        "nvidia.com/mig-1g.10gb",
        "cpu",
    ]);
    let limits = prop::collection::btree_map(
        resource,
        prop::sample::select(vec!["0", "1", "2", "3000", "x"]),
        0..3,
    );
    let name = prop::sample::select(vec![
        "CUDA_DEVICE_MEMORY_LIMIT",
        "CUDA_DEVICE_MEMORY_LIMIT_0",
        "CUDA_DEVICE_MEMORY_LIMIT_1",
        "A",
    ]);
    let value = prop::sample::select(vec!["1g", "0", "99g", ""]);
    let env = prop::option::of(prop::collection::vec((name, value), 0..3));
    (limits, env).prop_map(|(limits, env)| {
        let mut container = json!({"name": "c", "image": "x", "resources": {"limits": limits}});
        if let Some(env) = env {
            container["env"] = env
                .into_iter()
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect();
        }
        container
    })
}

proptest! {
    /// Whatever the Pod: a second look changes nothing, no variable of the user's is gone or different, none is 0 that we wrote.
    #[test]
    fn judged_twice_is_judged_once(
        containers in prop::collection::vec(any_container(), 1..3),
        init in prop::option::of(prop::collection::vec(any_container(), 0..2)),
        wish in prop::option::of(prop::sample::select(vec!["Auto", "Off", "1Gi", "0", "99Gi"])),
        limit in prop::sample::select(vec!["Auto", "Off", "2Gi", "99Gi"]),
        one_each in any::<bool>(),
        nodes in 0..3_usize,
    ) {
        let mut before = json!({"metadata": {"name": "a"}, "spec": {"containers": containers}});
        if let Some(init) = init {
            before["spec"]["initContainers"] = json!(init);
        }
        if let Some(wish) = wish {
            before["metadata"]["annotations"] = json!({annotation::MEMORY_LIMIT: wish});
        }
        let nodes: Vec<_> = (0..nodes).map(|index| cards(&format!("gpu-{index}"), "15360")).collect();
        let fleet = turns(json!({"memoryLimit": limit, "failRequestsGreaterThanOne": one_each}), &nodes);
        let found = said(&before, &fleet);
        for list in ["containers", "initContainers"] {
            for (index, container) in before["spec"][list].as_array().into_iter().flatten().enumerate() {
                let own = container["env"].as_array().map_or(0, Vec::len);
                let after = found.pod["spec"][list][index]["env"].as_array().cloned().unwrap_or_default();
                prop_assert_eq!(&after[..own], container["env"].as_array().map_or(&[][..], Vec::as_slice));
                for added in &after[own..] {
                    prop_assert!(added["value"].as_str().is_some_and(|value| value.ends_with('m') && value != "0m"), "{}", added);
                }
            }
        }
        prop_assert!(found.verdict.refusals.iter().all(|text| text.contains(": ")));
    }
}
