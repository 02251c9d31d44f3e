//! Monitoring alone: the dcgm-monitor-controller as its chart runs it, with nothing beside it. (Issue "The main job", section 7, items
//! 4, 8 and 12.)

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a scenario fails by panicking and shows what it measured"
)]

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};
use tessera_e2e::audit::Class;
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::scenario::*;
use tessera_e2e::{Lab, nodes};

const POLICY: &str = "only-monitoring";
const GOOD: &str =
    "DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature\nDCGM_FI_DEV_FB_USED, gauge, memory\n";

/// The controller alone, and a policy that asks for nothing that others serve.
async fn alone(name: &str) -> anyhow::Result<Lab> {
    let lab = Lab::for_test(name, nodes::gpu_nodes(2)).await?;
    let off = ["driver", "devicePlugin", "sreagent"]
        .map(|name| format!("{name}Controller.enabled=false"));
    let mut args = vec!["--set", "dcgmMonitorController.replicas=1"];
    args.extend(WITHOUT_ADMISSION);
    for value in &off {
        args.extend(["--set", value.as_str()]);
    }
    lab.helm_install(&input("values-gpu.yaml"), &args).await?;
    // The driver-controller makes this one where it is installed.
    lab.apply("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}").await?;
    lab.apply(&format!(
        "{{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {{name: {POLICY}}}, spec: {{nodeSelector: {{gpu: 'true'}}, \
         validator: {{enabled: false}}, dcgm: {{exporter: {{serviceMonitor: {{interval: 15s}}}}}}, nodeStatusExporter: {{enabled: true}}}}}}"
    ))
    .await?;
    policy_ready(&lab, POLICY, MINUTE).await?;
    Ok(lab)
}

/// The user's metrics ConfigMap with these keys, in place of any that is there.
async fn user_metrics(lab: &Lab, data: Value) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(lab.client(), NAMESPACE);
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "my-metrics"}, "data": data}))?;
    match maps.get_opt("my-metrics").await? {
        Some(_) => {
            maps.replace("my-metrics", &kube::api::PostParams::default(), &map)
                .await?
        }
        None => maps.create(&kube::api::PostParams::default(), &map).await?,
    };
    Ok(())
}

/// What the exporter's pods read, and the template's generation.
async fn rolled_out(lab: &Lab) -> anyhow::Result<(String, i64)> {
    let maps: Api<ConfigMap> = Api::namespaced(lab.client(), NAMESPACE);
    let sets: Api<DaemonSet> = Api::namespaced(lab.client(), NAMESPACE);
    let data = maps
        .get("nvidia-dcgm-exporter-metrics")
        .await?
        .data
        .unwrap_or_default();
    let csv = data.get("dcgm-metrics.csv").cloned().unwrap_or_default();
    let generation = sets
        .get("nvidia-dcgm-exporter")
        .await?
        .metadata
        .generation
        .unwrap_or_default();
    Ok((csv, generation))
}

async fn says(lab: &Lab, reason: &'static str, part: &'static str) -> anyhow::Result<()> {
    let what = format!("ExporterReady says {reason}");
    policy_until(lab, POLICY, &what, MINUTE, |policy| {
        let (_, found, message) = condition(policy, "ExporterReady");
        found == reason && message.contains(part)
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_bad_metrics_file_never_reaches_a_pod() -> anyhow::Result<()> {
    let lab = alone("metrics-file").await?;
    let (built_in, first) = rolled_out(&lab).await?;
    assert!(built_in.contains("DCGM_EXP_XID_ERRORS_COUNT"), "{built_in}");

    edit_policy(
        &lab,
        POLICY,
        json!({"dcgm": {"exporter": {"config": {"name": "my-metrics"}}}}),
    )
    .await?;
    says(&lab, "ConfigMapNotFound", "gpu-operator/my-metrics").await?;
    user_metrics(&lab, json!({"metrics": GOOD})).await?;
    says(&lab, "ConfigKeyNotFound", "dcgm-metrics.csv").await?;
    user_metrics(
        &lab,
        json!({"dcgm-metrics.csv": "DCGM_FI_DEV_GPU_TEMP, guage, t"}),
    )
    .await?;
    says(&lab, "ConfigInvalid", "line 1: unknown type `guage`").await?;
    assert_eq!(
        rolled_out(&lab).await?,
        (built_in, first),
        "nothing that is wrong reaches a pod"
    );

    user_metrics(&lab, json!({"dcgm-metrics.csv": GOOD})).await?;
    policy_ready(&lab, POLICY, MINUTE).await?;
    assert_eq!(
        rolled_out(&lab).await?,
        (GOOD.to_owned(), first + 1),
        "a good file is rolled out once"
    );

    // From here the last good one is the user's own.
    user_metrics(&lab, json!({"dcgm-metrics.csv": "\u{1}\u{2}"})).await?;
    says(&lab, "ConfigInvalid", "control characters").await?;
    lab.kubectl_ok(&["-n", NAMESPACE, "delete", "configmap", "my-metrics"])
        .await?;
    says(
        &lab,
        "ConfigMapNotFound",
        "keeps the last good metrics (of ConfigMap my-metrics)",
    )
    .await?;
    assert_eq!(rolled_out(&lab).await?, (GOOD.to_owned(), first + 1));
    user_metrics(&lab, json!({"dcgm-metrics.csv": GOOD})).await?;
    policy_ready(&lab, POLICY, MINUTE).await?;
    assert_eq!(rolled_out(&lab).await?, (GOOD.to_owned(), first + 1));
    Ok(())
}

#[tokio::test]
async fn the_monitor_follows_its_kind_and_the_policy_with_few_requests() -> anyhow::Result<()> {
    let lab = alone("monitor").await?;
    let mut audit = lab.audit();
    let crd = fixture("servicemonitor-crd.yaml");
    quiet(&mut audit, Duration::from_secs(3), MINUTE).await?;

    lab.apply_file(&crd).await?;
    let monitors: Api<DynamicObject> =
        Api::namespaced_with(lab.client(), NAMESPACE, &service_monitors());
    let reported = |reason: &'static str| {
        policy_until(&lab, POLICY, reason, MINUTE, move |policy| {
            condition(policy, "MonitoringReady").1 == reason
        })
    };
    reported("ServiceMonitorApplied").await?;
    let came = quiet(&mut audit, Duration::from_secs(3), MINUTE).await?;
    assert_eq!(
        count(&came, Class::Write),
        2,
        "the monitor, the status:\n{}",
        lines(&came, Class::Write)
    );
    let endpoint = |monitor: &DynamicObject| monitor.data["spec"]["endpoints"][0].clone();
    let monitor = monitors.get("nvidia-dcgm-exporter").await?;
    assert_eq!(endpoint(&monitor)["interval"], "15s");
    assert_eq!(endpoint(&monitor)["scrapeTimeout"], "10s");

    // It selects one Service, by a port that this has.
    let labels = monitor.data["spec"]["selector"]["matchLabels"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let selector: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let services: Api<Service> = Api::namespaced(lab.client(), NAMESPACE);
    let selected = services
        .list(&ListParams::default().labels(&selector.join(",")))
        .await?
        .items;
    assert_eq!(selected.len(), 1);
    let ports = selected[0]
        .spec
        .iter()
        .flat_map(|spec| spec.ports.iter().flatten());
    let names: Vec<&str> = ports.filter_map(|port| port.name.as_deref()).collect();
    assert_eq!(Some(names[0]), endpoint(&monitor)["port"].as_str());

    edit_policy(&lab, POLICY, json!({"dcgm": {"exporter": {"serviceMonitor": {"interval": "5s", "additionalLabels": {"release": "prometheus"}}}}})).await?;
    policy_ready(&lab, POLICY, MINUTE).await?;
    let monitor = monitors.get("nvidia-dcgm-exporter").await?;
    assert_eq!(endpoint(&monitor)["interval"], "5s");
    assert_eq!(
        endpoint(&monitor)["scrapeTimeout"],
        "5s",
        "never longer than the interval"
    );
    assert_eq!(
        monitor.metadata.labels.clone().unwrap_or_default()["release"],
        "prometheus"
    );

    quiet(&mut audit, Duration::from_secs(3), MINUTE).await?;
    lab.kubectl_ok(&["delete", "-f", crd.to_str().unwrap_or_default()])
        .await?;
    reported("CRDNotInstalled").await?;
    let went = quiet(&mut audit, Duration::from_secs(3), MINUTE).await?;
    assert_eq!(
        count(&went, Class::Write),
        1,
        "the status:\n{}",
        lines(&went, Class::Write)
    );
    policy_ready(&lab, POLICY, MINUTE).await?;

    // With the kind installed, a restart writes nothing and takes nothing back.
    lab.apply_file(&crd).await?;
    reported("ServiceMonitorApplied").await?;
    quiet(&mut audit, Duration::from_secs(3), MINUTE).await?;
    let before = policy(&lab, POLICY)
        .await?
        .and_then(|policy| policy.metadata.resource_version);
    let old = controller_pods(&lab, "dcgm-monitor-controller").await?;
    lab.kubectl_ok(&[
        "-n",
        NAMESPACE,
        "delete",
        "pod",
        "-l",
        "app.kubernetes.io/name=dcgm-monitor-controller",
    ])
    .await?;
    lab.wait_for("another process leads", MINUTE, || async {
        let holder = leader(&lab, "dcgm-monitor-controller")
            .await
            .map_err(|error| error.to_string())?;
        if holder.is_empty() || old.contains(&holder) {
            Err(format!("holder `{holder}`"))
        } else {
            Ok(())
        }
    })
    .await?;
    let restarted = quiet(&mut audit, Duration::from_secs(5), MINUTE).await?;
    let written: Vec<_> = restarted
        .into_iter()
        .filter(|request| request.resource != "leases")
        .collect();
    assert_eq!(
        count(&written, Class::Write),
        0,
        "{}",
        lines(&written, Class::Write)
    );
    assert_eq!(
        policy(&lab, POLICY)
            .await?
            .and_then(|policy| policy.metadata.resource_version),
        before
    );
    Ok(())
}
