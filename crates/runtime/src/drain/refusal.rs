//! What the API server's refusal of an eviction means: pure.

use super::{PodView, Remaining};
use tessera_api::nodeoperation::{Blocker, OperationReason};

/// What stands against an eviction; `None` for errors of another kind.
pub(super) fn refusal(pod: &PodView, error: &kube::Error) -> Option<Vec<Blocker>> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    // 500 is what the API server answers when several budgets protect one pod, which it cannot handle.
    let several =
        status.code == 500 && status.message.contains("more than one PodDisruptionBudget");
    if status.code != 429 && !several {
        return None;
    }
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let budgets: Vec<Blocker> = causes
        .filter(|cause| cause.reason == "DisruptionBudget")
        .filter_map(|cause| budget_name(&cause.message).map(|name| (name, &cause.message)))
        .map(|(name, message)| Blocker {
            kind: "PodDisruptionBudget".to_owned(),
            namespace: pod.namespace.clone(),
            name: name.to_owned(),
            message: steady(message),
        })
        .collect();
    let what = if several {
        "several PodDisruptionBudgets protect it, which evictions cannot satisfy"
    } else {
        "may not be evicted now"
    };
    let mut blockers = vec![pod.blocker(what)];
    blockers.extend(budgets);
    Some(blockers)
}

/// The API server says `The disruption budget <name> needs <n> healthy pods and has <m> currently`.
fn budget_name(message: &str) -> Option<&str> {
    message
        .strip_prefix("The disruption budget ")?
        .split_whitespace()
        .next()
}

/// Without the counter, which would make a new status at every look.
fn steady(message: &str) -> String {
    message
        .split(" and has ")
        .next()
        .unwrap_or(message)
        .to_owned()
}

/// Sums up one look.
pub(super) fn remaining(
    refused: Vec<Blocker>,
    budgets: &[(&PodView, Vec<Blocker>)],
    ending: Vec<Blocker>,
) -> Remaining {
    let pods = refused.len() + budgets.len() + ending.len();
    let reason = if !refused.is_empty() {
        Some(OperationReason::PodNotEvictable)
    } else if !budgets.is_empty() {
        Some(OperationReason::DisruptionBudget)
    } else if !ending.is_empty() {
        Some(OperationReason::PodsTerminating)
    } else {
        None
    };
    let mut blockers = refused;
    blockers.extend(budgets.iter().flat_map(|(_, blockers)| blockers.clone()));
    blockers.extend(ending);
    blockers.sort();
    blockers.dedup();
    Remaining {
        pods,
        reason,
        blockers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refused_eviction_names_the_budget() {
        let pod = PodView {
            namespace: "web".into(),
            name: "p".into(),
            ..PodView::default()
        };
        let answer = |value: serde_json::Value| {
            kube::Error::Api(Box::new(serde_json::from_value(value).unwrap()))
        };
        let refused = answer(json!({
            "code": 429, "reason": "TooManyRequests", "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web-pdb needs 1 healthy pods and has 1 currently"}]},
        }));
        let blockers = refusal(&pod, &refused).unwrap();
        let found: Vec<(&str, &str, &str)> = blockers
            .iter()
            .map(|b| (b.kind.as_str(), b.name.as_str(), b.message.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("Pod", "p", "may not be evicted now"),
                (
                    "PodDisruptionBudget",
                    "web-pdb",
                    "The disruption budget web-pdb needs 1 healthy pods"
                ),
            ]
        );
        let several = answer(
            json!({"code": 500, "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}),
        );
        assert_eq!(refusal(&pod, &several).unwrap().len(), 1);
        assert!(
            refusal(
                &pod,
                &answer(json!({"code": 500, "message": "etcd is away"}))
            )
            .is_none()
        );
    }
}
