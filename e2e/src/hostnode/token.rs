//! ServiceAccount tokens of pods, as the kubelet gets them: bound to the pod, renewed before they expire.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use tokio_util::sync::CancellationToken;

/// A token file to keep valid.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) path: PathBuf,
    pub(super) audience: Option<String>,
    pub(super) seconds: i64,
}

/// Writes the token and returns how long to wait before the next time (80 % of its life).
pub(super) async fn write(client: &Client, pod: &Pod, wish: &Wish) -> anyhow::Result<Duration> {
    let account = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.clone())
        .unwrap_or_else(|| "default".to_owned());
    let api: Api<ServiceAccount> =
        Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: wish.audience.iter().cloned().collect(),
            expiration_seconds: Some(wish.seconds),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.name_any()),
                uid: pod.uid(),
            }),
        },
        ..TokenRequest::default()
    };
    let answer = api
        .create_token_request(&account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("no token for ServiceAccount {account}"))?;
    let status = answer.status.context("the API server returned no token")?;
    replace(&wish.path, status.token.as_bytes())?;
    let life = Duration::from_secs(u64::try_from(wish.seconds).unwrap_or(600));
    Ok(life * 4 / 5)
}

/// Renews a token until cancelled.
pub(super) async fn keep(
    client: Client,
    pod: Pod,
    wish: Wish,
    first: Duration,
    cancel: CancellationToken,
) {
    let mut wait = first;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = cancel.cancelled() => return,
        }
        wait = match write(&client, &pod, &wish).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(pod = pod.name_any(), "token not renewed: {error:#}");
                Duration::from_secs(5)
            }
        };
    }
}

/// Replaces a file at once, so that no reader sees half of it.
pub(super) fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let temporary = path.with_extension("new");
    std::fs::write(&temporary, content)?;
    std::fs::rename(&temporary, path)
        .with_context(|| format!("{} cannot be written", path.display()))
}
