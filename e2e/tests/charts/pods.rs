//! Our own pods and the hooks'.

use crate::helm::{CHARTS, COMPONENTS, find, of_kind, pod_templates, render, run, values_gpu};
use serde_json::{Value, json};

/// Pod Security "restricted", field by field (Kubernetes, Pod Security Standards).
fn assert_restricted(name: &str, template: &Value) {
    let spec = &template["spec"];
    for key in [
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "volumes",
        "initContainers",
    ] {
        assert!(spec.get(key).is_none(), "{name} has {key}");
    }
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true, "{name}");
    assert_ne!(spec["securityContext"]["runAsUser"], 0, "{name}");
    assert_eq!(
        spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault",
        "{name}"
    );
    for container in spec["containers"].as_array().unwrap() {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(context["runAsNonRoot"], true, "{name}");
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{name}");
        assert!(
            container["resources"]["requests"]["memory"].is_string(),
            "{name}"
        );
    }
}

#[test]
fn every_pod_is_restricted_in_every_chart() {
    for chart in CHARTS {
        let values = if chart == "gpu-operator" {
            values_gpu()
        } else {
            String::new()
        };
        let objects = render(chart, &values);
        let pods = pod_templates(&objects);
        assert!(!pods.is_empty(), "{chart} has no pods");
        for (name, template) in pods {
            assert_restricted(&format!("{chart}: {name}"), template);
        }
    }
}

#[test]
fn a_controller_has_all_that_belongs_to_it() {
    for (_, chart) in COMPONENTS {
        let objects = render(chart, "metrics: {serviceMonitor: {enabled: true}}");
        for kind in [
            "Deployment",
            "ServiceAccount",
            "PodDisruptionBudget",
            "Role",
            "RoleBinding",
            "ServiceMonitor",
        ] {
            assert!(
                find(&objects, kind, chart).is_some(),
                "{chart} has no {kind}"
            );
        }
        for kind in ["ClusterRole", "ClusterRoleBinding"] {
            assert!(
                find(&objects, kind, &format!("tessera-{chart}")).is_some(),
                "{chart} has no {kind}"
            );
        }
        assert!(
            find(&objects, "Service", &format!("{chart}-metrics")).is_some(),
            "{chart} has no metrics Service"
        );
        let deployment = find(&objects, "Deployment", chart).unwrap();
        assert_eq!(deployment["spec"]["replicas"], 2);
        let pod = &deployment["spec"]["template"]["spec"];
        assert!(
            pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
                .is_array()
        );
        let container = &pod["containers"][0];
        assert_eq!(
            container["image"],
            format!("ghcr.io/tessera-gpu/tessera/{chart}:0.1.0")
        );
        assert_eq!(
            container["startupProbe"]["httpGet"],
            json!({"path": "/healthz", "port": "health"})
        );
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    }
}

#[test]
fn nobody_may_write_rbac_or_read_secrets_beyond_what_was_decided() {
    let objects = render("gpu-operator", &values_gpu());
    for role in of_kind(&objects, "ClusterRole")
        .into_iter()
        .chain(of_kind(&objects, "Role"))
    {
        let name = role["metadata"]["name"].as_str().unwrap();
        for rule in role["rules"].as_array().unwrap() {
            let text = rule.to_string();
            assert!(!text.contains("\"*\""), "{name} has a wildcard: {text}");
            // The webhook's CA: its own name only, but for `create`, which cannot be limited.
            let ca = rule["resourceNames"] == json!(["webhook-ca"])
                || (name == "webhook" && rule["verbs"] == json!(["create"]));
            assert!(
                !text.contains("\"secrets\"") || ca,
                "{name} reads secrets: {text}"
            );
            assert!(
                !text.contains("pods/exec") && !text.contains("nodes/proxy"),
                "{name}: {text}"
            );
            let binds = text.contains("rolebindings") || text.contains("\"bind\"");
            // Agents' bindings are made by their controller, to two roles by name, and taken away by the uninstall hook.
            let decided =
                name.contains("sreagent-controller") || name == "tessera-gpu-operator-uninstall";
            assert!(!binds || decided, "{name} touches bindings: {text}");
        }
    }
}

#[test]
fn agents_can_be_bound_to_two_roles() {
    let objects = render("sreagent-controller", "");
    for role in ["tessera-sre-agent-observe", "tessera-sre-agent-repair"] {
        assert!(find(&objects, "ClusterRole", role).is_some(), "{role}");
    }
    let env = &find(&objects, "Deployment", "sreagent-controller").unwrap()["spec"]["template"]["spec"]
        ["containers"][0]["env"];
    let image = env
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["name"] == "SRE_AGENT_IMAGE")
        .unwrap();
    assert_eq!(
        image["value"],
        "ghcr.io/tessera-gpu/tessera/sre-agent:0.1.0"
    );
}

#[test]
fn operands_have_their_accounts() {
    let objects = render("gpu-operator", "");
    for name in [
        "nvidia-driver",
        "nvidia-container-toolkit",
        "nvidia-operator-validator",
        "nvidia-device-plugin",
        "nvidia-gpu-feature-discovery",
        "nvidia-mig-manager",
        "nvidia-dcgm",
        "nvidia-dcgm-exporter",
        "nvidia-node-status-exporter",
    ] {
        assert!(find(&objects, "ServiceAccount", name).is_some(), "{name}");
    }
}

#[test]
fn hooks_stop_and_clean_before_the_release_goes() {
    let objects = render("gpu-operator", "");
    let job = find(&objects, "Job", "gpu-operator-uninstall").unwrap();
    assert_eq!(job["metadata"]["annotations"]["helm.sh/hook"], "pre-delete");
    let args = &job["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(
        *args,
        json!([
            "uninstall",
            "--namespace=$(POD_NAMESPACE)",
            "--timeout=240s"
        ])
    );
    let alone = render("dcgm-monitor-controller", "");
    let args = &find(&alone, "Job", "dcgm-monitor-controller-uninstall").unwrap()["spec"]["template"]
        ["spec"]["containers"][0]["args"];
    assert_eq!(args[3], "--controller=dcgm-monitor-controller");
    assert!(
        of_kind(
            &render(
                "gpu-operator",
                "uninstall: {enabled: false}\ncrds: {enabled: false}"
            ),
            "Job"
        )
        .is_empty()
    );
}

#[test]
fn charts_pass_helms_linter() {
    for chart in CHARTS {
        let report = run(&["lint", "--strict"], chart, "")
            .unwrap_or_else(|error| panic!("{chart}: {error}"));
        assert!(report.contains("0 chart(s) failed"), "{chart}: {report}");
    }
}
