//! What can go wrong in an upgrade on our side. What goes wrong on a node is no error but a state.

use tessera_runtime::drain::DrainError;
use tessera_runtime::error::{classify, sentence};
use tessera_runtime::operation::OperationError;
use tessera_runtime::{Class, Classify};

/// An upgrade could not go on.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// A NodeOperation could not be read or written.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// A node or its pods could not be read or written.
    #[error(transparent)]
    Drain(#[from] DrainError),
    /// An operand pod could not be deleted.
    #[error("cannot delete pod {pod}: {}", sentence(source))]
    DeletePod {
        /// Its name.
        pod: String,
        /// The client's error.
        #[source]
        source: kube::Error,
    },
    /// No longer the leader.
    #[error(transparent)]
    NotLeading(#[from] tessera_runtime::election::NotLeading),
    /// The machine went in a circle.
    #[error("the upgrade of node {0} does not come to rest")]
    Restless(String),
}

impl Classify for UpgradeError {
    fn class(&self) -> Class {
        match self {
            Self::Operation(error) => error.class(),
            Self::Drain(error) => error.class(),
            Self::DeletePod { source, .. } => classify(source),
            Self::NotLeading(_) => Class::LostLeadership,
            Self::Restless(_) => Class::Bug,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Operation(error) => error.reason(),
            Self::Drain(error) => error.reason(),
            Self::DeletePod { .. } => "DeletePodFailed",
            Self::NotLeading(_) => "NotLeading",
            Self::Restless(_) => "UpgradeRestless",
        }
    }
}
