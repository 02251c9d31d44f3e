//! From DaemonSets and pods to counts and plain reasons: pure.
//!
//! Counts come from the DaemonSet's own status (one object, whatever the number of nodes); pods are looked at only to
//! say why some are not ready.

pub mod pod;
mod taints;

pub use taints::{NotCovered, taint_sentence, untolerated};

use crate::apply::Owned;
use pod::{PodFacts, Trouble, TroubleKind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_api::Reason;

/// How many nodes' names a message or an exception lists.
pub const NAMED: usize = 5;

/// The counts of one or several DaemonSets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    /// Nodes that should run a pod.
    pub desired: i32,
    /// Of those, with a ready pod.
    pub ready: i32,
    /// Of those, with a pod of the newest template.
    pub updated: i32,
    /// Whether the DaemonSet controller has seen the newest spec of all of them.
    pub observed: bool,
    /// Whether one of them is being deleted: nobody keeps its pods, and its counts, any more.
    pub leaving: bool,
}

impl Rollout {
    /// Of a live DaemonSet of the apply engine's store; what it does not say is 0.
    pub fn of(owned: &Owned) -> Self {
        let number = |part: &str, field: &str| {
            let value = owned.value.get(part).and_then(|part| part.get(field));
            value.and_then(Value::as_i64).unwrap_or(0)
        };
        let count = |field: &str| i32::try_from(number("status", field)).unwrap_or(0);
        let generation = number("metadata", "generation");
        Self {
            desired: count("desiredNumberScheduled"),
            ready: count("numberReady"),
            updated: count("updatedNumberScheduled"),
            observed: number("status", "observedGeneration") >= generation && generation > 0,
            leaving: owned.deleting,
        }
    }

    /// The sum; `observed` only if all are.
    pub fn sum(all: impl IntoIterator<Item = Rollout>) -> Self {
        let start = Rollout {
            observed: true,
            ..Rollout::default()
        };
        all.into_iter().fold(start, |sum, one| Rollout {
            desired: sum.desired + one.desired,
            ready: sum.ready + one.ready,
            updated: sum.updated + one.updated,
            observed: sum.observed && one.observed,
            leaving: sum.leaving || one.leaving,
        })
    }
}

/// Pods that are not ready for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The kind of trouble as a condition's reason.
    pub reason: Reason,
    /// The sentence.
    pub message: String,
    /// How many pods.
    pub count: usize,
    /// Names of up to [`NAMED`] nodes, sorted.
    pub nodes: Vec<String>,
}

/// What a condition says about an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether every node that should has a ready pod of the newest template.
    pub ready: bool,
    /// Reason.
    pub reason: Reason,
    /// Message: object, cause, next step.
    pub message: String,
    /// The counts.
    pub rollout: Rollout,
    /// Pods that are not ready, grouped, the largest group first.
    pub exceptions: Vec<Exception>,
}

/// Judges one operand. `name` is its DaemonSet's name (for messages); `wait_for_update` is false for DaemonSets
/// whose pods are replaced by somebody else's plan (OnDelete), where an old but ready pod is fine.
pub fn judge(
    name: &str,
    rollout: Rollout,
    pods: &[Arc<PodFacts>],
    wait_for_update: bool,
) -> Verdict {
    let exceptions = group(pods);
    let verdict = |ready, reason, message| Verdict {
        ready,
        reason,
        message,
        rollout,
        exceptions: exceptions.clone(),
    };
    let Rollout {
        desired,
        ready,
        updated,
        observed,
        leaving,
    } = rollout;
    if leaving {
        let message = format!(
            "DaemonSet {name} is being deleted and is made anew when it is gone; if that lasts, a finalizer holds it: see its metadata.finalizers"
        );
        return verdict(false, Reason::RollingOut, message);
    }
    if !observed {
        let message =
            format!("DaemonSet {name}: the cluster has not looked at its newest version yet");
        return verdict(false, Reason::RollingOut, message);
    }
    if desired == 0 {
        let message = format!("DaemonSet {name}: no node asks for it");
        return verdict(true, Reason::NoGPUNodes, message);
    }
    if ready < desired {
        // The DaemonSet's status may be ahead of the pods' watch, or behind it.
        let starting = || "the pods are starting".to_owned();
        let cause = exceptions.first().map_or_else(starting, describe);
        let reason = exceptions.first().map_or(Reason::RollingOut, |e| e.reason);
        let message = format!("DaemonSet {name}: {ready} of {desired} pods ready; {cause}");
        return verdict(false, reason, message);
    }
    if wait_for_update && updated < desired {
        let message =
            format!("DaemonSet {name}: {updated} of {desired} pods run the newest version");
        return verdict(false, Reason::RollingOut, message);
    }
    verdict(
        true,
        Reason::Ready,
        format!("DaemonSet {name}: {ready} of {desired} pods ready"),
    )
}

/// Groups pods that are not ready by kind and sentence: the most telling kind first, then the largest group.
pub fn group(pods: &[Arc<PodFacts>]) -> Vec<Exception> {
    let mut groups: BTreeMap<&Trouble, Vec<&str>> = BTreeMap::new();
    for pod in pods {
        if let Some(trouble) = &pod.trouble {
            groups.entry(trouble).or_default().push(&pod.node);
        }
    }
    let mut list: Vec<(TroubleKind, Exception)> = groups
        .into_iter()
        .map(|(trouble, mut nodes)| {
            nodes.sort_unstable();
            let exception = Exception {
                reason: reason(trouble.kind),
                message: trouble.message.clone(),
                count: nodes.len(),
                nodes: nodes.iter().take(NAMED).map(ToString::to_string).collect(),
            };
            (trouble.kind, exception)
        })
        .collect();
    list.sort_by(|(a, x), (b, y)| (a, y.count, &x.message).cmp(&(b, x.count, &y.message)));
    list.into_iter().map(|(_, exception)| exception).collect()
}

/// `on gpu-1, gpu-2 and 3 more: container c cannot ...; see kubectl ...`
fn describe(exception: &Exception) -> String {
    format!(
        "on {}: {}",
        name_nodes(&exception.nodes, exception.count),
        exception.message
    )
}

/// `gpu-1, gpu-2 and 3 more` for a list of up to [`NAMED`] names out of `count`.
pub fn name_nodes(nodes: &[String], count: usize) -> String {
    let names = nodes
        .iter()
        .take(NAMED)
        .map(|n| if n.is_empty() { "no node yet" } else { n })
        .collect::<Vec<_>>()
        .join(", ");
    match count.saturating_sub(nodes.len().min(NAMED)) {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

fn reason(kind: TroubleKind) -> Reason {
    match kind {
        TroubleKind::ImagePull => Reason::ImagePullFailed,
        TroubleKind::Crash => Reason::CrashLooping,
        TroubleKind::Unschedulable => Reason::Unschedulable,
        TroubleKind::Config => Reason::ContainerConfigError,
        TroubleKind::Rejected => Reason::PodRejected,
        TroubleKind::NotReady => Reason::PodsNotReady,
        TroubleKind::Dependency => Reason::WaitingForDependency,
        TroubleKind::Starting | TroubleKind::Terminating => Reason::RollingOut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: &str, trouble: Option<(TroubleKind, &str)>) -> Arc<PodFacts> {
        Arc::new(PodFacts {
            uid: String::new(),
            name: format!("pod-{node}"),
            node: node.to_owned(),
            app: String::new(),
            component: String::new(),
            revision: String::new(),
            config_hash: String::new(),
            ready: trouble.is_none(),
            deleting: false,
            ip: String::new(),
            restarts: 0,
            created: 0,
            trouble: trouble.map(|(kind, text)| Trouble {
                kind,
                message: text.to_owned(),
            }),
        })
    }

    fn counts(desired: i32, ready: i32, updated: i32) -> Rollout {
        Rollout {
            desired,
            ready,
            updated,
            observed: true,
            leaving: false,
        }
    }

    #[test]
    fn the_most_telling_reason_is_named_with_its_nodes() {
        let pods = [
            pod("gpu-1", None),
            pod(
                "gpu-2",
                Some((TroubleKind::Starting, "the pod is starting")),
            ),
            pod(
                "gpu-3",
                Some((TroubleKind::ImagePull, "container c cannot get its image")),
            ),
        ];
        let verdict = judge("nvidia-x", counts(3, 1, 3), &pods, true);
        assert!(!verdict.ready);
        assert_eq!(verdict.reason, Reason::ImagePullFailed);
        assert_eq!(
            verdict.message,
            "DaemonSet nvidia-x: 1 of 3 pods ready; on gpu-3: container c cannot get its image"
        );
    }

    #[test]
    fn counts_decide() {
        let cases = [
            (counts(0, 0, 0), true, Reason::NoGPUNodes),
            (counts(3, 3, 3), true, Reason::Ready),
            (counts(3, 3, 2), false, Reason::RollingOut),
            (counts(3, 2, 3), false, Reason::RollingOut),
            (
                Rollout {
                    observed: false,
                    ..counts(3, 3, 3)
                },
                false,
                Reason::RollingOut,
            ),
        ];
        for (rollout, ready, reason) in cases {
            let verdict = judge("x", rollout, &[], true);
            assert_eq!(
                (verdict.ready, verdict.reason),
                (ready, reason),
                "{rollout:?}"
            );
        }
        assert!(judge("x", counts(3, 3, 2), &[], false).ready);
        let held = Rollout {
            leaving: true,
            ..counts(3, 3, 3)
        };
        let told = judge("x", Rollout::sum([counts(3, 3, 3), held]), &[], true);
        assert!(!told.ready && told.message.contains("metadata.finalizers"));
    }

    #[test]
    fn one_reason_for_each_situation() {
        use TroubleKind::{Crash, Dependency, NotReady, Starting, Terminating};
        let cases: [(&[TroubleKind], Reason); 7] = [
            (&[], Reason::RollingOut),
            (&[Starting], Reason::RollingOut),
            (&[Terminating, Starting], Reason::RollingOut),
            (&[Starting, Dependency], Reason::WaitingForDependency),
            (&[Starting, NotReady], Reason::PodsNotReady),
            (&[Dependency, NotReady], Reason::PodsNotReady),
            (&[NotReady, Crash, Dependency], Reason::CrashLooping),
        ];
        for (kinds, reason) in cases {
            let pods: Vec<_> = (0..)
                .zip(kinds)
                .map(|(n, kind)| pod(&format!("n{n}"), Some((*kind, "why"))))
                .collect();
            for updated in [1, 9] {
                let told = judge("x", counts(9, 1, updated), &pods, true);
                assert_eq!(told.reason, reason, "{kinds:?}, {updated} updated");
            }
        }
    }

    #[test]
    fn many_nodes_are_counted_not_listed() {
        let nodes: Vec<String> = (0..5).map(|n| format!("n{n}")).collect();
        assert_eq!(name_nodes(&nodes, 12), "n0, n1, n2, n3, n4 and 7 more");
        assert_eq!(name_nodes(&nodes, 5), "n0, n1, n2, n3, n4");
    }
}
