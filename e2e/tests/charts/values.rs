//! Values to our own pods: flags, resources, registries, pull secrets; and that nothing empty is rendered.

use crate::helm::{CHARTS, COMPONENTS, find, pod_templates, render, values_gpu, yaml};
use serde_json::{Value, json};

fn container<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    &find(objects, "Deployment", name).unwrap_or_else(|| panic!("no Deployment {name}"))["spec"]["template"]
        ["spec"]["containers"][0]
}

fn args(objects: &[Value], name: &str) -> Vec<String> {
    container(objects, name)["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn operator_resources_go_to_every_controller_and_a_components_own_win() {
    let values = format!(
        "{}driverController: {{resources: {{requests: {{memory: 99Mi}}}}}}\n",
        values_gpu()
    );
    let objects = render("gpu-operator", &values);
    let shared = yaml("{limits: {cpu: '1', memory: 1Gi}, requests: {cpu: 500m, memory: 512Mi}}");
    for (_, chart) in COMPONENTS {
        let want = if chart == "driver-controller" {
            json!({"requests": {"memory": "99Mi"}})
        } else {
            shared.clone()
        };
        assert_eq!(container(&objects, chart)["resources"], want, "{chart}");
    }
}

#[test]
fn flags_have_defaults_the_umbrellas_values_and_the_components_own() {
    let defaults = [
        "--bind-address=$(POD_IP)",
        "--metrics-port=8080",
        "--health-port=8081",
        "--reconcile-interval=10m",
        "--max-concurrent-reconciles=1",
        "--retry-delay=1m",
        "--request-timeout=5s",
        "--leader-elect=true",
        "--lease-duration=15s",
        "--renew-deadline=10s",
        "--retry-period=2s",
        "--log-format=json",
        "--log-level=info",
    ];
    assert_eq!(
        args(&render("gpu-operator", ""), "driver-controller"),
        defaults
    );
    let values = "
reconcileInterval: 300
maxConcurrentReconciles: 4
retryDelay: 30s
log: {format: text}
operator: {logging: {level: debug}}
dcgmMonitorController: {reconcileInterval: 1h, maxConcurrentReconciles: 2, log: {level: 'info,kube=warn'}, leaderElection: {enabled: false}}
";
    let objects = render("gpu-operator", values);
    let has = |name: &str, wanted: &[&str]| {
        let all = args(&objects, name);
        for flag in wanted {
            assert!(
                all.iter().any(|arg| arg == flag),
                "{name} has no {flag}: {all:?}"
            );
        }
    };
    has(
        "driver-controller",
        &[
            "--reconcile-interval=300s",
            "--max-concurrent-reconciles=4",
            "--retry-delay=30s",
            "--log-format=text",
            "--log-level=debug",
        ],
    );
    has(
        "dcgm-monitor-controller",
        &[
            "--reconcile-interval=1h",
            "--max-concurrent-reconciles=2",
            "--log-level=info,kube=warn",
            "--leader-elect=false",
        ],
    );
}

#[test]
fn pods_know_themselves() {
    let objects = render("gpu-operator", "");
    let env = container(&objects, "driver-controller")["env"]
        .as_array()
        .unwrap()
        .clone();
    for (name, path) in [
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
        ("POD_IP", "status.podIP"),
        ("NODE_NAME", "spec.nodeName"),
    ] {
        let entry = env
            .iter()
            .find(|entry| entry["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(entry["valueFrom"]["fieldRef"]["fieldPath"], path);
    }
}

#[test]
fn one_registry_and_one_list_of_secrets_reach_every_image() {
    let values = format!(
        "{}global: {{imageRegistry: 'registry.example:5000/mirror', imagePullSecrets: [one, {{name: two}}]}}\n",
        values_gpu()
    );
    let objects = render("gpu-operator", &values);
    let pods = pod_templates(&objects);
    assert_eq!(pods.len(), 7, "four controllers, the webhook and two hooks");
    for (name, template) in pods {
        let spec = &template["spec"];
        assert_eq!(
            spec["imagePullSecrets"],
            json!([{"name": "one"}, {"name": "two"}]),
            "{name}"
        );
        for container in spec["containers"].as_array().unwrap() {
            let env = container["env"].as_array().cloned().unwrap_or_default();
            let operands = env
                .iter()
                .filter(|entry| entry["name"].as_str().unwrap().ends_with("_IMAGE"))
                .map(|entry| &entry["value"]);
            for image in operands.chain([&container["image"]]) {
                assert!(
                    image
                        .as_str()
                        .unwrap()
                        .starts_with("registry.example:5000/mirror/"),
                    "{name}: {image}"
                );
            }
        }
    }
    // Agents are pods in their SREAgents' namespaces: their controller gives them the same.
    let agents = json!({"name": "SRE_AGENT_IMAGE_PULL_SECRETS", "value": "one,two"});
    let of_agents = |objects: &[Value]| {
        let env = container(objects, "sreagent-controller")["env"].clone();
        env.as_array().unwrap().contains(&agents)
    };
    assert!(of_agents(&objects));
    let alone = render("sreagent-controller", "imagePullSecrets: [one, two]");
    assert!(of_agents(&alone));
    assert!(!of_agents(&render("gpu-operator", &values_gpu())));
    let driver = container(&objects, "driver-controller")["env"].to_string();
    assert!(
        driver.contains("DRIVER_MANAGER_IMAGE")
            && driver.contains("mirror/nvidia/cloud-native/k8s-driver-manager"),
        "{driver}"
    );
    let spec = &find(&objects, "ClusterPolicy", "cluster-policy").unwrap()["spec"];
    for operand in [
        "driver",
        "toolkit",
        "validator",
        "devicePlugin",
        "gfd",
        "dcgm",
        "dcgmExporter",
    ] {
        assert_eq!(
            spec[operand]["imagePullSecrets"],
            json!(["one", "two"]),
            "{operand}"
        );
    }
    assert_eq!(
        spec["migManager"],
        json!({"enabled": false}),
        "an operand that is off needs no secrets"
    );
}

#[test]
fn a_components_own_registry_and_digest_win() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let values = format!(
        "global: {{imageRegistry: r.example}}\ndriverController: {{image: {{registry: own.example, repository: a/b, digest: '{digest}'}}}}"
    );
    let objects = render("gpu-operator", &values);
    assert_eq!(
        container(&objects, "driver-controller")["image"],
        format!("own.example/a/b@{digest}")
    );
    assert_eq!(
        container(&objects, "sreagent-controller")["image"],
        "r.example/tessera-gpu/tessera/sreagent-controller:0.1.0"
    );
}

#[test]
fn placement_values_reach_controllers_and_hooks() {
    let values = "operator: {nodeSelector: {role: infra}, tolerations: [{key: infra, operator: Exists}], priorityClassName: high}\nnodeSelector: {gpu: 'true'}\ncrds: {enabled: false}";
    let objects = render("gpu-operator", values);
    for (name, template) in pod_templates(&objects) {
        assert_eq!(
            template["spec"]["nodeSelector"],
            json!({"role": "infra"}),
            "{name}"
        );
        assert_eq!(
            template["spec"]["tolerations"],
            json!([{"key": "infra", "operator": "Exists"}]),
            "{name}"
        );
    }
    assert_eq!(
        find(&objects, "Deployment", "driver-controller").unwrap()["spec"]["template"]["spec"]["priorityClassName"],
        "high"
    );
}

/// Paths of nulls, empty maps, empty lists.
fn empties(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Null => found.push(path.to_owned()),
        Value::Object(map) if map.is_empty() => found.push(path.to_owned()),
        Value::Array(list) if list.is_empty() => found.push(path.to_owned()),
        Value::Object(map) => map
            .iter()
            .for_each(|(key, child)| empties(child, &format!("{path}.{key}"), found)),
        Value::Array(list) => list
            .iter()
            .for_each(|child| empties(child, &format!("{path}[]"), found)),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn nothing_empty_is_rendered() {
    let blanks = "driver:\n  resources:\n  env:\n  manager:\ntoolkit:\ndaemonsets:\ndcgm:\ndevicePlugin:\n  config:\nmigManager:\nvalidator:\ngfd:\n  enabled:\n";
    let nothing = String::new();
    for chart in CHARTS {
        let sets = if chart == "gpu-operator" {
            vec![nothing.clone(), values_gpu(), blanks.to_owned()]
        } else {
            vec![nothing.clone()]
        };
        for values in sets {
            for object in render(chart, &values) {
                let mut found = Vec::new();
                empties(
                    &object,
                    &format!("{} {}", object["kind"], object["metadata"]["name"]),
                    &mut found,
                );
                assert!(found.is_empty(), "{chart}: {found:?}");
            }
        }
    }
}
