//! The GPU nodes, placed in pools and counted: pure, and kept up to date node by node, so that one node's event costs
//! the work of one node.

use crate::pools::{DRIVER_POOL, DriverPool, TOOLKIT_POOL, ToolkitPool};
use std::collections::{BTreeMap, BTreeSet};
use tessera_api::names::label;
use tessera_api::nodes::is_gpu_node;
use tessera_api::{EffectivePolicy, NodeFacts, conditions::Reason};
use tessera_runtime::operands::{taint_sentence, untolerated};

/// Where a GPU node gets its driver from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverPlace {
    /// From the DaemonSet of this pool.
    Pool(DriverPool),
    /// The node brings its own.
    Host,
    /// Its operating system (or kernel) is not known, so no image can be named.
    Unknown,
    /// It is told not to have one (by a label on the node, or by the policy).
    Off,
}

/// What a GPU node needs of us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Its driver.
    pub driver: DriverPlace,
    /// Which toolkit settings fit; `None` when the node is told to have no toolkit, or none fits.
    pub toolkit: Option<ToolkitPool>,
    /// The pool labels that it should carry, by key; all others of ours go.
    pub labels: BTreeMap<&'static str, String>,
    /// What keeps operands from it.
    pub exceptions: Vec<(Reason, String)>,
}

impl Placement {
    /// Of a node under a policy; `None` for nodes without GPU.
    pub fn of(node: &NodeFacts, policy: &EffectivePolicy) -> Option<Self> {
        if !is_gpu_node(node, policy) {
            return None;
        }
        let mut exceptions = Vec::new();
        let off = node.label(label::DEPLOY_OPERANDS) == Some("false");
        // A node that is switched off needs no toleration.
        let taint = untolerated(&node.taints, &policy.daemonsets.tolerations).filter(|_| !off);
        exceptions.extend(taint.map(|taint| (Reason::TaintsNotTolerated, taint_sentence(taint))));
        let driver = if off || !policy.driver.operand.enabled {
            DriverPlace::Off
        } else {
            driver_place(node, policy)
        };
        if driver == DriverPlace::Unknown {
            exceptions.push((Reason::UnknownOperatingSystem, unknown(node, policy)));
        }
        let toolkit =
            wants(node, label::DEPLOY_TOOLKIT).filter(|()| !off && policy.toolkit.operand.enabled);
        let fitting = toolkit.and_then(|()| ToolkitPool::of(node));
        if toolkit.is_some() && fitting.is_none() {
            exceptions.push((Reason::UnsupportedRuntime, unsupported(node)));
        }
        for key in [
            label::DEPLOY_OPERANDS,
            label::DEPLOY_DRIVER,
            label::DEPLOY_TOOLKIT,
            label::DEPLOY_VALIDATOR,
        ] {
            if let Some(value) = node
                .label(key)
                .filter(|value| value.starts_with("paused") || *value == "false")
            {
                exceptions.push((Reason::NodePaused, format!("label {key}={value}")));
            }
        }
        let mut labels = BTreeMap::new();
        if let DriverPlace::Pool(pool) = &driver
            && let Some(name) = pool.label_for(node)
        {
            labels.insert(DRIVER_POOL, name);
        }
        if let Some(name) = fitting.and_then(|pool| pool.label_for(node)) {
            labels.insert(TOOLKIT_POOL, name);
        }
        Some(Self {
            driver,
            toolkit: fitting,
            labels,
            exceptions,
        })
    }
}

/// A label that admits an operand is absent, empty, true or paused; any other value means "not here".
fn wants(node: &NodeFacts, key: &str) -> Option<()> {
    match node.label(key) {
        None | Some("" | "true") => Some(()),
        Some(value) => value.starts_with("paused").then_some(()),
    }
}

fn driver_place(node: &NodeFacts, policy: &EffectivePolicy) -> DriverPlace {
    if node.label(label::DEPLOY_DRIVER) == Some(label::PRE_INSTALLED) {
        return DriverPlace::Host;
    }
    if wants(node, label::DEPLOY_DRIVER).is_none() {
        return DriverPlace::Off;
    }
    DriverPool::of(node, policy.driver.use_precompiled)
        .map_or(DriverPlace::Unknown, DriverPlace::Pool)
}

fn unknown(node: &NodeFacts, policy: &EffectivePolicy) -> String {
    if node.os.is_some() && policy.driver.use_precompiled {
        return "the kernel is not known, so no precompiled driver image can be named".to_owned();
    }
    let image = if node.os_image.is_empty() {
        "not reported"
    } else {
        &node.os_image
    };
    format!(
        "operating system {image:?} is not known, so no driver image can be named: label the node with {} and {}, or with {}={}",
        label::NFD_OS_ID,
        label::NFD_OS_VERSION,
        label::DEPLOY_DRIVER,
        label::PRE_INSTALLED
    )
}

fn unsupported(node: &NodeFacts) -> String {
    match node.runtime.name.as_str() {
        "" => "the kubelet has not reported its container runtime yet".to_owned(),
        name => format!(
            "container runtime {name} is not supported by the toolkit: it knows containerd, cri-o and docker"
        ),
    }
}

/// All GPU nodes.
#[derive(Debug, Default)]
pub struct Fleet {
    nodes: BTreeMap<String, Placement>,
    census: Census,
}

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// GPU nodes.
    pub gpu_nodes: usize,
    /// Of those, the ones with a driver of their own.
    pub host_driver: BTreeSet<String>,
    /// Driver pools with their nodes' number.
    pub drivers: BTreeMap<DriverPool, usize>,
    /// Toolkit pools with their nodes' number.
    pub toolkits: BTreeMap<ToolkitPool, usize>,
    /// What keeps operands from nodes, by node.
    pub exceptions: BTreeMap<String, Vec<(Reason, String)>>,
}

impl Fleet {
    /// Takes over a node's placement (`None`: gone, or no GPU). Returns whether anything has changed.
    pub fn set(&mut self, name: &str, placement: Option<Placement>) -> bool {
        let old = self.nodes.remove(name);
        let changed = old != placement;
        if let Some(old) = &old {
            self.census.count(name, old, false);
        }
        if let Some(placement) = placement {
            self.census.count(name, &placement, true);
            self.nodes.insert(name.to_owned(), placement);
        }
        changed
    }

    /// Starts again, under another policy.
    pub fn rebuild(&mut self, placements: impl IntoIterator<Item = (String, Placement)>) {
        *self = Self::default();
        for (name, placement) in placements {
            self.set(&name, Some(placement));
        }
    }

    /// A node's placement.
    pub fn get(&self, name: &str) -> Option<&Placement> {
        self.nodes.get(name)
    }

    /// Names of all GPU nodes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// The counts.
    pub fn census(&self) -> &Census {
        &self.census
    }
}

impl Census {
    fn count(&mut self, name: &str, placement: &Placement, comes: bool) {
        adjust(&mut self.gpu_nodes, comes);
        match &placement.driver {
            DriverPlace::Pool(pool) => tally(&mut self.drivers, pool, comes),
            DriverPlace::Host if comes => {
                self.host_driver.insert(name.to_owned());
            }
            DriverPlace::Host => {
                self.host_driver.remove(name);
            }
            DriverPlace::Unknown | DriverPlace::Off => {}
        }
        if let Some(pool) = &placement.toolkit {
            tally(&mut self.toolkits, pool, comes);
        }
        if comes && !placement.exceptions.is_empty() {
            self.exceptions
                .insert(name.to_owned(), placement.exceptions.clone());
        } else {
            self.exceptions.remove(name);
        }
    }

    /// The nodes with an exception of this kind, and the first one's message.
    pub fn with(&self, reason: Reason) -> (Vec<String>, Option<String>) {
        let found = self.exceptions.iter().filter_map(|(node, list)| {
            list.iter()
                .find(|(why, _)| *why == reason)
                .map(|(_, message)| (node.clone(), message.clone()))
        });
        let (nodes, messages): (Vec<String>, Vec<String>) = found.unzip();
        (nodes, messages.into_iter().next())
    }
}

fn adjust(count: &mut usize, comes: bool) {
    *count = if comes {
        count.saturating_add(1)
    } else {
        count.saturating_sub(1)
    };
}

fn tally<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K, comes: bool) {
    let count = counts.entry(key.clone()).or_default();
    adjust(count, comes);
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests;
