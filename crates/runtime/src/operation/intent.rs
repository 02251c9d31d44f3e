//! What a holder asks for, and what it is told.

use super::{Budget, NodeState, Operation};
use crate::election::NotLeading;
use crate::error::{Class, Classify, classify, is_not_found, sentence};
use std::collections::BTreeMap;
use std::time::Duration;
use tessera_api::nodeoperation::{Found, OperationKind, OperationReason, Undo};

/// What somebody wants to do to a node.
#[derive(Clone, Debug)]
pub struct Intent<'a> {
    /// The node.
    pub node: &'a str,
    /// Its UID: the operation goes with this Node.
    pub node_uid: &'a str,
    /// What is done.
    pub kind: OperationKind,
    /// Why.
    pub reason: OperationReason,
    /// Why, in words.
    pub message: String,
    /// What it leads to.
    pub target: String,
    /// How the node was found.
    pub found: Found,
    /// What has to be undone at the end, once it is active.
    pub undo: Vec<Undo>,
    /// How much may be disturbed at once.
    pub budget: Budget,
    /// All GPU nodes, as the caller's store knows them.
    pub nodes: &'a BTreeMap<String, NodeState>,
}

/// What became of an [`Intent`].
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// It is ours and active: act.
    Active(Operation),
    /// Nothing was written: there is no room, or the node is left alone. A watch event tells of a change.
    NoRoom {
        /// Why.
        reason: OperationReason,
        /// In words.
        message: String,
    },
    /// Somebody else got the room in the same moment; the operation is `Withdrawn`.
    Withdrawn {
        /// Why.
        reason: OperationReason,
        /// In words.
        message: String,
        /// When to try again, unless room is seen to be full still.
        retry: Duration,
    },
    /// Somebody else holds the node; nothing was written.
    Busy(Operation),
}

/// A request for a NodeOperation failed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// No longer the leader.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The API server refused, or did not answer.
    #[error("cannot {verb} NodeOperation {node}: {}", sentence(source))]
    Request {
        /// What was tried.
        verb: &'static str,
        /// The node, or `s` for all.
        node: String,
        /// The client's error.
        #[source]
        source: kube::Error,
    },
}

impl Classify for OperationError {
    fn class(&self) -> Class {
        match self {
            Self::NotLeading(_) => Class::LostLeadership,
            // Somebody removed it: look again.
            Self::Request { source, verb, .. } if is_not_found(source) && *verb != "list" => {
                Class::Conflict
            }
            Self::Request { source, .. } => classify(source),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotLeading(_) => "NotLeading",
            Self::Request { .. } => "NodeOperationFailed",
        }
    }
}
