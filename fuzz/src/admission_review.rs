//! AdmissionReviews, answered as the webhook's server does.

use serde_json::{Value, json};
use tessera_webhook::admission::{Operation, Question, Verdict, answer};
use tessera_webhook::rules;

use crate::{cluster::cluster, sentence};

/// Of policies and agents: an object that does not change is never refused, for whatever was let in once can be labelled, finalised
/// and deleted.
pub(crate) fn objects(body: &[u8]) {
    let rule = |question: &Question| rules::verdict(question, cluster());
    let Some((question, verdict)) = answered(body, rule) else {
        return;
    };
    if !verdict.refusals.is_empty() {
        let same = Question {
            operation: Operation::Update,
            old: question.object.clone(),
            ..question
        };
        let verdict = rule(&same);
        assert!(verdict.refusals.is_empty(), "nothing changed: {verdict}");
    }
}

/// Of Pods: what is changed can be changed, and once it is there is nothing more to change.
pub(crate) fn pods(body: &[u8]) {
    let rule = |question: &Question| rules::pod(question, cluster());
    let Some((mut question, verdict)) = answered(body, rule) else {
        return;
    };
    let Some(pod) = question.object.as_mut() else {
        return;
    };
    if verdict.refusals.is_empty() && !verdict.patch.is_empty() {
        let patched = json_patch::patch(pod, &verdict.patch);
        assert!(patched.is_ok(), "{patched:?}: {}", verdict.patch);
        let again = rule(&question);
        assert!(again.patch.is_empty(), "a second time: {}", again.patch);
    }
}

/// The answer is JSON, for that question, and says why.
fn answered(body: &[u8], rule: impl Fn(&Question) -> Verdict) -> Option<(Question, Verdict)> {
    let question = match Question::parse(body) {
        Ok(question) => question,
        Err(error) => {
            sentence::check(&error.to_string());
            return None;
        }
    };
    let verdict = rule(&question);
    sentence::check_all(&verdict.refusals);
    sentence::check_all(&verdict.warnings);
    let text = answer(&question.uid, &verdict).to_string();
    let said: Value = serde_json::from_str(&text).unwrap_or_default();
    let at = |path: &str| said.pointer(path).cloned().unwrap_or_default();
    let is_allowed = verdict.refusals.is_empty();
    assert_eq!(at("/response/uid"), json!(question.uid), "{text}");
    assert_eq!(at("/response/allowed"), json!(is_allowed), "{text}");
    let is_silent = at("/response/status/message").is_null();
    assert_eq!(is_silent, is_allowed, "{text}");
    Some((question, verdict))
}
