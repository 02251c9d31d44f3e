//! What rendered charts grant to the ServiceAccounts of our own processes.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context as _;
use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};
use serde::Deserialize;
use serde_json::Value;

use super::Account;

/// How far a right reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// By a ClusterRoleBinding.
    Cluster,
    /// By a RoleBinding in the account's namespace.
    OwnNamespace,
}

/// One thing that an account may do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Who.
    pub account: Account,
    /// May do it where.
    pub scope: Scope,
    /// API group, `""` for the core group.
    pub group: String,
    /// Resource, with a subresource after a slash.
    pub resource: String,
    /// Only to the object of this name.
    pub name: Option<String>,
    /// What.
    pub verb: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.account, self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " `{name}`")?;
        }
        match self.scope {
            Scope::Cluster => write!(f, " beyond its own namespace"),
            Scope::OwnNamespace => write!(f, " in its own namespace"),
        }
    }
}

/// A ClusterRole of a chart that a controller binds at run time.
#[derive(Clone, Debug)]
pub struct RoleBoundLater {
    /// Name of the ClusterRole.
    pub role: String,
    /// Who gets it.
    pub account: Account,
    /// By which kind of binding.
    pub scope: Scope,
}

/// Roles (kind and name) that grant a right, each with the charts it is in.
pub type Grants = BTreeMap<String, Vec<String>>;

/// All rights, each with where it comes from.
#[derive(Clone, Debug, Default)]
pub struct Granted(BTreeMap<Right, Grants>);

impl Granted {
    /// Adds what the rendered objects of a chart grant.
    ///
    /// Operands' accounts are left out: they stand for what NVIDIA's images ask for, which run in no lab.
    ///
    /// # Errors
    /// A binding has no role in the same chart, a role has neither a binding nor a place in `later`, or an object cannot be read.
    pub fn add(
        &mut self,
        chart: &str,
        objects: &[Value],
        later: &[RoleBoundLater],
    ) -> anyhow::Result<()> {
        let (roles, bindings) = of_our_own(chart, objects)?;
        let mut bound: Vec<(Scope, Account, RoleRef)> = Vec::new();
        for (scope, binding) in bindings {
            let role = binding
                .role_ref
                .with_context(|| format!("chart {chart}: a binding without a role"))?;
            for subject in binding.subjects {
                bound.push((scope, Account::of(&subject.name), role.clone()));
            }
        }
        for late in later {
            let role = RoleRef {
                kind: "ClusterRole".to_owned(),
                name: late.role.clone(),
            };
            if roles.contains_key(&role) {
                bound.push((late.scope, late.account.clone(), role));
            }
        }
        if let Some(RoleRef { kind, name }) = roles
            .keys()
            .find(|role| bound.iter().all(|b| b.2 != **role))
        {
            anyhow::bail!("chart {chart}: nobody gets {kind} {name}");
        }
        for (scope, account, role) in bound {
            let RoleRef { kind, name } = &role;
            let rules = roles
                .get(&role)
                .with_context(|| format!("chart {chart}: there is no {kind} {name}"))?;
            for rule in rules {
                for right in expand(&account, scope, rule) {
                    let grants = self.0.entry(right).or_default();
                    let charts = grants.entry(format!("{kind} {name}")).or_default();
                    if charts.iter().all(|known| known != chart) {
                        charts.push(chart.to_owned());
                    }
                }
            }
        }
        Ok(())
    }

    /// Each right and where it comes from.
    pub fn rights(&self) -> impl Iterator<Item = (&Right, &Grants)> {
        self.0.iter()
    }

    /// Whether exactly this is granted.
    pub fn has(&self, right: &Right) -> bool {
        self.0.contains_key(right)
    }
}

/// What roles and bindings have, each a part of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    rules: Vec<PolicyRule>,
    role_ref: Option<RoleRef>,
    #[serde(default)]
    subjects: Vec<Subject>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct RoleRef {
    kind: String,
    name: String,
}

impl Object {
    fn is_operands(&self) -> bool {
        let component = self.metadata.labels.get("app.kubernetes.io/component");
        component.is_some_and(|component| component == "operand")
    }
}

type Roles = BTreeMap<RoleRef, Vec<PolicyRule>>;

/// Roles, and bindings with their reach; those of operands left out.
fn of_our_own(chart: &str, objects: &[Value]) -> anyhow::Result<(Roles, Vec<(Scope, Object)>)> {
    let mut roles = Roles::new();
    let mut bindings = Vec::new();
    for value in objects {
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or("");
        let reach = match kind {
            "ClusterRoleBinding" => Some(Scope::Cluster),
            "RoleBinding" => Some(Scope::OwnNamespace),
            "Role" | "ClusterRole" => None,
            _ => continue,
        };
        let object: Object = serde_json::from_value(value.clone())
            .with_context(|| format!("a {kind} of chart {chart} cannot be read"))?;
        if object.is_operands() {
            continue;
        }
        if let Some(scope) = reach {
            bindings.push((scope, object));
        } else {
            let role = RoleRef {
                kind: kind.to_owned(),
                name: object.metadata.name,
            };
            roles.insert(role, object.rules);
        }
    }
    Ok((roles, bindings))
}

fn expand(account: &Account, scope: Scope, rule: &PolicyRule) -> Vec<Right> {
    let mut names: Vec<Option<String>> = rule
        .resource_names
        .iter()
        .flatten()
        .cloned()
        .map(Some)
        .collect();
    if names.is_empty() {
        names.push(None);
    }
    let mut rights = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for name in &names {
                rights.extend(rule.verbs.iter().map(|verb| Right {
                    account: account.clone(),
                    scope,
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    verb: verb.clone(),
                }));
            }
        }
    }
    rights
}

/// The objects in what helm renders.
///
/// # Errors
/// A document is not YAML.
pub fn objects(rendered: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in rendered.split("\n---\n") {
        let document = document.trim_start_matches("---\n");
        let object: Value = serde_saphyr::from_str(document)
            .with_context(|| format!("what helm rendered is not YAML:\n{document}"))?;
        if !object.is_null() {
            objects.push(object);
        }
    }
    Ok(objects)
}
