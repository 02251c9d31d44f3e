//! Base, overlay, dialects, defaults, problems.

use tessera_api::{
    effective::{Component, IgnoredWhy, PluginConfig, Sharing, UpdateStrategy},
    policy::{MigStrategy, PullPolicy},
    units::IntOrPercent,
};

use crate::{base, effective, policy, resolved};

#[test]
fn nothing_given_is_nvidias_defaults() {
    let policy = effective("{}");
    assert_eq!(policy.problems, []);
    let on = [
        policy.driver.operand.enabled,
        policy.toolkit.operand.enabled,
        policy.validator.operand.enabled,
        policy.device_plugin.operand.enabled,
        policy.gfd.operand.enabled,
        policy.mig_manager.operand.enabled,
        policy.dcgm_exporter.operand.enabled,
        policy.cdi.enabled,
    ];
    assert_eq!(on, [true; 8]);
    assert!(!policy.dcgm.operand.enabled && !policy.node_status_exporter.operand.enabled);
    assert!(!policy.dcgm_exporter.service_monitor.enabled);
    assert_eq!(policy.mig.strategy, MigStrategy::Single);
    assert_eq!(
        policy.device_plugin.config,
        PluginConfig::Inline(Sharing::None)
    );
    assert_eq!(policy.daemonsets.tolerations.len(), 1);
    insta::assert_json_snapshot!("defaults", policy);
}

#[test]
fn overlay_wins_field_by_field_and_across_dialects() {
    let cases = [
        // (base, overlay, what must hold)
        (
            "toolkit: {enabled: true}",
            "containerRuntime: {enabled: false}",
        ),
        (
            "containerRuntime: {enabled: true}",
            "toolkit: {enabled: false}",
        ),
        (
            "containerRuntime: {enabled: true}",
            "containerRuntime: {enabled: false, cdi: {enabled: true}}",
        ),
    ];
    for (under, over) in cases {
        let active = resolved(&[base(under), policy("mine", 1, over)])
            .active
            .expect("active");
        assert!(
            !active.effective.toolkit.operand.enabled,
            "{over} over {under}"
        );
        assert_eq!(active.effective.problems, [], "{over} over {under}");
    }
}

#[test]
fn lists_replace_and_objects_merge() {
    let under = "driver: {env: [{name: A, value: '1'}], args: [x], version: '1', repository: r.example/a, image: driver}";
    let active = resolved(&[
        base(under),
        policy(
            "mine",
            1,
            "driver: {env: [{name: B, value: '2'}], version: '2'}",
        ),
    ])
    .active;
    let driver = active.expect("active").effective.driver.clone();
    assert_eq!(
        driver.operand.env,
        [("B".to_owned(), "2".to_owned())].into()
    );
    assert_eq!(driver.operand.args, ["x"]);
    assert_eq!(driver.operand.image.to_string(), "r.example/a/driver:2");
}

#[test]
fn an_overlay_changes_to_an_alternative() {
    let slicing =
        "devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}}}";
    let mps = "devicePlugin: {config: {sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}}}";
    let map = "devicePlugin: {config: {name: my-config, default: any}}";
    let run = |under: &str, over: &str| {
        let active = resolved(&[base(under), policy("mine", 1, over)])
            .active
            .expect("active");
        assert_eq!(active.effective.problems, [], "{over} over {under}");
        active.effective.device_plugin.config.clone()
    };
    assert!(matches!(
        run(slicing, mps),
        PluginConfig::Inline(Sharing::Mps(_))
    ));
    assert!(matches!(run(slicing, map), PluginConfig::ConfigMap { .. }));
    assert!(matches!(
        run(map, slicing),
        PluginConfig::Inline(Sharing::TimeSlicing(_))
    ));
    let image = resolved(&[
        base("driver: {repository: r.example/a, image: driver, version: '1'}"),
        policy(
            "mine",
            1,
            "driver: {image: 'other.example/driver@sha256:00'}",
        ),
    ]);
    assert_eq!(
        image
            .active
            .expect("active")
            .effective
            .driver
            .operand
            .image
            .to_string(),
        "other.example/driver@sha256:00"
    );
}

#[test]
fn the_oldest_user_policy_is_active_then_the_lowest_name() {
    let (old, young, twin) = (
        policy("b", 10, "{}"),
        policy("a", 5, "{}"),
        policy("c", 10, "{}"),
    );
    let resolution = resolved(&[young.clone(), twin, old.clone()]);
    assert_eq!(resolution.active.expect("active").name, "b");
    let ignored: Vec<_> = resolution
        .ignored
        .iter()
        .map(|i| (i.name.as_str(), i.why))
        .collect();
    assert_eq!(
        ignored,
        [
            ("a", IgnoredWhy::OlderPolicyActive),
            ("c", IgnoredWhy::OlderPolicyActive)
        ]
    );

    let mut leaving = old;
    leaving.metadata.deletion_timestamp = young.metadata.creation_timestamp.clone();
    let resolution = resolved(&[leaving, young]);
    assert_eq!(resolution.active.expect("active").name, "a");
    assert!(resolution.ignored.is_empty());
    assert!(resolved(&[]).active.is_none());
}

#[test]
fn base_is_overlaid_and_alone_when_the_user_policy_goes() {
    let resolution = resolved(&[base("driver: {version: '1'}"), policy("mine", 1, "{}")]);
    assert_eq!(
        resolution.ignored.first().map(|i| i.why),
        Some(IgnoredWhy::OverlaidBase)
    );
    assert_eq!(
        resolution
            .active
            .expect("active")
            .effective
            .driver
            .version(),
        "1"
    );
    assert_eq!(
        resolved(&[base("{}")]).active.expect("active").name,
        "cluster-policy"
    );
}

#[test]
fn a_bad_value_makes_one_component_invalid() {
    let cases = [
        ("driver: {image: 'a:1', version: '2'}", Component::Driver),
        (
            "driver: {upgradePolicy: {maxUnavailable: 130%}}",
            Component::Driver,
        ),
        (
            "driver: {upgradePolicy: {maxParallelUpgrades: -1}}",
            Component::Driver,
        ),
        ("driver: {kernelModuleType: closed}", Component::Driver),
        (
            "driver: {repo: a.example, repository: b.example}",
            Component::Driver,
        ),
        (
            "driver: {manager: {image: 'a:1', version: '2'}}",
            Component::Driver,
        ),
        ("toolkit: {imagePullPolicy: Sometimes}", Component::Toolkit),
        (
            "toolkit: {enabled: true}\ncontainerRuntime: {enabled: false}",
            Component::Toolkit,
        ),
        (
            "cdi: {enabled: false, nriPluginEnabled: true}",
            Component::Toolkit,
        ),
        ("gfd: {resources: {limits: {cpu: lots}}}", Component::Gfd),
        (
            "dcgmExporter: {serviceMonitor: {interval: often}}",
            Component::DcgmExporter,
        ),
        (
            "dcgmExporter: {serviceMonitor: {interval: 10s, scrapeTimeout: 1m}}",
            Component::DcgmExporter,
        ),
        (
            "dcgmExporter: {service: {type: ExternalName}}",
            Component::DcgmExporter,
        ),
        (
            "dcgmExporter: {args: [a]}\ndcgm: {exporter: {args: [b]}}",
            Component::DcgmExporter,
        ),
        (
            "migManager: {config: {default: all-1g.10gb}}",
            Component::MigManager,
        ),
        (
            "devicePlugin: {config: {sharing: {timeSlicing: {resources: []}}}}",
            Component::DevicePlugin,
        ),
        (
            "devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: gpu, replicas: 0}]}}}}",
            Component::DevicePlugin,
        ),
        (
            "devicePlugin: {config: {sharing: {mps: {resources: [{name: gpu, replicas: 49}]}}}}",
            Component::DevicePlugin,
        ),
        (
            "devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: amd.com/gpu, replicas: 2}]}}}}",
            Component::DevicePlugin,
        ),
        (
            "mig: {strategy: single}\ndevicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}}}",
            Component::DevicePlugin,
        ),
        (
            "mig: {strategy: none}\ndevicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: mig-1g.5gb, replicas: 2}]}}}}",
            Component::DevicePlugin,
        ),
    ];
    for (spec, component) in cases {
        let policy = effective(spec);
        let hit: Vec<Component> = policy.problems.iter().map(|p| p.component).collect();
        assert!(
            !hit.is_empty() && hit.iter().all(|c| *c == component),
            "{spec}: {:?}",
            policy.problems
        );
        let operand = policy.operand(component).expect("an operand");
        assert!(operand.invalid.is_some() && operand.enabled, "{spec}");
        let others = [
            Component::Driver,
            Component::Toolkit,
            Component::DevicePlugin,
            Component::DcgmExporter,
        ];
        for other in others.into_iter().filter(|o| *o != component) {
            assert_eq!(
                policy.operand(other).and_then(|o| o.invalid.clone()),
                None,
                "{spec} spoils {other:?}"
            );
        }
    }
}

#[test]
fn a_conflict_that_only_the_merge_shows_is_found() {
    let under = "devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}}}";
    let active = resolved(&[base(under), policy("mine", 1, "mig: {strategy: mixed}")])
        .active
        .expect("active");
    let message = active
        .effective
        .device_plugin
        .operand
        .invalid
        .clone()
        .expect("invalid");
    assert!(message.contains("mig.strategy is mixed"), "{message}");
}

#[test]
fn a_bad_common_value_falls_back_and_says_so() {
    let policy =
        effective("daemonsets: {rollingUpdate: {maxUnavailable: many}, updateStrategy: Sideways}");
    assert_eq!(
        policy.daemonsets.update_strategy,
        UpdateStrategy::RollingUpdate {
            max_unavailable: IntOrPercent::Int(1)
        }
    );
    assert_eq!(policy.problems.len(), 2);
    assert!(
        policy
            .problems
            .iter()
            .all(|p| p.component == Component::Policy)
    );
    assert_eq!(policy.driver.operand.invalid, None);
}

#[test]
fn tolerations_join_without_duplicates() {
    let policy = effective(
        "
daemonsets: {tolerations: [{key: a, operator: Exists}, {key: gpu, value: 'true'}]}
driver: {tolerations: [{key: a, operator: Exists, effect: ''}, {key: b, value: x, effect: NoExecute}]}
nodeSelector: {gpu: 'true'}
",
    );
    let keys: Vec<_> = policy
        .daemonsets
        .tolerations
        .iter()
        .map(|t| t.key.clone().unwrap_or_default())
        .collect();
    assert_eq!(keys, ["a", "b", "gpu"]);
}

#[test]
fn mig_strategy_follows_the_manager_and_sharing() {
    let sharing =
        "devicePlugin: {config: {sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}}}";
    let cases = [
        ("{}".to_owned(), MigStrategy::Single),
        ("migManager: {enabled: false}".to_owned(), MigStrategy::None),
        (sharing.to_owned(), MigStrategy::None),
        (
            format!("{sharing}\nmigManager: {{enabled: true}}"),
            MigStrategy::None,
        ),
        (
            "mig: {strategy: mixed}\nmigManager: {enabled: false}".to_owned(),
            MigStrategy::Mixed,
        ),
    ];
    for (spec, want) in cases {
        assert_eq!(effective(&spec).mig.strategy, want, "{spec}");
    }
}

#[test]
fn what_nobody_acts_on_is_named() {
    let policy = effective(
        "
sandboxWorkloads: {enabled: true}
vgpuManager: {enabled: true}
kataManager: {enabled: false}
gds: {enabled: true}
ccManager: {enabled: true}
operator: {defaultRuntime: docker, use_ocp_driver_toolkit: true, metrics: {serviceMonitor: {enabled: true}}}
driver: {useNvidiaDriverCRD: true}
",
    );
    let named = [
        "operator.use_ocp_driver_toolkit",
        "operator.metrics.serviceMonitor",
        "driver.useNvidiaDriverCRD",
        "sandboxWorkloads.enabled",
        "vgpuManager.enabled",
        "ccManager.enabled",
    ];
    assert_eq!(policy.unsupported, named);
}

#[test]
fn driver_sidecars_are_built_against_the_driver() {
    let policy = effective("gds: {enabled: true}\ngdrcopy: {enabled: true, version: v9}");
    let image = |sidecar: &Option<tessera_api::effective::DriverSidecar>| {
        sidecar.as_ref().map(|s| s.image.to_string())
    };
    assert_eq!(
        image(&policy.driver.gds).as_deref(),
        Some("nvcr.io/nvidia/cloud-native/nvidia-fs:2.29.4")
    );
    assert_eq!(
        image(&policy.driver.gdrcopy).as_deref(),
        Some("nvcr.io/nvidia/cloud-native/gdrdrv:v9")
    );
    assert_eq!(policy.driver.operand.invalid, None);
    let policy = effective("gds: {enabled: true}\ndriver: {usePrecompiled: true}");
    let invalid = policy.driver.operand.invalid.unwrap_or_default();
    assert!(
        invalid.starts_with("spec.gds.enabled: does not go together with driver.usePrecompiled"),
        "{invalid}"
    );
    assert_eq!(effective("gds: {enabled: false}").driver.gds, None);
}

#[test]
fn a_default_timeout_never_exceeds_a_short_interval() {
    let monitor = effective("dcgmExporter: {serviceMonitor: {interval: 5s}}")
        .dcgm_exporter
        .service_monitor;
    assert!(monitor.enabled);
    assert_eq!(monitor.scrape_timeout.as_str(), "5s");
}

#[test]
fn what_an_older_schema_let_in_still_decodes() {
    let policy = effective("driver: {imagePullPolicy: '', futureField: 1}\nunknown: {a: 1}");
    assert_eq!(
        policy.driver.operand.image_pull_policy,
        PullPolicy::IfNotPresent
    );
    assert!(policy.driver.operand.invalid.is_some());
}

#[test]
fn the_hash_follows_the_meaning() {
    let a = effective("driver: {version: '1'}");
    let b = effective("driver: {version: '2'}");
    assert_ne!(a.hash(), b.hash());
    assert_eq!(
        a.hash(),
        effective("driver: {version: '1', enabled: true}").hash()
    );
    assert_eq!(a.hash().len(), 16);
}
