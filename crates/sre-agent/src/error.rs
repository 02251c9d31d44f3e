//! What can go wrong in a check.

use tessera_runtime::drain::DrainError;
use tessera_runtime::election::NotLeading;
use tessera_runtime::error::{classify, sentence};
use tessera_runtime::operation::OperationError;
use tessera_runtime::{Class, Classify};

/// A check failed in part: everything that could be done was done, and the next check goes on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No longer the leader.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// A node's operation could not be written.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// A node could not be cordoned or uncordoned.
    #[error(transparent)]
    Node(#[from] DrainError),
    /// The status could not be written.
    #[error("cannot write the status of the SREAgent: {}", sentence(.0))]
    Status(#[source] kube::Error),
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::NotLeading(_) => Class::LostLeadership,
            Self::Operation(error) => error.class(),
            Self::Node(error) => error.class(),
            Self::Status(error) => classify(error),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotLeading(_) => "NotLeading",
            Self::Operation(error) => error.reason(),
            Self::Node(error) => error.reason(),
            Self::Status(_) => "StatusFailed",
        }
    }
}
