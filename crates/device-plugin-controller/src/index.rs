//! Verdicts on all nodes, kept up to date node by node, so that a change of one node costs the same whatever their number
//! and a report only reads counters and a few names.

use crate::verdict::{Asked, Roles, Topic, Verdict, judge};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tessera_api::nodes::NodeFacts;
use tessera_runtime::operands::NAMED;
use tessera_runtime::watch::{Change, Store};

/// What is said about one topic: how many nodes, and the first few with their sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How many nodes.
    pub count: usize,
    /// Up to [`NAMED`] nodes by name, with what is said about them.
    pub first: Vec<(String, String)>,
}

/// How many nodes are to run each operand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The device plugin.
    pub plugin: usize,
    /// Feature discovery.
    pub gfd: usize,
    /// The MIG manager.
    pub mig: usize,
    /// Perhaps the MIG manager: feature discovery has yet to say.
    pub mig_unknown: usize,
}

impl Expected {
    fn count(&mut self, roles: Roles, step: fn(&mut usize)) {
        let counters = [
            (roles.plugin, &mut self.plugin),
            (roles.gfd, &mut self.gfd),
            (roles.mig, &mut self.mig),
            (roles.mig_unknown, &mut self.mig_unknown),
        ];
        for (_, counter) in counters.into_iter().filter(|(counts, _)| *counts) {
            step(counter);
        }
    }
}

/// All that is to be said about nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many nodes are to run each operand.
    pub expected: Expected,
    /// Groups that are not empty.
    pub groups: BTreeMap<Topic, Group>,
}

#[derive(Default)]
struct Inner {
    asked: Option<Arc<Asked>>,
    nodes: HashMap<String, Verdict>,
    groups: BTreeMap<Topic, BTreeMap<String, String>>,
    expected: Expected,
}

/// The index; clones share it.
#[derive(Clone, Default)]
pub struct Index {
    inner: Arc<Mutex<Inner>>,
}

impl Index {
    /// Takes over a change of one node. True when something is now to be said differently.
    pub fn changed(&self, change: &Change<NodeFacts>) -> bool {
        let mut inner = self.inner.lock();
        let verdict = match (&change.new, &inner.asked) {
            (Some(node), Some(asked)) => judge(node, asked),
            _ => Verdict::default(),
        };
        inner.put(&change.key.name, verdict)
    }

    /// Judges all nodes anew when what is asked of them has changed. True when it has.
    pub fn ask(&self, asked: Option<Asked>, nodes: &Store<NodeFacts>) -> bool {
        let mut inner = self.inner.lock();
        if inner.asked.as_deref() == asked.as_ref() {
            return false;
        }
        let asked = asked.map(Arc::new);
        inner.asked.clone_from(&asked);
        inner.nodes.clear();
        inner.groups.clear();
        inner.expected = Expected::default();
        // Read under the lock: a change that comes meanwhile is taken over after this.
        if let Some(asked) = asked {
            for node in nodes.values() {
                inner.put(&node.name, judge(&node, &asked));
            }
        }
        true
    }

    /// What is to be said now.
    pub fn summary(&self) -> Summary {
        let inner = self.inner.lock();
        let groups = inner.groups.iter().filter(|(_, nodes)| !nodes.is_empty());
        let group = |nodes: &BTreeMap<String, String>| Group {
            count: nodes.len(),
            first: nodes
                .iter()
                .take(NAMED)
                .map(|(name, text)| (name.clone(), text.clone()))
                .collect(),
        };
        Summary {
            expected: inner.expected,
            groups: groups
                .map(|(topic, nodes)| (*topic, group(nodes)))
                .collect(),
        }
    }
}

impl Inner {
    fn put(&mut self, node: &str, verdict: Verdict) -> bool {
        let old = if verdict == Verdict::default() {
            self.nodes.remove(node)
        } else {
            self.nodes.insert(node.to_owned(), verdict.clone())
        };
        let old = old.unwrap_or_default();
        if old == verdict {
            return false;
        }
        self.expected
            .count(old.roles, |counter| *counter = counter.saturating_sub(1));
        self.expected.count(verdict.roles, |counter| *counter += 1);
        for topic in old.said.keys() {
            self.groups.entry(*topic).or_default().remove(node);
        }
        for (topic, text) in verdict.said {
            self.groups
                .entry(topic)
                .or_default()
                .insert(node.to_owned(), text);
        }
        true
    }
}
