//! Rights that charts grant and no scenario uses; a part of `test`, and of `check` where a whole run is on record.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use tessera_e2e::paths;
use tessera_e2e::rights::{Account, Granted, RoleBoundLater, Scope, Used, objects, unused};

use crate::generate::COMPONENTS;

/// Where the rights of releases are looked for; they do not depend on its name.
const NAMESPACE: &str = "gpu-operator";

/// Forgets what earlier runs used.
pub(crate) fn forget() -> anyhow::Result<()> {
    let labs = paths::used_rights();
    match std::fs::remove_dir_all(&labs) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", labs.display()))
        }
        _ => Ok(()),
    }
}

/// Joins what the labs of a whole run have left and keeps it for `check`.
pub(crate) fn conclude() -> anyhow::Result<Used> {
    let used = joined()?;
    used.save(&paths::whole_run())?;
    Ok(used)
}

/// What the labs of tests have left since [`forget`].
fn joined() -> anyhow::Result<Used> {
    let labs = paths::used_rights();
    let entries = std::fs::read_dir(&labs)
        .with_context(|| format!("no lab left a record in {}", labs.display()))?;
    let mut records = Vec::new();
    for entry in entries {
        records.extend(Used::load(&entry?.path())?);
    }
    Ok(Used::join(records))
}

/// The record of the last whole run; `None` when there was none.
pub(crate) fn recorded() -> anyhow::Result<Option<Used>> {
    Used::load(&paths::whole_run())
}

/// Says which granted rights are not in `used`, a line each, and returns whether there is none.
pub(crate) fn judge(root: &Path, used: &Used) -> anyhow::Result<bool> {
    let granted = granted(root)?;
    let unused = unused(&granted, used);
    let count = granted.rights().count();
    if unused.is_empty() {
        println!("each of the {count} rights that charts grant was used");
    } else {
        println!(
            "{} of the {count} rights that charts grant were used by no scenario until {}; take them out of the crate's \
             rbac.rs, or let a scenario need them:",
            unused.len(),
            used.until
        );
        for line in &unused {
            println!("  {line}");
        }
    }
    Ok(unused.is_empty())
}

/// What all charts grant, hooks included.
fn granted(root: &Path) -> anyhow::Result<Granted> {
    let later = bound_by_the_controller();
    let mut granted = Granted::default();
    for chart in COMPONENTS.into_iter().chain(["crds", "gpu-operator"]) {
        granted.add(chart, &objects(&render(root, chart)?)?, &later)?;
    }
    Ok(granted)
}

/// The agents' roles, as `sreagent-controller`'s build.rs binds them.
fn bound_by_the_controller() -> Vec<RoleBoundLater> {
    use tessera_sre_agent::rbac::{OBSERVE, OWN, REPAIR};
    [
        (OBSERVE, Scope::Cluster),
        (REPAIR, Scope::Cluster),
        (OWN, Scope::OwnNamespace),
    ]
    .into_iter()
    .map(|(role, scope)| RoleBoundLater {
        role: role.to_owned(),
        account: Account::of("sre-agent"),
        scope,
    })
    .collect()
}

fn render(root: &Path, chart: &str) -> anyhow::Result<String> {
    let helm = crate::tools::helm()?;
    let output = Command::new(&helm)
        .args(["template", chart])
        .arg(root.join("charts").join(chart))
        .args(["--namespace", NAMESPACE])
        .args(["--kube-version", crate::tools::KUBERNETES])
        .output()
        .with_context(|| format!("{} cannot be run", helm.display()))?;
    if !output.status.success() {
        bail!(
            "helm cannot render {chart}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).context("helm's output is not text")
}
