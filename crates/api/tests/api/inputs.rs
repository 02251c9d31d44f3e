//! What users bring, word for word (e2e/inputs), means what the inputs' README says.

use tessera_api::{
    ClusterPolicy, SREAgent,
    effective::{EffectivePolicy, PluginConfig, Sharing},
};

use crate::{base, resolved};

const POLICY: &str = include_str!("../../../../e2e/inputs/cluster-policy.yaml");
const AGENT: &str = include_str!("../../../../e2e/inputs/sre-agent.yaml");

/// What the umbrella chart renders from values-gpu.yaml by the README's table.
const VALUES: &str = "
driver: {enabled: true, repository: nvcr.io/nvidia, image: nvidia-driver, version: 535.104.05, upgradePolicy: {autoUpgrade: true}}
toolkit: {enabled: true}
cdi: {enabled: true}
devicePlugin: {enabled: true, config: {sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}}}
migManager: {enabled: false}
dcgm: {enabled: true}
dcgmExporter: {enabled: true, serviceMonitor: {enabled: true}}
";

fn input() -> ClusterPolicy {
    serde_saphyr::from_str(POLICY).expect("the input decodes")
}

fn expect_common(policy: &EffectivePolicy) {
    assert_eq!(policy.problems, []);
    assert_eq!(policy.unsupported, Vec::<String>::new());
    assert_eq!(policy.driver.version(), "535.104.05");
    assert!(
        policy.driver.operand.enabled
            && policy.toolkit.operand.enabled
            && policy.validator.operand.enabled
    );
    assert!(
        policy.device_plugin.operand.enabled
            && policy.gfd.operand.enabled
            && policy.dcgm_exporter.operand.enabled
    );
    assert!(policy.cdi.enabled && !policy.cdi.nri);
    assert!(policy.dcgm_exporter.service_monitor.enabled);
    assert_eq!(
        policy.dcgm_exporter.service_monitor.interval.as_str(),
        "15s"
    );
    assert!(
        policy.dcgm_exporter.host_pid,
        "shared cards need it to attribute metrics"
    );
    assert_eq!(
        policy.node_selector,
        [("gpu".to_owned(), "true".to_owned())].into()
    );
    let PluginConfig::Inline(Sharing::TimeSlicing(shared)) = &policy.device_plugin.config else {
        panic!("{:?}", policy.device_plugin.config);
    };
    assert_eq!(shared.shared().collect::<Vec<_>>(), [("nvidia.com/gpu", 4)]);
    for (key, effect) in [
        ("gpu-node", "NoSchedule"),
        ("gpu", "NoSchedule"),
        ("nvidia.com/gpu", "NoSchedule"),
    ] {
        let tolerated = policy.daemonsets.tolerations.iter().any(|t| {
            t.key.as_deref() == Some(key)
                && t.effect.as_deref().is_none_or(|e| e == effect)
                && (t.operator.as_deref() == Some("Exists") || t.value.as_deref() == Some("true"))
        });
        assert!(tolerated, "{key} in {:?}", policy.daemonsets.tolerations);
    }
}

#[test]
fn the_policy_alone() {
    let resolution = resolved(&[input()]);
    let active = resolution.active.expect("active");
    assert_eq!(active.name, "gpu-cluster-config");
    assert_eq!(active.owners.len(), 1);
    expect_common(&active.effective);
    assert_eq!(
        active.effective.driver.operand.image.to_string(),
        "nvcr.io/nvidia/driver:535.104.05"
    );
}

#[test]
fn the_policy_over_the_values() {
    let resolution = resolved(&[input(), base(VALUES)]);
    let active = resolution.active.expect("active");
    assert_eq!(active.name, "gpu-cluster-config");
    let owners: Vec<&str> = active.owners.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(owners, ["cluster-policy", "gpu-cluster-config"]);
    expect_common(&active.effective);
    let policy = &active.effective;
    assert_eq!(
        policy.driver.operand.image.to_string(),
        "nvcr.io/nvidia/nvidia-driver:535.104.05"
    );
    assert!(
        policy.dcgm.operand.enabled
            && !policy.mig_manager.operand.enabled
            && policy.driver.upgrade.auto_upgrade
    );
    let ignored = resolution.ignored.first().expect("the base");
    assert_eq!(
        (ignored.name.as_str(), ignored.active.as_str()),
        ("cluster-policy", "gpu-cluster-config")
    );
    insta::assert_json_snapshot!("inputs_effective", **policy);
}

#[test]
fn the_values_alone() {
    let active = resolved(&[base(VALUES)]).active.expect("active");
    assert_eq!(active.name, "cluster-policy");
    assert!(active.effective.node_selector.is_empty());
    assert!(active.effective.dcgm_exporter.service_monitor.enabled);
    assert_eq!(active.effective.problems, []);
}

#[test]
fn the_agent() {
    let agent: SREAgent = serde_saphyr::from_str(AGENT).expect("the input decodes");
    assert!(agent.spec.watches_gpus() && agent.spec.may_repair() && !agent.spec.is_suspended());
    assert_eq!(agent.spec.interval().as_secs(), 15);
}
