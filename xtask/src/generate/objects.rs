//! CRDs, their hashes, the rights of every process and hook, and the default images.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kube::ResourceExt as _;
use serde_json::json;
use tessera_api::image::ImageKind;
use tessera_runtime::rbac::Rights;

use super::{Outputs, chart};

const HEADER: &str = "# Written by `cargo xtask generate`; do not edit.\n";

/// All files of this kind.
pub(super) fn all() -> anyhow::Result<Outputs> {
    let mut outputs = Outputs::new();
    let mut hashes = BTreeMap::new();
    let mut names = Vec::new();
    for (file, crd) in kubectl_tessera::crds::definitions()? {
        let hash = crd
            .annotations()
            .get(kubectl_tessera::crds::SCHEMA_HASH)
            .cloned()
            .unwrap_or_default();
        names.push(crd.name_any());
        hashes.insert(crd.name_any(), hash);
        outputs.insert(chart("crds").join("crds").join(file), yaml(&crd)?);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    outputs.insert(chart("crds").join("files/hashes.yaml"), yaml(&hashes)?);
    outputs.insert(
        chart("crds").join("files/rbac.yaml"),
        rights(&kubectl_tessera::rbac::crds_apply(&names))?,
    );
    outputs.insert(
        chart("tessera-controller").join("files/uninstall-rbac.yaml"),
        rights(&kubectl_tessera::rbac::uninstall())?,
    );
    for (name, granted) in processes() {
        outputs.insert(chart(name).join("files/rbac.yaml"), rights(&granted)?);
    }
    let agent_roles = BTreeMap::from(tessera_sre_agent::rbac::roles());
    outputs.insert(
        chart("sreagent-controller").join("files/agent-roles.yaml"),
        yaml(&agent_roles)?,
    );
    for name in super::GPU_COMPONENTS {
        outputs.insert(
            chart(name).join("files/images.yaml"),
            yaml(&operand_images())?,
        );
    }
    let roles: BTreeMap<_, _> = tessera_sre_agent::rbac::roles().into_iter().collect();
    outputs.insert(
        chart("sreagent-controller").join("files/agent-roles.yaml"),
        yaml(&roles)?,
    );
    Ok(outputs)
}

fn processes() -> [(&'static str, Rights); 5] {
    [
        (
            "driver-controller",
            tessera_driver_controller::rbac::rights(),
        ),
        (
            "device-plugin-controller",
            tessera_device_plugin_controller::rbac::rights(),
        ),
        (
            "dcgm-monitor-controller",
            tessera_dcgm_monitor_controller::rbac::rights(),
        ),
        (
            "sreagent-controller",
            tessera_sreagent_controller::rbac::rights(),
        ),
        ("webhook", tessera_webhook::rbac::rights()),
    ]
}

fn rights(rights: &Rights) -> anyhow::Result<String> {
    yaml(&json!({"cluster": rights.cluster, "namespaced": rights.namespaced}))
}

/// The default image of every operand by its environment variable. All GPU controllers get all of them: each resolves the whole
/// policy, and they must come to the same result.
fn operand_images() -> BTreeMap<&'static str, &'static str> {
    ImageKind::ALL
        .into_iter()
        .map(|kind| (kind.env_name(), kind.builtin()))
        .collect()
}

fn yaml(value: &impl serde::Serialize) -> anyhow::Result<String> {
    let text = kubectl_tessera::crds::to_yaml(value)?;
    Ok(format!("{HEADER}{}\n", text.trim_end()))
}

/// Used by the other generators too.
pub(super) fn chart_file(name: &str, file: &str) -> PathBuf {
    chart(name).join(file)
}
