//! Containers, environments, volumes and mounts, in few words.

use super::non_empty;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    HostPathVolumeSource, KeyToPath, ObjectFieldSelector, SecretVolumeSource, SecurityContext,
    Volume, VolumeMount,
};
use std::collections::BTreeMap;
use tessera_api::effective;
use tessera_api::names::VALIDATIONS_DIR;

/// Volume that [`wait_for_file`] mounts; the DaemonSet must have it ([`validations_volume`]).
pub const VALIDATIONS_VOLUME: &str = "run-nvidia-validations";

/// A privileged container (as all of NVIDIA's operand containers are) with name, image and pull policy.
pub fn container(name: &str, image: &str, pull_policy: &str) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: (!pull_policy.is_empty()).then(|| pull_policy.to_owned()),
        security_context: Some(SecurityContext {
            privileged: Some(true),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

/// The main container of an operand: [`container()`] with the policy's image, arguments and resources. Its environment
/// is set with [`merge_env`] and `operand.env`.
pub fn main_container(name: &str, operand: &effective::Operand) -> Container {
    Container {
        args: non_empty(operand.args.clone()),
        resources: operand.resources.clone(),
        ..container(
            name,
            &operand.image.to_string(),
            operand.image_pull_policy.as_str(),
        )
    }
}

/// `sh -c <script>` as a container's command.
#[must_use]
pub fn shell(mut container: Container, script: &str) -> Container {
    container.command = Some(vec!["sh".to_owned(), "-c".to_owned()]);
    container.args = Some(vec![script.to_owned()]);
    container
}

/// A variable with a value.
pub fn env(name: &str, value: impl Into<String>) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.into()),
        value_from: None,
    }
}

/// A variable with a field of the pod, e.g. `spec.nodeName`.
pub fn env_field(name: &str, path: &str) -> EnvVar {
    // The API server writes its default version into this atomic map; without it every comparison would find a difference.
    let field = ObjectFieldSelector {
        api_version: Some("v1".to_owned()),
        field_path: path.to_owned(),
    };
    let source = EnvVarSource {
        field_ref: Some(field),
        ..EnvVarSource::default()
    };
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(source),
    }
}

/// `ours` sorted by name, then what the user adds, sorted (so that `$(NAME)` may refer to ours). A variable that both
/// name has the user's value. `None` when empty.
pub fn merge_env(ours: Vec<EnvVar>, user: &BTreeMap<String, String>) -> Option<Vec<EnvVar>> {
    let mut known: BTreeMap<String, EnvVar> = ours
        .into_iter()
        .map(|var| (var.name.clone(), var))
        .collect();
    let mut added: Vec<EnvVar> = Vec::new();
    for (name, value) in user {
        let value = env(name, value.clone());
        match known.get_mut(name) {
            Some(ours) => *ours = value,
            None => added.push(value),
        }
    }
    non_empty(known.into_values().chain(added).collect())
}

/// A path of the host. `type_` is Kubernetes's check (`Directory`, `DirectoryOrCreate`, `File`, ...), empty for none.
pub fn host_path(name: &str, path: &str, type_: &str) -> Volume {
    let source = HostPathVolumeSource {
        path: path.to_owned(),
        type_: (!type_.is_empty()).then(|| type_.to_owned()),
    };
    Volume {
        name: name.to_owned(),
        host_path: Some(source),
        ..Volume::default()
    }
}

/// A ConfigMap as files. `items` picks keys and gives them file names; empty for all keys.
pub fn config_map(
    name: &str,
    config_map: &str,
    items: &[(&str, &str)],
    mode: Option<i32>,
) -> Volume {
    let items = items.iter().map(|(key, path)| KeyToPath {
        key: (*key).to_owned(),
        path: (*path).to_owned(),
        mode: None,
    });
    let source = ConfigMapVolumeSource {
        name: config_map.to_owned(),
        items: non_empty(items.collect()),
        default_mode: mode,
        optional: None,
    };
    Volume {
        name: name.to_owned(),
        config_map: Some(source),
        ..Volume::default()
    }
}

/// A Secret as files.
pub fn secret(name: &str, secret: &str, items: &[(&str, &str)]) -> Volume {
    let items = items.iter().map(|(key, path)| KeyToPath {
        key: (*key).to_owned(),
        path: (*path).to_owned(),
        mode: None,
    });
    let source = SecretVolumeSource {
        secret_name: Some(secret.to_owned()),
        items: non_empty(items.collect()),
        ..SecretVolumeSource::default()
    };
    Volume {
        name: name.to_owned(),
        secret: Some(source),
        ..Volume::default()
    }
}

/// An empty directory that lives as long as the pod.
pub fn empty_dir(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}

/// Mounts `volume` at `path`.
pub fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

/// As [`mount`], read-only.
pub fn mount_ro(volume: &str, path: &str) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount(volume, path)
    }
}

/// As [`mount`], with `HostToContainer` or `Bidirectional` propagation of mounts made later.
pub fn mount_propagated(volume: &str, path: &str, propagation: &str) -> VolumeMount {
    VolumeMount {
        mount_propagation: Some(propagation.to_owned()),
        ..mount(volume, path)
    }
}

/// As [`mount`], of one file of the volume. Such a mount never follows changes of a ConfigMap.
pub fn mount_file(volume: &str, path: &str, sub_path: &str) -> VolumeMount {
    VolumeMount {
        sub_path: Some(sub_path.to_owned()),
        read_only: Some(true),
        ..mount(volume, path)
    }
}

/// The volume with the files by which operands on a node wait for each other.
pub fn validations_volume() -> Volume {
    host_path(VALIDATIONS_VOLUME, VALIDATIONS_DIR, "DirectoryOrCreate")
}

/// Init container `<what>-validation` that waits for the file `<what>-ready` of the validator, looking every 5 s
/// (NVIDIA's `toolkit-validation`). `image` needs a shell: NVIDIA uses the validator's.
pub fn wait_for_file(what: &str, image: &str, pull_policy: &str) -> Container {
    let script = format!(
        "until [ -f {VALIDATIONS_DIR}/{what}-ready ]; do echo waiting for {what} to be ready on this node; sleep 5; done"
    );
    let mut waiting = shell(
        container(&format!("{what}-validation"), image, pull_policy),
        &script,
    );
    waiting.volume_mounts = Some(vec![mount_propagated(
        VALIDATIONS_VOLUME,
        VALIDATIONS_DIR,
        "HostToContainer",
    )]);
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_environment_wins_and_comes_last() {
        let ours = vec![env("B", "1"), env_field("A", "spec.nodeName")];
        let user =
            [("B", "2"), ("AA", "$(A)")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let merged = merge_env(ours, &BTreeMap::from(user)).unwrap();
        let names: Vec<_> = merged
            .iter()
            .map(|var| (var.name.as_str(), var.value.as_deref().unwrap_or("-")))
            .collect();
        assert_eq!(names, [("A", "-"), ("B", "2"), ("AA", "$(A)")]);
        assert_eq!(merge_env(vec![], &BTreeMap::new()), None);
    }
}
