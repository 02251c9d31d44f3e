//! What can go wrong in a reconcile.

use tessera_runtime::{
    Class, Classify,
    apply::{SerializeError, WriteError},
    election::NotLeading,
    node_labels::LabelError,
    status::StatusError,
};

/// A reconcile failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object could not be written as JSON.
    #[error(transparent)]
    Build(#[from] SerializeError),
    /// An object could not be applied or removed.
    #[error(transparent)]
    Apply(Box<WriteError>),
    /// The status could not be written.
    #[error(transparent)]
    Status(Box<StatusError>),
    /// A node could not be labelled.
    #[error(transparent)]
    Labels(Box<LabelError>),
    /// This replica no longer leads.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        Self::Apply(Box::new(error))
    }
}

impl From<StatusError> for Error {
    fn from(error: StatusError) -> Self {
        Self::Status(Box::new(error))
    }
}

impl From<LabelError> for Error {
    fn from(error: LabelError) -> Self {
        Self::Labels(Box::new(error))
    }
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Build(_) => Class::Bug,
            Self::Apply(error) => error.class(),
            Self::Status(error) => error.class(),
            Self::Labels(error) => error.class(),
            Self::NotLeading(_) => Class::LostLeadership,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Build(_) => "Build",
            Self::Apply(_) => "Apply",
            Self::Status(_) => "Status",
            Self::Labels(_) => "Labels",
            Self::NotLeading(_) => "NotLeading",
        }
    }
}
