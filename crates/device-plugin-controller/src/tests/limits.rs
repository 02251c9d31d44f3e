//! What the cards of nodes cannot give is told with the nodes' names, as the admission webhook would have told it.

use super::reports::{node, sharing, validated};
use super::samples::spec;
use crate::observe::Maps;

#[test]
fn a_limit_of_memory_that_some_cards_do_not_have() {
    let policy = spec(
        "{devicePlugin: {config: {sharing: {timeSlicing: {memoryLimit: 8Gi, resources: [{name: gpu, replicas: 4}]}}}}, nodeSelector: {gpu: 'true'}}",
    );
    let validated = validated(policy, &Maps::new());
    let large = || node("gpu-1", &[("nvidia.com/gpu.memory", "81920")], 32);
    let small = || node("gpu-2", &[("nvidia.com/gpu.memory", "15360")], 32);
    assert_eq!(
        sharing(&validated, vec![large(), small()]),
        "False ConfigInvalid: gpu-2: 4 shares of nvidia.com/gpu with memoryLimit 8192Mi are 32768 MiB, and a card has 15360 MiB: write at most 3840Mi, or Auto"
    );
    assert!(sharing(&validated, vec![large()]).starts_with("True SharingApplied"));
    let mut other = small();
    other.labels.insert("gpu".to_owned(), "false".to_owned());
    assert!(
        sharing(&validated, vec![large(), other]).starts_with("True SharingApplied"),
        "a node that the policy is not for does not count"
    );
}

#[test]
fn more_mps_clients_than_old_cards_take() {
    let policy = spec(
        "{devicePlugin: {config: {sharing: {mps: {resources: [{name: gpu, replicas: 20}]}}}}, nodeSelector: {gpu: 'true'}}",
    );
    let validated = validated(policy, &Maps::new());
    let with = |major| node("gpu-1", &[("nvidia.com/gpu.compute.major", major)], 160);
    let old = sharing(&validated, vec![with("7")]);
    assert!(
        old.starts_with("False ConfigInvalid: gpu-1: nvidia.com/gpu has 20 MPS clients, and a card of compute capability 7.0 takes 16"),
        "{old}"
    );
    assert!(sharing(&validated, vec![with("8")]).starts_with("True SharingApplied"));
}
