//! Counts of requests, and the table they are shown as.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Class, Request};

/// Counts of a set of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// get and list, leases and events left out.
    pub reads: usize,
    /// create, update, patch and delete, leases and events left out.
    pub writes: usize,
    /// Watches started.
    pub watches: usize,
    /// Requests about Leases.
    pub leases: usize,
    /// Requests about Events.
    pub events: usize,
    /// Writes answered 404 or 409.
    pub wasted: usize,
    /// Requests answered 403.
    pub denied: usize,
    /// Requests answered 429.
    pub throttled: usize,
    /// Per ServiceAccount name: the same counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_account: BTreeMap<String, Requests>,
    /// Reads and writes by "verb resource code"; refused watches too.
    pub by_kind: BTreeMap<String, usize>,
}

impl Requests {
    /// Counts.
    pub fn of<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Self {
        let mut all = Self::default();
        for request in requests {
            all.add(request);
            all.by_account
                .entry(request.account().to_owned())
                .or_default()
                .add(request);
        }
        all
    }

    /// The counts of one ServiceAccount; zeros when it made no request.
    #[must_use]
    pub fn account(&self, name: &str) -> Self {
        self.by_account.get(name).cloned().unwrap_or_default()
    }

    fn add(&mut self, request: &Request) {
        let class = request.class();
        match class {
            Class::Watch => self.watches += 1,
            Class::Lease => self.leases += 1,
            Class::Event => self.events += 1,
            Class::Read => self.reads += 1,
            Class::Write => self.writes += 1,
        }
        self.wasted += usize::from(class == Class::Write && matches!(request.code, 404 | 409));
        self.denied += usize::from(request.code == 403);
        self.throttled += usize::from(request.code == 429);
        if matches!(class, Class::Read | Class::Write) || request.code == 403 {
            let kind = format!("{} {} {}", request.verb, request.resource, request.code);
            *self.by_kind.entry(kind).or_default() += 1;
        }
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        writeln!(
            f,
            "{name:<28} {:>7} {:>7} {:>8} {:>7} {:>7} {:>7} {:>7}",
            self.reads,
            self.writes,
            self.watches,
            self.leases,
            self.events,
            self.wasted,
            self.denied
        )
    }
}

impl fmt::Display for Requests {
    /// A table with a row for each account and one for all, then the kinds of reads and writes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:>7} {:>7} {:>8} {:>7} {:>7} {:>7} {:>7}",
            "account", "reads", "writes", "watches", "leases", "events", "wasted", "denied"
        )?;
        for (name, counts) in &self.by_account {
            counts.row(f, name)?;
        }
        self.row(f, "all")?;
        for (kind, count) in &self.by_kind {
            writeln!(f, "{count:>7}  {kind}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(user: &str, verb: &str, resource: &str, code: u16) -> Request {
        Request {
            at: jiff::Timestamp::UNIX_EPOCH,
            user: format!("system:serviceaccount:gpu-operator:{user}"),
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            namespace: String::new(),
            name: String::new(),
            code,
            uri: String::new(),
            agent: String::new(),
            bound_role: None,
            changes: Vec::new(),
        }
    }

    #[test]
    fn the_table() {
        let counts = Requests::of(&[
            request("driver-controller", "patch", "nodes", 200),
            request("driver-controller", "patch", "nodes", 409),
            request("driver-controller", "watch", "pods", 200),
            request("sre-agent", "list", "nodes", 200),
            request("sre-agent", "watch", "secrets", 403),
            request("sre-agent", "update", "leases", 200),
        ]);
        assert_eq!(counts.account("driver-controller").writes, 2);
        assert_eq!(counts.account("nobody"), Requests::default());
        insta::assert_snapshot!(counts.to_string(), @r"
        account                        reads  writes  watches  leases  events  wasted  denied
        driver-controller                  0       2        1       0       0       1       0
        sre-agent                          1       0        1       1       0       0       1
        all                                1       2        2       1       0       1       1
              1  list nodes 200
              1  patch nodes 200
              1  patch nodes 409
              1  watch secrets 403
        ");
    }
}
