//! Certificates that somebody else makes, as cert-manager would: taken as they come, if they are any good.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tessera_e2e::Lab;
use tessera_e2e::cluster::NAMESPACE;
use tessera_e2e::scenario::{MINUTE, controller_pods, install_webhook_alone};

use super::{answering, bundle, pods_ready, restarts};

const NAME: &str = "webhook.gpu-operator.svc";
const SECRET: &str = "mine";

struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self {
            pem: params.self_signed(&key).unwrap().pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for `name` that ends in this year; with its key.
    fn sign(&self, name: &str, until: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        (
            params.signed_by(&key, &self.issuer).unwrap().pem(),
            key.serialize_pem(),
        )
    }
}

async fn give(lab: &Lab, pair: &(String, String), authorities: Option<&str>) -> anyhow::Result<()> {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let mut data = json!({"tls.crt": bytes(&pair.0), "tls.key": bytes(&pair.1)});
    if let Some(authorities) = authorities {
        data["ca.crt"] = json!(bytes(authorities));
    }
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data});
    let secrets: Api<Secret> = Api::namespaced(lab.client(), NAMESPACE);
    let params = PatchParams::apply("test").force();
    secrets
        .patch(SECRET, &params, &Patch::Apply(&secret))
        .await?;
    Ok(())
}

/// Waits until both replicas serve a certificate that ends in this year.
async fn served_until(lab: &Lab, year: i32) -> anyhow::Result<()> {
    let want = rcgen::date_time_ymd(year, 1, 1).unix_timestamp();
    let want = format!("tessera_webhook_certificate_expiry_timestamp_seconds {want}");
    lab.wait_for(&format!("a certificate until {year}"), MINUTE, || async {
        for pod in controller_pods(lab, "webhook")
            .await
            .map_err(|error| error.to_string())?
        {
            let path = "jsonpath={.status.podIP}";
            let args = ["-n", NAMESPACE, "get", "pod", &pod, "-o", path];
            let ip = lab
                .kubectl_ok(&args)
                .await
                .map_err(|error| error.to_string())?;
            let address = format!("{ip}:8080");
            let metrics = tessera_e2e::http_get(&address, "/metrics");
            let metrics = metrics.await.map_err(|error| error.to_string())?;
            let found = metrics.lines().find(|line| {
                line.starts_with("tessera_webhook_certificate_expiry_timestamp_seconds")
            });
            if found.is_none_or(|line| line.trim_end_matches(".0") != want) {
                return Err(format!("{pod}: {found:?}"));
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn given_certificates_are_renewed_and_bad_ones_are_not_taken() -> anyhow::Result<()> {
    let lab = Lab::for_test("admission-given", Vec::new()).await?;
    lab.kubectl_ok(&["create", "namespace", NAMESPACE]).await?;
    let (first, second) = (Ca::new("first"), Ca::new("second"));
    give(&lab, &first.sign(NAME, 2031), Some(&first.pem)).await?;
    let values = [
        "--set",
        "certificates.secretName=mine",
        "--set",
        "certificates.settle=2s",
        "--set",
        "drain=1s",
    ];
    install_webhook_alone(&lab, &values).await?;
    answering(&lab).await?;
    pods_ready(&lab, 2).await?;
    assert_eq!(bundle(&lab).await?, first.pem.as_bytes());
    // It makes no authority of its own.
    let secrets: Api<Secret> = Api::namespaced(lab.client(), NAMESPACE);
    assert!(secrets.get_opt("webhook-ca").await?.is_none());

    // Renewed by the same authority, then by another one, both in the bundle while they change.
    give(&lab, &first.sign(NAME, 2032), Some(&first.pem)).await?;
    served_until(&lab, 2032).await?;
    let both = format!("{}{}", first.pem, second.pem);
    give(&lab, &first.sign(NAME, 2033), Some(&both)).await?;
    served_until(&lab, 2033).await?;
    assert_eq!(bundle(&lab).await?, both.as_bytes());
    give(&lab, &second.sign(NAME, 2034), Some(&both)).await?;
    served_until(&lab, 2034).await?;
    give(&lab, &second.sign(NAME, 2035), Some(&second.pem)).await?;
    served_until(&lab, 2035).await?;
    answering(&lab).await?;

    bad(&lab, &second).await?;

    give(&lab, &second.sign(NAME, 2036), Some(&second.pem)).await?;
    served_until(&lab, 2036).await?;
    // Without the Secret, what was mounted stays.
    secrets.delete(SECRET, &DeleteParams::default()).await?;
    answering(&lab).await?;
    assert_eq!(restarts(&lab).await?, 0);
    Ok(())
}

/// What nobody could use is named in the log, and changes nothing.
async fn bad(lab: &Lab, second: &Ca) -> anyhow::Result<()> {
    let good = second.sign(NAME, 2040);
    let foreign_key = (good.0.clone(), second.sign(NAME, 2040).1);
    let untrusted = "the certificate in tls.crt is not valid now for webhook.gpu-operator.svc by the authorities in ca.crt";
    for (what, pair, authorities, words) in [
        (
            "the key of another pair",
            foreign_key,
            Some(&second.pem),
            "the key does not belong to the certificate",
        ),
        (
            "expired",
            second.sign(NAME, 2021),
            Some(&second.pem),
            untrusted,
        ),
        (
            "for another name",
            second.sign("other.gpu-operator.svc", 2040),
            Some(&second.pem),
            untrusted,
        ),
        ("no authority", good.clone(), None, "ca.crt cannot be read"),
    ] {
        let logs = || async {
            let mut all = Vec::new();
            for pod in controller_pods(lab, "webhook").await? {
                all.push(lab.pod_log(NAMESPACE, &pod, "controller"));
            }
            anyhow::Ok(all)
        };
        let before: Vec<usize> = logs().await?.iter().map(String::len).collect();
        give(lab, &pair, authorities.map(String::as_str)).await?;
        lab.wait_for(what, MINUTE, || async {
            let logs = logs().await.map_err(|error| error.to_string())?;
            let said = |(log, before): (&String, &usize)| {
                log.get(*before..).is_some_and(|new| new.contains(words))
            };
            if logs.iter().zip(&before).all(said) {
                Ok(())
            } else {
                Err(logs.join("\n"))
            }
        })
        .await?;
        answering(lab).await?;
        pods_ready(lab, 2).await?;
        assert_eq!(bundle(lab).await?, second.pem.as_bytes(), "{what}");
    }
    tokio::time::timeout(Duration::from_secs(1), served_until(lab, 2035)).await??;
    Ok(())
}
