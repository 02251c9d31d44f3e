//! One pod, from its binding to its removal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::container::{self, Restart, Shared};
use super::files::{self, Volumes};
use super::status::Board;
use super::{Context, Order, token};
use crate::supervisor::config;

/// Plays a pod until it is gone.
pub(super) async fn run(context: Arc<Context>, pod: Arc<Pod>, mut orders: watch::Receiver<Order>) {
    let uid = pod.uid().unwrap_or_default();
    if finished(&pod) {
        // Seen again after a lost watch: nothing to run, only to remove when it is deleted.
        let _ = until_stopped(&mut orders).await;
        remove(&context, &pod).await;
        return;
    }
    let ip = context.net.address().to_string();
    let dir = context.settings.dir.join("pods").join(&uid);
    let board = Arc::new(Board::new(&pod, ip.clone()));
    let (stop, stopped) = watch::channel(None);
    let end = CancellationToken::new();
    let mut writer = tokio::spawn(write_status(
        Arc::clone(&context),
        Arc::clone(&pod),
        Arc::clone(&board),
        end.clone(),
    ));
    let renewals = CancellationToken::new();

    let mut life = Box::pin(live(&context, &pod, &ip, &dir, &board, stopped, &renewals));
    let mut final_phase = None;
    let grace = tokio::select! {
        grace = until_stopped(&mut orders) => grace,
        success = &mut life => {
            final_phase = Some(success);
            end.cancel();
            // Its last patch must not follow the final one.
            let _ = (&mut writer).await;
            report_end(&context, &pod, &board, success).await;
            until_stopped(&mut orders).await
        }
    };
    if final_phase.is_none() {
        let _ = stop.send(Some(grace));
        let success = life.await;
        end.cancel();
        let _ = writer.await;
        report_end(&context, &pod, &board, success).await;
    }
    renewals.cancel();
    let _ = std::fs::remove_dir_all(&dir);
    if matches!(&*orders.borrow(), Order::Be(_)) {
        remove(&context, &pod).await;
    }
}

fn finished(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Waits until the pod is to stop and returns the grace period.
async fn until_stopped(orders: &mut watch::Receiver<Order>) -> Duration {
    loop {
        match &*orders.borrow_and_update() {
            Order::Stop(grace) => return *grace,
            Order::Be(pod) if pod.metadata.deletion_timestamp.is_some() => {
                let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
                return Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            }
            Order::Be(_) => {}
        }
        if orders.changed().await.is_err() {
            return Duration::ZERO;
        }
    }
}

/// Runs all containers; true when the pod has succeeded, false when it has failed or was stopped.
async fn live(
    context: &Arc<Context>,
    pod: &Pod,
    ip: &str,
    dir: &Path,
    board: &Arc<Board>,
    mut stop: container::Stop,
    renewals: &CancellationToken,
) -> bool {
    board.changed.notify_one();
    let Some(kubeconfig) = prepare(context, pod, ip, dir, board, &mut stop, renewals).await else {
        return false;
    };
    let shared = Arc::new(Shared {
        context: Arc::clone(context),
        pod: pod.clone(),
        ip: ip.to_owned(),
        dir: dir.to_path_buf(),
        board: Arc::clone(board),
        kubeconfig: kubeconfig.path,
    });
    let policy = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref());
    let restart = match policy {
        Some("Never") => Restart::Never,
        Some("OnFailure") => Restart::OnFailure,
        _ => Restart::Always,
    };
    let mut running = JoinSet::new();
    let mut sidecars = JoinSet::new();
    for init in pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten())
    {
        if init.restart_policy.as_deref() == Some("Always") {
            sidecars.spawn(container::run(
                Arc::clone(&shared),
                init.clone(),
                Restart::Always,
                stop.clone(),
            ));
            continue;
        }
        // An init container that fails is run again, unless the pod is never restarted.
        let again = if restart == Restart::Never {
            Restart::Never
        } else {
            Restart::OnFailure
        };
        if !container::run(Arc::clone(&shared), init.clone(), again, stop.clone()).await {
            return false;
        }
    }
    board.initialized();
    let mains: Vec<Container> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.containers.clone())
        .collect();
    for main in mains {
        running.spawn(container::run(
            Arc::clone(&shared),
            main,
            restart,
            stop.clone(),
        ));
    }
    let mut success = true;
    while let Some(outcome) = running.join_next().await {
        success &= outcome.unwrap_or(false);
    }
    if stop.borrow().is_none() {
        sidecars.abort_all();
    }
    while sidecars.join_next().await.is_some() {}
    success
}

/// What `prepare` made.
struct Access {
    /// The pod's kubeconfig, if it has a token for the API server.
    path: Option<PathBuf>,
}

/// Makes volumes and tokens, trying until it works; `None` when the pod is stopped meanwhile.
async fn prepare(
    context: &Arc<Context>,
    pod: &Pod,
    ip: &str,
    dir: &Path,
    board: &Board,
    stop: &mut container::Stop,
    renewals: &CancellationToken,
) -> Option<Access> {
    loop {
        match try_prepare(context, pod, ip, dir, renewals).await {
            Ok(access) => return Some(access),
            Err(error) => board.wait(&format!("{error:#}")),
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
            _ = stop.wait_for(Option::is_some) => return None,
        }
    }
}

async fn try_prepare(
    context: &Arc<Context>,
    pod: &Pod,
    ip: &str,
    dir: &Path,
    renewals: &CancellationToken,
) -> anyhow::Result<Access> {
    let volumes: Volumes = files::volumes(context, pod, ip, dir).await?;
    let mut waits = Vec::new();
    for wish in &volumes.tokens {
        waits.push(token::write(&context.client, pod, wish).await?);
    }
    for (wish, wait) in volumes.tokens.iter().zip(waits) {
        tokio::spawn(token::keep(
            context.client.clone(),
            pod.clone(),
            wish.clone(),
            wait,
            renewals.clone(),
        ));
    }
    if files::follows(pod) {
        let (context, pod) = (Arc::clone(context), pod.clone());
        let (ip, dir, cancel) = (ip.to_owned(), dir.to_owned(), renewals.clone());
        tokio::spawn(async move { files::follow(&context, &pod, &ip, &dir, &cancel).await });
    }
    let Some(token) = volumes.api_token() else {
        return Ok(Access { path: None });
    };
    let settings = &context.settings;
    let path = dir.join("kubeconfig");
    let namespace = pod.namespace().unwrap_or_default();
    std::fs::write(
        &path,
        config::kubeconfig(&settings.server, &settings.ca, token, &namespace, false)?,
    )?;
    Ok(Access { path: Some(path) })
}

/// Writes the status whenever it differs from what was written last.
async fn write_status(
    context: Arc<Context>,
    pod: Arc<Pod>,
    board: Arc<Board>,
    end: CancellationToken,
) {
    let mut written = Value::Null;
    loop {
        tokio::select! {
            () = board.changed.notified() => {}
            () = end.cancelled() => return,
        }
        // Several changes of one moment become one request.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let status = board.render(&pod, None);
        if status == written {
            continue;
        }
        if patch(&context, &pod, &status).await {
            written = status;
        } else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            board.changed.notify_one();
        }
    }
}

/// Writes the final phase, trying until it is written: a Job waits for it.
async fn report_end(context: &Context, pod: &Pod, board: &Board, success: bool) {
    let status = board.render(pod, Some(success));
    for _ in 0..20 {
        if patch(context, pod, &status).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Patches the status of exactly this pod; false when it should be tried again.
async fn patch(context: &Context, pod: &Pod, status: &Value) -> bool {
    let api: Api<Pod> =
        Api::namespaced(context.client.clone(), &pod.namespace().unwrap_or_default());
    let body = json!({ "metadata": { "uid": pod.uid() }, "status": status });
    match api
        .patch_status(
            &pod.name_any(),
            &PatchParams::default(),
            &Patch::Strategic(&body),
        )
        .await
    {
        Ok(_) => true,
        // Gone, or another pod of that name: nothing to report to.
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => true,
        Err(error) => {
            tracing::warn!(pod = pod.name_any(), %error, "status not written");
            false
        }
    }
}

/// Removes the object of a pod that has stopped.
async fn remove(context: &Context, pod: &Pod) {
    let api: Api<Pod> =
        Api::namespaced(context.client.clone(), &pod.namespace().unwrap_or_default());
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    for _ in 0..20 {
        match api.delete(&pod.name_any(), &params).await {
            Ok(_) => return,
            Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => return,
            Err(error) => tracing::warn!(pod = pod.name_any(), %error, "pod not removed"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
