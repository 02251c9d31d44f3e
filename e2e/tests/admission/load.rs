//! Fifty questions a second for a minute while certificates rotate and replicas end, crash and are replaced.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tessera_e2e::Lab;
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::lab::Order;
use tessera_e2e::questions::{Latencies, Outcome, ask};
use tessera_e2e::scenario::{MINUTE, controller_pods, webhook_alone};

use super::{answering, bundle, pods_ready};

/// Connects anew all the time, as the API server does not: with a bundle as it was published a moment ago, whoever is served must be
/// trusted. Returns how many connections were made, and what was wrong with certificates.
async fn connect(lab: &Lab, time: Duration) -> anyhow::Result<(usize, Vec<String>)> {
    let address = "jsonpath={.spec.clusterIP}";
    let address = ["-n", NAMESPACE, "get", "service", "webhook", "-o", address];
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

/// Each replica ends, then each crashes, then all are replaced, one after the other, each when the one before is back. When the
/// crashes were.
async fn disturb(lab: &Lab) -> anyhow::Result<Vec<Duration>> {
    let start = Instant::now();
    let mut crashes = Vec::new();
    for order in [Order::Terminate, Order::Kill] {
        for pod in controller_pods(lab, "webhook").await? {
            let at = start.elapsed();
            lab.signal_pod(NAMESPACE, &pod, order)?;
            println!("{order:?} of {pod} at {at:?}");
            crashes.extend((order == Order::Kill).then_some(at));
            // Until the agent has seen it go.
            let target = format!("pod/{pod}");
            let gone = ["--for=condition=Ready=False", "--timeout=10s", &target];
            lab.kubectl(&[&["-n", NAMESPACE, "wait"], &gone[..]].concat())
                .await?;
            pods_ready(lab, 2).await?;
        }
    }
    let rollout = |words: &[&'static str]| [&["-n", NAMESPACE, "rollout"], words].concat();
    lab.kubectl_ok(&rollout(&["restart", "deployment/webhook"]))
        .await?;
    let done = ["status", "deployment/webhook", "--timeout=60s"];
    lab.kubectl_ok(&rollout(&done)).await?;
    println!("rolled out at {:?}", start.elapsed());
    Ok(crashes)
}

#[tokio::test]
async fn rotations_ends_and_rollouts_are_seen_by_no_client() -> anyhow::Result<()> {
    let values = [
        "certificates.settle=1s",
        "certificates.caLifetime=9s",
        "certificates.lifetime=6s",
        "drain=2s",
    ];
    let short: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
    let lab = webhook_alone("admission-load", Vec::new(), &short).await?;
    answering(&lab).await?;
    pods_ready(&lab, 2).await?;
    let before = Latencies::read(&lab).await?;
    let mut authorities = BTreeSet::from([bundle(&lab).await?]);
    let watch = async {
        loop {
            authorities.insert(bundle(&lab).await.unwrap_or_default());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let (outcome, disturbed, connected) = tokio::select! {
        all = async { tokio::join!(ask(&lab, MINUTE), disturb(&lab), connect(&lab, MINUTE)) } => all,
        () = watch => unreachable!("it never ends"),
    };
    let (made, untrusted) = connected?;
    println!(
        "{made} new connections, {} of them untrusted; {} different bundles",
        untrusted.len(),
        authorities.len()
    );
    let took = Latencies::read(&lab).await?.since(&before);
    // With a debug build, beside everything else that runs here; `cargo xtask bench` has the budgets.
    println!(
        "p99 in the server {:.1} ms, as the API server sees it {:.1} ms",
        took.server.quantile(0.99) * 1e3,
        took.api_server.quantile(0.99) * 1e3
    );
    judge(&outcome, &disturbed?);
    assert!(made > 60 && untrusted.is_empty(), "{made}, {untrusted:#?}");
    assert!(
        authorities.len() >= 4,
        "the certificates rotated only {} times",
        authorities.len() - 1
    );
    Ok(())
}

/// Most questions that one crash may cost. Of 18 crashes none cost more than one; at 50 a second a second one may be under way.
const LOST: usize = 2;
/// How long before a crash a question may have been asked that it ended. Answers take milliseconds, but this machine is busy.
const UNDER_WAY: Duration = Duration::from_millis(200);
/// How long it may take until a dead pod is known not to be ready, and gets no new connection. It was 20 ms at most.
const UNKNOWN: Duration = Duration::from_millis(500);

/// Whether a question was lost to a crash, as docs/decisions/admission.md explains: either the process had it in hand when it was
/// killed, or a new connection met the closed port before the pod was known not to be ready.
fn is_of_crash(at: Duration, text: &str, crash: Duration) -> bool {
    let in_hand = [
        "EOF",
        "use of closed network connection",
        "connection reset by peer",
        "broken pipe",
    ];
    let lost = in_hand.iter().any(|words| text.contains(words));
    let met_nobody = text.contains("Connection refused");
    at + UNDER_WAY >= crash && at <= crash + UNKNOWN && (lost || met_nobody)
}

fn judge(outcome: &Outcome, crashes: &[Duration]) {
    println!(
        "{} accepted, {} refused, {} Pods, {} failed, {} wrong; seen by the client: p50 {:?}, p99 {:?}, max {:?}",
        outcome.accepted,
        outcome.refused,
        outcome.pods,
        outcome.failed.len(),
        outcome.wrong.len(),
        outcome.percentile(50),
        outcome.percentile(99),
        outcome.percentile(100),
    );
    assert!(outcome.wrong.is_empty(), "{:#?}", outcome.wrong);
    let (crashed, failed): (Vec<_>, Vec<_>) = outcome
        .failed
        .iter()
        .partition(|(at, text)| crashes.iter().any(|crash| is_of_crash(*at, text, *crash)));
    assert!(failed.is_empty(), "{failed:#?}");
    println!("failed at the crashes: {crashed:#?}");
    for crash in crashes {
        let own = crashed
            .iter()
            .filter(|(at, text)| is_of_crash(*at, text, *crash));
        assert!(own.count() <= LOST, "{crash:?}: {crashed:#?}");
    }
    assert_eq!(crashes.len(), 2);
    assert!(outcome.accepted + outcome.refused + outcome.pods > 60 * 45);
}
