//! What can go wrong in a reconcile.

use crate::pool_labels::PoolLabelError;
use crate::upgrade::UpgradeError;
use tessera_runtime::apply::{SerializeError, WriteError};
use tessera_runtime::election::NotLeading;
use tessera_runtime::node_labels::LabelError;
use tessera_runtime::status::StatusError;
use tessera_runtime::{Class, Classify};

/// A reconcile failed. What it is about is in the source; the class decides about the next try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No longer the leader.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// An object could not be written or removed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// An object is not JSON.
    #[error(transparent)]
    Serialize(#[from] SerializeError),
    /// The policy's status could not be written.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// A node's deploy labels could not be written.
    #[error(transparent)]
    Labels(#[from] LabelError),
    /// A node's pool labels could not be written.
    #[error(transparent)]
    PoolLabels(#[from] PoolLabelError),
    /// A step of a driver upgrade failed.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::NotLeading(_) => Class::LostLeadership,
            Self::Serialize(_) => Class::Bug,
            Self::Write(error) => error.class(),
            Self::Status(error) => error.class(),
            Self::Labels(error) => error.class(),
            Self::PoolLabels(error) => error.class(),
            Self::Upgrade(error) => error.class(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotLeading(_) => "NotLeading",
            Self::Serialize(_) => "Serialize",
            Self::Write(error) => error.reason(),
            Self::Status(error) => error.reason(),
            Self::Labels(error) => error.reason(),
            Self::PoolLabels(error) => error.reason(),
            Self::Upgrade(error) => error.reason(),
        }
    }
}
