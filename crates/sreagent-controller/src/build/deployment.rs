//! The agent's Deployment: one replica, replaced only when it is gone, because two must not act.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    LocalObjectReference, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm,
    ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, PreferredSchedulingTerm,
    Probe, ResourceRequirements, SeccompProfile, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use tessera_api::names::label;
use tessera_api::policy::Resources;

use super::{APP, INSTANCE, SREAGENT, labels, meta};
use crate::NAME;
use crate::args::Settings;
use crate::validate::Validated;

const METRICS_PORT: i32 = 8080;
const HEALTH_PORT: i32 = 8081;
/// As all of our pods: an account without a name on any host.
const USER: i64 = 65532;
/// Longest between two looks without a reason; above the longest `monitorInterval`, which sets the pace.
const RESYNC: &str = "2h";

/// The Deployment.
pub fn deployment(agent: &Validated, settings: &Settings) -> Deployment {
    let selector = BTreeMap::from([(label::APP, APP), (INSTANCE, agent.agent.as_str())].map(owned));
    let mut metadata = meta(agent, Some(&agent.namespace), &agent.agent);
    metadata.name = Some(agent.agent.clone());
    let mut pod_labels = labels(agent);
    pod_labels.extend(
        [
            (label::MANAGED_BY, NAME),
            (label::PART_OF, label::PART_OF_TESSERA),
        ]
        .map(owned),
    );
    let sreagent = format!("{}/{}", agent.namespace, agent.name);
    let pod_annotations = [
        (SREAGENT, sreagent.as_str()),
        ("kubectl.kubernetes.io/default-container", APP),
    ]
    .map(owned);
    Deployment {
        metadata,
        spec: Some(DeploymentSpec {
            replicas: Some(1),
            revision_history_limit: Some(2),
            strategy: Some(DeploymentStrategy {
                type_: Some("Recreate".to_owned()),
                rolling_update: None,
            }),
            selector: LabelSelector {
                match_labels: Some(selector),
                match_expressions: None,
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod_labels),
                    annotations: Some(pod_annotations.into()),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod(agent, settings)),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn pod(agent: &Validated, settings: &Settings) -> PodSpec {
    let secrets = settings.pull_secrets.iter();
    let secrets: Vec<LocalObjectReference> = secrets
        .map(|name| LocalObjectReference { name: name.clone() })
        .collect();
    PodSpec {
        image_pull_secrets: (!secrets.is_empty()).then_some(secrets),
        service_account_name: Some(agent.agent.clone()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        affinity: Some(away_from_gpus()),
        tolerations: (!agent.tolerations.is_empty()).then(|| agent.tolerations.clone()),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(30),
        containers: vec![container(agent, settings)],
        ..PodSpec::default()
    }
}

/// A sick node should not take its own watcher along.
fn away_from_gpus() -> Affinity {
    let term = NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: label::GPU_PRESENT.to_owned(),
            operator: "DoesNotExist".to_owned(),
            values: None,
        }]),
        match_fields: None,
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                PreferredSchedulingTerm {
                    weight: 100,
                    preference: term,
                },
            ]),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    }
}

fn container(agent: &Validated, settings: &Settings) -> Container {
    let mut args = vec![
        format!("--sreagent-name={}", agent.name),
        format!("--sreagent-namespace={}", agent.namespace),
        "--bind-address=$(POD_IP)".to_owned(),
        format!("--metrics-port={METRICS_PORT}"),
        format!("--health-port={HEALTH_PORT}"),
        format!("--reconcile-interval={RESYNC}"),
        format!("--log-format={}", settings.log_format),
        format!("--log-level={}", settings.log_level),
    ];
    args.extend(settings.extra_args.iter().cloned());
    let env = [
        ("NODE_NAME", "spec.nodeName"),
        ("POD_IP", "status.podIP"),
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
    ];
    Container {
        name: APP.to_owned(),
        image: Some(agent.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        args: Some(args),
        env: Some(env.into_iter().map(field_env).collect()),
        ports: Some(vec![
            port("metrics", METRICS_PORT),
            port("health", HEALTH_PORT),
        ]),
        liveness_probe: Some(probe("/healthz", 15)),
        readiness_probe: Some(probe("/readyz", 5)),
        resources: Some(agent.resources.clone()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: None,
            }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn field_env((name, path): (&str, &str)) -> EnvVar {
    let field = ObjectFieldSelector {
        api_version: Some("v1".to_owned()),
        field_path: path.to_owned(),
    };
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(field),
            ..EnvVarSource::default()
        }),
    }
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn probe(path: &str, period: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("health".to_owned()),
            scheme: Some("HTTP".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(3),
        failure_threshold: Some(3),
        success_threshold: Some(1),
        ..Probe::default()
    }
}

/// The user's, else enough for some thousand GPUs.
pub fn resources(asked: Option<Resources>) -> ResourceRequirements {
    let quantity = |text: &str| Quantity(text.to_owned());
    match asked {
        Some(asked) => ResourceRequirements {
            limits: asked.limits,
            requests: asked.requests,
            claims: None,
        },
        None => ResourceRequirements {
            limits: Some(BTreeMap::from([("memory".to_owned(), quantity("256Mi"))])),
            requests: Some(BTreeMap::from([
                ("cpu".to_owned(), quantity("20m")),
                ("memory".to_owned(), quantity("64Mi")),
            ])),
            claims: None,
        },
    }
}
