//! Verdicts on all nodes, kept up to date node by node, so that a change of one node costs the same whatever their number
//! and a report only reads counters and a few names.

use crate::verdict::{Asked, Roles, Topic, Verdict, judge};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// Any: nodes with a GPU.
    pub gpu: usize,
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
            (roles.gpu, &mut self.gpu),
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

/// Nodes by whether they advertise what was asked of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertising {
    /// Differ although their plugin is ready.
    pub differ: Group,
    /// Differ, and have no ready plugin to be expected otherwise.
    pub follow: usize,
}

/// All that is to be said about nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many nodes are to run each operand.
    pub expected: Expected,
    /// How many would, were it not for their taints.
    pub denied: Expected,
    /// Groups that are not empty, without [`Topic::Sharing`].
    pub groups: BTreeMap<Topic, Group>,
    /// What became of sharing.
    pub advertising: Advertising,
}

#[derive(Default)]
struct Inner {
    asked: Option<Arc<Asked>>,
    nodes: HashMap<String, Verdict>,
    groups: BTreeMap<Topic, BTreeMap<String, String>>,
    expected: Expected,
    denied: Expected,
    /// Nodes whose MIG change takes too long.
    overdue: BTreeSet<String>,
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
        inner.denied = Expected::default();
        // Read under the lock: a change that comes meanwhile is taken over after this.
        if let Some(asked) = asked {
            for node in nodes.values() {
                inner.put(&node.name, judge(&node, &asked));
            }
        }
        true
    }

    /// Whether the MIG change of `node` takes too long. True when that is news.
    pub fn overdue(&self, node: &str, is_overdue: bool) -> bool {
        let mut inner = self.inner.lock();
        let is_news = if is_overdue {
            inner.overdue.insert(node.to_owned())
        } else {
            inner.overdue.remove(node)
        };
        if is_news {
            inner.show(node);
        }
        is_news
    }

    /// What is to be said now. `unready` are nodes whose device plugin is not ready.
    pub fn summary(&self, unready: &BTreeSet<&str>) -> Summary {
        let inner = self.inner.lock();
        let groups = inner
            .groups
            .iter()
            .filter(|(topic, nodes)| **topic != Topic::Sharing && !nodes.is_empty());
        let mut advertising = Advertising::default();
        for (node, text) in inner.groups.get(&Topic::Sharing).into_iter().flatten() {
            if unready.contains(node.as_str()) {
                advertising.follow += 1;
            } else {
                advertising.differ.add(node, text);
            }
        }
        Summary {
            expected: inner.expected,
            denied: inner.denied,
            groups: groups
                .map(|(topic, nodes)| (*topic, Group::of(nodes)))
                .collect(),
            advertising,
        }
    }
}

impl Group {
    fn of(nodes: &BTreeMap<String, String>) -> Self {
        let first = nodes
            .iter()
            .take(NAMED)
            .map(|(name, text)| (name.clone(), text.clone()));
        Self {
            count: nodes.len(),
            first: first.collect(),
        }
    }

    fn add(&mut self, node: &str, text: &str) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push((node.to_owned(), text.to_owned()));
        }
    }
}

impl Inner {
    fn put(&mut self, node: &str, verdict: Verdict) -> bool {
        let (roles, denied) = (verdict.roles, verdict.denied);
        let (old, is_same) = if verdict == Verdict::default() {
            let old = self.nodes.remove(node);
            let is_same = old.is_none();
            (old, is_same)
        } else {
            let is_same = self.nodes.get(node) == Some(&verdict);
            (self.nodes.insert(node.to_owned(), verdict), is_same)
        };
        if is_same {
            return false;
        }
        let old = old.unwrap_or_default();
        for (counters, before, now) in [
            (&mut self.expected, old.roles, roles),
            (&mut self.denied, old.denied, denied),
        ] {
            counters.count(before, |counter| *counter = counter.saturating_sub(1));
            counters.count(now, |counter| *counter += 1);
        }
        self.show(node);
        true
    }

    /// Puts what is said about a node into the groups.
    fn show(&mut self, node: &str) {
        for group in self.groups.values_mut() {
            group.remove(node);
        }
        let is_overdue = self.overdue.contains(node);
        let said = self
            .nodes
            .get(node)
            .map(|verdict| verdict.said.clone())
            .unwrap_or_default();
        for (topic, text) in said {
            let (topic, text) = if is_overdue && topic == Topic::MigPending {
                (Topic::MigFailed, overdue_text(&text))
            } else {
                (topic, text)
            };
            self.groups
                .entry(topic)
                .or_default()
                .insert(node.to_owned(), text);
        }
    }
}

fn overdue_text(pending: &str) -> String {
    format!(
        "{pending}, and takes too long; see kubectl logs -l app=nvidia-mig-manager on that node, then set the label again"
    )
}
