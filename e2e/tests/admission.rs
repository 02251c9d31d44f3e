//! Admission through the real API server: what is refused and said, and that the webhook is never in anybody's way: not when its
//! certificates change or are lost, not when it goes, and not when it is gone.

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

use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tessera_api::ClusterPolicy;
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::scenario::{asked, input, webhook_alone};
use tessera_e2e::{Lab, nodes};

#[path = "admission/clock.rs"]
mod clock;
#[path = "admission/given.rs"]
mod given;
#[path = "admission/load.rs"]
mod load;

const MINUTE: Duration = Duration::from_secs(60);
const CONFIGURATION: &str = "tessera-webhook";

/// A policy that the CRD's own rules take, and the judgement does not.
const BAD: &str = "
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: mine}
spec:
  toolkit: {enabled: false}
  cdi: {enabled: true, nriPluginEnabled: true}
  devicePlugin: {env: [{name: DEVICE_LIST_STRATEGY, value: cdi-everything}]}
";

async fn configuration(lab: &Lab) -> anyhow::Result<ValidatingWebhookConfiguration> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(lab.client());
    Ok(api.get(CONFIGURATION).await?)
}

async fn bundle(lab: &Lab) -> anyhow::Result<Vec<u8>> {
    let entries = configuration(lab).await?.webhooks.unwrap_or_default();
    let bundle = entries
        .into_iter()
        .next()
        .and_then(|entry| entry.client_config.ca_bundle);
    Ok(bundle.map(|bytes| bytes.0).unwrap_or_default())
}

/// Waits until the API server asks the webhook and gets its answers.
async fn answering(lab: &Lab) -> anyhow::Result<Duration> {
    let start = Instant::now();
    lab.wait_for("the webhook refuses", MINUTE, || async {
        match lab.try_apply(BAD).await {
            Ok(output) if output.stderr.contains("denied the request") => Ok(()),
            Ok(output) if output.success => {
                lab.kubectl(&["delete", "clusterpolicy", "mine"])
                    .await
                    .map_err(|e| e.to_string())?;
                Err("it was let in".to_owned())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    Ok(start.elapsed())
}

async fn restarts(lab: &Lab) -> anyhow::Result<i32> {
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    let list = pods.list(&ListParams::default()).await?;
    let statuses = list.items.into_iter().flat_map(|pod| {
        pod.status
            .and_then(|s| s.container_statuses)
            .unwrap_or_default()
    });
    Ok(statuses.map(|status| status.restart_count).sum())
}

#[tokio::test]
async fn what_cannot_work_is_refused_and_what_may_not_is_warned_of() -> anyhow::Result<()> {
    let lab = webhook_alone("admission", nodes::gpu_nodes(1), &[]).await?;
    // Nobody is asked before somebody can answer.
    lab.apply(
        "{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: early}, spec: {}}",
    )
    .await?;
    lab.kubectl_ok(&["delete", "clusterpolicy", "early"])
        .await?;
    let took = answering(&lab).await?;
    println!("the webhook refuses {took:?} after the install");

    // Everything at once, with path, value, reason and remedy.
    let refused = lab.try_apply(BAD).await?;
    println!("{}", refused.stderr);
    for words in [
        "clusterpolicies.aiops.local",
        "2 things to correct:",
        "spec.devicePlugin.env",
        "`cdi-everything`, which the device plugin does not know",
        "spec.cdi.nriPluginEnabled",
        "set toolkit.enabled to true",
    ] {
        assert!(
            refused.stderr.contains(words),
            "{words} is not in\n{}",
            refused.stderr
        );
    }
    // What may not work is let in, with a word; a dry run is told the same.
    let warned = "{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: mine}, spec: {operator: {defaultRuntime: crio}, dcgmExporter: {config: {name: absent}}}}";
    let file = lab.dir().join("warned.yaml");
    std::fs::write(&file, warned)?;
    let file = file.display().to_string();
    for extra in [&["--dry-run=server"][..], &[]] {
        let args = [&["apply", "-f", &file], extra].concat();
        let output = lab.kubectl(&args).await?;
        println!("{}", output.stderr);
        assert!(output.success, "{}", output.stderr);
        for words in ["Warning: ", "spec.operator.defaultRuntime", "absent"] {
            assert!(
                output.stderr.contains(words),
                "{words} is not in\n{}",
                output.stderr
            );
        }
        let long = output.stderr.lines().find(|line| line.len() > 130);
        assert!(long.is_none(), "{long:?}");
    }
    nothing_else_is_asked(&lab).await?;

    // An object that is wrong in another place can still be edited and deleted. It got in while nobody watched.
    lab.kubectl_ok(&["-n", NAMESPACE, "get", "deployment", "webhook"])
        .await?;
    let policies: Api<ClusterPolicy> = Api::all(lab.client());
    let wrong = json!({"spec": {"devicePlugin": {"env": [{"name": "DEVICE_LIST_STRATEGY", "value": "cdi-everything"}]}}});
    let refused = policies
        .patch("mine", &PatchParams::default(), &Patch::Merge(&wrong))
        .await;
    assert!(refused.unwrap_err().to_string().contains("cdi-everything"));
    idle(&lab).await?;
    lab.kubectl_ok(&["delete", "clusterpolicy", "mine"]).await?;
    Ok(())
}

/// No call for another kind, for status, labels or finalizers.
async fn nothing_else_is_asked(lab: &Lab) -> anyhow::Result<()> {
    let before = asked(lab, "").await?;
    assert!(
        before > 0,
        "the API server counts its questions under another name"
    );
    lab.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}")
        .await?;
    lab.apply("{apiVersion: v1, kind: Pod, metadata: {name: other}, spec: {containers: [{name: a, image: lab-dummy}]}}").await?;
    lab.kubectl_ok(&["label", "clusterpolicy", "mine", "a=b"])
        .await?;
    let policies: Api<ClusterPolicy> = Api::all(lab.client());
    let status = json!({"status": {"state": "notReady"}});
    policies
        .patch_status("mine", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    let finalizers = json!({"metadata": {"finalizers": ["aiops.local/test"]}});
    policies
        .patch("mine", &PatchParams::default(), &Patch::Merge(&finalizers))
        .await?;
    let none = json!({"metadata": {"finalizers": null}});
    policies
        .patch("mine", &PatchParams::default(), &Patch::Merge(&none))
        .await?;
    assert_eq!(asked(lab, "").await?, before);
    let spec = json!({"spec": {"driver": {"enabled": false}}});
    policies
        .patch("mine", &PatchParams::default(), &Patch::Merge(&spec))
        .await?;
    assert_eq!(asked(lab, "").await?, before + 1);
    Ok(())
}

/// The webhook sends nothing while nothing changes, and was denied nothing.
async fn idle(lab: &Lab) -> anyhow::Result<()> {
    let mut audit = lab.audit();
    let all = audit.next_summary()?.account("webhook");
    println!("requests of the webhook since its start:\n{all}");
    assert_eq!(all.denied, 0, "{all}");
    // Longer than its longest wait between two looks.
    tokio::time::sleep(Duration::from_secs(35)).await;
    let idle = audit.next_summary()?.account("webhook");
    assert_eq!((idle.reads, idle.writes), (0, 0), "{idle}");
    Ok(())
}

#[tokio::test]
async fn with_both_replicas_down_all_else_works_and_uninstall_too() -> anyhow::Result<()> {
    let lab = Lab::for_test("admission-down", Vec::new()).await?;
    let values = [
        "driverController.replicas=0",
        "devicePluginController.replicas=0",
        "dcgmMonitorController.replicas=0",
        "sreagentController.replicas=0",
        "webhook.certificates.settle=2s",
        "webhook.drain=1s",
    ];
    let extra: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
    let notes = lab.helm_install(&input("values-gpu.yaml"), &extra).await?;
    assert!(notes.contains("validator.enabled"), "{notes}");
    answering(&lab).await?;
    scale(&lab, 0).await?;

    lab.apply("{apiVersion: v1, kind: Pod, metadata: {name: other}, spec: {containers: [{name: a, image: lab-dummy}]}}").await?;
    lab.kubectl_ok(&["create", "deployment", "other", "--image=lab-dummy"])
        .await?;
    let refused = lab.try_apply(BAD).await?;
    println!("{}", refused.stderr);
    assert!(!refused.success);
    for words in ["clusterpolicies.aiops.local", "failed calling webhook"] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
    // What is not a new specification needs nobody, deletion least of all.
    lab.kubectl_ok(&["label", "clusterpolicy", "cluster-policy", "a=b"])
        .await?;

    scale(&lab, 2).await?;
    let took = answering(&lab).await?;
    println!("the webhook answers {took:?} after it was scaled up");

    scale(&lab, 0).await?;
    lab.kubectl_ok(&["delete", "clusterpolicy", "cluster-policy"])
        .await?;
    lab.helm_uninstall(&["--timeout=90s"]).await?;
    for object in [
        ["validatingwebhookconfiguration", CONFIGURATION],
        ["mutatingwebhookconfiguration", CONFIGURATION],
        ["secret", "webhook-ca"],
    ] {
        let args = [
            &["get", "-n", NAMESPACE, "--ignore-not-found", "-o", "name"],
            &object[..],
        ]
        .concat();
        assert_eq!(lab.kubectl_ok(&args).await?, "", "{object:?}");
    }
    lab.apply(&BAD.replace("cdi-everything", "envvar")).await?;
    Ok(())
}

async fn scale(lab: &Lab, replicas: usize) -> anyhow::Result<()> {
    let count = format!("--replicas={replicas}");
    lab.kubectl_ok(&["-n", NAMESPACE, "scale", "deployment", "webhook", &count])
        .await?;
    pods_ready(lab, replicas).await
}

/// Waits until exactly so many pods of the webhook are there, all ready.
async fn pods_ready(lab: &Lab, replicas: usize) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    let params = ListParams::default().labels("app.kubernetes.io/name=webhook");
    lab.wait_for(&format!("{replicas} ready pods"), MINUTE, || async {
        let list = pods
            .list(&params)
            .await
            .map_err(|error| error.to_string())?;
        let is_ready = |pod: &&Pod| {
            let conditions = pod
                .status
                .iter()
                .flat_map(|s| s.conditions.iter().flatten());
            conditions
                .clone()
                .any(|c| c.type_ == "Ready" && c.status == "True")
        };
        let ready = list.items.iter().filter(is_ready).count();
        if ready == replicas && list.items.len() == replicas {
            Ok(())
        } else {
            let names: Vec<String> = list.iter().map(kube::ResourceExt::name_any).collect();
            Err(format!("{ready} of {names:?}"))
        }
    })
    .await
}

/// A certificate authority that ended yesterday, as PEM: certificate and key.
fn expired() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[tokio::test]
async fn what_is_lost_broken_or_expired_is_healed_within_a_minute() -> anyhow::Result<()> {
    let lab = webhook_alone(
        "admission-heals",
        Vec::new(),
        &["--set", "certificates.settle=2s"],
    )
    .await?;
    answering(&lab).await?;
    pods_ready(&lab, 2).await?;
    let secrets: Api<Secret> = Api::namespaced(lab.client(), NAMESPACE);
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(lab.client());
    let params = PatchParams::default();
    let data = |certificate: &str, key: &str| {
        let encoded =
            |text: &str| serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
        json!({"data": {"tls.crt": encoded(certificate), "tls.key": encoded(key), "previous.crt": null, "previous.key": null}})
    };
    let (certificate, key) = expired();
    let faults = [
        "deleted secret",
        "garbage in the secret",
        "expired authority",
        "edited bundle",
        "edited policy of failure",
    ];
    for fault in faults {
        let before = bundle(&lab).await?;
        let start = Instant::now();
        match fault {
            "deleted secret" => drop(
                secrets
                    .delete("webhook-ca", &DeleteParams::default())
                    .await?,
            ),
            "garbage in the secret" => {
                let patch = Patch::Merge(data("x", "y"));
                secrets.patch("webhook-ca", &params, &patch).await?;
            }
            "expired authority" => {
                let patch = Patch::Merge(data(&certificate, &key));
                secrets.patch("webhook-ca", &params, &patch).await?;
            }
            "edited bundle" => {
                let patch = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": serde_json::to_value(ByteString(certificate.clone().into_bytes()))?}]);
                let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
                configurations.patch(CONFIGURATION, &params, &patch).await?;
            }
            _ => {
                let patch = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
                let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
                configurations.patch(CONFIGURATION, &params, &patch).await?;
            }
        }
        let secret_fault = !fault.starts_with("edited");
        lab.wait_for(fault, MINUTE, || async {
            let now = bundle(&lab).await.map_err(|error| error.to_string())?;
            let entries = configuration(&lab)
                .await
                .map_err(|error| error.to_string())?
                .webhooks
                .unwrap_or_default();
            let strict = entries
                .iter()
                .all(|entry| entry.failure_policy.as_deref() == Some("Fail"));
            if strict && (now != before) == secret_fault {
                Ok(())
            } else {
                Err("not yet".to_owned())
            }
        })
        .await?;
        let healed = start.elapsed();
        let answers = answering(&lab).await?;
        println!("{fault}: repaired after {healed:?}, answers after {answers:?} more");
        if secret_fault {
            // Whatever was served before is trusted until it has been replaced everywhere.
            let overlap = String::from_utf8(bundle(&lab).await?)?
                .matches("BEGIN CERTIFICATE")
                .count();
            assert_eq!(
                overlap, 2,
                "{fault}: the old authority is not in the bundle"
            );
        }
        pods_ready(&lab, 2).await?;
    }
    assert_eq!(restarts(&lab).await?, 0);
    Ok(())
}
