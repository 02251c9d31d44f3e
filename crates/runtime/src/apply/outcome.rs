//! What came of a call of the engine.

use crate::error::{Class, Classify, classify, sentence};

/// What happened in one call.
#[derive(Debug, Default)]
pub struct Applied {
    /// `Kind name` of each object written.
    pub written: Vec<String>,
    /// `Kind name` of each object removed.
    pub removed: Vec<String>,
    /// What could not be written.
    pub failed: Vec<WriteError>,
}

/// A write that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {object}: {}", sentence(source))]
pub struct WriteError {
    /// `apply` or `delete`.
    pub verb: &'static str,
    /// `Kind name`.
    pub object: String,
    /// The component label of the object, if known.
    pub component: Option<String>,
    /// The client's error.
    #[source]
    pub source: kube::Error,
}

impl Classify for WriteError {
    fn class(&self) -> Class {
        classify(&self.source)
    }
    fn reason(&self) -> &'static str {
        match self.class() {
            Class::Forbidden => "Forbidden",
            Class::Conflict => "Conflict",
            Class::Invalid => "Refused",
            Class::Transient | Class::LostLeadership | Class::Bug => "ApiUnavailable",
        }
    }
}

impl Applied {
    /// The most severe failure first, if any.
    pub fn first_error(self) -> Option<WriteError> {
        self.failed
            .into_iter()
            .min_by_key(|error| match error.class() {
                Class::Transient => 0,
                Class::Conflict => 1,
                Class::Forbidden => 2,
                Class::Invalid | Class::LostLeadership | Class::Bug => 3,
            })
    }
}
