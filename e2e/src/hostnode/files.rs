//! The directory of a pod: volumes, and for each container a tree of links that shows them where they would be mounted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{
    ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, KeyToPath, Pod,
    SecretProjection, Volume, VolumeMount, VolumeProjection,
};
use kube::ResourceExt as _;
use tokio_util::sync::CancellationToken;

use super::environment::{config_map_of, pod_field, secret_of};
use super::{Context, token};

/// How often volumes are looked at.
const FOLLOW: Duration = Duration::from_secs(1);

/// What was made for a pod.
pub(super) struct Volumes {
    /// Token files to keep valid; the first without an audience is the one for the API server.
    pub(super) tokens: Vec<token::Wish>,
}

impl Volumes {
    /// The token file for the API server.
    pub(super) fn api_token(&self) -> Option<&Path> {
        self.tokens
            .iter()
            .find(|wish| wish.audience.is_none())
            .map(|wish| wish.path.as_path())
    }
}

/// Makes all volumes of a pod below `dir/volumes`.
pub(super) async fn volumes(
    context: &Context,
    pod: &Pod,
    ip: &str,
    dir: &Path,
) -> anyhow::Result<Volumes> {
    let mut made = Volumes { tokens: Vec::new() };
    for volume in pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten())
    {
        let path = dir.join("volumes").join(&volume.name);
        std::fs::create_dir_all(&path)?;
        for part in parts(volume) {
            project(context, pod, ip, &part, &path, &mut made)
                .await
                .with_context(|| {
                    format!("MountVolume.SetUp failed for volume \"{}\"", volume.name)
                })?;
        }
    }
    Ok(made)
}

/// The volumes of whole Secrets and ConfigMaps: what a user mounts, and not what every pod gets.
fn followed(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(|volume| volume.secret.is_some() || volume.config_map.is_some())
}

/// Whether a pod has volumes that change with their sources.
pub(super) fn follows(pod: &Pod) -> bool {
    followed(pod).next().is_some()
}

/// Brings what has changed into the volumes until cancelled, as the kubelet does once a minute, only sooner. A source that is gone
/// leaves its files.
pub(super) async fn follow(
    context: &Context,
    pod: &Pod,
    ip: &str,
    dir: &Path,
    cancel: &CancellationToken,
) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(FOLLOW) => {}
            () = cancel.cancelled() => return,
        }
        let mut made = Volumes { tokens: Vec::new() };
        for volume in followed(pod) {
            let path = dir.join("volumes").join(&volume.name);
            for part in parts(volume) {
                if let Err(error) = project(context, pod, ip, &part, &path, &mut made).await {
                    tracing::debug!(pod = pod.name_any(), "a volume was not renewed: {error:#}");
                }
            }
        }
    }
}

/// What a volume shows, part by part. A plain volume is a projection of one source, a Secret's name apart.
fn parts(volume: &Volume) -> Vec<VolumeProjection> {
    if let Some(projected) = &volume.projected {
        return projected.sources.clone().unwrap_or_default();
    }
    let config_map = volume
        .config_map
        .as_ref()
        .map(|source| ConfigMapProjection {
            name: source.name.clone(),
            items: source.items.clone(),
            optional: source.optional,
        });
    let secret = volume.secret.as_ref().map(|source| SecretProjection {
        name: source.secret_name.clone().unwrap_or_default(),
        items: source.items.clone(),
        optional: source.optional,
    });
    let downward_api = volume.downward_api.as_ref().map(|source| {
        let items = source.items.clone();
        DownwardAPIProjection { items }
    });
    vec![VolumeProjection {
        config_map,
        secret,
        downward_api,
        ..VolumeProjection::default()
    }]
}

async fn project(
    context: &Context,
    pod: &Pod,
    ip: &str,
    part: &VolumeProjection,
    path: &Path,
    made: &mut Volumes,
) -> anyhow::Result<()> {
    let namespace = pod.namespace().unwrap_or_default();
    if let Some(source) = &part.config_map {
        let data = config_map_of(&context.client, &namespace, &source.name).await?;
        write(
            path,
            &source.name,
            data,
            source.items.as_deref(),
            source.optional,
        )?;
    }
    if let Some(source) = &part.secret {
        let data = secret_of(&context.client, &namespace, &source.name).await?;
        write(
            path,
            &source.name,
            data,
            source.items.as_deref(),
            source.optional,
        )?;
    }
    if let Some(source) = &part.downward_api {
        downward(path, pod, ip, source.items.as_deref().unwrap_or_default())?;
    }
    if let Some(source) = &part.service_account_token {
        made.tokens.push(token::Wish {
            path: below(path, &source.path)?,
            audience: source.audience.clone(),
            seconds: source.expiration_seconds.unwrap_or(3600),
        });
    }
    Ok(())
}

/// Writes the entries of a ConfigMap or Secret as files.
fn write(
    dir: &Path,
    name: &str,
    data: Option<BTreeMap<String, Vec<u8>>>,
    items: Option<&[KeyToPath]>,
    optional: Option<bool>,
) -> anyhow::Result<()> {
    let Some(data) = data else {
        if optional == Some(true) {
            return Ok(());
        }
        bail!("\"{name}\" not found");
    };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        for (key, value) in &data {
            token::replace(&below(dir, key)?, value)?;
        }
        return gone(dir, &data);
    };
    for item in items {
        match data.get(&item.key) {
            Some(value) => token::replace(&below(dir, &item.path)?, value)?,
            None if optional == Some(true) => {}
            None => bail!("references non-existent config key: {}", item.key),
        }
    }
    Ok(())
}

/// Takes away the files of entries that are gone.
fn gone(dir: &Path, data: &BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_file() && !data.contains_key(&name) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn downward(
    dir: &Path,
    pod: &Pod,
    ip: &str,
    items: &[DownwardAPIVolumeFile],
) -> anyhow::Result<()> {
    for item in items {
        if let Some(field) = &item.field_ref {
            std::fs::write(below(dir, &item.path)?, pod_field(pod, ip, field)?)?;
        }
    }
    Ok(())
}

/// A path below a directory, its parents made. The API server refuses `..` in these paths already.
fn below(dir: &Path, relative: &str) -> anyhow::Result<PathBuf> {
    let path = dir.join(relative.trim_start_matches('/'));
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    Ok(path)
}

/// Makes the tree of links for a container and returns its path: the value of `LAB_ROOT`.
pub(super) fn root(dir: &Path, container: &Container) -> anyhow::Result<PathBuf> {
    let root = dir.join("root").join(&container.name);
    std::fs::create_dir_all(&root)?;
    for mount in container.volume_mounts.iter().flatten() {
        let mut target = dir.join("volumes").join(&mount.name);
        if let Some(sub) = mount.sub_path.as_deref().filter(|sub| !sub.is_empty()) {
            target = target.join(sub);
        }
        let link = below(&root, &mount.mount_path)?;
        match std::os::unix::fs::symlink(&target, &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error)
                    .with_context(|| format!("mount {} cannot be shown", mount.mount_path));
            }
            _ => {}
        }
    }
    Ok(root)
}

/// An argument whose value (all of it, or what follows `=`) lies in a mount, with the place where a process of this machine finds it.
pub(super) fn shown(argument: &str, root: &Path, container: &Container) -> String {
    let (flag, value) = match argument.split_once('=') {
        Some((flag, value)) => (format!("{flag}="), value),
        None => (String::new(), argument),
    };
    let lies_in = |mount: &VolumeMount| Path::new(value).starts_with(&mount.mount_path);
    if container.volume_mounts.iter().flatten().any(lies_in) {
        let value = root.join(value.trim_start_matches('/'));
        return format!("{flag}{}", value.display());
    }
    argument.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_in_mounts() {
        let mounts = serde_json::json!({"name": "a", "volumeMounts": [{"name": "v", "mountPath": "/etc/tls"}]});
        let container: Container = serde_json::from_value(mounts).unwrap();
        for (argument, want) in [
            ("--dir=/etc/tls", "--dir=/root/etc/tls"),
            ("--file=/etc/tls/a=b", "--file=/root/etc/tls/a=b"),
            ("/etc/tls/x", "/root/etc/tls/x"),
            ("--dir=/etc/tlsx", "--dir=/etc/tlsx"),
            ("--dir", "--dir"),
        ] {
            assert_eq!(shown(argument, Path::new("/root"), &container), want);
        }
    }
}
