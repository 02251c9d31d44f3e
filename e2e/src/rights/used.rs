//! What our accounts did: requests without what differs from run to run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Account;
use crate::audit::Request;

/// Where a request was about something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Where {
    /// In the account's own namespace.
    OwnNamespace,
    /// In another namespace.
    OtherNamespace,
    /// A cluster-scoped object, or objects of all namespaces.
    Cluster,
}

/// Requests that need the same right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seen {
    /// Who.
    pub account: Account,
    /// Did what.
    pub verb: String,
    /// To what: its API group.
    pub group: String,
    /// Its resource, with a subresource after a slash.
    pub resource: String,
    /// In which reach.
    pub place: Where,
    /// To which objects, where the requests say it.
    pub names: BTreeSet<String>,
}

/// Everything that was seen, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// When this was written down.
    pub until: Timestamp,
    seen: Vec<Seen>,
}

impl Used {
    /// What these requests needed. Refused ones show what is missing, not what is used.
    pub fn of(requests: &[Request]) -> Self {
        let allowed = requests.iter().filter(|r| r.code != 403);
        Self::joined(allowed.flat_map(|request| {
            [seen_in(request), created(request), bind(request)]
                .into_iter()
                .flatten()
        }))
    }

    /// Joins the records of several labs.
    pub fn join(records: impl IntoIterator<Item = Self>) -> Self {
        Self::joined(records.into_iter().flat_map(|record| record.seen))
    }

    fn joined(all: impl Iterator<Item = Seen>) -> Self {
        let mut joined: BTreeMap<Seen, BTreeSet<String>> = BTreeMap::new();
        for mut seen in all {
            let names = std::mem::take(&mut seen.names);
            joined.entry(seen).or_default().extend(names);
        }
        let with_names = |(seen, names)| Seen { names, ..seen };
        Self {
            until: Timestamp::now(),
            seen: joined.into_iter().map(with_names).collect(),
        }
    }

    /// One entry for all requests that need the same right.
    pub fn seen(&self) -> impl Iterator<Item = &Seen> {
        self.seen.iter()
    }

    /// Writes it down.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let write = || {
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(path, serde_json::to_vec_pretty(self)?)
        };
        write().with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Reads what was written down; `None` when nothing was.
    ///
    /// # Errors
    /// The file cannot be read, or is of another version.
    pub fn load(path: &Path) -> anyhow::Result<Option<Self>> {
        match std::fs::read(path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .with_context(|| format!("{} is of another version", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }
}

fn seen_in(request: &Request) -> Option<Seen> {
    let own = request.user.rsplit(':').nth(1).unwrap_or_default();
    let place = match request.namespace.as_str() {
        "" => Where::Cluster,
        namespace if namespace == own => Where::OwnNamespace,
        _ => Where::OtherNamespace,
    };
    // A path (discovery, health) is about no object; everybody may ask for these.
    (!request.resource.starts_with('/')).then(|| Seen {
        account: Account::of(request.account()),
        verb: request.verb.clone(),
        group: request.group.clone(),
        resource: request.resource.clone(),
        place,
        names: Some(request.name.clone())
            .filter(|name| !name.is_empty())
            .into_iter()
            .collect(),
    })
}

/// An apply that makes an object needs the right to `create` it as well. The API server asks for that on the way; the log has
/// one line, with the answer 201.
fn created(request: &Request) -> Option<Seen> {
    let made = request.verb == "patch" && request.code == 201;
    let create = |seen| Seen {
        verb: "create".to_owned(),
        ..seen
    };
    seen_in(request).filter(|_| made).map(create)
}

/// Writing a binding needs, beside the write itself, the right to `bind` its role. That is asked for inside the API server and
/// stands in no line of its own.
fn bind(request: &Request) -> Option<Seen> {
    let role = request.bound_role.clone()?;
    Some(Seen {
        account: Account::of(request.account()),
        verb: "bind".to_owned(),
        group: request.group.clone(),
        // Tessera has no Roles to bind: agents' roles are ClusterRoles, also where a RoleBinding narrows them.
        resource: "clusterroles".to_owned(),
        place: Where::Cluster,
        names: BTreeSet::from([role]),
    })
}
