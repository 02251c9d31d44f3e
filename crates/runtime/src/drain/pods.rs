//! Which pods must leave a node: pure.

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use std::collections::BTreeSet;
use tessera_api::names::{GPU_RESOURCE, MIG_RESOURCE_PREFIX, label};
use tessera_api::nodeoperation::Blocker;

/// A static pod's copy in the API: the kubelet ignores evictions of it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod of any namespace, cut to what decides about its eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each read by one rule"
)]
pub struct PodView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID: evictions name it, so that a successor of the same name is left alone.
    pub uid: String,
    /// Pending or Running: it may use the node's devices.
    pub live: bool,
    /// It is going away already.
    pub deleting: bool,
    /// It uses GPUs (see [`uses_gpu`]).
    pub gpu: bool,
    /// Its DaemonSet would make it again on this node.
    pub daemon: bool,
    /// A static pod.
    pub mirror: bool,
    /// Some controller makes it again elsewhere.
    pub managed: bool,
    /// It has data that ends with it.
    pub empty_dir: bool,
    /// It asked to be left out, or is one of our own processes.
    pub exempt: bool,
}

impl PodView {
    /// Reads a pod. `renamed` are resource names that the device plugin gives to GPUs besides NVIDIA's.
    pub fn of(pod: &Pod, renamed: &BTreeSet<String>) -> Self {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            .unwrap_or("Pending");
        let owner = pod
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true));
        let labels = pod.labels();
        let is = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            live: matches!(phase, "Pending" | "Running"),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            gpu: uses_gpu(pod, renamed),
            daemon: owner.is_some_and(|owner| owner.kind == "DaemonSet"),
            mirror: pod.annotations().contains_key(MIRROR),
            managed: owner.is_some(),
            empty_dir: volumes
                .into_iter()
                .flatten()
                .any(|volume| volume.empty_dir.is_some()),
            exempt: is(label::UPGRADE_DRAIN_SKIP, "true")
                || is(label::PART_OF, label::PART_OF_TESSERA),
        }
    }

    /// As a status names it.
    pub fn blocker(&self, message: &str) -> Blocker {
        Blocker {
            kind: "Pod".to_owned(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            message: message.to_owned(),
        }
    }
}

/// Whether a pod holds GPUs: any container, init containers included, asks for `nvidia.com/gpu*`, `nvidia.com/mig-*`, a
/// shared resource (`nvidia.com/*.shared`) or a `renamed` one. Claims of dynamic resource allocation are not visible in a
/// pod and so not seen here.
pub fn uses_gpu(pod: &Pod, renamed: &BTreeSet<String>) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    containers
        .flat_map(asked)
        .any(|(name, _)| is_gpu_resource(name) || renamed.contains(name))
}

fn asked(
    container: &Container,
) -> impl Iterator<
    Item = (
        &String,
        &k8s_openapi::apimachinery::pkg::api::resource::Quantity,
    ),
> {
    let resources = container.resources.as_ref();
    let lists = resources
        .into_iter()
        .flat_map(|all| [all.limits.as_ref(), all.requests.as_ref()]);
    lists
        .flatten()
        .flatten()
        .filter(|(_, quantity)| quantity.0 != "0")
}

fn is_gpu_resource(name: &str) -> bool {
    let shared = name.starts_with("nvidia.com/") && name.ends_with(".shared");
    name.starts_with(GPU_RESOURCE) || name.starts_with(MIG_RESOURCE_PREFIX) || shared
}

/// Which pods must leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Those that use GPUs.
    GpuPods,
    /// All but DaemonSets' and static ones.
    AllPods,
}

/// How hard pods may be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Force {
    /// Also pods that no controller makes again.
    pub unmanaged: bool,
    /// Also pods whose emptyDir data is lost.
    pub empty_dir: bool,
}

/// What is to be done about the pods of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be evicted.
    pub evict: Vec<PodView>,
    /// Going away already.
    pub ending: Vec<PodView>,
    /// Must leave, but may not be evicted: a person or the policy decides.
    pub refused: Vec<Blocker>,
}

impl Plan {
    /// Whether no pod has to leave any more.
    pub fn is_clear(&self) -> bool {
        self.evict.is_empty() && self.ending.is_empty() && self.refused.is_empty()
    }
}

/// Decides about all `pods` of a node. The order of the pods does not matter.
pub fn plan(pods: &[PodView], leave: Leave, force: Force) -> Plan {
    let mut plan = Plan::default();
    let mut pods: Vec<&PodView> = pods.iter().filter(|pod| concerns(pod, leave)).collect();
    pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    for pod in pods {
        if pod.deleting {
            plan.ending.push(pod.clone());
        } else if !pod.managed && !force.unmanaged {
            plan.refused.push(pod.blocker(
                "no controller would make it again: delete it, or set force in the upgrade policy",
            ));
        } else if pod.empty_dir && !force.empty_dir {
            plan.refused.push(pod.blocker("its emptyDir data would be lost: delete it, or set deleteEmptyDir in the upgrade policy"));
        } else {
            plan.evict.push(pod.clone());
        }
    }
    plan
}

fn concerns(pod: &PodView, leave: Leave) -> bool {
    let leaves = leave == Leave::AllPods || pod.gpu;
    leaves && pod.live && !pod.daemon && !pod.mirror && !pod.exempt
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn asking(resource: &str, init: bool) -> Pod {
        let uses = json!([{"name": "c", "resources": {"limits": {resource: "1"}}}]);
        let plain = json!([{"name": "d"}]);
        let (containers, inits) = if init {
            (plain, uses)
        } else {
            (uses, json!([]))
        };
        pod(
            json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": inits}}),
        )
    }

    #[test]
    fn gpu_pods_are_seen_by_what_they_ask_for() {
        let renamed = BTreeSet::from(["example.com/half-a100".to_owned()]);
        let cases = [
            ("nvidia.com/gpu", true),
            ("nvidia.com/gpu.shared", true),
            ("nvidia.com/mig-1g.10gb", true),
            ("nvidia.com/mig-1g.10gb.shared", true),
            ("nvidia.com/a100.shared", true),
            ("example.com/half-a100", true),
            ("nvidia.com/hostdev", false),
            ("cpu", false),
        ];
        for (resource, expected) in cases {
            assert_eq!(
                uses_gpu(&asking(resource, false), &renamed),
                expected,
                "{resource}"
            );
            assert_eq!(
                uses_gpu(&asking(resource, true), &renamed),
                expected,
                "{resource} in an init container"
            );
        }
        let none = pod(
            json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "0"}}}]}}),
        );
        assert!(!uses_gpu(&none, &renamed));
    }

    #[test]
    fn a_pod_is_read_as_it_is() {
        let view = PodView::of(
            &pod(json!({
                "metadata": {
                    "namespace": "jobs", "name": "train", "uid": "u",
                    "labels": {"nvidia.com/gpu-driver-upgrade-drain.skip": "true"},
                    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "v", "controller": true}],
                },
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "2"}}}], "volumes": [{"name": "scratch", "emptyDir": {}}]},
                "status": {"phase": "Running"},
            })),
            &BTreeSet::new(),
        );
        assert!(view.live && view.gpu && view.managed && view.empty_dir && view.exempt);
        assert!(!view.daemon && !view.mirror && !view.deleting);
    }

    #[test]
    fn who_leaves_and_who_may_not() {
        let usual = PodView {
            name: "usual".into(),
            live: true,
            gpu: true,
            managed: true,
            ..PodView::default()
        };
        let soft = Force {
            unmanaged: false,
            empty_dir: false,
        };
        let hard = Force {
            unmanaged: true,
            empty_dir: true,
        };
        let named = |list: &[PodView]| list.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
        let pods = [
            usual.clone(),
            PodView {
                name: "ending".into(),
                deleting: true,
                ..usual.clone()
            },
            PodView {
                name: "bare".into(),
                managed: false,
                ..usual.clone()
            },
            PodView {
                name: "data".into(),
                empty_dir: true,
                ..usual.clone()
            },
            PodView {
                name: "cpu".into(),
                gpu: false,
                ..usual.clone()
            },
            PodView {
                name: "finished".into(),
                live: false,
                ..usual.clone()
            },
            PodView {
                name: "daemon".into(),
                daemon: true,
                ..usual.clone()
            },
            PodView {
                name: "static".into(),
                mirror: true,
                ..usual.clone()
            },
            PodView {
                name: "exempt".into(),
                exempt: true,
                ..usual
            },
        ];
        let gentle = plan(&pods, Leave::GpuPods, soft);
        assert_eq!(
            (named(&gentle.evict), named(&gentle.ending)),
            (vec!["usual".to_owned()], vec!["ending".to_owned()])
        );
        let refused: Vec<&str> = gentle
            .refused
            .iter()
            .map(|blocker| blocker.name.as_str())
            .collect();
        assert_eq!(refused, ["bare", "data"]);
        assert_eq!(
            named(&plan(&pods, Leave::GpuPods, hard).evict),
            ["bare", "data", "usual"]
        );
        assert_eq!(
            named(&plan(&pods, Leave::AllPods, hard).evict),
            ["bare", "cpu", "data", "usual"]
        );
        assert!(plan(pods.get(4..).unwrap(), Leave::GpuPods, soft).is_clear());
    }
}
