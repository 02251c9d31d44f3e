//! Judges objects of users before and after they are stored: the admission webhook refuses and warns with these findings, and the
//! controllers put them into conditions. What CEL in the CRD proves is not repeated, but for stored objects that are older than a rule.
//!
//! Pure: what is known of the cluster comes in as [`Facts`], and unknown is not the same as bad.

mod agents;
mod case;
mod fields;
mod images;
mod json;
mod layouts;
mod memory;
mod nodes;
mod policies;
mod problems;
mod references;
mod sharing;
mod unknown;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

pub use self::{
    agents::{agent, agent_spec},
    layouts::check as layout_file,
    nodes::node,
};
use crate::{nodes::NodeFacts, policy::ClusterPolicy, sreagent::SREAgent};
use case::Case;

/// What is known of the cluster when an object is judged. Everything may be missing.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Namespace of the operands, where ConfigMaps are looked for. For texts.
    pub namespace: String,
    /// Nodes; none: not known, or there are none.
    pub nodes: Vec<Arc<NodeFacts>>,
    /// ConfigMaps that were looked for, by name.
    pub config_maps: BTreeMap<String, MapFacts>,
    /// All policies of the cluster; the one that is judged may be among them.
    pub policies: Vec<Arc<ClusterPolicy>>,
    /// All agents of the cluster; the one that is judged may be among them.
    pub agents: Vec<Arc<SREAgent>>,
}

/// What is known of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MapFacts {
    /// It could not be looked at.
    #[default]
    Unknown,
    /// It does not exist.
    Absent,
    /// Its text entries.
    Present(Arc<BTreeMap<String, String>>),
}

/// What follows from a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It cannot work: the object is not let in.
    Refuse,
    /// It may work, or does something else than its author may think.
    Warn,
}

/// One thing to tell the author of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// What follows from it.
    pub severity: Severity,
    /// Where, from the top of the object: `spec.driver.image`.
    pub path: String,
    /// What stands there, short; empty if nothing does.
    pub value: String,
    /// What is wrong, as the predicate of a sentence about the value.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Finding {
    /// Path, value, why, what to do. The value is told once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        if !self.value.is_empty() && !self.why.contains(&format!("`{}`", self.value)) {
            write!(f, "`{}` ", self.value)?;
        }
        f.write_str(&self.why)?;
        if self.remedy.is_empty() {
            return Ok(());
        }
        write!(f, "; {}", self.remedy)
    }
}

/// Everything that is to be said of a policy, the refusals first.
///
/// With `old`, only what depends on a field that differs from it: an object that became invalid later can still be edited elsewhere.
/// Without, only what depends on a field that `new` has. An object that is being deleted is left alone. A user's policy is judged
/// together with the base that it lies over, if `facts` has one.
pub fn policy(new: &ClusterPolicy, old: Option<&ClusterPolicy>, facts: &Facts) -> Vec<Finding> {
    if new.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut case = Case::new(new, old, facts);
    problems::judge(&mut case);
    fields::judge(&mut case);
    images::judge(&mut case);
    sharing::judge(&mut case);
    memory::judge(&mut case);
    references::judge(&mut case);
    nodes::judge(&mut case);
    policies::judge(&mut case, new);
    let mut found = case.into_findings();
    found.extend(unknown::policy(new, old));
    in_order(found)
}

/// Names of the ConfigMaps that the judgement of this policy would like to know of ([`Facts::config_maps`]), given the policies in
/// `facts`.
pub fn config_maps(policy: &ClusterPolicy, facts: &Facts) -> BTreeSet<String> {
    references::names(&Case::new(policy, None, facts))
}

fn in_order(mut found: Vec<Finding>) -> Vec<Finding> {
    found.sort();
    found.dedup();
    found
}
