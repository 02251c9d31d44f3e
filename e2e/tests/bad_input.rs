//! Bad input of every kind gets a clear reason, the last good state stays, and nothing else is taken down.
//! (Issue "The main job", section 7, item 12.)

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

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tessera_api::SREAgent;
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::scenario::*;
use tessera_e2e::{Lab, nodes, paths};

/// Every rule of the CRDs, through the real API server: each file of `refused/` says in its first line what the
/// refusal must contain; each of `accepted/` must be accepted.
#[tokio::test]
async fn the_api_server_refuses_what_one_object_can_prove_wrong() -> anyhow::Result<()> {
    let lab = Lab::bare("rules", Vec::new(), |_| {}).await?;
    lab.helm_ok(&[
        "install",
        "crds",
        paths::root()
            .join("charts/crds")
            .to_str()
            .unwrap_or_default(),
    ])
    .await?;
    let tests = paths::root().join("crates/api/tests");
    let mut count = 0;
    for (folder, wanted) in [("refused", false), ("accepted", true)] {
        let mut files: Vec<_> = std::fs::read_dir(tests.join(folder))?
            .flatten()
            .map(|e| e.path())
            .collect();
        files.sort();
        for file in files
            .iter()
            .filter(|f| f.extension().is_some_and(|e| e == "yaml"))
        {
            let text = std::fs::read_to_string(file)?;
            let refusal = create(&lab, &text).await?;
            let said = refusal.clone().unwrap_or_default();
            assert_eq!(refusal.is_none(), wanted, "{}: {said}", file.display());
            for line in text.lines().filter_map(|l| l.strip_prefix("# refused: ")) {
                assert!(
                    said.contains(line),
                    "{}: `{line}` is not in `{said}`",
                    file.display()
                );
            }
            count += 1;
        }
    }
    println!("{count} objects judged");
    assert!(
        count >= 20,
        "only {count} objects: are the files where this test looks?"
    );
    // A misspelt field is named.
    let output = lab.try_apply("{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: typo}, spec: {drivr: {enabled: true}}}").await?;
    assert!(
        !output.success && output.stderr.contains("drivr"),
        "{}",
        output.stderr
    );
    Ok(())
}

/// What the API server says against the object, if anything.
async fn create(lab: &Lab, text: &str) -> anyhow::Result<Option<String>> {
    let object: DynamicObject = serde_saphyr::from_str(text)?;
    let types = object.types.clone().unwrap_or_default();
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let namespaced = types.kind == "SREAgent";
    let api: Api<DynamicObject> = if namespaced {
        Api::namespaced_with(lab.client(), "default", &resource)
    } else {
        Api::all_with(lab.client(), &resource)
    };
    // Created, not applied: a type error is told in other words by server-side apply.
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api.create(&params, &object).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test]
async fn a_policy_stored_before_a_rule_existed_stops_nothing_else() -> anyhow::Result<()> {
    let lab = ready_with("old-policy", nodes::gpu_nodes(1), &WITHOUT_ADMISSION).await?;
    let before = daemonsets(&lab).await?;
    // The rules as they were: none.
    let crd = "clusterpolicies.nvidia.com";
    let original = lab.kubectl_ok(&["get", "crd", crd, "-o", "json"]).await?;
    let mut loose: Value = serde_json::from_str(&original)?;
    drop_rules(&mut loose);
    if let Some(meta) = loose.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("resourceVersion");
        meta.remove("managedFields");
    }
    let file = lab.dir().join("loose-crd.json");
    std::fs::write(&file, loose.to_string())?;
    lab.kubectl_ok(&["replace", "-f", file.to_str().unwrap_or_default()])
        .await?;
    lab.wait_for("the loose schema is in force", MINUTE, || async {
        let bad = json!({"devicePlugin": {"config": {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 0}]}}}}, "dcgm": {"exporter": {"serviceMonitor": {"interval": "10s"}}}});
        edit(&lab, bad).await.map_err(|e| e.to_string())
    })
    .await?;
    let bad = policy_until(&lab, USER_POLICY, "the bad part is named", MINUTE, |p| {
        condition(p, "DevicePluginReady").1 == "InvalidSpec"
    })
    .await?;
    println!("{}", explain(&bad));
    assert!(
        condition(&bad, "DevicePluginReady").2.contains("replicas"),
        "{}",
        explain(&bad)
    );
    assert_eq!(
        condition(&bad, "DriverReady").0,
        "True",
        "{}",
        explain(&bad)
    );
    let after = daemonsets(&lab).await?;
    for name in ["nvidia-device-plugin-daemonset", "gpu-feature-discovery"] {
        let generation =
            |sets: &BTreeMap<String, DaemonSet>| sets.get(name).and_then(|d| d.metadata.generation);
        assert_eq!(
            generation(&before),
            generation(&after),
            "the last good {name} was changed"
        );
    }
    edit(&lab, json!({"devicePlugin": {"config": {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}}})).await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    Ok(())
}

fn drop_rules(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("x-kubernetes-validations");
            map.values_mut().for_each(drop_rules);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_rules),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn an_unknown_config_map_or_key_is_named_and_the_last_good_state_stays() -> anyhow::Result<()>
{
    let lab = ready_with("config-map", nodes::gpu_nodes(1), &WITHOUT_ADMISSION).await?;
    let node = node_name(0);
    edit(&lab, json!({"devicePlugin": {"config": {"sharing": null, "name": "plugin-configs", "default": "few"}}})).await?;
    let missing = policy_until(&lab, USER_POLICY, "the ConfigMap is missed", MINUTE, |p| {
        condition(p, "DevicePluginReady").1 == "ConfigMapNotFound"
    })
    .await?;
    assert!(
        condition(&missing, "DevicePluginReady")
            .2
            .contains("plugin-configs"),
        "{}",
        explain(&missing)
    );
    assert_eq!(
        allocatable(&lab, &node)
            .await?
            .get("nvidia.com/gpu")
            .map(String::as_str),
        Some("32"),
        "the last good state was lost"
    );
    // It appears, with other keys.
    let config = |replicas: u32| {
        format!(
            "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: {replicas}\n"
        )
    };
    let map = |key: &str, text: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plugin-configs", "namespace": NAMESPACE}, "data": {key: text}}).to_string()
    };
    lab.apply(&map("many", &config(10))).await?;
    let key = policy_until(&lab, USER_POLICY, "the key is missed", MINUTE, |p| {
        condition(p, "DevicePluginReady").1 == "ConfigKeyNotFound"
    })
    .await?;
    assert!(
        condition(&key, "DevicePluginReady").2.contains("many"),
        "{}",
        explain(&key)
    );
    // With the key, but a misspelt field.
    lab.apply(&map(
        "few",
        "version: v1\nsharing:\n  timeSlicing:\n    resorces: []\n",
    ))
    .await?;
    let typo = policy_until(&lab, USER_POLICY, "the typo is named", MINUTE, |p| {
        condition(p, "DevicePluginReady").1 == "ConfigInvalid"
    })
    .await?;
    assert!(
        condition(&typo, "DevicePluginReady").2.contains("resorces"),
        "{}",
        explain(&typo)
    );
    // Then right, and edited: the plugin follows by itself.
    for replicas in [2u32, 3] {
        lab.apply(&map("few", &config(replicas))).await?;
        let want = (8 * replicas).to_string();
        lab.wait_for(&format!("{want} shares"), MINUTE, || async {
            let list = allocatable(&lab, &node).await.map_err(|e| e.to_string())?;
            if list.get("nvidia.com/gpu") == Some(&want) {
                Ok(())
            } else {
                Err(format!("{list:?}"))
            }
        })
        .await?;
    }
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    Ok(())
}

#[tokio::test]
async fn a_limit_of_memory_that_cards_do_not_have_is_told_with_their_nodes() -> anyhow::Result<()> {
    let lab = installed("memory", nodes::gpu_nodes(2), &[]).await?;
    lab.apply_file(&input("cluster-policy.yaml")).await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    let limit = |text: &str| {
        let slicing = json!({"memoryLimit": text});
        json!({"devicePlugin": {"config": {"sharing": {"timeSlicing": slicing}}}})
    };
    edit(&lab, limit("200Gi")).await?;
    let told = policy_until(&lab, USER_POLICY, "the limit is told", MINUTE, |p| {
        condition(p, "SharingApplied").1 == "ConfigInvalid"
    })
    .await?;
    let message = condition(&told, "SharingApplied").2;
    println!("{}", explain(&told));
    assert!(
        message.contains(&node_name(0)) && message.contains("memoryLimit 204800Mi"),
        "{message}"
    );
    edit(&lab, limit("1Gi")).await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    Ok(())
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_named() -> anyhow::Result<()> {
    let lab = installed("pull", nodes::gpu_nodes(2), &[]).await?;
    let node = node_name(0);
    lab.kubectl_ok(&[
        "annotate",
        "node",
        &node,
        "sim.tessera.dev/nvidia-dcgm-exporter=fail-pull",
    ])
    .await?;
    lab.apply_file(&input("cluster-policy.yaml")).await?;
    let told = policy_until(&lab, USER_POLICY, "the image is named", MINUTE, |p| {
        condition(p, "ExporterReady").1 == "ImagePullFailed"
    })
    .await?;
    let message = condition(&told, "ExporterReady").2;
    println!("{}", explain(&told));
    assert!(
        message.contains(&node) && message.contains("dcgm-exporter"),
        "{message}"
    );
    policy_until(&lab, USER_POLICY, "the others are ready", MINUTE, |p| {
        condition(p, "DriverReady").0 == "True" && condition(p, "DevicePluginReady").0 == "True"
    })
    .await?;
    lab.kubectl_ok(&[
        "annotate",
        "node",
        &node,
        "sim.tessera.dev/nvidia-dcgm-exporter-",
    ])
    .await?;
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    pods.delete_collection(
        &kube::api::DeleteParams::default(),
        &ListParams::default().labels("app=nvidia-dcgm-exporter"),
    )
    .await?;
    policy_ready(&lab, USER_POLICY, MINUTE).await?;
    Ok(())
}

#[tokio::test]
async fn garbage_from_an_exporter_is_never_a_fault_of_a_card() -> anyhow::Result<()> {
    let lab = ready("garbage", nodes::gpu_nodes(2)).await?;
    apply_sre_agent(&lab, NAMESPACE).await?;
    let agents: Api<SREAgent> = Api::namespaced(lab.client(), NAMESPACE);
    let healthy = |want: &'static str| {
        let agents = agents.clone();
        move || {
            let agents = agents.clone();
            async move {
                let agent = agents
                    .get("gpu-monitor-agent")
                    .await
                    .map_err(|e| e.to_string())?;
                let status = agent.status.unwrap_or_default();
                let telemetry = status
                    .conditions
                    .iter()
                    .find(|c| c.type_ == "TelemetryHealthy")
                    .cloned();
                match telemetry {
                    Some(c) if c.status == want => Ok(c.message),
                    other => Err(format!("{other:?}")),
                }
            }
        }
    };
    lab.wait_for("telemetry is healthy", MINUTE * 2, healthy("True"))
        .await?;
    let node = node_name(0);
    for garbage in ["truncated", "huge", "binary", "http-500"] {
        lab.kubectl_ok(&[
            "annotate",
            "node",
            "--overwrite",
            &node,
            &format!("sim.tessera.dev/metrics={garbage}"),
        ])
        .await?;
        let message = lab
            .wait_for(
                &format!("{garbage}: telemetry is not healthy"),
                MINUTE * 2,
                healthy("False"),
            )
            .await?;
        println!("{garbage}: {message}");
        assert!(message.contains(&node), "{garbage}: {message}");
        let cordoned = Api::<Node>::all(lab.client())
            .get(&node)
            .await?
            .spec
            .and_then(|s| s.unschedulable);
        assert_ne!(
            cordoned,
            Some(true),
            "{garbage} was taken for a fault of the node"
        );
        lab.kubectl_ok(&["annotate", "node", &node, "sim.tessera.dev/metrics-"])
            .await?;
        lab.wait_for(
            &format!("after {garbage}: telemetry is healthy again"),
            MINUTE * 2,
            healthy("True"),
        )
        .await?;
    }
    Ok(())
}
