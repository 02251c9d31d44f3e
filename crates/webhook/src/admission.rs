//! AdmissionReview `admission.k8s.io/v1`, in and out: strict in what it takes, and pure.

use std::fmt;

use json_patch::Patch;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};
use tessera_api::quote::quoted;

/// The only version that is spoken.
const API_VERSION: &str = "admission.k8s.io/v1";

/// Longest warning that clients show well, in characters (Kubernetes' advice on admission warnings).
const WARNING: usize = 120;

/// Most warnings of one answer: the API server drops everything beyond 4 KiB of them.
const WARNINGS: usize = 30;

/// What the API server wants to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Echoed in the answer.
    pub uid: String,
    /// API group of the object.
    pub group: String,
    /// Kind of the object.
    pub kind: String,
    /// What is about to happen.
    pub operation: Operation,
    /// The object as it is to be; none when it is to be deleted.
    pub object: Option<Value>,
    /// The object as it is; none when it is to be created.
    pub old: Option<Value>,
}

/// What is about to happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It is to exist.
    Create,
    /// It is to be changed.
    Update,
    /// It is to go.
    Delete,
    /// A subresource like `exec` is to be used.
    Connect,
}

/// A body that is no AdmissionReview of this version.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// No JSON, or not of this shape.
    #[error("the body is no AdmissionReview: {}", quoted(&.0.to_string()))]
    Shape(#[from] serde_json::Error),
    /// Another kind or version.
    #[error("only AdmissionReview of {API_VERSION} is understood, not `{kind}` of `{version}`")]
    Version {
        /// Its kind.
        kind: String,
        /// Its apiVersion.
        version: String,
    },
    /// An answer without uid would be nobody's.
    #[error("request.uid is empty")]
    NoUid,
    /// Nothing to judge.
    #[error("request.object is missing, which an operation {0:?} has")]
    NoObject(Operation),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    kind: GroupKind,
    operation: Operation,
    #[serde(default)]
    object: Option<Value>,
    #[serde(default)]
    old_object: Option<Value>,
}

#[derive(Deserialize)]
struct GroupKind {
    #[serde(default)]
    group: String,
    kind: String,
}

impl Question {
    /// Reads a request's body.
    ///
    /// # Errors
    /// It is no AdmissionReview that can be answered.
    pub fn parse(body: &[u8]) -> Result<Self, ReviewError> {
        let review: Review = serde_json::from_slice(body)?;
        if review.kind != "AdmissionReview" || review.api_version != API_VERSION {
            return Err(ReviewError::Version {
                kind: quoted(&review.kind).into_owned(),
                version: quoted(&review.api_version).into_owned(),
            });
        }
        let request = review.request;
        if request.uid.is_empty() {
            return Err(ReviewError::NoUid);
        }
        let has_object = matches!(request.operation, Operation::Create | Operation::Update);
        if has_object && request.object.is_none() {
            return Err(ReviewError::NoObject(request.operation));
        }
        Ok(Self {
            uid: request.uid,
            group: request.kind.group,
            kind: request.kind.kind,
            operation: request.operation,
            object: request.object,
            old: request.old_object,
        })
    }

    /// The object to judge; none: there is nothing to say, whatever the object is. What goes, goes.
    pub fn to_judge(&self) -> Option<&Value> {
        let object = self.object.as_ref()?;
        let judged = matches!(self.operation, Operation::Create | Operation::Update);
        let deleting = object
            .pointer("/metadata/deletionTimestamp")
            .is_some_and(|at| !at.is_null());
        (judged && !deleting).then_some(object)
    }
}

/// What is said about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why it is not let in, a sentence each; empty: it is.
    pub refusals: Vec<String>,
    /// What its author should know, a sentence each.
    pub warnings: Vec<String>,
    /// What is changed in it; empty: nothing.
    pub patch: Patch,
}

impl fmt::Display for Verdict {
    /// All reasons at once, as a person reads them in a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refusals.as_slice() {
            [] => f.write_str("accepted"),
            [one] => f.write_str(one),
            all => {
                write!(f, "{} things to correct:", all.len())?;
                all.iter().try_for_each(|one| write!(f, "\n- {one}"))
            }
        }
    }
}

/// The answer's body.
pub fn answer(uid: &str, verdict: &Verdict) -> Value {
    let mut response = json!({"uid": uid, "allowed": verdict.refusals.is_empty()});
    if let Some(response) = response.as_object_mut() {
        if !verdict.refusals.is_empty() {
            let status = json!({"code": 422, "reason": "Invalid", "message": verdict.to_string()});
            response.insert("status".to_owned(), status);
        }
        let warnings: Vec<String> = verdict
            .warnings
            .iter()
            .flat_map(|text| lines(text))
            .collect();
        if !warnings.is_empty() {
            response.insert("warnings".to_owned(), json!(limited(warnings)));
        }
        if verdict.refusals.is_empty() && !verdict.patch.is_empty() {
            // Base64, as all bytes in Kubernetes' JSON. A patch is plain data, which always serialises.
            let bytes = serde_json::to_vec(&verdict.patch).unwrap_or_default();
            response.insert("patchType".to_owned(), json!("JSONPatch"));
            response.insert("patch".to_owned(), json!(ByteString(bytes)));
        }
    }
    json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
}

fn limited(mut warnings: Vec<String>) -> Vec<String> {
    let more = warnings.len().saturating_sub(WARNINGS);
    warnings.truncate(WARNINGS);
    if more > 0 {
        warnings.push(format!("... and {more} more lines"));
    }
    warnings
}

/// A sentence in lines that clients show whole, broken between words.
fn lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let length = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && length > WARNING {
            lines.push(std::mem::replace(&mut line, "  ".to_owned()));
            line.push_str(word);
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn review(operation: &str, object: Value) -> Vec<u8> {
        let request = json!({
            "uid": "u-1", "kind": {"group": "nvidia.com", "version": "v1", "kind": "ClusterPolicy"},
            "operation": operation, "object": object, "oldObject": null, "dryRun": true,
        });
        let review =
            json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request});
        review.to_string().into_bytes()
    }

    #[test]
    fn what_is_deleted_or_being_deleted_is_not_judged() {
        let judged = |operation, object| {
            let question = Question::parse(&review(operation, object)).unwrap();
            question.to_judge().is_some()
        };
        let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert!(judged("CREATE", json!({"metadata": {}})));
        assert!(judged(
            "UPDATE",
            json!({"metadata": {"deletionTimestamp": null}})
        ));
        assert!(!judged("UPDATE", deleting));
        assert!(!judged("DELETE", Value::Null) && !judged("CONNECT", json!({})));
    }

    #[test]
    fn what_is_no_question_is_refused_with_the_reason() {
        let says = |body: &[u8]| Question::parse(body).unwrap_err().to_string();
        assert!(says(b"").contains("no AdmissionReview"));
        assert!(says(b"{}").contains("apiVersion"));
        let text = String::from_utf8(review("CREATE", json!({}))).unwrap();
        let old = text.replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1");
        assert!(says(old.as_bytes()).contains("v1beta1"));
        assert!(says(text.replace("u-1", "").as_bytes()).contains("uid"));
        assert!(says(text.replace("CREATE", "PATCH").as_bytes()).contains("PATCH"));
        assert!(says(&review("CREATE", Value::Null)).contains("request.object"));
    }

    #[test]
    fn an_answer_says_everything_at_once() {
        let mut verdict = Verdict::default();
        let allowed = json!({"uid": "u-1", "allowed": true});
        assert_eq!(answer("u-1", &verdict)["response"], allowed);
        verdict.refusals = vec!["a: b".into()];
        let one = &answer("u-1", &verdict)["response"];
        assert_eq!(
            (&one["allowed"], &one["status"]["message"]),
            (&json!(false), &json!("a: b"))
        );
        verdict.refusals.push("c: d".into());
        let text = "2 things to correct:\n- a: b\n- c: d";
        assert_eq!(
            answer("u-1", &verdict)["response"]["status"]["message"],
            text
        );
    }

    #[test]
    fn warnings_are_short_lines_and_not_too_many() {
        let verdict = Verdict {
            refusals: Vec::new(),
            warnings: vec!["word ".repeat(60); 20],
            ..Verdict::default()
        };
        let answer = answer("u-1", &verdict);
        let warnings = answer["response"]["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), WARNINGS + 1);
        assert!(
            warnings
                .iter()
                .all(|w| w.as_str().unwrap().len() <= WARNING)
        );
        let total: usize = warnings.iter().map(|w| w.as_str().unwrap().len()).sum();
        assert!(total < 4096, "{total}");
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(body in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = Question::parse(&body);
        }

        #[test]
        fn no_word_is_lost_in_lines(text in "[a-zé ]{0,400}") {
            let words: Vec<&str> = text.split_whitespace().collect();
            let joined = lines(&text).join(" ");
            prop_assert_eq!(joined.split_whitespace().collect::<Vec<_>>(), words);
        }
    }
}
