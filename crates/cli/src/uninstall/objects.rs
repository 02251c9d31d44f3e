//! Objects that are found by the labels every controller sets.

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Resource, ResourceExt as _};

use super::{Run, elects};

/// A kind to look through, in one namespace, in all, or cluster-scoped.
pub(super) struct Kind {
    api: ApiResource,
    namespaced: bool,
}

impl Kind {
    /// A kind of Kubernetes itself.
    pub(super) fn of<K: Resource<DynamicType = ()>>(namespaced: bool) -> Self {
        Self {
            api: ApiResource::erase::<K>(&()),
            namespaced,
        }
    }

    /// A kind that may be unknown to the cluster.
    pub(super) fn custom(
        group: &str,
        version: &str,
        kind: &str,
        plural: &str,
        namespaced: bool,
    ) -> Self {
        let api =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        Self { api, namespaced }
    }

    fn api(&self, run: &Run, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) if self.namespaced => {
                Api::namespaced_with(run.client.clone(), namespace, &self.api)
            }
            _ => Api::all_with(run.client.clone(), &self.api),
        }
    }
}

/// Namespace (empty for cluster-scoped objects) and name.
pub(super) type Found = (String, String);

/// Objects of `kind` that match `selector`; none where the cluster does not know the kind.
pub(super) async fn find(
    run: &Run,
    kind: &Kind,
    namespace: Option<&str>,
    selector: &str,
) -> anyhow::Result<Vec<Found>> {
    match kind
        .api(run, namespace)
        .list_metadata(&ListParams::default().labels(selector))
        .await
    {
        Ok(list) => Ok(list
            .iter()
            .map(|object| (object.namespace().unwrap_or_default(), object.name_any()))
            .collect()),
        Err(error) if is_missing(&error) => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("{} cannot be listed", kind.api.plural)),
    }
}

/// Deletes objects of `kind` and prints each.
pub(super) async fn delete(run: &Run, kind: &Kind, found: &[Found]) -> anyhow::Result<()> {
    for (namespace, name) in found {
        let api = kind.api(
            run,
            Some(namespace.as_str()).filter(|namespace| !namespace.is_empty()),
        );
        match api.delete(name, &DeleteParams::background()).await {
            Ok(_) if namespace.is_empty() || *namespace == run.namespace => {
                println!("deleted {} {name}", kind.api.kind)
            }
            Ok(_) => println!("deleted {} {namespace}/{name}", kind.api.kind),
            Err(error) if is_missing(&error) => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("{} {name} cannot be deleted", kind.api.kind));
            }
        }
    }
    Ok(())
}

/// Deletes whatever of `kinds` matches `selector`, and waits until it is gone: somebody's finalizer may hold it.
pub(super) async fn sweep(
    run: &Run,
    kinds: &[Kind],
    namespace: Option<&str>,
    selector: &str,
) -> anyhow::Result<()> {
    for kind in kinds {
        let found = find(run, kind, namespace, selector).await?;
        if found.is_empty() {
            continue;
        }
        delete(run, kind, &found).await?;
        run.until_gone(&kind.api.plural, || {
            remaining(run, kind, namespace, selector)
        })
        .await?;
    }
    Ok(())
}

/// What [`find`] finds, as a person reads it.
pub(super) async fn remaining(
    run: &Run,
    kind: &Kind,
    namespace: Option<&str>,
    selector: &str,
) -> anyhow::Result<Vec<String>> {
    let found = find(run, kind, namespace, selector).await?;
    let name = |(namespace, name): Found| match namespace.as_str() {
        "" => format!("{} {name}", kind.api.kind),
        namespace => format!("{} {namespace}/{name}", kind.api.kind),
    };
    Ok(found.into_iter().map(name).collect())
}

/// 404: the object, or the whole kind, is not there.
pub(super) fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Operands, what they need, RuntimeClasses and Leases; returns when the operands' pods have ended.
pub(super) async fn remove(run: &Run) -> anyhow::Result<()> {
    let selector = run.selector();
    let monitoring = |kind, plural| Kind::custom("monitoring.coreos.com", "v1", kind, plural, true);
    let kinds = [
        Kind::of::<DaemonSet>(true),
        Kind::of::<Service>(true),
        monitoring("ServiceMonitor", "servicemonitors"),
        monitoring("PrometheusRule", "prometheusrules"),
    ];
    sweep(run, &kinds, Some(&run.namespace), &selector).await?;
    let pods = Kind::of::<Pod>(true);
    run.until_gone("operand pods", || {
        remaining(run, &pods, Some(&run.namespace), &selector)
    })
    .await?;
    // After their pods, which read them to the last.
    sweep(
        run,
        &[Kind::of::<ConfigMap>(true)],
        Some(&run.namespace),
        &selector,
    )
    .await?;
    sweep(run, &[Kind::of::<RuntimeClass>(false)], None, &selector).await?;
    let leases: Vec<Found> = run
        .controllers
        .iter()
        .filter(|name| elects(name))
        .map(|name| (run.namespace.clone(), name.clone()))
        .collect();
    delete(run, &Kind::of::<Lease>(true), &leases).await
}
