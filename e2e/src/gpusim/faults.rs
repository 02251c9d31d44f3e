//! Faults on cue: annotations of nodes and pods.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PREFIX: &str = "sim.tessera.dev/";

/// What is wrong with an operand pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    FailPull,
    Crash,
    NeverReady,
    Slow(Duration),
    /// This init container never ends.
    Wait(String),
}

type Annotations = BTreeMap<String, String>;

/// The fault of a pod with label `app` and an image of the given tag. The pod's own annotation wins over its node's.
pub(super) fn of_pod(app: &str, tag: &str, node: &Annotations, pod: &Annotations) -> Option<Fault> {
    let key = format!("{PREFIX}{app}");
    let text = pod.get(&key).or_else(|| node.get(&key))?;
    let text = match text.split_once('@') {
        Some((text, version)) if tag.starts_with(version) => text,
        Some(_) => return None,
        None => text,
    };
    match text.split_once('=') {
        Some(("slow", seconds)) => Some(Fault::Slow(Duration::from_secs_f64(
            seconds.parse::<f64>().ok()?.clamp(0.0, 86_400.0),
        ))),
        Some(("wait", container)) => Some(Fault::Wait(container.to_owned())),
        Some(_) => None,
        None => match text {
            "fail-pull" => Some(Fault::FailPull),
            "crash" => Some(Fault::Crash),
            "never-ready" => Some(Fault::NeverReady),
            _ => None,
        },
    }
}

/// What an exporter answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Answer {
    #[default]
    Healthy,
    Truncated,
    Huge,
    Binary,
    Empty,
    Error500,
    Hang,
    Frozen,
}

/// What is wrong with the cards of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cards {
    pub(super) missing: BTreeSet<u32>,
    pub(super) xid: BTreeMap<u32, u32>,
    pub(super) temperature: BTreeMap<u32, u32>,
    pub(super) recovery_action: BTreeMap<u32, u32>,
    pub(super) double_bit_errors: BTreeMap<u32, u32>,
    pub(super) remap_pending: BTreeSet<u32>,
    pub(super) remap_failure: BTreeSet<u32>,
    pub(super) answer: Answer,
}

impl Cards {
    /// From the annotations of a node.
    pub(super) fn of_node(annotations: &Annotations) -> Self {
        let get = |name: &str| {
            annotations
                .get(&format!("{PREFIX}{name}"))
                .map_or("", String::as_str)
        };
        let remap = |wanted: &str| {
            let pairs = get("row-remap")
                .split(',')
                .filter_map(|pair| pair.trim().split_once(':'));
            pairs
                .filter(|(_, kind)| *kind == wanted)
                .filter_map(|(card, _)| card.parse().ok())
                .collect()
        };
        Self {
            missing: get("missing-gpus")
                .split(',')
                .filter_map(|card| card.trim().parse().ok())
                .collect(),
            xid: pairs(get("xid")),
            temperature: pairs(get("temperature")),
            recovery_action: pairs(get("recovery-action")),
            double_bit_errors: pairs(get("ecc-dbe")),
            remap_pending: remap("pending"),
            remap_failure: remap("failure"),
            answer: match get("metrics") {
                "truncated" => Answer::Truncated,
                "huge" => Answer::Huge,
                "binary" => Answer::Binary,
                "empty" => Answer::Empty,
                "http-500" => Answer::Error500,
                "hang" => Answer::Hang,
                "frozen" => Answer::Frozen,
                _ => Answer::Healthy,
            },
        }
    }

    /// Cards that the device plugin marks unhealthy: its health check ignores these XIDs (k8s-device-plugin v0.20, health.go).
    pub(super) fn critical(&self) -> BTreeSet<u32> {
        let ignored = [13, 31, 43, 45, 68, 109];
        self.xid
            .iter()
            .filter(|(_, xid)| !ignored.contains(*xid))
            .map(|(card, _)| *card)
            .collect()
    }
}

/// `3:79,4:48`
fn pairs(text: &str) -> BTreeMap<u32, u32> {
    let pairs = text
        .split(',')
        .filter_map(|pair| pair.trim().split_once(':'));
    pairs
        .filter_map(|(card, value)| Some((card.parse().ok()?, value.parse().ok()?)))
        .collect()
}

/// Whether the node's kubelet is dead.
pub(super) fn is_dead(annotations: &Annotations) -> bool {
    annotations.contains_key(&format!("{PREFIX}not-ready"))
}

/// How the MIG manager behaves.
pub(super) fn mig(annotations: &Annotations) -> Option<&str> {
    annotations.get(&format!("{PREFIX}mig")).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Annotations {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn faults_of_pods() {
        let node = map(&[
            ("sim.tessera.dev/a", "crash"),
            ("sim.tessera.dev/b", "fail-pull@535.104"),
            ("sim.tessera.dev/c", "slow=1.5"),
            ("sim.tessera.dev/d", "wait=toolkit-validation"),
        ]);
        let of = |app, tag| of_pod(app, tag, &node, &map(&[]));
        assert_eq!(of("a", "1"), Some(Fault::Crash));
        assert_eq!(of("b", "535.104.05-ubuntu22.04"), Some(Fault::FailPull));
        assert_eq!(of("b", "550.1"), None);
        assert_eq!(of("c", ""), Some(Fault::Slow(Duration::from_millis(1500))));
        assert_eq!(
            of("d", ""),
            Some(Fault::Wait("toolkit-validation".to_owned()))
        );
        assert_eq!(
            of_pod(
                "a",
                "1",
                &node,
                &map(&[("sim.tessera.dev/a", "never-ready")])
            ),
            Some(Fault::NeverReady)
        );
        assert_eq!(of("e", ""), None);
    }

    #[test]
    fn faults_of_cards() {
        let cards = Cards::of_node(&map(&[
            ("sim.tessera.dev/xid", "3:79, 4:13"),
            ("sim.tessera.dev/missing-gpus", "1,2"),
            ("sim.tessera.dev/row-remap", "0:pending,5:failure"),
            ("sim.tessera.dev/metrics", "huge"),
        ]));
        assert_eq!(cards.critical(), BTreeSet::from([3]));
        assert_eq!(cards.missing, BTreeSet::from([1, 2]));
        assert_eq!(cards.remap_pending, BTreeSet::from([0]));
        assert_eq!(cards.remap_failure, BTreeSet::from([5]));
        assert_eq!(cards.answer, Answer::Huge);
    }
}
