//! What can go wrong in a reconcile.

use tessera_runtime::apply::{SerializeError, WriteError};
use tessera_runtime::election::NotLeading;
use tessera_runtime::node_labels::LabelError;
use tessera_runtime::status::StatusError;
use tessera_runtime::{Class, Classify};

/// An error of this controller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The status could not be written.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// A node could not be labelled.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// An object cannot be made into JSON.
    #[error(transparent)]
    Build(#[from] SerializeError),
    /// Another replica leads.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Write(error) => error.class(),
            Self::Status(error) => error.class(),
            Self::Label(error) => error.class(),
            Self::Build(_) => Class::Bug,
            Self::NotLeading(_) => Class::LostLeadership,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Write(error) => error.reason(),
            Self::Status(error) => error.reason(),
            Self::Label(error) => error.reason(),
            Self::Build(_) => "BuildFailed",
            Self::NotLeading(_) => "LostLeadership",
        }
    }
}
