//! The changes of a Pod as a JSON patch (RFC 6902): only what is missing is added, and nothing of the user's is replaced.

use std::collections::BTreeSet;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::asks::Ask;

/// The changes so far.
pub(super) struct Edits<'a> {
    pod: &'a Pod,
    operations: Vec<PatchOperation>,
    /// Containers that had no variables and have some now.
    begun: BTreeSet<(&'static str, usize)>,
    /// The Pod has annotations, or has got some.
    annotated: bool,
    /// `train CUDA_DEVICE_MEMORY_LIMIT_0=3328m`.
    variables: Vec<String>,
}

impl<'a> Edits<'a> {
    /// None yet.
    pub(super) fn of(pod: &'a Pod) -> Self {
        Self {
            annotated: pod.metadata.annotations.is_some(),
            pod,
            operations: Vec::new(),
            begun: BTreeSet::new(),
            variables: Vec::new(),
        }
    }

    /// Adds an environment variable behind those of the container.
    pub(super) fn set(&mut self, ask: &Ask<'_>, name: &str, value: &str) {
        let index = ask.index.to_string();
        let list = ["spec", ask.list, &index, "env"];
        if ask.container.env.is_none() && self.begun.insert((ask.list, ask.index)) {
            self.add(&list, json!([]));
        }
        let end = [&list[..], &["-"]].concat();
        self.add(&end, json!({"name": name, "value": value}));
        self.variables
            .push(format!("{} {name}={value}", ask.container.name));
    }

    /// Takes away what a container asks for.
    pub(super) fn drop_resource(&mut self, ask: &Ask<'_>, resource: &str) {
        let index = ask.index.to_string();
        let Some(resources) = &ask.container.resources else {
            return;
        };
        for (key, map) in [
            ("limits", &resources.limits),
            ("requests", &resources.requests),
        ] {
            if map.as_ref().is_some_and(|map| map.contains_key(resource)) {
                let path = pointer(&["spec", ask.list, &index, "resources", key, resource]);
                self.operations
                    .push(PatchOperation::Remove(RemoveOperation { path }));
            }
        }
    }

    /// Annotates the Pod, unless it says the same already.
    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        let known = self.pod.annotations().get(key);
        if known.is_some_and(|known| known == value) {
            return;
        }
        if !self.annotated {
            self.annotated = true;
            self.add(&["metadata", "annotations"], json!({}));
        }
        self.add(&["metadata", "annotations", key], json!(value));
    }

    /// The variables that were added.
    pub(super) fn added(&self) -> String {
        self.variables.join(", ")
    }

    /// All changes.
    pub(super) fn into_patch(self) -> Patch {
        Patch(self.operations)
    }

    fn add(&mut self, path: &[&str], value: Value) {
        let path = pointer(path);
        self.operations
            .push(PatchOperation::Add(AddOperation { path, value }));
    }
}

fn pointer(tokens: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(tokens.iter().copied())
}
