//! Running helm and reading what it renders.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;
use tessera_e2e::controlplane::{self, KUBERNETES_VERSION, Tool};
use tessera_e2e::paths;

/// Charts that stand alone, and the umbrella.
pub const CHARTS: [&str; 7] = [
    "crds",
    "driver-controller",
    "device-plugin-controller",
    "dcgm-monitor-controller",
    "sreagent-controller",
    "webhook",
    "gpu-operator",
];

/// Value keys of the umbrella's components and their charts.
pub const COMPONENTS: [(&str, &str); 5] = [
    ("driverController", "driver-controller"),
    ("devicePluginController", "device-plugin-controller"),
    ("dcgmMonitorController", "dcgm-monitor-controller"),
    ("sreagentController", "sreagent-controller"),
    ("webhook", "webhook"),
];

fn binary() -> &'static Path {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    HELM.get_or_init(|| {
        controlplane::ensure(&|line| eprintln!("{line}"))
            .unwrap()
            .path(Tool::Helm)
            .to_path_buf()
    })
}

/// The values that users bring.
pub fn values_gpu() -> String {
    std::fs::read_to_string(paths::root().join("e2e/inputs/values-gpu.yaml")).unwrap()
}

/// Runs helm on a chart; standard output, or what it says on standard error.
pub fn run(args: &[&str], chart: &str, values: &str) -> Result<String, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), values).unwrap();
    let output = Command::new(binary())
        .args(args)
        .arg(paths::root().join("charts").join(chart))
        .args([
            "--namespace",
            "gpu-operator",
            "--kube-version",
            KUBERNETES_VERSION,
            "--values",
        ])
        .arg(file.path())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

/// Every object that a chart renders, hooks included.
pub fn try_render(chart: &str, values: &str) -> Result<Vec<Value>, String> {
    let text = run(&["template", "gpu-operator"], chart, values)?;
    let documents = text
        .split("\n---\n")
        .map(|document| document.trim_start_matches("---\n"));
    let objects = documents.map(|document| {
        serde_saphyr::from_str::<Value>(document).unwrap_or_else(|e| panic!("{e}: {document}"))
    });
    Ok(objects.filter(|object| !object.is_null()).collect())
}

/// As [`try_render`], for values that must be accepted.
pub fn render(chart: &str, values: &str) -> Vec<Value> {
    try_render(chart, values)
        .unwrap_or_else(|error| panic!("{chart} does not take\n{values}\n{error}"))
}

/// The objects of one kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects
        .iter()
        .filter(|object| object["kind"] == kind)
        .collect()
}

/// The object of this kind and name.
pub fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// The spec of the base policy.
pub fn policy(values: &str) -> Value {
    let objects = render("gpu-operator", values);
    find(&objects, "ClusterPolicy", "cluster-policy").expect("no base policy")["spec"].clone()
}

/// YAML as a value.
pub fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Pod templates with the name of what they belong to.
pub fn pod_templates(objects: &[Value]) -> Vec<(String, &Value)> {
    let owners = objects
        .iter()
        .filter(|object| object["kind"] == "Deployment" || object["kind"] == "Job");
    owners
        .map(|owner| {
            (
                format!("{} {}", owner["kind"], owner["metadata"]["name"]),
                &owner["spec"]["template"],
            )
        })
        .collect()
}
