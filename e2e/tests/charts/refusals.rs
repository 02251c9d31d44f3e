//! Values that cannot work are refused before anything is installed, naming the path.

use crate::helm::try_render;

/// Values, and what the refusal must contain: the path and the key or type.
const BAD: [(&str, &[&str]); 25] = [
    ("operatr: {}", &["operatr", "not allowed"]),
    ("driver: {verion: '1'}", &["/driver", "verion"]),
    ("driver: {enabled: 'yes'}", &["/driver/enabled", "boolean"]),
    (
        "driver: {upgradePolicy: sometimes}",
        &["/driver/upgradePolicy", "rolling"],
    ),
    (
        "driver: {upgradePolicy: {maxParallelUpgrade: 1}}",
        &["/driver/upgradePolicy", "maxParallelUpgrade"],
    ),
    (
        "driver: {nvidiaDriverCRD: {enabled: true}}",
        &["/driver/nvidiaDriverCRD/enabled", "false"],
    ),
    (
        "devicePlugin: {sharing: {timeSlicing: {enabled: true, replicas: four}}}",
        &["/devicePlugin/sharing/timeSlicing/replicas", "integer"],
    ),
    (
        "devicePlugin: {sharing: {timeslicing: {enabled: true}}}",
        &["/devicePlugin/sharing", "timeslicing"],
    ),
    (
        "devicePlugin: {sharing: {timeSlicing: {enabled: true}}}",
        &["devicePlugin.sharing.timeSlicing", "needs replicas"],
    ),
    (
        "dcgm: {exporter: {serviceMonitor: {intervall: 15s}}}",
        &["/dcgm/exporter/serviceMonitor", "intervall"],
    ),
    (
        "containerRuntime: {cdi: {enable: true}}",
        &["/containerRuntime/cdi", "enable"],
    ),
    (
        "containerRuntime: {enabled: true}\ntoolkit: {enabled: false}",
        &["containerRuntime.enabled", "toolkit.enabled", "same thing"],
    ),
    (
        "driver: {repo: a.example, repository: b.example}",
        &["driver.repo ", "driver.repository", "same thing"],
    ),
    (
        "operator: {resources: {limit: {cpu: 1}}}",
        &["/operator/resources", "limit"],
    ),
    (
        "operator: {resources: {limits: {cpu: lots}}}",
        &["/operator/resources/limits/cpu"],
    ),
    (
        "operator: {tolerations: [{key: a, operator: Exist}]}",
        &["/operator/tolerations/0/operator", "Exists"],
    ),
    ("reconcileInterval: 10 minutes", &["/reconcileInterval"]),
    ("maxConcurrentReconciles: -1", &["/maxConcurrentReconciles"]),
    ("mig: {strategy: double}", &["/mig/strategy", "mixed"]),
    (
        "nodeSelector: {gpu: true}",
        &["/nodeSelector/gpu", "string"],
    ),
    (
        "global: {imagePullSecrets: [{nam: x}]}",
        &["/global/imagePullSecrets/0", "nam"],
    ),
    (
        "driverController: {replicaz: 3}",
        &["driverController", "replicaz"],
    ),
    (
        "driverController: {image: {pullPolicy: Sometimes}}",
        &["driverController", "/image/pullPolicy"],
    ),
    (
        "sreagentController: {log: {format: xml}}",
        &["sreagentController", "/log/format"],
    ),
    ("crds: {upgrade: {enabld: true}}", &["crds", "enabld"]),
];

#[test]
fn bad_values_are_refused_with_their_path() {
    let refused = |(values, wanted): &(&str, &[&str])| match try_render("gpu-operator", values) {
        Ok(_) => Some(format!("accepted: {values}")),
        Err(error) => wanted
            .iter()
            .find(|want| !error.contains(**want))
            .map(|want| format!("`{want}` is missing for `{values}`: {error}")),
    };
    let wrong: Vec<String> = BAD.iter().filter_map(refused).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn component_charts_refuse_for_themselves() {
    for (chart, values, want) in [
        ("driver-controller", "agentImage: {}", "agentImage"),
        (
            "sreagent-controller",
            "ports: {metrics: 80}",
            "/ports/metrics",
        ),
        (
            "dcgm-monitor-controller",
            "leaderElection: {leaseDuration: soon}",
            "/leaderElection/leaseDuration",
        ),
        ("device-plugin-controller", "resource: {}", "resource"),
        ("crds", "image: {tagg: x}", "tagg"),
    ] {
        let error = try_render(chart, values).expect_err(values);
        assert!(error.contains(want), "{chart}: {error}");
    }
}

#[test]
fn globals_of_other_charts_pass() {
    try_render(
        "gpu-operator",
        "global: {storageClass: fast, other: {nested: 1}}",
    )
    .unwrap();
    try_render("driver-controller", "global: {storageClass: fast}").unwrap();
}
