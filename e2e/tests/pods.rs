//! Pods that share a GPU, through the real API server: what they get, what they are told, and that nobody else is ever asked about.

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

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use tessera_e2e::Lab;
use tessera_e2e::cluster::{NAMESPACE, Output};
use tessera_e2e::nodes::{GpuNode, Taint};
use tessera_e2e::scenario::{MINUTE, asked, webhook_alone};

/// Name of the webhook for Pods, as the API server counts it.
const PODS: &str = "pods";

/// Nodes as they are once feature discovery has labelled them.
fn labelled(memory: &[&str]) -> Vec<Node> {
    let node = |(index, memory): (usize, &&str)| {
        let mut node = GpuNode::new(format!("gpu-{}", index + 1));
        node.taint = Taint::Nvidia;
        for (key, value) in [
            ("nvidia.com/gpu.memory", *memory),
            ("nvidia.com/gpu.count", "8"),
        ] {
            node.labels.push((key.to_owned(), value.to_owned()));
        }
        node.build()
    };
    memory.iter().enumerate().map(node).collect()
}

/// A lab where cards are shared by four, as soon as Pods are asked about.
async fn sharing(name: &str, memory: &[&str]) -> anyhow::Result<Lab> {
    let fast = ["--set", "certificates.settle=2s", "--set", "drain=1s"];
    let lab = webhook_alone(name, labelled(memory), &fast).await?;
    policy(&lab, json!({})).await?;
    asking(&lab).await?;
    Ok(lab)
}

async fn policy(lab: &Lab, more: Value) -> anyhow::Result<()> {
    let mut slicing = json!({"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]});
    slicing
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let policy = json!({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "mine"},
        "spec": {"nodeSelector": {"gpu": "true"}, "devicePlugin": {"config": {"sharing": {"timeSlicing": slicing}}}},
    });
    lab.apply(&policy.to_string()).await?;
    Ok(())
}

/// Waits until a Pod that shares a card is given its limit.
async fn asking(lab: &Lab) -> anyhow::Result<()> {
    let probe = pod("probe", json!({"nvidia.com/gpu": "1"}), json!({}));
    let file = lab.dir().join("probe.json");
    std::fs::write(&file, probe.to_string())?;
    let file = file.display().to_string();
    lab.wait_for("a Pod gets its limit", MINUTE, || async {
        let args = ["create", "--dry-run=server", "-o", "json", "-f", &file];
        let output = lab
            .kubectl(&args)
            .await
            .map_err(|error| error.to_string())?;
        if output.stdout.contains("CUDA_DEVICE_MEMORY_LIMIT_0") {
            Ok(())
        } else {
            Err(format!("{} {}", output.stdout, output.stderr))
        }
    })
    .await
}

fn pod(name: &str, limits: Value, more: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "train", "image": "lab-dummy", "resources": {"limits": limits}}]},
    });
    merge(&mut pod, more);
    pod
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// `kubectl apply`, and the Pod that it made.
async fn apply(lab: &Lab, pod: &Value) -> anyhow::Result<(Output, Value)> {
    let output = lab.try_apply(&pod.to_string()).await?;
    println!("{}{}", output.stdout, output.stderr);
    let name = pod["metadata"]["name"].as_str().unwrap();
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
    let get = [
        "-n",
        namespace,
        "get",
        "pod",
        name,
        "--ignore-not-found",
        "-o",
        "json",
    ];
    let text = lab.kubectl_ok(&get).await?;
    let found = if text.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&text)?
    };
    Ok((output, found))
}

/// Variables of the first container: `NAME=value`.
fn env(pod: &Value) -> Vec<String> {
    let env = pod["spec"]["containers"][0]["env"].as_array();
    env.into_iter()
        .flatten()
        .map(|one| {
            format!(
                "{}={}",
                one["name"].as_str().unwrap(),
                one["value"].as_str().unwrap_or_default()
            )
        })
        .collect()
}

fn one() -> Value {
    json!({"nvidia.com/gpu": "1"})
}

#[tokio::test]
async fn shares_get_their_limit_and_what_cannot_start_is_refused() -> anyhow::Result<()> {
    let lab = sharing("pods", &["15360", "15360"]).await?;
    limits(&lab).await?;
    refusals(&lab).await?;
    owners(&lab).await?;
    let mut audit = lab.audit();
    let all = audit.next_summary()?.account("webhook");
    assert_eq!(all.denied, 0, "{all}");
    Ok(())
}

/// From the policy, from the Pod, from its author.
async fn limits(lab: &Lab) -> anyhow::Result<()> {
    let (output, found) = apply(lab, &pod("auto", one(), json!({}))).await?;
    assert_eq!(env(&found), ["CUDA_DEVICE_MEMORY_LIMIT_0=3328m"]);
    assert_eq!(
        found["metadata"]["annotations"]["aiops.local/gpu-memory-limit-mode"],
        "advisory"
    );
    for words in [
        "Warning: ",
        "train CUDA_DEVICE_MEMORY_LIMIT_0=3328m",
        "they are advisory",
    ] {
        assert!(
            output.stderr.contains(words),
            "{words} is not in\n{}",
            output.stderr
        );
    }
    // Applied again: the same, without a word.
    let again = lab
        .try_apply(&pod("auto", one(), json!({})).to_string())
        .await?;
    assert_eq!(
        (again.stdout.trim(), again.stderr.trim()),
        ("pod/auto unchanged", "")
    );

    policy(lab, json!({"memoryLimit": "2Gi"})).await?;
    lab.wait_for("the policy's own number", MINUTE, || async {
        let name = "policy";
        lab.kubectl(&["delete", "pod", name, "--ignore-not-found", "--now"])
            .await
            .map_err(|e| e.to_string())?;
        let (_, found) = apply(lab, &pod(name, one(), json!({})))
            .await
            .map_err(|e| e.to_string())?;
        if env(&found) == ["CUDA_DEVICE_MEMORY_LIMIT_0=2048m"] {
            Ok(())
        } else {
            Err(found.to_string())
        }
    })
    .await?;
    let annotated =
        |value: &str| json!({"metadata": {"annotations": {"aiops.local/gpu-memory-limit": value}}});
    let (_, found) = apply(lab, &pod("annotated", one(), annotated("1Gi"))).await?;
    assert_eq!(env(&found), ["CUDA_DEVICE_MEMORY_LIMIT_0=1024m"]);
    let (output, found) = apply(lab, &pod("off", one(), annotated("Off"))).await?;
    assert_eq!((env(&found), output.stderr.as_str()), (Vec::new(), ""));
    let own = json!({"spec": {"containers": [{
        "name": "train", "image": "lab-dummy", "resources": {"limits": one()}, "env": [{"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "1g"}],
    }]}});
    let (output, found) = apply(lab, &pod("own", one(), own)).await?;
    assert_eq!(
        (env(&found), output.stderr.as_str()),
        (vec!["CUDA_DEVICE_MEMORY_LIMIT_0=1g".to_owned()], "")
    );
    let hami = json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"});
    let (output, found) = apply(lab, &pod("gpumem", hami, json!({}))).await?;
    assert_eq!(env(&found), ["CUDA_DEVICE_MEMORY_LIMIT_0=3000m"]);
    assert!(
        output
            .stderr
            .contains("asks for nvidia.com/gpumem: 3000, which became annotation"),
        "{}",
        output.stderr
    );
    assert_eq!(
        found["spec"]["containers"][0]["resources"],
        json!({"limits": one(), "requests": one()})
    );
    Ok(())
}

async fn refusals(lab: &Lab) -> anyhow::Result<()> {
    let annotated = json!({"metadata": {"annotations": {"aiops.local/gpu-memory-limit": "4096"}}});
    for (limits, more, words) in [
        (
            json!({"nvidia.com/gpu": "2"}),
            json!({}),
            "`2` is more than the one share that a container can have",
        ),
        (
            json!({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}),
            json!({}),
            "nvidia.com/gpucores]: `30` cannot be had",
        ),
        (
            json!({"nvidia.com/gpumem": "3000"}),
            json!({}),
            "ask for a share of a card as well",
        ),
        (
            one(),
            annotated,
            "`4096` is not Auto, Off or an amount of memory: write for example Auto",
        ),
    ] {
        let (output, found) = apply(lab, &pod("refused", limits, more)).await?;
        assert!(!output.success && found.is_null());
        for words in ["pods.aiops.local", words] {
            assert!(
                output.stderr.contains(words),
                "{words} is not in\n{}",
                output.stderr
            );
        }
    }
    Ok(())
}

/// Who makes Pods for somebody is told, in the event where people look.
async fn owners(lab: &Lab) -> anyhow::Result<()> {
    let template = pod("many", json!({"nvidia.com/gpu": "2"}), json!({}));
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many"},
        "spec": {"selector": {"matchLabels": {"app": "many"}}, "template": {"metadata": {"labels": {"app": "many"}}, "spec": template["spec"]}},
    });
    lab.apply(&deployment.to_string()).await?;
    lab.wait_for("the reason in an event", MINUTE, || async {
        let events = lab
            .kubectl_ok(&["get", "events", "--field-selector=reason=FailedCreate"])
            .await
            .map_err(|e| e.to_string())?;
        if events.contains("more than the one share that a container can have") {
            Ok(())
        } else {
            Err(events)
        }
    })
    .await
}

#[tokio::test]
async fn nobody_else_is_ever_asked_about() -> anyhow::Result<()> {
    let lab = sharing("pods-asked", &["15360"]).await?;
    let before = asked(&lab, PODS).await?;
    assert!(
        before > 0,
        "the API server counts its questions under another name"
    );
    lab.apply("{apiVersion: v1, kind: Namespace, metadata: {name: left-alone, labels: {aiops.local/admission: ignore}}}").await?;
    let of = |key: &str, value: &str| json!({"metadata": {key: value}});
    let label = |key: &str| json!({"metadata": {"labels": {key: "ignore"}}});
    for (name, limits, more) in [
        ("cpu", json!({"cpu": "1"}), json!({})),
        ("nothing", json!({}), json!({})),
        ("amd", json!({"amd.com/gpu": "1"}), json!({})),
        ("system", one(), of("namespace", "kube-system")),
        ("own", one(), of("namespace", NAMESPACE)),
        ("left", one(), of("namespace", "left-alone")),
        ("opted-out", one(), label("aiops.local/admission")),
        ("hami-ignores", one(), label("hami.io/webhook")),
        (
            "hami",
            one(),
            json!({"spec": {"schedulerName": "hami-scheduler"}}),
        ),
        (
            "kai",
            one(),
            json!({"spec": {"schedulerName": "kai-scheduler"}}),
        ),
    ] {
        let (output, found) = apply(&lab, &pod(name, limits, more)).await?;
        assert!(
            output.success && output.stderr.is_empty() && env(&found).is_empty(),
            "{name}: {}",
            output.stderr
        );
    }
    for object in [
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}",
        "{apiVersion: v1, kind: Service, metadata: {name: other}, spec: {ports: [{port: 80}]}}",
        "{apiVersion: batch/v1, kind: Job, metadata: {name: other}, spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: a, image: lab-dummy, resources: {limits: {nvidia.com/gpu: 1}}}]}}}}",
    ] {
        lab.apply(object).await?;
    }
    assert_eq!(asked(&lab, PODS).await?, before);
    // One that asks for a GPU, whatever container does, is asked about once; its scheduling, status and labels are not.
    let init = json!({"spec": {"initContainers": [{"name": "init", "image": "lab-dummy", "resources": {"limits": one()}}]}});
    apply(&lab, &pod("asked", json!({}), init)).await?;
    assert_eq!(asked(&lab, PODS).await?, before + 1);
    lab.kubectl_ok(&["label", "pod", "asked", "a=b"]).await?;
    lab.kubectl_ok(&["delete", "pod", "asked", "--now"]).await?;
    assert_eq!(asked(&lab, PODS).await?, before + 1);
    Ok(())
}

#[tokio::test]
async fn without_the_webhook_pods_start_as_they_are() -> anyhow::Result<()> {
    let lab = sharing("pods-down", &["15360"]).await?;
    let scale = |replicas: &'static str| {
        let lab = &lab;
        async move {
            lab.kubectl_ok(&["-n", NAMESPACE, "scale", "deployment", "webhook", replicas])
                .await?;
            let gone = [
                "-n",
                NAMESPACE,
                "wait",
                "--for=delete",
                "pod",
                "-l",
                "app.kubernetes.io/name=webhook",
                "--timeout=30s",
            ];
            if replicas.ends_with("=0") {
                lab.kubectl_ok(&gone).await?;
            }
            anyhow::Ok(())
        }
    };
    scale("--replicas=0").await?;
    let start = std::time::Instant::now();
    for (name, limits) in [
        ("plain", json!({})),
        ("shares", one()),
        ("two", json!({"nvidia.com/gpu": "2"})),
    ] {
        let (output, found) = apply(&lab, &pod(name, limits, json!({}))).await?;
        assert!(
            output.success && env(&found).is_empty(),
            "{name}: {}",
            output.stderr
        );
    }
    println!("three Pods without the webhook took {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(15));
    scale("--replicas=2").await?;
    asking(&lab).await
}
