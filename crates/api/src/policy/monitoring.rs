//! DCGM, exporters, monitors.

use std::collections::BTreeMap;

use super::{
    common::ConfigMapName,
    fields::{choice, operand, section},
};

operand! {
    /// DCGM host engine as a DaemonSet of its own; the exporter then uses it instead of its embedded one.
    /// Default off: it is there on request (NVIDIA's chart turns it off too).
    DcgmSpec {
        /// Deprecated by NVIDIA. Not supported by Tessera: reported in condition Supported.
        host_port: i32,
        /// Short form of `dcgmExporter`; a field given in both must be equal.
        exporter: DcgmExporterSpec,
    }
}

operand! {
    /// DCGM exporter: Prometheus metrics of the cards.
    #[x_kube(validation = crate::policy::rules::scrape_timeout())]
    DcgmExporterSpec {
        /// Metrics to collect: a ConfigMap with key dcgm-metrics.csv. Default: a built-in list.
        config: ConfigMapName,
        /// The ServiceMonitor for the Prometheus operator.
        service_monitor: ServiceMonitorSpec,
        /// The Service.
        service: ServiceSpec,
        /// See processes of other containers: needed to attribute metrics to containers that share a card.
        /// Default true while cards are shared, else false.
        #[serde(rename = "hostPID")]
        host_pid: bool,
        /// Annotations of the DaemonSet.
        annotations: BTreeMap<String, String>,
        /// Annotations of its pods.
        pod_annotations: BTreeMap<String, String>,
        /// Labels of its pods.
        pod_labels: BTreeMap<String, String>,
        /// Attribution of metrics to jobs of a batch system.
        hpc_job_mapping: HpcJobMappingSpec,
        /// Labels of the using pod on metrics. Default false.
        enable_pod_labels: bool,
        /// UID of the using pod on metrics. Default false.
        #[serde(rename = "enablePodUID")]
        enable_pod_uid: bool,
        /// Only pod labels that match one of these expressions.
        pod_label_allowlist_regex: Vec<String>,
    }
}

section! {
    /// A ServiceMonitor, made as long as its CRD is installed.
    ServiceMonitorSpec {
        /// Whether one is made. Default true when this section is there, else false.
        enabled: bool,
        /// How often metrics are scraped, e.g. 15s. Default 15s.
        #[schemars(length(max = 32))]
        #[x_kube(validation = crate::policy::rules::duration("interval"))]
        interval: String,
        /// When a scrape has failed; not longer than the interval. Default 10s, or the interval if that is shorter.
        #[schemars(length(max = 32))]
        #[x_kube(validation = crate::policy::rules::duration("scrapeTimeout"))]
        scrape_timeout: String,
        /// Keep the exporter's labels where they collide with the target's. Default false.
        honor_labels: bool,
        /// Labels of the ServiceMonitor, such as the one that a Prometheus selects.
        additional_labels: BTreeMap<String, String>,
        /// Rewriting of targets before the scrape.
        relabelings: Vec<RelabelConfig>,
        /// Rewriting of metrics after the scrape.
        metric_relabelings: Vec<RelabelConfig>,
    }
}

section! {
    /// One step of rewriting (RelabelConfig of the Prometheus operator).
    RelabelConfig {
        /// Labels whose values are joined.
        source_labels: Vec<String>,
        /// Between the joined values. Default `;`.
        separator: String,
        /// Label that is written.
        target_label: String,
        /// What the joined values must match. Default `(.*)`.
        regex: String,
        /// For action hashmod.
        modulus: u64,
        /// What is written. Default `$1`.
        replacement: String,
        /// replace, keep, drop, hashmod, labelmap, labeldrop, labelkeep, lowercase, uppercase, keepequal, dropequal. Default replace.
        action: String,
    }
}

choice! {
    /// Type of a Service.
    ServiceType {
        /// Inside the cluster.
        ClusterIp = "ClusterIP",
        /// Also on a port of every node.
        NodePort = "NodePort",
        /// Also behind a load balancer.
        LoadBalancer = "LoadBalancer",
    }
}

choice! {
    /// Which endpoints clients inside the cluster reach.
    TrafficPolicy {
        /// All.
        Cluster = "Cluster",
        /// Those on the client's node.
        Local = "Local",
    }
}

section! {
    /// The exporter's Service.
    ServiceSpec {
        /// Default ClusterIP.
        r#type: ServiceType,
        /// Default Cluster.
        internal_traffic_policy: TrafficPolicy,
    }
}

section! {
    /// Attribution of metrics to jobs of a batch system.
    HpcJobMappingSpec {
        /// Default false.
        enabled: bool,
        /// Directory on the host with a file a job. Default /var/lib/dcgm-exporter/job-mapping.
        #[schemars(length(max = 1024))]
        directory: String,
    }
}

operand! {
    /// Node status exporter: metrics about the operands of a node. Default off.
    NodeStatusExporterSpec {}
}
