//! What can go wrong.

use tessera_runtime::apply::{SerializeError, WriteError};
use tessera_runtime::election::NotLeading;
use tessera_runtime::error::{classify, sentence};
use tessera_runtime::{Class, Classify};

/// A reconcile failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No longer the leader.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// A defect of ours.
    #[error(transparent)]
    Serialize(#[from] SerializeError),
    /// An object could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A SREAgent's status or finalizer could not be written.
    #[error("cannot {verb} SREAgent {name}: {}", sentence(source))]
    Own {
        /// What was tried.
        verb: &'static str,
        /// Namespace and name.
        name: String,
        /// The client's error.
        #[source]
        source: kube::Error,
    },
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::NotLeading(_) => Class::LostLeadership,
            Self::Serialize(_) => Class::Bug,
            Self::Write(error) => error.class(),
            Self::Own { source, .. } => classify(source),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotLeading(_) => "NotLeading",
            Self::Serialize(_) => "SerializeFailed",
            Self::Write(error) => error.reason(),
            Self::Own { .. } => "StatusFailed",
        }
    }
}
