//! The DCGM exporter: metrics ConfigMap, DaemonSet, Services.
//!
//! Sources: NVIDIA/gpu-operator v26.7.0, `assets/state-dcgm-exporter` and `controllers/object_controls.go` (TransformDCGMExporter);
//! environment names: NVIDIA/dcgm-exporter `pkg/cmd/app.go`.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{
            ConfigMap, Container, ContainerPort, EnvVar, HTTPGetAction, Probe,
            ResourceRequirements, Service, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use tessera_api::{
    names::{app, config_map, label, service, service_account},
    policy::TrafficPolicy,
};
use tessera_runtime::template::{self, Common, Operand, env, env_field};

use super::{component, engine};
use crate::validate::{Exporter, Validated};

/// Port of the metrics.
const PORT: i32 = 9400;
/// Name of the port of Service `nvidia-dcgm-exporter`.
pub(super) const NVIDIA_PORT_NAME: &str = "gpu-metrics";
/// Name of the port of Service `dcgm-exporter`, and of the container.
const PORT_NAME: &str = "metrics";
/// Memory limit where the policy gives no resources: that of the exporter's own chart since January 2026; 256Mi was not enough for
/// eight cards.
pub(crate) const DEFAULT_MEMORY_LIMIT: &str = "512Mi";
/// Where the metrics file is: beside the image's own files, which a user's `DCGM_EXPORTER_COLLECTORS` may name.
const METRICS_DIR: &str = "/etc/dcgm-exporter-metrics";
/// Where the kubelet tells which pod uses which card.
const POD_RESOURCES: &str = "pod-resources";

pub(super) fn metrics(common: &Common, exporter: &Exporter) -> ConfigMap {
    let mut metadata = super::meta(
        common,
        config_map::DCGM_EXPORTER_METRICS,
        app::DCGM_EXPORTER,
        component::EXPORTER,
    );
    metadata.annotations = Some(exporter.metrics.annotations());
    ConfigMap {
        metadata,
        data: Some(BTreeMap::from([(
            config_map::DCGM_METRICS_KEY.to_owned(),
            exporter.metrics.csv.clone(),
        )])),
        ..ConfigMap::default()
    }
}

/// One for users' own monitors, one with the names of NVIDIA's chart. Only the latter takes the policy's type and is found by scrape
/// annotations: two would mean two load balancers, and every metric twice.
pub(super) fn services(common: &Common, exporter: &Exporter) -> [Service; 2] {
    let own = super::meta(
        common,
        service::DCGM_EXPORTER,
        service::DCGM_EXPORTER,
        component::EXPORTER,
    );
    let mut nvidia = super::meta(
        common,
        service::NVIDIA_DCGM_EXPORTER,
        app::DCGM_EXPORTER,
        component::EXPORTER,
    );
    nvidia.annotations = Some(super::scrape_annotations(PORT));
    let mut services = [
        super::service(own, app::DCGM_EXPORTER, PORT_NAME, PORT),
        super::service(nvidia, app::DCGM_EXPORTER, NVIDIA_PORT_NAME, PORT),
    ];
    let policy = exporter
        .policy
        .internal_traffic_policy
        .unwrap_or(TrafficPolicy::Cluster);
    for spec in services
        .iter_mut()
        .filter_map(|service| service.spec.as_mut())
    {
        spec.internal_traffic_policy = Some(policy.as_str().to_owned());
    }
    if let Some(spec) = services.last_mut().and_then(|nvidia| nvidia.spec.as_mut()) {
        spec.type_ = Some(exporter.policy.service_type.as_str().to_owned());
    }
    services
}

pub(super) fn daemon_set(wanted: &Validated, exporter: &Exporter) -> DaemonSet {
    let policy = &exporter.policy;
    let mut operand = Operand {
        name: app::DCGM_EXPORTER.to_owned(),
        app: app::DCGM_EXPORTER.to_owned(),
        component: component::EXPORTER.to_owned(),
        service_account: service_account::DCGM_EXPORTER.to_owned(),
        mount_token: Some(exporter.reads_pods),
        node_selector: super::nodes(label::DEPLOY_DCGM_EXPORTER),
        uses_gpu: true,
        nri_containers: vec![app::DCGM_EXPORTER.to_owned()],
        host_network: policy.operand.host_network,
        host_pid: policy.host_pid,
        pull_secrets: policy.operand.image_pull_secrets.clone(),
        containers: vec![container(exporter)],
        volumes: volumes(wanted, exporter),
        pod_labels: policy.pod_labels.clone(),
        pod_annotations: policy.pod_annotations.clone(),
        annotations: policy.annotations.clone(),
        config_hash: Some(template::config_hash([(
            config_map::DCGM_METRICS_KEY,
            exporter.metrics.csv.as_str(),
        )])),
        ..Operand::default()
    };
    super::wait_for_toolkit(&mut operand, wanted.wait_for_toolkit.as_ref());
    template::daemon_set(&wanted.common, operand)
}

fn container(exporter: &Exporter) -> Container {
    let operand = &exporter.policy.operand;
    let mut container = template::main_container(app::DCGM_EXPORTER, operand);
    container.resources = Some(operand.resources.clone().unwrap_or_else(default_resources));
    container.env = template::merge_env(environment(exporter), &operand.env);
    container.ports = Some(vec![ContainerPort {
        name: Some(PORT_NAME.to_owned()),
        container_port: PORT,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }]);
    let probe = || Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/health".to_owned()),
            port: IntOrString::Int(PORT),
            ..HTTPGetAction::default()
        }),
        // The first collection takes that long on nodes with eight cards.
        initial_delay_seconds: Some(45),
        ..Probe::default()
    };
    container.liveness_probe = Some(Probe {
        period_seconds: Some(5),
        ..probe()
    });
    container.readiness_probe = Some(probe());
    container.volume_mounts = Some(mounts(exporter));
    container
}

/// The exporter's own chart has these amounts.
fn default_resources() -> ResourceRequirements {
    let amounts = |cpu: &str, memory: &str| {
        let amounts = [("cpu", cpu), ("memory", memory)];
        Some(
            amounts
                .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
                .into(),
        )
    };
    ResourceRequirements {
        requests: amounts("100m", "128Mi"),
        limits: amounts("200m", DEFAULT_MEMORY_LIMIT),
        claims: None,
    }
}

fn environment(exporter: &Exporter) -> Vec<EnvVar> {
    let policy = &exporter.policy;
    let mut list = vec![
        env(
            "DCGM_EXPORTER_COLLECTORS",
            format!("{METRICS_DIR}/{}", config_map::DCGM_METRICS_KEY),
        ),
        // A scrape between two collections would read the same values again.
        env(
            "DCGM_EXPORTER_INTERVAL",
            policy
                .service_monitor
                .interval
                .as_duration()
                .as_millis()
                .to_string(),
        ),
        env("DCGM_EXPORTER_KUBERNETES", "true"),
        env("DCGM_EXPORTER_LISTEN", format!(":{PORT}")),
        env_field("NODE_NAME", "spec.nodeName"),
    ];
    if exporter.remote_engine {
        list.push(env(
            "DCGM_REMOTE_HOSTENGINE_INFO",
            format!("{}:{}", service::DCGM, engine::PORT),
        ));
    }
    if exporter.virtual_gpus {
        list.push(env("KUBERNETES_VIRTUAL_GPUS", "true"));
    }
    if !exporter.resource_names.is_empty() {
        list.push(env(
            "NVIDIA_RESOURCE_NAMES",
            exporter.resource_names.join(","),
        ));
    }
    if policy.enable_pod_labels {
        list.push(env("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "true"));
    }
    if policy.enable_pod_uid {
        list.push(env("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "true"));
    }
    if policy.enable_pod_labels && !policy.pod_label_allowlist_regex.is_empty() {
        list.push(env(
            "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX",
            policy.pod_label_allowlist_regex.join(","),
        ));
    }
    if let Some(directory) = &policy.hpc_job_mapping_dir {
        list.push(env("DCGM_HPC_JOB_MAPPING_DIR", directory.clone()));
    }
    list
}

fn mounts(exporter: &Exporter) -> Vec<VolumeMount> {
    let mut mounts = vec![
        // A directory: a single file would never follow changes of the ConfigMap.
        template::mount_ro("metrics", METRICS_DIR),
        template::mount_ro(POD_RESOURCES, "/var/lib/kubelet/pod-resources"),
    ];
    if let Some(directory) = &exporter.policy.hpc_job_mapping_dir {
        mounts.push(template::mount_ro("hpc-job-mapping", directory));
    }
    mounts
}

fn volumes(wanted: &Validated, exporter: &Exporter) -> Vec<Volume> {
    let kubelet = wanted.host_paths.kubelet_root_dir.trim_end_matches('/');
    let mut volumes = vec![
        template::config_map("metrics", config_map::DCGM_EXPORTER_METRICS, &[], None),
        template::host_path(POD_RESOURCES, &format!("{kubelet}/{POD_RESOURCES}"), ""),
    ];
    if let Some(directory) = &exporter.policy.hpc_job_mapping_dir {
        volumes.push(template::host_path(
            "hpc-job-mapping",
            directory,
            "DirectoryOrCreate",
        ));
    }
    volumes
}
