//! Kinds that may come and go while a controller runs (ServiceMonitor, PrometheusRule): their CRD is watched by name,
//! and the watch of our objects of that kind runs only as long as the CRD is established.

use crate::apply::{Applier, OwnedKind, project};
use crate::process::Process;
use crate::watch::{WatchContext, follow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::watch as flag;
use tokio_util::sync::CancellationToken;

/// Whether a kind is there.
#[derive(Clone)]
pub struct Presence {
    present: flag::Receiver<bool>,
    kind: OwnedKind,
}

impl Presence {
    /// True while the CRD is established and our objects of the kind are known: only then may they be applied.
    pub fn is_usable(&self) -> bool {
        *self.present.borrow() && self.kind.store().is_synced()
    }

    /// True while the CRD is established.
    pub fn is_present(&self) -> bool {
        *self.present.borrow()
    }

    /// The kind's objects.
    pub fn kind(&self) -> &OwnedKind {
        &self.kind
    }
}

/// Follows the CRD `crd_name` (`<plural>.<group>`) and, while it is established, our objects of `kind` in
/// `namespace`. `on_change` is called whenever the kind comes, goes or has been listed.
pub fn follow_optional(
    process: &mut Process,
    applier: &Applier,
    kind: OwnedKind,
    crd_name: &str,
    namespace: &str,
    on_change: impl Fn() + Clone + Send + Sync + 'static,
) -> Presence {
    let (sender, present) = flag::channel(false);
    let changed = on_change.clone();
    let crds: Api<CustomResourceDefinition> = Api::all(process.client());
    let config = watcher::Config::default().fields(&format!("metadata.name={crd_name}"));
    process.watch(
        crds,
        config,
        |crd| is_established(&crd).then_some(()),
        move |change| {
            sender.send_replace(change.new.is_some());
            changed();
        },
    );
    let context = process.watch_context();
    let api = applier.api_of(&kind, namespace);
    let selector = applier.watch_config();
    let mut flags = present.clone();
    let owned = kind.clone();
    process.spawn(async move {
        let end = context.end.clone();
        loop {
            tokio::select! {
                () = end.cancelled() => return,
                () = becomes(&mut flags, true) => {}
            }
            // Health must not depend on a kind that may vanish: the watch gets a context of its own.
            let stop = CancellationToken::new();
            let own = WatchContext {
                end: stop.clone(),
                health: crate::health::Health::default(),
                ..context.clone()
            };
            let watching = follow(
                own,
                api.clone(),
                selector.clone(),
                owned.store().clone(),
                project,
            );
            let listed = async {
                owned.store().synced().await;
                on_change();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = end.cancelled() => return,
                () = watching => {}
                () = listed => {}
                () = becomes(&mut flags, false) => {}
            }
            stop.cancel();
            owned.store().reset();
        }
    });
    Presence { present, kind }
}

/// Waits until the flag has this value; for ever if nobody can change it any more.
async fn becomes(flag: &mut flag::Receiver<bool>, value: bool) {
    let gone = flag.wait_for(|present| *present == value).await.is_err();
    if gone {
        std::future::pending::<()>().await;
    }
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let deleting = crd.metadata.deletion_timestamp.is_some();
    let conditions = crd
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    !deleting
        && conditions
            .into_iter()
            .flatten()
            .any(|c| c.type_ == "Established" && c.status == "True")
}
