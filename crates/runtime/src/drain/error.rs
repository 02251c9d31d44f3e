//! What can go wrong on our side.

use crate::election::NotLeading;
use crate::error::{Class, Classify, classify, is_not_found, sentence};

/// A request failed on the way.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// No longer the leader.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// The API server refused, or did not answer.
    #[error("cannot {what}: {}", sentence(source))]
    Request {
        /// What was tried.
        what: String,
        /// The client's error.
        #[source]
        source: kube::Error,
    },
}

impl Classify for DrainError {
    fn class(&self) -> Class {
        match self {
            Self::NotLeading(_) => Class::LostLeadership,
            // The node or pod has just gone: look again.
            Self::Request { source, .. } if is_not_found(source) => Class::Conflict,
            Self::Request { source, .. } => classify(source),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotLeading(_) => "NotLeading",
            Self::Request { .. } => "DrainFailed",
        }
    }
}
