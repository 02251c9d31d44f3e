//! The environment of a container.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVarSource, ObjectFieldSelector, Pod, Secret,
};
use kube::{Api, Client, ResourceExt as _};

use super::Context;
use super::expand::expand;

/// Everything about a pod that its environment refers to.
pub(super) struct Facts<'a> {
    pub(super) context: &'a Context,
    pub(super) pod: &'a Pod,
    pub(super) ip: &'a str,
    /// `KUBECONFIG` for pods that have a token.
    pub(super) kubeconfig: Option<String>,
    /// `LAB_ROOT` of the container.
    pub(super) root: String,
}

/// All variables of a container. What the pod specification sets wins over what the lab sets.
pub(super) async fn of(
    facts: &Facts<'_>,
    container: &Container,
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut vars = BTreeMap::from([
        (
            "PATH".to_owned(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ),
        ("HOSTNAME".to_owned(), facts.pod.name_any()),
        ("KUBERNETES_SERVICE_HOST".to_owned(), "127.0.0.1".to_owned()),
        (
            "KUBERNETES_SERVICE_PORT".to_owned(),
            facts.context.settings.api_port.to_string(),
        ),
        ("LAB_ROOT".to_owned(), facts.root.clone()),
    ]);
    if let Some(kubeconfig) = &facts.kubeconfig {
        vars.insert("KUBECONFIG".to_owned(), kubeconfig.clone());
    }
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let (name, optional, map) = if let Some(reference) = &source.config_map_ref {
            (
                &reference.name,
                reference.optional,
                config_map(facts, &reference.name).await?,
            )
        } else if let Some(reference) = &source.secret_ref {
            (
                &reference.name,
                reference.optional,
                secret(facts, &reference.name).await?,
            )
        } else {
            continue;
        };
        match map {
            Some(map) => vars.extend(
                map.into_iter()
                    .map(|(key, value)| (format!("{prefix}{key}"), value)),
            ),
            None if optional == Some(true) => {}
            None => bail!("\"{name}\" not found"),
        }
    }
    for var in container.env.iter().flatten() {
        let value = match &var.value_from {
            None => Some(expand(var.value.as_deref().unwrap_or_default(), &vars)),
            Some(source) => referenced(facts, source)
                .await
                .with_context(|| format!("variable {}", var.name))?,
        };
        if let Some(value) = value {
            vars.insert(var.name.clone(), value);
        }
    }
    Ok(vars)
}

/// The value of a reference; `None` when an optional one is missing.
async fn referenced(facts: &Facts<'_>, source: &EnvVarSource) -> anyhow::Result<Option<String>> {
    if let Some(field) = &source.field_ref {
        return Ok(Some(pod_field(facts.pod, facts.ip, field)?));
    }
    let (name, key, optional, map) = if let Some(r) = &source.config_map_key_ref {
        (
            &r.name,
            &r.key,
            r.optional,
            config_map(facts, &r.name).await?,
        )
    } else if let Some(r) = &source.secret_key_ref {
        (&r.name, &r.key, r.optional, secret(facts, &r.name).await?)
    } else {
        bail!("this kind of reference is not played by the lab");
    };
    match map.and_then(|mut map| map.remove(key)) {
        Some(value) => Ok(Some(value)),
        None if optional == Some(true) => Ok(None),
        None => bail!("key {key} of {name} not found"),
    }
}

/// A field of a pod, by the paths that the downward API knows.
pub(super) fn pod_field(
    pod: &Pod,
    ip: &str,
    field: &ObjectFieldSelector,
) -> anyhow::Result<String> {
    let spec = pod.spec.as_ref();
    let quoted = |prefix: &str| {
        field
            .field_path
            .strip_prefix(prefix)?
            .strip_prefix("['")?
            .strip_suffix("']")
    };
    Ok(match field.field_path.as_str() {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "spec.nodeName" => spec
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default(),
        "spec.serviceAccountName" => spec
            .and_then(|spec| spec.service_account_name.clone())
            .unwrap_or_default(),
        "status.podIP" | "status.podIPs" => ip.to_owned(),
        "status.hostIP" | "status.hostIPs" => "127.0.0.1".to_owned(),
        other => {
            if let Some(key) = quoted("metadata.labels") {
                pod.labels().get(key).cloned().unwrap_or_default()
            } else if let Some(key) = quoted("metadata.annotations") {
                pod.annotations().get(key).cloned().unwrap_or_default()
            } else {
                bail!("field {other} is not known")
            }
        }
    })
}

async fn config_map(
    facts: &Facts<'_>,
    name: &str,
) -> anyhow::Result<Option<BTreeMap<String, String>>> {
    let found = config_map_of(
        &facts.context.client,
        &facts.pod.namespace().unwrap_or_default(),
        name,
    )
    .await?;
    Ok(found.map(|map| {
        map.into_iter()
            .map(|(key, bytes)| (key, String::from_utf8_lossy(&bytes).into_owned()))
            .collect()
    }))
}

async fn secret(facts: &Facts<'_>, name: &str) -> anyhow::Result<Option<BTreeMap<String, String>>> {
    let found = secret_of(
        &facts.context.client,
        &facts.pod.namespace().unwrap_or_default(),
        name,
    )
    .await?;
    Ok(found.map(|map| {
        map.into_iter()
            .map(|(key, bytes)| (key, String::from_utf8_lossy(&bytes).into_owned()))
            .collect()
    }))
}

/// The entries of a ConfigMap; `None` when there is none of that name.
pub(super) async fn config_map_of(
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Option<BTreeMap<String, Vec<u8>>>> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    Ok(api.get_opt(name).await?.map(|map| {
        let text = map
            .data
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key, value.into_bytes()));
        text.chain(
            map.binary_data
                .unwrap_or_default()
                .into_iter()
                .map(|(key, value)| (key, value.0)),
        )
        .collect()
    }))
}

/// The entries of a Secret; `None` when there is none of that name.
pub(super) async fn secret_of(
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Option<BTreeMap<String, Vec<u8>>>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    Ok(api.get_opt(name).await?.map(|secret| {
        secret
            .data
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key, value.0))
            .collect()
    }))
}
