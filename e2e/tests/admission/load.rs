//! Fifty questions a second while certificates rotate and replicas end, crash and are replaced.

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::PostParams;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use tessera_api::ClusterPolicy;
use tessera_e2e::Lab;
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::lab::Order;
use tessera_e2e::scenario::{controller_pods, webhook_alone};

use super::{answering, bundle, pods_ready};

const SECOND: Duration = Duration::from_secs(1);

fn policy(name: &str, spec: serde_json::Value) -> ClusterPolicy {
    serde_json::from_value(json!({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

/// What came of many questions.
#[derive(Debug, Default)]
struct Outcome {
    accepted: usize,
    refused: usize,
    /// Answers that are wrong: a bad one accepted, a good one refused.
    wrong: Vec<String>,
    /// No answer of the webhook.
    failed: Vec<(Duration, String)>,
    took: Vec<Duration>,
}

/// Asks 50 times a second for so long; every other question is about something that must be refused.
async fn load(lab: &Lab, time: Duration) -> Outcome {
    let start = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let mut tasks = tokio::task::JoinSet::new();
    let api: Api<ClusterPolicy> = Api::all(lab.client());
    while start.elapsed() < time {
        ticks.tick().await;
        let bad = tasks.len() % 2 == 1;
        let api = api.clone();
        tasks.spawn(async move {
            let spec = if bad {
                json!({"devicePlugin": {"env": [{"name": "DEVICE_LIST_STRATEGY", "value": "cdi-everything"}]}})
            } else {
                json!({"driver": {"version": "535.104.05"}})
            };
            let params = PostParams { dry_run: true, ..PostParams::default() };
            let at = start.elapsed();
            let asked = Instant::now();
            let answer = api.create(&params, &policy("load", spec)).await;
            (bad, at, asked.elapsed(), answer.map(drop).map_err(|error| error.to_string()))
        });
    }
    let mut outcome = Outcome::default();
    while let Some(Ok((bad, at, took, answer))) = tasks.join_next().await {
        outcome.took.push(took);
        match answer {
            Ok(()) if bad => outcome
                .wrong
                .push(format!("{at:?}: a bad one was accepted")),
            Ok(()) => outcome.accepted += 1,
            Err(text) if text.contains("denied the request") && bad => outcome.refused += 1,
            Err(text) if text.contains("denied the request") => {
                outcome.wrong.push(format!("{at:?}: {text}"))
            }
            Err(text) => outcome.failed.push((at, text)),
        }
    }
    outcome.took.sort();
    outcome
}

/// Connects anew all the time, as the API server does not: with a bundle as it was published a moment ago, whoever is served must be
/// trusted. Returns how many connections were made, and what was wrong with certificates.
async fn connect(lab: &Lab, time: Duration) -> anyhow::Result<(usize, Vec<String>)> {
    let address = [
        "-n",
        NAMESPACE,
        "get",
        "service",
        "webhook",
        "-o",
        "jsonpath={.spec.clusterIP}",
    ];
    let target = format!("{}:443", lab.kubectl_ok(&address).await?);
    let name = rustls_pki_types::ServerName::try_from(format!("webhook.{NAMESPACE}.svc"))?;
    let start = Instant::now();
    let (mut made, mut wrong) = (0, Vec::new());
    while start.elapsed() < time {
        let mut roots = rustls::RootCertStore::empty();
        let bundle = bundle(lab).await?;
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).flatten());
        // How far behind another API server may be; less than `settle`.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        // That a replica does not answer is the other half's matter.
        let Ok(stream) = lab.dial(&target).await else {
            continue;
        };
        match connector.connect(name.clone(), stream).await {
            Ok(_) => made += 1,
            Err(error) if error.to_string().contains("certificate") => {
                wrong.push(format!("{:?}: {error}", start.elapsed()));
            }
            Err(_) => {}
        }
    }
    Ok((made, wrong))
}

/// Replicas end, crash and are replaced, one after the other, each when the one before is back. When the crash was.
async fn disturb(lab: &Lab) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let mut crash = Duration::ZERO;
    let pods = controller_pods(lab, "webhook").await?;
    for (order, pod) in [Order::Terminate, Order::Kill].into_iter().zip(&pods) {
        crash = start.elapsed();
        lab.signal_pod(NAMESPACE, pod, order)?;
        println!("{order:?} at {crash:?}");
        let target = format!("pod/{pod}");
        // Until the agent has seen it go.
        let gone = [
            "-n",
            NAMESPACE,
            "wait",
            "--for=condition=Ready=False",
            "--timeout=10s",
            &target,
        ];
        lab.kubectl(&gone).await?;
        pods_ready(lab, 2).await?;
    }
    let rollout = |words: &[&'static str]| [&["-n", NAMESPACE, "rollout"], words].concat();
    lab.kubectl_ok(&rollout(&["restart", "deployment/webhook"]))
        .await?;
    let done = ["status", "deployment/webhook", "--timeout=60s"];
    lab.kubectl_ok(&rollout(&done)).await?;
    println!("rolled out at {:?}", start.elapsed());
    Ok(crash)
}

#[tokio::test]
async fn rotations_ends_and_rollouts_are_seen_by_no_client() -> anyhow::Result<()> {
    let seconds = std::env::var("TESSERA_ADMISSION_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let short = [
        "--set",
        "certificates.settle=1s",
        "--set",
        "certificates.caLifetime=9s",
        "--set",
        "certificates.lifetime=6s",
        "--set",
        "drain=2s",
    ];
    let lab = webhook_alone("admission-load", Vec::new(), &short).await?;
    answering(&lab).await?;
    pods_ready(&lab, 2).await?;
    let (first, mut authorities) = (bundle(&lab).await?, std::collections::BTreeSet::new());
    authorities.insert(first);
    let watch = async {
        loop {
            authorities.insert(bundle(&lab).await.unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let time = Duration::from_secs(seconds);
    let (outcome, disturbed, connected) = tokio::select! {
        all = async { tokio::join!(load(&lab, time), disturb(&lab), connect(&lab, time)) } => all,
        () = watch => unreachable!("it never ends"),
    };
    let crash = disturbed?;
    let (made, untrusted) = connected?;
    println!(
        "{made} new connections, {} of them untrusted",
        untrusted.len()
    );
    let at = |share: usize| outcome.took[(outcome.took.len() - 1) * share / 100];
    println!(
        "{} accepted, {} refused, {} failed, {} wrong; seen by the client: p50 {:?}, p99 {:?}, max {:?}; {} different bundles",
        outcome.accepted,
        outcome.refused,
        outcome.failed.len(),
        outcome.wrong.len(),
        at(50),
        at(99),
        at(100),
        authorities.len()
    );
    for pod in controller_pods(&lab, "webhook").await? {
        let ip = lab
            .kubectl_ok(&[
                "-n",
                NAMESPACE,
                "get",
                "pod",
                &pod,
                "-o",
                "jsonpath={.status.podIP}",
            ])
            .await?;
        let metrics = tessera_e2e::http_get(&format!("{ip}:8080"), "/metrics").await?;
        let ours = metrics.lines().filter(|line| {
            line.contains("webhook_latency_seconds_sum")
                || line.contains("webhook_latency_seconds_count")
                || line.contains("le=\"0.0064\"")
        });
        ours.for_each(|line| println!("{pod}: {line}"));
        assert!(metrics.contains("tessera_webhook_certificate_expiry_timestamp_seconds"));
    }
    assert!(made > 20 && untrusted.is_empty(), "{made}, {untrusted:#?}");
    assert!(outcome.wrong.is_empty(), "{:#?}", outcome.wrong);
    // A process that is killed outright takes with it what it was answering, and gets what comes until its death is known.
    let (crashed, failed): (Vec<_>, Vec<_>) = outcome
        .failed
        .iter()
        .partition(|(at, _)| *at + SECOND > crash && *at < crash + SECOND);
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(crashed.len() <= 2, "{crashed:#?}");
    assert!(outcome.accepted + outcome.refused > usize::try_from(seconds)? * 40);
    assert!(
        authorities.len() >= 4,
        "the certificates rotated only {} times",
        authorities.len() - 1
    );
    Ok(())
}
