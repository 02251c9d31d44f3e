//! The effective policy: what all controllers read. Base and overlay, two dialects and every default are resolved here, so that no
//! controller knows about them. Pure and total: a bad value makes one component invalid, never the whole policy unusable.

mod components;
mod defaults;
mod dialect;
mod merge;
mod resolve;

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

pub use self::{
    components::*,
    merge::merge,
    resolve::{Active, Ignored, IgnoredWhy, Resolution, first, resolve},
};
pub(crate) use self::{dialect::short_path, resolve::layered};

/// A policy with every field decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectivePolicy {
    /// Which nodes are GPU nodes: those with all of these labels; empty means discovery (see [`crate::nodes::is_gpu_node`]).
    pub node_selector: BTreeMap<String, String>,
    /// RuntimeClass of GPU pods and operands.
    pub runtime_class: String,
    /// What all operand DaemonSets share.
    pub daemonsets: Daemonsets,
    /// Paths on the host.
    pub host_paths: HostPaths,
    /// Driver.
    pub driver: Driver,
    /// Container toolkit.
    pub toolkit: Toolkit,
    /// Container Device Interface.
    pub cdi: Cdi,
    /// Validator.
    pub validator: Validator,
    /// Device plugin.
    pub device_plugin: DevicePlugin,
    /// GPU feature discovery.
    pub gfd: Gfd,
    /// MIG.
    pub mig: Mig,
    /// MIG manager.
    pub mig_manager: MigManager,
    /// DCGM host engine.
    pub dcgm: Dcgm,
    /// DCGM exporter.
    pub dcgm_exporter: DcgmExporter,
    /// Node status exporter.
    pub node_status_exporter: NodeStatusExporter,
    /// Paths that are given and that nothing acts on.
    pub unsupported: Vec<String>,
    /// Values that cannot be used, with what was done instead.
    pub problems: Vec<Problem>,
}

impl EffectivePolicy {
    /// A short stable hash: the first 16 hex digits of the SHA-256 of the canonical JSON. Equal policies have equal hashes in every
    /// process and version with the same fields.
    pub fn hash(&self) -> String {
        hash_of(self)
    }

    /// Image of each enabled operand, for `status.effective.images`. Driver: without the suffix of the operating system.
    pub fn images(&self) -> BTreeMap<String, String> {
        let operands = [
            ("driver", &self.driver.operand),
            ("toolkit", &self.toolkit.operand),
            ("validator", &self.validator.operand),
            ("devicePlugin", &self.device_plugin.operand),
            ("gfd", &self.gfd.operand),
            ("migManager", &self.mig_manager.operand),
            ("dcgm", &self.dcgm.operand),
            ("dcgmExporter", &self.dcgm_exporter.operand),
            ("nodeStatusExporter", &self.node_status_exporter.operand),
        ];
        let enabled = operands.into_iter().filter(|(_, operand)| operand.enabled);
        let sidecars = [("gds", &self.driver.gds), ("gdrcopy", &self.driver.gdrcopy)];
        let sidecars = sidecars.into_iter().filter(|_| self.driver.operand.enabled);
        let sidecars =
            sidecars.filter_map(|(name, sidecar)| Some((name, &sidecar.as_ref()?.image)));
        let images = enabled
            .map(|(name, operand)| (name, &operand.image))
            .chain(sidecars);
        images
            .map(|(name, image)| (name.to_owned(), image.to_string()))
            .collect()
    }

    /// The operand of a component.
    pub fn operand(&self, component: Component) -> Option<&Operand> {
        Some(match component {
            Component::Driver => &self.driver.operand,
            Component::Toolkit => &self.toolkit.operand,
            Component::Validator => &self.validator.operand,
            Component::DevicePlugin => &self.device_plugin.operand,
            Component::Gfd => &self.gfd.operand,
            Component::MigManager => &self.mig_manager.operand,
            Component::Dcgm => &self.dcgm.operand,
            Component::DcgmExporter => &self.dcgm_exporter.operand,
            Component::NodeStatusExporter => &self.node_status_exporter.operand,
            Component::Policy => return None,
        })
    }
}

/// The hash that is used for policies and configurations: 16 hex digits of SHA-256 over JSON.
pub fn hash_of(value: &impl Serialize) -> String {
    // Serialising plain data to a string cannot fail; an empty text would only make all hashes equal, never wrong objects.
    let json = serde_json::to_vec(value).unwrap_or_default();
    let digest = Sha256::digest(json);
    let first = digest
        .iter()
        .take(8)
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{first:016x}")
}

/// A part of the policy, for problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[expect(missing_docs, reason = "named as in EffectivePolicy")]
pub enum Component {
    Driver,
    Toolkit,
    Validator,
    DevicePlugin,
    Gfd,
    MigManager,
    Dcgm,
    DcgmExporter,
    NodeStatusExporter,
    /// Concerns no single operand.
    Policy,
}

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// Which component it makes invalid; [`Component::Policy`] if a default is used instead.
    pub component: Component,
    /// Path in the spec.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "spec.{}: {}", self.path, self.message)
    }
}
