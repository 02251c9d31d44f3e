//! The shape that all operand DaemonSets share: pure functions on Kubernetes types.
//!
//! A controller makes [`Common`] once from the effective policy and fills one [`Operand`] a DaemonSet; [`daemon_set`] makes the
//! object: labels, selector, update strategy, priority class, tolerations, pull secrets, runtime class, config hash.
//! Containers are plain [`Container`]s made with [`container()`] and the other small functions of this module. The output is
//! deterministic: volumes are sorted by name, and environments by [`merge_env`].
//!
//! Facts about NVIDIA's DaemonSets: NVIDIA/gpu-operator v26.7.0, `assets/state-*/0500_daemonset.yaml`.

mod parts;

pub use parts::{
    VALIDATIONS_VOLUME, config_map, container, empty_dir, env, env_field, host_path,
    main_container, merge_env, mount, mount_file, mount_propagated, mount_ro, secret, shell,
    validations_volume, wait_for_file,
};

use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
use k8s_openapi::api::core::v1::{
    Affinity, Container, LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec,
    Toleration, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use tessera_api::effective::{self, EffectivePolicy};
use tessera_api::names::{annotation, label};

/// NVIDIA's NRI plugin: which CDI devices a container of the pod gets; the container's name follows.
const NRI_ANNOTATION: &str = "nvidia.cdi.k8s.io/container.";
/// The CDI name of all GPUs of a node, for management containers.
const NRI_ALL_GPUS: &str = "management.nvidia.com/gpu=all";

/// What all operand DaemonSets of a policy have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Common {
    /// Namespace of the operands.
    pub namespace: String,
    /// The controller that owns them; label `app.kubernetes.io/managed-by` of object and pods.
    pub controller: String,
    /// Labels of the user for DaemonSets and pods; ours win.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the user for DaemonSets and pods; ours win.
    pub annotations: BTreeMap<String, String>,
    /// The final list of tolerations.
    pub tolerations: Vec<Toleration>,
    /// Priority class of the pods.
    pub priority_class: String,
    /// Security context of the pods.
    pub pod_security_context: Option<PodSecurityContext>,
    /// How changed pods are replaced.
    pub update: Update,
    /// RuntimeClass of pods that use GPUs; `None` with NRI, which needs none.
    pub runtime_class: Option<String>,
    /// Devices reach the operands by NRI ([`Operand::nri_containers`]).
    pub nri: bool,
}

/// How changed pods of a DaemonSet are replaced.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// As many nodes at once as the number or percentage says.
    Rolling(IntOrString),
    /// When somebody deletes the old pod.
    OnDelete,
}

impl Default for Update {
    /// One node after the other.
    fn default() -> Self {
        Self::Rolling(IntOrString::Int(1))
    }
}

impl Common {
    /// Of `policy`, for the operands of `controller` in `namespace`.
    pub fn of(policy: &EffectivePolicy, controller: &str, namespace: &str) -> Self {
        let sets = &policy.daemonsets;
        Self {
            namespace: namespace.to_owned(),
            controller: controller.to_owned(),
            labels: sets.labels.clone(),
            annotations: sets.annotations.clone(),
            tolerations: sets.tolerations.clone(),
            priority_class: sets.priority_class_name.clone(),
            pod_security_context: sets.pod_security_context.clone(),
            update: match sets.update_strategy {
                effective::UpdateStrategy::OnDelete => Update::OnDelete,
                effective::UpdateStrategy::RollingUpdate { max_unavailable } => {
                    Update::Rolling(max_unavailable.to_int_or_string())
                }
            },
            // NRI gives devices to the operands by annotations: no RuntimeClass exists then.
            runtime_class: (!policy.cdi.nri).then(|| policy.runtime_class.clone()),
            nri: policy.cdi.nri,
        }
    }
}

/// One operand DaemonSet.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "as many switches as a pod spec has here, with its names"
)]
pub struct Operand {
    /// Name of the DaemonSet.
    pub name: String,
    /// Label `app` of DaemonSet and pods; NVIDIA's tools look for it.
    pub app: String,
    /// Label `app.kubernetes.io/component` of DaemonSet and pods.
    pub component: String,
    /// ServiceAccount of the pods; empty for the namespace's default.
    pub service_account: String,
    /// Whether the ServiceAccount's token is mounted; `None` for the account's own setting.
    pub mount_token: Option<bool>,
    /// Labels that distinguish this DaemonSet's pods from those of another with the same `app` (pools); part of the
    /// selector, which cannot be changed later.
    pub pool_labels: BTreeMap<String, String>,
    /// Labels of the nodes that run it.
    pub node_selector: BTreeMap<String, String>,
    /// What labels alone cannot say about nodes, or about other pods.
    pub affinity: Option<Affinity>,
    /// Runs with the RuntimeClass of [`Common`], if there is one.
    pub uses_gpu: bool,
    /// Containers (init containers too) that get all GPUs of the node by annotation when NRI is on.
    pub nri_containers: Vec<String>,
    /// Uses the host's network; cluster DNS stays usable.
    pub host_network: bool,
    /// Sees the host's processes.
    pub host_pid: bool,
    /// Shares the host's IPC.
    pub host_ipc: bool,
    /// Names of image pull Secrets; sorted and made unique here.
    pub pull_secrets: Vec<String>,
    /// Init containers, in order.
    pub init_containers: Vec<Container>,
    /// Containers, in order.
    pub containers: Vec<Container>,
    /// Volumes, in any order; of several with one name the first counts.
    pub volumes: Vec<Volume>,
    /// Further labels of the pods.
    pub pod_labels: BTreeMap<String, String>,
    /// Further annotations of the pods.
    pub pod_annotations: BTreeMap<String, String>,
    /// Further annotations of the DaemonSet.
    pub annotations: BTreeMap<String, String>,
    /// Hash of every ConfigMap that the pods read at start ([`config_hash`]).
    pub config_hash: Option<String>,
    /// Seconds to end; `None` for Kubernetes's 30.
    pub grace_seconds: Option<i64>,
    /// Instead of [`Common::update`].
    pub update: Option<Update>,
}

/// Makes the DaemonSet.
pub fn daemon_set(common: &Common, operand: Operand) -> DaemonSet {
    let ours = BTreeMap::from([
        (label::APP.to_owned(), operand.app.clone()),
        (label::COMPONENT.to_owned(), operand.component.clone()),
        (label::MANAGED_BY.to_owned(), common.controller.clone()),
        (label::PART_OF.to_owned(), label::PART_OF_TESSERA.to_owned()),
    ]);
    let mut selector = BTreeMap::from([(label::APP.to_owned(), operand.app.clone())]);
    selector.extend(operand.pool_labels.clone());
    let strategy = strategy(operand.update.as_ref().unwrap_or(&common.update));
    DaemonSet {
        metadata: ObjectMeta {
            name: Some(operand.name.clone()),
            namespace: Some(common.namespace.clone()),
            labels: Some(joined([&common.labels, &operand.pool_labels, &ours])),
            annotations: non_empty_map(joined([&common.annotations, &operand.annotations])),
            ..ObjectMeta::default()
        },
        spec: Some(DaemonSetSpec {
            selector: LabelSelector {
                match_labels: Some(selector),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(joined([
                        &common.labels,
                        &operand.pod_labels,
                        &operand.pool_labels,
                        &ours,
                    ])),
                    annotations: non_empty_map(pod_annotations(common, &operand)),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod_spec(common, operand)),
            },
            update_strategy: Some(strategy),
            ..DaemonSetSpec::default()
        }),
        status: None,
    }
}

fn pod_annotations(common: &Common, operand: &Operand) -> BTreeMap<String, String> {
    let mut annotations = joined([&common.annotations, &operand.pod_annotations]);
    if common.nri {
        let devices = operand
            .nri_containers
            .iter()
            .map(|name| (format!("{NRI_ANNOTATION}{name}"), NRI_ALL_GPUS.to_owned()));
        annotations.extend(devices);
    }
    if let Some(hash) = &operand.config_hash {
        annotations.insert(annotation::CONFIG_HASH.to_owned(), hash.clone());
    }
    annotations
}

fn pod_spec(common: &Common, operand: Operand) -> PodSpec {
    let mut secrets = operand.pull_secrets;
    secrets.sort();
    secrets.dedup();
    let secrets = secrets
        .into_iter()
        .map(|name| LocalObjectReference { name })
        .collect();
    let mut volumes: Vec<Volume> = Vec::new();
    for volume in operand.volumes {
        if !volumes.iter().any(|known| known.name == volume.name) {
            volumes.push(volume);
        }
    }
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    PodSpec {
        affinity: operand.affinity,
        automount_service_account_token: operand.mount_token,
        containers: operand.containers,
        // With the host's network the default policy would use the node's resolver only.
        dns_policy: operand
            .host_network
            .then(|| "ClusterFirstWithHostNet".to_owned()),
        host_ipc: operand.host_ipc.then_some(true),
        host_network: operand.host_network.then_some(true),
        host_pid: operand.host_pid.then_some(true),
        image_pull_secrets: non_empty(secrets),
        init_containers: non_empty(operand.init_containers),
        node_selector: non_empty_map(operand.node_selector),
        priority_class_name: (!common.priority_class.is_empty())
            .then(|| common.priority_class.clone()),
        runtime_class_name: common.runtime_class.clone().filter(|_| operand.uses_gpu),
        security_context: common.pod_security_context.clone(),
        service_account_name: Some(operand.service_account).filter(|name| !name.is_empty()),
        termination_grace_period_seconds: operand.grace_seconds,
        tolerations: non_empty(common.tolerations.clone()),
        volumes: non_empty(volumes),
        ..PodSpec::default()
    }
}

fn strategy(update: &Update) -> DaemonSetUpdateStrategy {
    let (type_, rolling_update) = match update {
        Update::OnDelete => ("OnDelete", None),
        Update::Rolling(max) => {
            let rolling = RollingUpdateDaemonSet {
                max_unavailable: Some(max.clone()),
                ..RollingUpdateDaemonSet::default()
            };
            ("RollingUpdate", Some(rolling))
        }
    };
    DaemonSetUpdateStrategy {
        rolling_update,
        type_: Some(type_.to_owned()),
    }
}

/// A hash of named texts (keys of ConfigMaps), for [`Operand::config_hash`].
pub fn config_hash<'a>(parts: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let parts: BTreeMap<&str, &str> = parts.into_iter().collect();
    crate::apply::content_hash(&serde_json::json!(parts))
}

/// A list, or `None` if it is empty: an empty list would be owned under server-side apply.
pub fn non_empty<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn non_empty_map(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!map.is_empty()).then_some(map)
}

/// Later maps win.
fn joined<'a>(
    maps: impl IntoIterator<Item = &'a BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    maps.into_iter().flat_map(Clone::clone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_ours_win_and_the_selector_is_small() {
        let common = Common {
            controller: "driver-controller".to_owned(),
            labels: BTreeMap::from([
                ("app".to_owned(), "mine".to_owned()),
                ("team".to_owned(), "x".to_owned()),
            ]),
            ..Common::default()
        };
        let operand = Operand {
            name: "n".to_owned(),
            app: "a".to_owned(),
            component: "c".to_owned(),
            ..Operand::default()
        };
        let spec = daemon_set(&common, operand).spec.unwrap();
        assert_eq!(
            spec.selector.match_labels.unwrap(),
            BTreeMap::from([("app".to_owned(), "a".to_owned())])
        );
        let labels = spec.template.metadata.unwrap().labels.unwrap();
        assert_eq!(
            (labels["app"].as_str(), labels["team"].as_str()),
            ("a", "x")
        );
        assert_eq!(labels[label::MANAGED_BY], "driver-controller");
    }
}
