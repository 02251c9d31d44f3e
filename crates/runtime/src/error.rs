//! Classes of errors: what the work loop does about them depends on the class only.

use kube::Error as KubeError;

/// What an error means for the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The world is unwell (time-out, 5xx, 429): try again with growing pauses.
    Transient,
    /// Somebody else wrote first (409): look again soon.
    Conflict,
    /// The request or the spec is wrong: nothing helps but a change.
    Invalid,
    /// We lack a right (401, 403): only an administrator can help, so try rarely.
    Forbidden,
    /// We no longer lead: the new leader goes on.
    LostLeadership,
    /// A defect of ours.
    Bug,
}

/// An error that knows its class and the label it gets in metrics and events.
pub trait Classify: std::error::Error {
    /// The class.
    fn class(&self) -> Class;
    /// A short CamelCase name; never contains object names.
    fn reason(&self) -> &'static str;
}

/// The class of a client error.
pub fn classify(error: &KubeError) -> Class {
    if let KubeError::Api(status) = error {
        return match status.code {
            401 | 403 => Class::Forbidden,
            409 => Class::Conflict,
            400 | 404 | 405 | 413 | 415 | 422 => Class::Invalid,
            _ => Class::Transient,
        };
    }
    let is_ours = matches!(error, KubeError::SerdeError(_) | KubeError::BuildRequest(_));
    if is_ours {
        Class::Bug
    } else {
        Class::Transient
    }
}

/// True when the API server says that there is no such object (or kind).
pub fn is_not_found(error: &KubeError) -> bool {
    matches!(error, KubeError::Api(status) if status.code == 404)
}

/// True for a conflict of resource versions or of creation.
pub fn is_conflict(error: &KubeError) -> bool {
    matches!(error, KubeError::Api(status) if status.code == 409)
}

/// Longest sentence of the API server that is repeated, bytes: it names every one of a thousand faults of an object, and goes
/// into conditions, events and the log.
const LONGEST: usize = 700;

/// The sentence of a client error, without the debug dump that its `Display` adds.
pub fn sentence(error: &KubeError) -> String {
    let KubeError::Api(status) = error else {
        return chain(error);
    };
    if status.message.is_empty() {
        return format!("the API server answered {} {}", status.code, status.reason);
    }
    cut(&status.message, LONGEST)
}

/// As [`head`], with a mark where something is left out.
fn cut(text: &str, limit: usize) -> String {
    let head = head(text, limit);
    if head.len() == text.len() {
        return text.to_owned();
    }
    format!("{head} [...]")
}

/// At most `limit` bytes of `text`, cut at a character.
pub(crate) fn head(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// An error and its sources in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let part = inner.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_refusal_is_cut_at_a_character() {
        let status = kube::core::Status::failure(&"ä".repeat(50_000), "Invalid").with_code(422);
        let text = sentence(&KubeError::Api(status.boxed()));
        assert!(
            text.len() < LONGEST + 10 && text.ends_with("ä [...]"),
            "{text}"
        );
        assert_eq!(cut("short", 5), "short");
    }
}
