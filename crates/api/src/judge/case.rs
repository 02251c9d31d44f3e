//! One policy before its judges: what it says now and said before, and the findings so far.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Facts, Finding, Severity,
    json::{at, show},
};
use crate::{
    cards::Cards,
    effective::{self, EffectivePolicy},
    image::DefaultImages,
    nodes::has_cards,
    policy::ClusterPolicy,
};

/// What a policy says.
struct Said {
    /// Its spec, as its author wrote it.
    own: Value,
    /// With the base under it, in NVIDIA's fields.
    merged: Value,
}

/// One policy before its judges.
pub(super) struct Case<'a> {
    pub(super) facts: &'a Facts,
    pub(super) effective: EffectivePolicy,
    /// Whether the object existed before.
    pub(super) is_update: bool,
    /// The cards of the nodes that the policy is for, as far as they are known.
    pub(super) cards: Vec<Cards>,
    now: Said,
    before: Said,
    found: Vec<Finding>,
}

impl<'a> Case<'a> {
    pub(super) fn new(new: &ClusterPolicy, old: Option<&ClusterPolicy>, facts: &'a Facts) -> Self {
        let base = base(new, facts);
        let said = |policy: Option<&ClusterPolicy>| {
            let layers: Vec<&ClusterPolicy> = base.into_iter().chain(policy).collect();
            let own = policy.map(|policy| serde_json::to_value(&policy.spec));
            let (merged, effective) = effective::layered(&layers, &DefaultImages::builtin());
            // Plain data always serialises.
            let own = own.and_then(Result::ok).unwrap_or_default();
            (Said { own, merged }, effective)
        };
        let (now, effective) = said(Some(new));
        let (before, _) = said(old);
        let nodes = facts
            .nodes
            .iter()
            .filter(|node| has_cards(node, &effective));
        Self {
            cards: nodes.map(|node| Cards::of(node)).collect(),
            facts,
            effective,
            is_update: old.is_some(),
            now,
            before,
            found: Vec::new(),
        }
    }

    /// What the policy says at a path in NVIDIA's fields.
    pub(super) fn at(&self, path: &str) -> Option<&Value> {
        at(&self.now.merged, path)
    }

    /// A text at a path; an empty one is none.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.at(path)?.as_str().filter(|text| !text.is_empty())
    }

    /// Whether what is said at a path is not what was said.
    fn has_changed(&self, path: &str) -> bool {
        let differs = |now: &Value, before: &Value, path: &str| at(now, path) != at(before, path);
        let short = effective::short_path(path);
        differs(&self.now.merged, &self.before.merged, path)
            || differs(&self.now.own, &self.before.own, path)
            || short.is_some_and(|short| differs(&self.now.own, &self.before.own, &short))
    }

    /// Adds a finding about a path, unless neither it nor any of the paths that it depends on besides has changed.
    fn add(
        &mut self,
        severity: Severity,
        (path, others): (&str, &[&str]),
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        if !self.has_changed(path) && !others.iter().any(|other| self.has_changed(other)) {
            return;
        }
        let written = effective::short_path(path).filter(|short| {
            at(&self.now.own, path).is_none() && at(&self.now.own, short).is_some()
        });
        let value = self.at(path).map(show).unwrap_or_default();
        self.found.push(Finding {
            severity,
            path: format!("spec.{}", written.as_deref().unwrap_or(path)),
            value,
            why: why.into(),
            remedy: remedy.into(),
        });
    }

    pub(super) fn refuse(
        &mut self,
        path: (&str, &[&str]),
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Severity::Refuse, path, why, remedy);
    }

    pub(super) fn warn(
        &mut self,
        path: (&str, &[&str]),
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.add(Severity::Warn, path, why, remedy);
    }

    /// Adds a finding that is not about a field.
    pub(super) fn push(&mut self, finding: Finding) {
        self.found.push(finding);
    }

    pub(super) fn into_findings(self) -> Vec<Finding> {
        self.found
    }
}

/// All policies but `new`, whatever was stored of it before.
pub(super) fn others<'a>(
    new: &ClusterPolicy,
    facts: &'a Facts,
) -> impl Iterator<Item = &'a ClusterPolicy> {
    let policies = facts.policies.iter().map(Arc::as_ref);
    policies.filter(|policy| policy.metadata.name != new.metadata.name)
}

/// The base that a user's policy lies over.
fn base<'a>(new: &ClusterPolicy, facts: &'a Facts) -> Option<&'a ClusterPolicy> {
    if new.is_base() {
        return None;
    }
    effective::first(others(new, facts), |policy| &policy.metadata, true)
}
