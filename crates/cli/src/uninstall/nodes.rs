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

/// Field managers of NVIDIA's driver-manager and MIG manager (client-go's default: the name of the binary), who pause
/// deploy labels and give them back.
const RESTORERS: [&str; 5] = [
    "k8s-driver-manager",
    "driver-manager",
    "nvidia-driver-manager",
    "nvidia-mig-manager",
    "mig-manager",
];

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
        let mut labels = owned_keys(node, &owners.managers, "f:labels");
        let mut annotations = owned_keys(node, &owners.managers, "f:annotations");
        if owners.shared_labels {
            // An operand paused by NVIDIA's managers: whoever would have restored the label is gone too.
            labels.extend(
                node.labels()
                    .iter()
                    .filter(|(key, value)| is_paused(key, value))
                    .map(|(key, _)| key.clone()),
            );
            labels.extend(restored(node));
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
    key.starts_with(label::DEPLOY_PREFIX)
        && label::PAUSES
            .into_iter()
            .any(|pause| value.ends_with(pause))
}

/// Deploy labels that NVIDIA's managers have paused and given back: theirs by that only, and ours before.
fn restored(node: &Node) -> BTreeSet<String> {
    let managers = RESTORERS.map(str::to_owned).into();
    let mut keys = owned_keys(node, &managers, "f:labels");
    keys.retain(|key| {
        let value = node.labels().get(key).map(String::as_str);
        key.starts_with(label::DEPLOY_PREFIX) && value == Some("true")
    });
    keys
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

/// Keys of `metadata.<what>` that one of these field managers owns.
fn owned_keys(node: &Node, managers: &BTreeSet<String>, what: &str) -> BTreeSet<String> {
    let entries = node.metadata.managed_fields.iter().flatten();
    let ours = entries.filter(|entry| {
        entry
            .manager
            .as_ref()
            .is_some_and(|manager| managers.contains(manager))
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
mod tests;
