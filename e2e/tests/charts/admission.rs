//! The webhook's certificates and its NetworkPolicy: what is rendered for each way to have them, alone and in the umbrella.

use crate::helm::{find, of_kind, render, try_render};
use serde_json::{Value, json};

/// What helm renders for these values of the webhook, by its own chart and by the umbrella.
fn both(values: &str) -> [(&'static str, Vec<Value>); 2] {
    let indented: String = values.lines().map(|line| format!("\n  {line}")).collect();
    [
        ("webhook", render("webhook", values)),
        (
            "gpu-operator",
            render("gpu-operator", &format!("webhook:{indented}")),
        ),
    ]
}

fn pod(objects: &[Value]) -> &Value {
    &find(objects, "Deployment", "webhook").expect("no Deployment")["spec"]["template"]
}

fn certificate_dirs(objects: &[Value]) -> Vec<&str> {
    let args = pod(objects)["spec"]["containers"][0]["args"].as_array();
    let args = args.unwrap().iter().filter_map(Value::as_str);
    args.filter_map(|arg| arg.strip_prefix("--certificate-dir="))
        .collect()
}

/// The Secret is where the process looks for it, and nothing of it can be written.
fn assert_mounted(chart: &str, objects: &[Value], secret: &str) {
    let spec = &pod(objects)["spec"];
    let volume = json!([{"name": "certificates", "secret": {"secretName": secret}}]);
    assert_eq!(spec["volumes"], volume, "{chart}");
    let dirs = certificate_dirs(objects);
    assert_eq!(dirs.len(), 1, "{chart}: {dirs:?}");
    let mount = json!([{"name": "certificates", "mountPath": dirs[0], "readOnly": true}]);
    assert_eq!(spec["containers"][0]["volumeMounts"], mount, "{chart}");
}

#[test]
fn by_default_the_webhook_makes_its_own_certificates() {
    for (chart, objects) in both("replicas: 2") {
        assert!(certificate_dirs(&objects).is_empty(), "{chart}");
        assert!(pod(&objects)["spec"].get("volumes").is_none(), "{chart}");
        for kind in ["Certificate", "NetworkPolicy", "Secret"] {
            assert!(of_kind(&objects, kind).is_empty(), "{chart} has a {kind}");
        }
    }
}

#[test]
fn a_given_secret_is_mounted_and_nobody_is_asked_for_another() {
    for (chart, objects) in both("certificates: {secretName: mine}") {
        assert_mounted(chart, &objects, "mine");
        assert!(of_kind(&objects, "Certificate").is_empty(), "{chart}");
    }
}

#[test]
fn cert_manager_is_asked_for_what_is_mounted() {
    let issuer = json!({"name": "ours", "kind": "ClusterIssuer", "group": "cert-manager.io"});
    for (name, secret) in [("", "webhook-tls"), ("secretName: mine, ", "mine")] {
        let values =
            format!("certificates: {{{name}certManager: {{enabled: true, issuerRef: {issuer}}}}}");
        for (chart, objects) in both(&values) {
            assert_mounted(chart, &objects, secret);
            let asked = find(&objects, "Certificate", "webhook").expect("no Certificate");
            assert_eq!(asked["apiVersion"], "cert-manager.io/v1", "{chart}");
            // All of these are fields of cert-manager's v1, and the name is the one that API servers ask for.
            let spec = json!({
                "secretName": secret, "issuerRef": issuer, "dnsNames": ["webhook.gpu-operator.svc"],
            });
            assert_eq!(asked["spec"], spec, "{chart}");
            let service = find(&objects, "Service", "webhook").expect("no Service");
            for object in [asked, service] {
                let place = &object["metadata"]["namespace"];
                assert_eq!(
                    place, "gpu-operator",
                    "{chart}: a Secret does not leave its namespace"
                );
            }
        }
    }
}

#[test]
fn an_issuer_without_a_name_is_refused_with_its_path() {
    for (values, want) in [
        ("{enabled: true}", "missing property 'name'"),
        (
            "{enabled: true, issuerRef: {kind: Issuer}}",
            "missing property 'name'",
        ),
        ("{enabled: true, issuerRef: {nam: ours}}", "nam"),
    ] {
        let values = format!("certificates: {{certManager: {values}}}");
        let error = try_render("webhook", &values).expect_err(&values);
        for want in ["/certificates/certManager/issuerRef", want] {
            assert!(error.contains(want), "{values}: {want} is not in {error}");
        }
    }
}

#[test]
fn a_network_policy_lets_only_those_named_come_to_admission() {
    let from = json!([{"ipBlock": {"cidr": "10.0.0.0/28"}}]);
    for (values, sources) in [
        ("networkPolicy: {enabled: true}".to_owned(), None),
        (
            format!("networkPolicy: {{enabled: true, from: {from}}}"),
            Some(&from),
        ),
    ] {
        for (chart, objects) in both(&values) {
            let policy =
                &find(&objects, "NetworkPolicy", "webhook").expect("no NetworkPolicy")["spec"];
            assert_eq!(
                policy["policyTypes"],
                json!(["Ingress"]),
                "{chart}: it still sends what it likes"
            );
            let rules = policy["ingress"].as_array().unwrap();
            let ports = |rule: &Value| -> Vec<String> {
                let ports = rule["ports"].as_array().unwrap().iter();
                ports
                    .map(|port| port["port"].as_str().unwrap().to_owned())
                    .collect()
            };
            let all: Vec<_> = rules
                .iter()
                .map(|rule| (ports(rule), rule.get("from")))
                .collect();
            let open = ["metrics", "health"].map(str::to_owned).to_vec();
            assert_eq!(
                all,
                [(vec!["https".to_owned()], sources), (open, None)],
                "{chart}"
            );

            // A port is a name of the container's, and the labels are the pods' own: or it would be about nothing.
            let template = pod(&objects);
            let named = template["spec"]["containers"][0]["ports"]
                .as_array()
                .unwrap();
            for port in rules.iter().flat_map(ports) {
                assert!(
                    named.iter().any(|known| known["name"] == *port),
                    "{chart}: no port {port}"
                );
            }
            let chosen = policy["podSelector"]["matchLabels"].as_object().unwrap();
            assert!(!chosen.is_empty(), "{chart}");
            for (key, value) in chosen {
                assert_eq!(
                    &template["metadata"]["labels"][key], value,
                    "{chart}: {key}"
                );
            }
        }
    }
}
