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
#[error("cannot {verb} {object}: {}{}", sentence(source), self.remedy())]
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

impl WriteError {
    /// Whether the object that is there can never become what is wanted: a field differs that nobody can change. Either
    /// somebody else made it under this name, or somebody closed it (`immutable: true`).
    pub fn is_in_the_way(&self) -> bool {
        // The API server has no code of its own for it, only this text (`FieldImmutableErrorMsg` of apimachinery).
        let kube::Error::Api(status) = &self.source else {
            return false;
        };
        status.code == 422 && status.message.contains("field is immutable")
    }

    fn remedy(&self) -> &'static str {
        if self.is_in_the_way() {
            ". Delete the object that is there: it is made anew as it is wanted"
        } else {
            ""
        }
    }
}

impl Classify for WriteError {
    fn class(&self) -> Class {
        // Its deletion wakes nobody, if it was never ours.
        if self.is_in_the_way() {
            return Class::Transient;
        }
        classify(&self.source)
    }
    fn reason(&self) -> &'static str {
        if self.is_in_the_way() {
            return "Refused";
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refused(message: &str) -> WriteError {
        let status = Status::failure(message, "Invalid").with_code(422);
        WriteError {
            verb: "apply",
            object: "RuntimeClass nvidia".to_owned(),
            component: None,
            source: kube::Error::Api(status.boxed()),
        }
    }

    #[test]
    fn what_is_in_the_way_is_told_with_a_remedy_and_tried_again() {
        let error = refused("handler: Invalid value: \"nvidia\": field is immutable");
        assert_eq!(
            error.to_string(),
            "cannot apply RuntimeClass nvidia: handler: Invalid value: \"nvidia\": field is immutable. Delete the object that is there: it is made anew as it is wanted"
        );
        assert_eq!(
            (error.class(), error.reason()),
            (Class::Transient, "Refused")
        );
        let other = refused("spec.template: Required value");
        assert_eq!((other.class(), other.reason()), (Class::Invalid, "Refused"));
        assert!(!other.to_string().contains("Delete"));
    }
}
