//! `deploy/`: the charts rendered with their defaults, for `kubectl apply -f`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use super::{COMPONENTS, Outputs};

/// Namespace of the manifests.
const NAMESPACE: &str = "gpu-operator";

const HEADER: &str = "# Written by `cargo xtask generate` from charts/; do not edit.\n";

/// All manifests. The numbered one comes first in `kubectl apply -f deploy/`.
pub(super) fn all(root: &Path) -> anyhow::Result<Outputs> {
    let mut outputs = Outputs::new();
    outputs.insert(
        "deploy/00-namespace-and-crds.yaml".into(),
        foundation(root)?,
    );
    let helm = crate::tools::helm()?;
    for name in COMPONENTS {
        let chart = root.join("charts").join(name);
        let output = Command::new(&helm)
            .args(["template", name])
            .arg(&chart)
            .args([
                "--namespace",
                NAMESPACE,
                "--no-hooks",
                "--kube-version",
                crate::tools::KUBERNETES,
            ])
            .output()
            .with_context(|| format!("{} cannot be run", helm.display()))?;
        if !output.status.success() {
            bail!(
                "helm cannot render {}: {}",
                chart.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let text = String::from_utf8(output.stdout).context("helm's output is not text")?;
        outputs.insert(
            Path::new("deploy").join(format!("{name}.yaml")),
            format!("{HEADER}{}", as_kubectl_applies(&text)),
        );
    }
    Ok(outputs)
}

/// The namespace, allowed to run privileged operands, and the CRDs.
fn foundation(root: &Path) -> anyhow::Result<String> {
    let mut text = format!(
        "{HEADER}---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n  labels:\n    # Operands are privileged by nature.\n    pod-security.kubernetes.io/enforce: privileged\n"
    );
    for (file, _) in tessera_api::crds() {
        let path = root.join(super::chart("crds")).join("crds").join(file);
        let crd = std::fs::read_to_string(&path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        text.push_str("---\n");
        text.extend(
            crd.lines()
                .filter(|line| !line.starts_with('#'))
                .flat_map(|line| [line, "\n"]),
        );
    }
    Ok(text)
}

/// Nobody but kubectl manages these objects, and no release has them.
fn as_kubectl_applies(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("# Source:"));
    lines
        .map(|line| {
            format!(
                "{}\n",
                line.replace("managed-by: Helm", "managed-by: kubectl")
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_release_leaves_no_trace() {
        let text = "---\n# Source: a/b.yaml\nmetadata:\n  labels:\n    app.kubernetes.io/managed-by: Helm\n";
        let want = "---\nmetadata:\n  labels:\n    app.kubernetes.io/managed-by: kubectl\n";
        assert_eq!(super::as_kubectl_applies(text), want);
    }
}
