//! Which rights the charts grant, which of them the scenarios used, and which nobody needed.
//!
//! Every lab of a test leaves what our accounts did in it ([`Used`], from its audit log); `cargo xtask test` joins these records
//! when all scenarios have run and holds them against what the charts grant ([`Granted`], from what helm renders). A right is
//! one verb on one resource (and one name, where a rule has names) of one account. All of this is pure but for the files.

mod granted;
mod used;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::granted::{Granted, Grants, Right, RoleBoundLater, Scope, objects};
pub use self::used::{Seen, Used, Where};

/// Who is judged: a ServiceAccount of ours, or several that are one by their rules.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Account(String);

impl Account {
    /// The account that a ServiceAccount's name stands for.
    ///
    /// Every SREAgent's agent has an account of its own, made at run time, with the roles of all agents. The uninstall Job has
    /// another name in each chart, and one more when an upgrade leaves a component out, but one file of rules and one program.
    pub fn of(service_account: &str) -> Self {
        let is_agent = service_account.starts_with("sre-agent-") || service_account == "sre-agent";
        let is_uninstall = service_account.ends_with("-uninstall")
            || service_account == "gpu-operator-remove-component";
        Self(match (is_agent, is_uninstall) {
            (true, _) => "sre-agent".to_owned(),
            (_, true) => "uninstall hook".to_owned(),
            _ => service_account.to_owned(),
        })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The granted rights that no request needed, nor could need by chance, a line each: account, right, role, charts.
pub fn unused(granted: &Granted, used: &Used) -> Vec<String> {
    let needed =
        |right: &Right| by_chance(right) || used.seen().any(|seen| needs(seen, right, granted));
    granted
        .rights()
        .filter(|(right, _)| !needed(right))
        .map(|(right, grants)| {
            let grant = |(role, charts): (&String, &Vec<String>)| {
                format!("{role} of {}", charts.join(", "))
            };
            let grants: Vec<String> = grants.iter().map(grant).collect();
            format!("{right}, by {}", grants.join("; "))
        })
        .collect()
}

/// Whether only chance makes a right needed, so that no run can be asked to show it: the fresh look after another writer came
/// between, and the event that repeats within minutes, which is counted instead of made again.
fn by_chance(right: &Right) -> bool {
    matches!(
        (right.verb.as_str(), right.resource.as_str()),
        ("get", "clusterpolicies" | "nodes") | ("patch", "events")
    )
}

/// Whether this request is a reason for the right.
///
/// `list` and `watch` come together: a watch may begin with a streamed list (`sendInitialEvents`), and falls back to a list on
/// servers that do not know it. So either is a reason for `list` where `watch` is granted too; `watch` needs a watch.
fn needs(seen: &Seen, right: &Right, granted: &Granted) -> bool {
    let watched_list = || {
        let watch = Right {
            verb: "watch".to_owned(),
            ..right.clone()
        };
        right.verb == "list" && seen.verb == "watch" && granted.has(&watch)
    };
    let same = seen.account == right.account
        && seen.group == right.group
        && seen.resource == right.resource
        && (seen.verb == right.verb || watched_list())
        && right.name.as_ref().is_none_or(|n| seen.names.contains(n));
    // What happens in the account's own namespace needs no more than a Role.
    same && match right.scope {
        Scope::Cluster => seen.place != Where::OwnNamespace,
        Scope::OwnNamespace => seen.place == Where::OwnNamespace,
    }
}

#[cfg(test)]
mod tests;
