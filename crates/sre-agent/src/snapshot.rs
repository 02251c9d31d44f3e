//! What one check sees: plain data, cut to what decisions read.

use crate::dcgm::Sample;
use jiff::Timestamp;
use std::collections::BTreeMap;
use tessera_api::nodeoperation::{OperationPhase, OperationReason};

/// Everything that a decision may look at, beside its memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The watched nodes, by name.
    pub nodes: BTreeMap<String, NodeView>,
    /// What their exporters said just now.
    pub telemetry: BTreeMap<String, Telemetry>,
    /// NodeOperations of any holder, by node.
    pub operations: BTreeMap<String, OperationView>,
    /// Why the stores may be behind, if they may.
    pub blind: Option<String>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of a node")]
pub struct NodeView {
    /// UID: another one is another node.
    pub uid: String,
    /// Whether it is to be watched; others are here only because we still hold them.
    pub selected: bool,
    /// Changes with every boot.
    pub boot_id: String,
    /// When the Node object was made.
    pub created: Option<Timestamp>,
    /// Since when it has not been Ready; `None` while it is.
    pub not_ready_since: Option<Timestamp>,
    /// Whether it takes no new pods.
    pub unschedulable: bool,
    /// Whether its cordon carries the mark of a repair.
    pub marked: bool,
    /// Annotation `aiops.local/skip`.
    pub skip: bool,
    /// It runs the control plane.
    pub control_plane: bool,
    /// Somebody else works on it, and who.
    pub foreign: Option<String>,
    /// Whole cards that the kubelet offers (`capacity`), time-slicing divided out; `None` with MIG or without a plugin.
    pub capacity: Option<u32>,
    /// As `capacity`, of `allocatable`.
    pub allocatable: Option<u32>,
    /// Cards that feature discovery counted; `None` with MIG, which overrides the label.
    pub labelled: Option<u32>,
}

/// What an exporter said.
#[derive(Clone, Debug, PartialEq)]
pub enum Telemetry {
    /// An answer that could be read.
    Good(Sample),
    /// No answer: perhaps a restart, so it has to last.
    Unreachable(String),
    /// An answer that cannot be used.
    Malformed(String),
}

/// A node's operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationView {
    /// Whether this agent holds it.
    pub ours: bool,
    /// Who does, for people.
    pub holder: String,
    /// How far it is.
    pub phase: OperationPhase,
    /// Why it is there.
    pub reason: Option<OperationReason>,
    /// Since when it is in its phase.
    pub since: Option<Timestamp>,
    /// What it is for: a signature, if it is ours.
    pub target: String,
    /// How often the node was held for it since the record began.
    pub attempts: i32,
}

impl OperationView {
    /// Ours and not over.
    pub fn is_our_work(&self) -> bool {
        self.ours && !self.phase.is_ended()
    }
}
