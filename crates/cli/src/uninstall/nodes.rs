//! What our controllers left on nodes: labels, annotations, cordons. Pure decision, one request a node.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Map, Value, json};
use tessera_api::NodeOperation;
use tessera_api::names::{NODE_LABELS_MANAGER, annotation, controller, label};
use tessera_api::nodeoperation::UndoAct;

use super::{Run, objects};

/// Nodes are patched so many at a time.
const PARALLEL: usize = 8;

/// Nodes and operations are listed so many at a time.
const PAGE: u32 = 500;

/// Whose marks are taken away.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    managers: BTreeSet<String>,
    controllers: BTreeSet<String>,
    shared_labels: bool,
}

impl Owners {
    /// Of these controllers; the labels that the GPU controllers share only when none of them `goes_on`.
    pub fn new(controllers: &[String], goes_on: bool) -> Self {
        let mut managers: BTreeSet<String> = controllers
            .iter()
            .map(|name| controller::field_manager(name))
            .collect();
        let agents = controllers.iter().any(|name| name == controller::SREAGENT);
        if agents {
            managers.insert(controller::field_manager(controller::SRE_AGENT));
        }
        let shared_labels = !goes_on
            && controllers
                .iter()
                .any(|name| super::GPU_CONTROLLERS.contains(&name.as_str()));
        if shared_labels {
            managers.insert(NODE_LABELS_MANAGER.to_owned());
        }
        let agent = agents.then(|| controller::SRE_AGENT.to_owned());
        Self {
            managers,
            controllers: controllers.iter().cloned().chain(agent).collect(),
            shared_labels,
        }
    }

    /// Whether an operation is one of these controllers'; agents hold theirs as `sre-agent/<namespace>/<name>`.
    pub fn hold(&self, operation: &NodeOperation) -> bool {
        let holder = operation.holder().unwrap_or_default();
        self.controllers
            .contains(holder.split('/').next().unwrap_or_default())
    }
}

/// What to do to one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCleanup {
    /// Labels to remove.
    pub labels: BTreeSet<String>,
    /// Annotations to remove.
    pub annotations: BTreeSet<String>,
    /// Whether to make it schedulable again.
    pub uncordon: bool,
}

impl NodeCleanup {
    /// What a node needs; nothing for a node without marks of ours.
    pub fn of(node: &Node, operation: Option<&NodeOperation>, owners: &Owners) -> Option<Self> {
        let mut labels = owned_keys(node, owners, "f:labels");
        let mut annotations = owned_keys(node, owners, "f:annotations");
        if owners.shared_labels {
            // An operand paused by NVIDIA's managers: whoever would have restored the label is gone too.
            labels.extend(
                node.labels()
                    .iter()
                    .filter(|(key, value)| is_paused(key, value))
                    .map(|(key, _)| key.clone()),
            );
        }
        let operation = operation.filter(|operation| owners.hold(operation));
        let marked = annotations.contains(annotation::CORDONED_BY) || operation.is_some();
        if marked && node.annotations().contains_key(annotation::CORDONED_BY) {
            annotations.insert(annotation::CORDONED_BY.to_owned());
        }
        labels.retain(|key| node.labels().contains_key(key));
        annotations.retain(|key| node.annotations().contains_key(key));
        let cordoned = node
            .spec
            .as_ref()
            .and_then(|spec| spec.unschedulable)
            .unwrap_or(false);
        let ours =
            annotations.contains(annotation::CORDONED_BY) || operation.is_some_and(must_uncordon);
        let cleanup = Self {
            labels,
            annotations,
            uncordon: cordoned && ours,
        };
        (cleanup != Self::default()).then_some(cleanup)
    }

    /// As a JSON merge patch.
    pub fn patch(&self) -> Value {
        let nulls = |keys: &BTreeSet<String>| {
            keys.iter()
                .map(|key| (key.clone(), Value::Null))
                .collect::<Map<_, _>>()
        };
        let mut patch = json!({"metadata": {"labels": nulls(&self.labels), "annotations": nulls(&self.annotations)}});
        if self.uncordon
            && let Some(patch) = patch.as_object_mut()
        {
            patch.insert("spec".to_owned(), json!({"unschedulable": null}));
        }
        patch
    }

    fn describe(&self) -> String {
        let mut parts = Vec::new();
        if !self.labels.is_empty() {
            parts.push(format!("removed {} labels", self.labels.len()));
        }
        if !self.annotations.is_empty() {
            parts.push(format!("removed {} annotations", self.annotations.len()));
        }
        if self.uncordon {
            parts.push("uncordoned, for it was our cordon".to_owned());
        }
        parts.join(", ")
    }
}

fn is_paused(key: &str, value: &str) -> bool {
    let paused = [
        label::PAUSED_FOR_DRIVER_UPGRADE,
        label::PAUSED_FOR_MIG_CHANGE,
    ];
    key.starts_with(label::DEPLOY_PREFIX) && paused.into_iter().any(|pause| value.ends_with(pause))
}

/// Whether an operation made the cordon and has not undone it.
fn must_uncordon(operation: &NodeOperation) -> bool {
    let Some(status) = &operation.status else {
        return false;
    };
    let found_cordoned = status
        .found
        .as_ref()
        .is_some_and(|found| found.cordoned_before);
    !found_cordoned && status.undo.iter().any(|undo| undo.act == UndoAct::Uncordon)
}

/// Keys of `metadata.<what>` that one of our field managers owns.
fn owned_keys(node: &Node, owners: &Owners, what: &str) -> BTreeSet<String> {
    let entries = node.metadata.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| {
        entry
            .manager
            .as_ref()
            .is_some_and(|manager| owners.managers.contains(manager))
    });
    let fields = ours.filter_map(|entry| {
        entry
            .fields_v1
            .as_ref()?
            .0
            .get("f:metadata")?
            .get(what)?
            .as_object()
    });
    fields
        .flat_map(Map::keys)
        .filter_map(|key| key.strip_prefix("f:"))
        .map(str::to_owned)
        .collect()
}

/// Takes our marks off all nodes.
pub(super) async fn clean(run: &Run, owners: &Owners) -> anyhow::Result<()> {
    let operations = operations(run).await?;
    let api: Api<Node> = Api::all(run.client.clone());
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await.context("nodes cannot be listed")?;
        let wanted = page.items.iter().filter_map(|node| {
            let name = node.name_any();
            let cleanup = NodeCleanup::of(node, operations.get(&name), owners)?;
            Some((name, cleanup))
        });
        stream::iter(wanted.collect::<Vec<_>>())
            .map(|(name, cleanup)| apply(&api, name, cleanup))
            .buffer_unordered(PARALLEL)
            .try_for_each(|()| async { Ok(()) })
            .await?;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

async fn apply(api: &Api<Node>, name: String, cleanup: NodeCleanup) -> anyhow::Result<()> {
    match api
        .patch_metadata(
            &name,
            &PatchParams::default(),
            &Patch::Merge(cleanup.patch()),
        )
        .await
    {
        Ok(_) => println!("node {name}: {}", cleanup.describe()),
        Err(error) if objects::is_missing(&error) => {}
        Err(error) => return Err(error).with_context(|| format!("node {name} cannot be changed")),
    }
    Ok(())
}

async fn operations(run: &Run) -> anyhow::Result<BTreeMap<String, NodeOperation>> {
    let api: Api<NodeOperation> = Api::all(run.client.clone());
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list
            .into_iter()
            .map(|operation| (operation.name_any(), operation))
            .collect()),
        Err(error) if objects::is_missing(&error) => Ok(BTreeMap::new()),
        Err(error) => Err(error).context("NodeOperations cannot be listed"),
    }
}

/// Deletes the operations of these controllers: last, because they say what had to be undone.
pub(super) async fn remove_operations(run: &Run, owners: &Owners) -> anyhow::Result<()> {
    let kind = objects::Kind::custom(
        "aiops.local",
        "v1alpha1",
        "NodeOperation",
        "nodeoperations",
        false,
    );
    let held = operations(run)
        .await?
        .into_iter()
        .filter(|(_, operation)| owners.hold(operation));
    let found: Vec<objects::Found> = held.map(|(name, _)| (String::new(), name)).collect();
    objects::delete(run, &kind, &found).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_api::ownership;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    fn operation(value: Value) -> NodeOperation {
        serde_json::from_value(value).unwrap()
    }

    fn all() -> Owners {
        Owners::new(&super::super::CONTROLLERS.map(str::to_owned), false)
    }

    fn labelled() -> Value {
        json!({
            "metadata": {
                "name": "gpu-1",
                "labels": {
                    "kubernetes.io/hostname": "gpu-1", "nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true",
                    "nvidia.com/gpu.deploy.dcgm": "false", "nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"
                },
                "annotations": {"aiops.local/skip": "true"},
                "managedFields": [
                    {"manager": "node-labels.aiops.local", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": {
                        "f:nvidia.com/gpu.present": {}, "f:nvidia.com/gpu.deploy.driver": {}}}}},
                    {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {
                        "f:nvidia.com/gpu.deploy.dcgm": {}}, "f:annotations": {"f:aiops.local/skip": {}}}}}
                ]
            }
        })
    }

    #[test]
    fn only_our_own_labels_and_stale_pauses_go() {
        let cleanup = NodeCleanup::of(&node(labelled()), None, &all()).unwrap();
        let labels: Vec<&str> = cleanup.labels.iter().map(String::as_str).collect();
        assert_eq!(
            labels,
            [
                "nvidia.com/gpu.deploy.device-plugin",
                "nvidia.com/gpu.deploy.driver",
                "nvidia.com/gpu.present"
            ]
        );
        assert!(cleanup.annotations.is_empty() && !cleanup.uncordon);
    }

    /// Every label and annotation of nodes in the ownership table, with the manager that writes it.
    fn owned_by_table() -> Vec<(&'static str, String, String)> {
        let parts = ownership::TABLE
            .iter()
            .flat_map(|entry| entry.parts.iter().map(move |part| (entry, part)));
        let found = parts
            .filter(|(_, part)| part.on == "Node")
            .filter_map(|(entry, part)| {
                let (what, key) = part.path.strip_prefix("metadata.")?.split_once('[')?;
                let key = key.trim_end_matches(']').replace('*', "driver");
                let what = if what == "labels" {
                    "labels"
                } else {
                    "annotations"
                };
                Some((what, key, entry.field_manager.to_owned()))
            });
        found.collect()
    }

    #[test]
    fn all_that_the_ownership_table_names_goes_unless_somebody_else_set_it() {
        let owned = owned_by_table();
        for wanted in [
            label::MIG_CONFIG,
            annotation::UPGRADE_ENABLED,
            label::UPGRADE_STATE,
        ] {
            assert!(owned.iter().any(|(_, key, _)| key == wanted), "{wanted}");
        }
        for (what, key, manager) in owned {
            let by = |manager: &str| {
                let fields = json!({"f:metadata": {format!("f:{what}"): {format!("f:{key}"): {}}}});
                node(
                    json!({"metadata": {"name": "gpu-1", what: {key.clone(): "true"},
                    "managedFields": [{"manager": manager, "operation": "Update", "fieldsV1": fields}]}}),
                )
            };
            let cleanup = NodeCleanup::of(&by(&manager), None, &all()).unwrap();
            let gone = if what == "labels" {
                &cleanup.labels
            } else {
                &cleanup.annotations
            };
            assert!(gone.contains(&key), "{key} of {manager}");
            assert_eq!(
                NodeCleanup::of(&by("kubectl-label"), None, &all()),
                None,
                "{key}"
            );
        }
    }

    #[test]
    fn shared_labels_stay_while_another_gpu_controller_needs_them() {
        let one = Owners::new(&[controller::DCGM_MONITOR.to_owned()], true);
        assert_eq!(NodeCleanup::of(&node(labelled()), None, &one), None);
    }

    #[test]
    fn a_node_without_our_marks_is_not_touched() {
        let plain = node(
            json!({"metadata": {"name": "cpu-1", "labels": {"nvidia.com/gpu.present": "true"}}, "spec": {"unschedulable": true}}),
        );
        assert_eq!(NodeCleanup::of(&plain, None, &all()), None);
    }

    #[test]
    fn a_cordon_is_undone_only_where_it_was_ours() {
        let cordoned =
            node(json!({"metadata": {"name": "gpu-1"}, "spec": {"unschedulable": true}}));
        let status = |found: bool| {
            operation(
                json!({"apiVersion": "aiops.local/v1alpha1", "kind": "NodeOperation", "metadata": {"name": "gpu-1"}, "status": {
                "operation": "DriverUpgrade", "holder": "driver-controller", "phase": "Failed",
                "found": {"cordonedBefore": found}, "undo": [{"act": "Uncordon"}]}}),
            )
        };
        assert!(
            NodeCleanup::of(&cordoned, Some(&status(false)), &all())
                .unwrap()
                .uncordon
        );
        assert_eq!(
            NodeCleanup::of(&cordoned, Some(&status(true)), &all()),
            None
        );
        let others = Owners::new(&[controller::SREAGENT.to_owned()], true);
        assert_eq!(
            NodeCleanup::of(&cordoned, Some(&status(false)), &others),
            None
        );
    }

    #[test]
    fn a_marked_cordon_is_undone_without_an_operation() {
        let marked = node(
            json!({"metadata": {"name": "gpu-1", "annotations": {"aiops.local/cordoned-by": "DriverUpgrade"},
            "managedFields": [{"manager": "driver-controller.aiops.local", "operation": "Update",
                "fieldsV1": {"f:metadata": {"f:annotations": {"f:aiops.local/cordoned-by": {}}}}}]},
            "spec": {"unschedulable": true}}),
        );
        let cleanup = NodeCleanup::of(&marked, None, &all()).unwrap();
        assert!(cleanup.uncordon);
        assert_eq!(
            cleanup.patch(),
            json!({
            "metadata": {"labels": {}, "annotations": {"aiops.local/cordoned-by": null}}, "spec": {"unschedulable": null}})
        );
    }

    #[test]
    fn agents_hold_operations_under_their_own_names() {
        let held = operation(
            json!({"apiVersion": "aiops.local/v1alpha1", "kind": "NodeOperation", "metadata": {"name": "gpu-1"},
            "status": {"holder": "sre-agent/default/gpu-monitor-agent"}}),
        );
        assert!(all().hold(&held));
        assert!(!Owners::new(&[controller::DRIVER.to_owned()], false).hold(&held));
    }
}
