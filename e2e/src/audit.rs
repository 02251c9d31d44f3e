//! API requests, counted from the lab's audit log.
//!
//! The log has one line for each finished request of a ServiceAccount (the control plane's own left out) and two for a watch, of
//! which the first is counted. Classes are those of the budgets: leases, events and watches are kept apart from reads and writes.

mod changes;
mod summary;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

pub use self::summary::Requests;

/// What kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Start of a watch.
    Watch,
    /// Any request about a Lease.
    Lease,
    /// Any request about an Event.
    Event,
    /// get or list.
    Read,
    /// create, update, patch, delete.
    Write,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When the API server received it.
    pub at: Timestamp,
    /// Who: `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
    /// get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// API group of the resource; empty for the core group and for requests that are about no object.
    pub group: String,
    /// Resource, with its subresource after a slash: `nodes/status`. The path for requests that are about no object.
    pub resource: String,
    /// Namespace of the object; may be empty.
    pub namespace: String,
    /// Name of the object; empty for lists and some creations.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// The whole request URI.
    pub uri: String,
    /// The client's user agent.
    pub agent: String,
    /// The role that a written RoleBinding or ClusterRoleBinding refers to.
    pub bound_role: Option<String>,
    /// What a patch of a status has other than the one of the same account before: `/conditions/2/reason: "A" -> "B"`.
    pub changes: Vec<String>,
}

impl Request {
    /// The class it counts under.
    pub fn class(&self) -> Class {
        let resource = self.resource.split('/').next().unwrap_or_default();
        match (self.verb.as_str(), resource) {
            ("watch", _) => Class::Watch,
            (_, "leases") => Class::Lease,
            (_, "events") => Class::Event,
            ("get" | "list", _) => Class::Read,
            _ => Class::Write,
        }
    }

    /// The ServiceAccount's name.
    pub fn account(&self) -> &str {
        self.user.rsplit(':').next().unwrap_or(&self.user)
    }
}

/// A reader of an audit log that remembers how far it has read.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
    offset: u64,
    /// What each account last wrote as the status of an object.
    statuses: BTreeMap<(String, String), Value>,
}

impl Audit {
    /// Reads from the beginning of the log.
    pub fn open(path: PathBuf) -> Self {
        Self {
            path,
            offset: 0,
            statuses: BTreeMap::new(),
        }
    }

    /// Forgets what has happened so far.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn skip(&mut self) -> anyhow::Result<()> {
        self.next_requests().map(drop)
    }

    /// The requests since the last call.
    ///
    /// # Errors
    /// The log cannot be read or is not an audit log.
    pub fn next_requests(&mut self) -> anyhow::Result<Vec<Request>> {
        let mut file = match std::fs::File::open(&self.path) {
            Ok(file) => file,
            // The API server makes it with the first line.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("{} cannot be read", self.path.display()));
            }
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = BufReader::new(file);
        let mut requests = Vec::new();
        let mut line = String::new();
        // A last line without its end is still being written: next time.
        while reader.read_line(&mut line)? > 0 && line.ends_with('\n') {
            self.offset += u64::try_from(line.len())?;
            if let Some((mut request, status)) = parse(&line)? {
                if !status.is_null() && request.code < 300 {
                    let key = (request.user.clone(), request.name.clone());
                    let before = self.statuses.insert(key, status.clone());
                    request.changes = changes::between(&before.unwrap_or_default(), &status);
                }
                requests.push(request);
            }
            line.clear();
        }
        Ok(requests)
    }

    /// The requests since the last call, counted.
    ///
    /// # Errors
    /// The log cannot be read or is not an audit log.
    pub fn next_summary(&mut self) -> anyhow::Result<Requests> {
        Ok(Requests::of(&self.next_requests()?))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: LineUser,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: LineObject,
    /// Only for role bindings and the status of ClusterPolicies, as the audit policy says.
    #[serde(default)]
    request_object: LineWritten,
    #[serde(default)]
    response_status: LineStatus,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct LineUser {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LineObject {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LineWritten {
    role_ref: LineRole,
    status: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LineRole {
    name: Option<String>,
}

#[derive(Default, Deserialize)]
struct LineStatus {
    #[serde(default)]
    code: u16,
}

/// The request of a line and the status that it wrote; `None` for the other of the two lines that a watch has.
fn parse(line: &str) -> anyhow::Result<Option<(Request, Value)>> {
    let line: Line =
        serde_json::from_str(line).context("a line of the audit log cannot be read")?;
    let counted = match line.stage.as_str() {
        "ResponseStarted" => line.verb == "watch",
        // A watch that is refused has no start.
        "ResponseComplete" => line.verb != "watch" || line.response_status.code >= 300,
        _ => false,
    };
    if !counted {
        return Ok(None);
    }
    let object = line.object_ref;
    let resource = match (object.resource.as_str(), object.subresource.as_str()) {
        ("", _) => line
            .request_uri
            .split('?')
            .next()
            .unwrap_or_default()
            .to_owned(),
        (resource, "") => resource.to_owned(),
        (resource, sub) => format!("{resource}/{sub}"),
    };
    let request = Request {
        at: line.request_received_timestamp,
        user: line.user.username,
        verb: line.verb,
        group: object.api_group,
        resource,
        namespace: object.namespace,
        name: object.name,
        code: line.response_status.code,
        uri: line.request_uri,
        agent: line.user_agent,
        bound_role: line.request_object.role_ref.name,
        changes: Vec::new(),
    };
    Ok(Some((request, line.request_object.status)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn line(stage: &str, verb: &str, resource: &str, code: u16) -> String {
        format!(
            r#"{{"stage":"{stage}","verb":"{verb}","requestURI":"/api/v1/{resource}?x=1","user":{{"username":"system:serviceaccount:gpu-operator:driver-controller"}},"objectRef":{{"resource":"{resource}","name":"n"}},"responseStatus":{{"code":{code}}},"requestReceivedTimestamp":"2026-01-02T03:04:05.678901Z","stageTimestamp":"2026-01-02T03:04:05.7Z"}}"#
        ) + "\n"
    }

    #[test]
    fn a_watch_counts_once_and_half_a_line_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut audit = Audit::open(path.clone());
        assert!(audit.next_requests().unwrap().is_empty());
        let mut file = std::fs::File::create(&path).unwrap();
        let whole = line("ResponseStarted", "watch", "pods", 200)
            + &line("ResponseComplete", "watch", "pods", 200)
            + &line("ResponseComplete", "patch", "nodes", 200);
        let (first, second) = whole.split_at(whole.len() - 10);
        file.write_all(first.as_bytes()).unwrap();
        assert_eq!(audit.next_requests().unwrap().len(), 1);
        file.write_all(second.as_bytes()).unwrap();
        let rest = audit.next_requests().unwrap();
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].class(), Class::Write);
        assert_eq!(rest[0].account(), "driver-controller");
    }

    #[test]
    fn the_role_that_is_bound_is_read() {
        let text = r#"{"stage":"ResponseComplete","verb":"patch","requestURI":"/x","user":{"username":"system:serviceaccount:n:sreagent-controller"},"objectRef":{"resource":"rolebindings","apiGroup":"rbac.authorization.k8s.io"},"requestObject":{"kind":"RoleBinding","roleRef":{"kind":"ClusterRole","name":"some-role"}},"requestReceivedTimestamp":"2026-01-02T03:04:05.678901Z"}"#;
        let (request, _) = parse(text).unwrap().unwrap();
        assert_eq!(request.group, "rbac.authorization.k8s.io");
        assert_eq!(request.bound_role.as_deref(), Some("some-role"));
    }

    #[test]
    fn what_a_status_has_other_than_before_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let write = |reason: &str| {
            format!(
                r#"{{"stage":"ResponseComplete","verb":"patch","requestURI":"/x","user":{{"username":"system:serviceaccount:n:a"}},"objectRef":{{"resource":"clusterpolicies","subresource":"status","name":"p"}},"requestObject":{{"status":{{"state":"ready","conditions":[{{"reason":"{reason}"}}]}}}},"responseStatus":{{"code":200}},"requestReceivedTimestamp":"2026-01-02T03:04:05.678901Z"}}"#
            ) + "\n"
        };
        std::fs::write(&path, write("A") + &write("B") + &write("B")).unwrap();
        let requests = Audit::open(path).next_requests().unwrap();
        let changes: Vec<&[String]> = requests.iter().map(|r| r.changes.as_slice()).collect();
        assert!(!changes[0].is_empty(), "{changes:?}");
        assert_eq!(changes[1], [r#"/conditions/0/reason: "A" -> "B""#]);
        assert!(changes[2].is_empty());
    }

    #[test]
    fn a_refused_watch_is_seen() {
        assert!(
            parse(&line("ResponseComplete", "watch", "pods", 403))
                .unwrap()
                .is_some()
        );
        assert!(
            parse(&line("ResponseComplete", "watch", "pods", 200))
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn classes() {
        for (verb, resource, class) in [
            ("update", "leases", Class::Lease),
            ("patch", "events", Class::Event),
            ("get", "nodes", Class::Read),
            ("delete", "pods", Class::Write),
            ("watch", "leases", Class::Watch),
        ] {
            let stage = if verb == "watch" {
                "ResponseStarted"
            } else {
                "ResponseComplete"
            };
            assert_eq!(
                parse(&line(stage, verb, resource, 200))
                    .unwrap()
                    .unwrap()
                    .0
                    .class(),
                class
            );
        }
    }
}
