//! Policies and nodes for tests.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use tessera_api::effective::resolve;
use tessera_api::image::OsRelease;
use tessera_api::names::label;
use tessera_api::nodes::ContainerRuntime;
use tessera_api::{ClusterPolicy, DefaultImages, EffectivePolicy, NodeFacts};

/// The user's policy of the inputs.
const INPUT: &str = include_str!("../../../e2e/inputs/cluster-policy.yaml");

/// A policy with this spec.
#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
pub(crate) fn policy(spec: Value) -> EffectivePolicy {
    effective(&[object("p", &spec, None)])
}

/// The inputs: a base policy as the chart renders it from the values, and the user's over it.
pub(crate) fn inputs() -> EffectivePolicy {
    let base = json!({
        "driver": {"enabled": true, "repository": "nvcr.io/nvidia", "image": "nvidia-driver", "version": "535.104.05",
                   "upgradePolicy": {"autoUpgrade": true}},
        "toolkit": {"enabled": true},
        "cdi": {"enabled": true},
        "migManager": {"enabled": false},
        "dcgm": {"enabled": true},
    });
    let user: ClusterPolicy = serde_saphyr::from_str(INPUT).unwrap();
    let mut user = serde_json::to_value(user).unwrap();
    user["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    effective(&[
        object("cluster-policy", &base, Some("base")),
        serde_json::from_value(user).unwrap(),
    ])
}

fn object(name: &str, spec: &Value, role: Option<&str>) -> ClusterPolicy {
    let mut object = json!({
        "apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy",
        "metadata": {"name": name, "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
    });
    if let Some(role) = role {
        object["metadata"]["labels"] = json!({label::POLICY_ROLE: role});
    }
    serde_json::from_value(object).unwrap()
}

fn effective(policies: &[ClusterPolicy]) -> EffectivePolicy {
    let active = resolve(policies, &DefaultImages::builtin()).active.unwrap();
    EffectivePolicy::clone(&active.effective)
}

/// Everything that concerns this controller, on and set.
pub(crate) fn everything() -> EffectivePolicy {
    policy(json!({
        "operator": {"runtimeClass": "gpu"},
        "daemonsets": {
            "labels": {"team": "ml"}, "annotations": {"note": "x"},
            "tolerations": [{"operator": "Exists"}], "priorityClassName": "gpu-critical",
            "rollingUpdate": {"maxUnavailable": "10%"},
        },
        "hostPaths": {"rootFS": "/host-root", "driverInstallDir": "/opt/nvidia/driver"},
        "driver": {
            "repository": "registry.example/nvidia", "image": "driver", "version": "580.95.05",
            "imagePullPolicy": "Always", "imagePullSecrets": ["b", "a"], "args": ["init", "--extra"],
            "resources": {"limits": {"memory": "4Gi"}, "requests": {"cpu": "500m"}},
            "env": [{"name": "KERNEL_MODULE_TYPE", "value": "proprietary"}, {"name": "HTTP_PROXY", "value": "http://proxy"}],
            "kernelModuleType": "open", "hostNetwork": true, "secretEnv": "driver-env",
            "rdma": {"enabled": true, "useHostMofed": true},
            "repoConfig": {"configMapName": "repo"}, "certConfig": {"name": "certs"},
            "kernelModuleConfig": {"name": "modules"}, "virtualTopology": {"config": "topology"},
            "licensingConfig": {"secretName": "licence", "nlsEnabled": true},
            "livenessProbe": {"periodSeconds": 30}, "readinessProbe": {"timeoutSeconds": 5},
            "startupProbe": {"initialDelaySeconds": 5},
            "manager": {"version": "v0.13.0", "env": [{"name": "ENABLE_AUTO_DRAIN", "value": "true"}]},
        },
        "toolkit": {
            "installDir": "/opt/nvidia/toolkit", "imagePullSecrets": ["a"],
            "env": [{"name": "CONTAINERD_SOCKET", "value": "/run/other/containerd.sock"}, {"name": "LOG", "value": "debug"}],
        },
        "validator": {
            "env": [{"name": "X", "value": "1"}], "plugin": {"env": [{"name": "WITH_WORKLOAD", "value": "true"}]},
            "driver": {"env": [{"name": "DISABLE_DEV_CHAR_SYMLINK_CREATION", "value": "true"}]},
        },
        "gds": {"enabled": true, "imagePullSecrets": ["c"]}, "gdrcopy": {"enabled": true, "version": "v2.7"},
        "mig": {"strategy": "mixed"},
    }))
}

/// As little as can be: no driver, no device plugin, NRI.
pub(crate) fn minimal() -> EffectivePolicy {
    policy(json!({
        "driver": {"enabled": false}, "devicePlugin": {"enabled": false},
        "cdi": {"enabled": true, "nriPluginEnabled": true},
    }))
}

/// A GPU node as NFD labels it.
pub(crate) fn node(name: &str) -> NodeFacts {
    let labels = [
        ("feature.node.kubernetes.io/pci-10de.present", "true"),
        (label::NFD_OS_ID, "ubuntu"),
        (label::NFD_OS_VERSION, "22.04"),
        (label::NFD_KERNEL, "5.15.0-117-generic"),
        ("gpu", "true"),
    ];
    NodeFacts {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        labels: labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        os: Some(OsRelease {
            id: "ubuntu".to_owned(),
            version: "22.04".to_owned(),
        }),
        os_image: "Ubuntu 22.04 LTS".to_owned(),
        kernel: "5.15.0-117-generic".to_owned(),
        runtime: ContainerRuntime {
            name: "containerd".to_owned(),
            version: "1.7.27".to_owned(),
        },
        kubelet_version: "v1.34.4".to_owned(),
        ready: true,
        ..NodeFacts::default()
    }
}

/// A node with one label changed.
pub(crate) fn labelled(name: &str, key: &str, value: &str) -> NodeFacts {
    let mut node = node(name);
    node.labels.insert(key.to_owned(), value.to_owned());
    node
}

/// ConfigMaps by name, each with these keys.
pub(crate) fn configs(
    maps: &[(&str, &[&str])],
) -> BTreeMap<String, std::sync::Arc<crate::validate::ConfigFacts>> {
    let facts = |keys: &[&str]| crate::validate::ConfigFacts {
        keys: keys.iter().map(ToString::to_string).collect(),
        hash: keys.join("+"),
    };
    maps.iter()
        .map(|(name, keys)| ((*name).to_owned(), std::sync::Arc::new(facts(keys))))
        .collect()
}

/// The ConfigMaps that [`everything`] names.
pub(crate) fn all_configs() -> BTreeMap<String, std::sync::Arc<crate::validate::ConfigFacts>> {
    configs(&[
        ("repo", &["custom.list", "more.list"]),
        ("certs", &["ca.crt"]),
        ("modules", &["nvidia.conf"]),
        ("topology", &["nvidia-topologyd.conf"]),
    ])
}
