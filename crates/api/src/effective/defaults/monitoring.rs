//! DCGM, exporters, monitors.

use super::{Builder, name, text};
use crate::{
    effective::{Component, Dcgm, DcgmExporter, NodeStatusExporter, ServiceMonitor},
    image::ImageKind,
    policy::{ClusterPolicySpec, DcgmExporterSpec, ServiceMonitorSpec, ServiceType, TrafficPolicy},
    units::ScrapeDuration,
};

impl Builder<'_> {
    pub(super) fn dcgm(&mut self, spec: &ClusterPolicySpec) -> Dcgm {
        Dcgm {
            operand: self.operand(
                Component::Dcgm,
                "dcgm",
                spec.dcgm.as_ref(),
                false,
                ImageKind::Dcgm,
            ),
        }
    }

    pub(super) fn node_status_exporter(&mut self, spec: &ClusterPolicySpec) -> NodeStatusExporter {
        let (component, section) = (
            Component::NodeStatusExporter,
            spec.node_status_exporter.as_ref(),
        );
        NodeStatusExporter {
            operand: self.operand(
                component,
                "nodeStatusExporter",
                section,
                false,
                ImageKind::NodeStatusExporter,
            ),
        }
    }

    pub(super) fn dcgm_exporter(&mut self, spec: &ClusterPolicySpec) -> DcgmExporter {
        let section = spec.dcgm_exporter.as_ref();
        let operand = self.operand(
            Component::DcgmExporter,
            "dcgmExporter",
            section,
            true,
            ImageKind::DcgmExporter,
        );
        let section = section.cloned().unwrap_or_default();
        let (service_type, internal_traffic_policy) = self.service(&section);
        let mapping = section.hpc_job_mapping.unwrap_or_default();
        let mapping_dir = text(
            mapping.directory.as_ref(),
            "/var/lib/dcgm-exporter/job-mapping",
        );
        DcgmExporter {
            operand,
            metrics_config: name(section.config.and_then(|c| c.name)),
            service_monitor: self.service_monitor(section.service_monitor),
            service_type,
            internal_traffic_policy,
            host_pid: section.host_pid.unwrap_or_else(|| is_shared(spec)),
            annotations: section.annotations.unwrap_or_default(),
            pod_annotations: section.pod_annotations.unwrap_or_default(),
            pod_labels: section.pod_labels.unwrap_or_default(),
            hpc_job_mapping_dir: mapping.enabled.unwrap_or(false).then_some(mapping_dir),
            enable_pod_labels: section.enable_pod_labels.unwrap_or(false),
            enable_pod_uid: section.enable_pod_uid.unwrap_or(false),
            pod_label_allowlist_regex: section.pod_label_allowlist_regex.unwrap_or_default(),
        }
    }

    fn service(&mut self, section: &DcgmExporterSpec) -> (ServiceType, Option<TrafficPolicy>) {
        let service = section.service.clone().unwrap_or_default();
        let service_type = match service.r#type {
            Some(ServiceType::Unrecognised) => {
                let message = "is not one of ClusterIP, NodePort, LoadBalancer: write one of them";
                self.problem(
                    Component::DcgmExporter,
                    "dcgmExporter.service.type",
                    message,
                );
                ServiceType::ClusterIp
            }
            Some(kind) => kind,
            None => ServiceType::ClusterIp,
        };
        let policy = service.internal_traffic_policy;
        if policy == Some(TrafficPolicy::Unrecognised) {
            let message = "is neither Cluster nor Local: write one of them";
            self.problem(
                Component::DcgmExporter,
                "dcgmExporter.service.internalTrafficPolicy",
                message,
            );
        }
        (
            service_type,
            policy.filter(|p| *p != TrafficPolicy::Unrecognised),
        )
    }

    fn service_monitor(&mut self, section: Option<ServiceMonitorSpec>) -> ServiceMonitor {
        let asked_for = section.is_some();
        let section = section.unwrap_or_default();
        let interval = self.duration(
            "interval",
            section.interval.as_deref(),
            ScrapeDuration::from_secs(15),
        );
        let usual = ScrapeDuration::from_secs(10);
        let default_timeout = if interval.as_duration() < usual.as_duration() {
            interval.clone()
        } else {
            usual
        };
        if interval.as_duration() < std::time::Duration::from_secs(1) {
            let message = format!("is `{interval}`, less than a second: write 1s or more");
            self.problem(
                Component::DcgmExporter,
                "dcgmExporter.serviceMonitor.interval",
                message,
            );
        }
        let mut scrape_timeout = self.duration(
            "scrapeTimeout",
            section.scrape_timeout.as_deref(),
            default_timeout,
        );
        if scrape_timeout.as_duration() > interval.as_duration() {
            let message = format!(
                "is `{scrape_timeout}`, longer than the interval of {interval}, which Prometheus refuses: make it shorter"
            );
            self.problem(
                Component::DcgmExporter,
                "dcgmExporter.serviceMonitor.scrapeTimeout",
                message,
            );
            scrape_timeout = interval.clone();
        }
        ServiceMonitor {
            enabled: section.enabled.unwrap_or(asked_for),
            interval,
            scrape_timeout,
            honor_labels: section.honor_labels.unwrap_or(false),
            additional_labels: section.additional_labels.unwrap_or_default(),
            relabelings: section.relabelings.unwrap_or_default(),
            metric_relabelings: section.metric_relabelings.unwrap_or_default(),
        }
    }

    fn duration(
        &mut self,
        field: &str,
        given: Option<&str>,
        default: ScrapeDuration,
    ) -> ScrapeDuration {
        let Some(given) = given.filter(|text| !text.is_empty()) else {
            return default;
        };
        match given.parse::<ScrapeDuration>() {
            Ok(value) if !value.as_duration().is_zero() => value,
            Ok(_) => self.bad_duration(
                field,
                format!("is `{given}`: write a duration greater than zero, such as 15s"),
                default,
            ),
            Err(error) => self.bad_duration(field, error.to_string(), default),
        }
    }

    fn bad_duration(
        &mut self,
        field: &str,
        message: String,
        default: ScrapeDuration,
    ) -> ScrapeDuration {
        self.problem(
            Component::DcgmExporter,
            &format!("dcgmExporter.serviceMonitor.{field}"),
            message,
        );
        default
    }
}

/// Whether the policy shares cards inline. (What a user's ConfigMap says is not known here.)
fn is_shared(spec: &ClusterPolicySpec) -> bool {
    let config = spec.device_plugin.as_ref().and_then(|p| p.config.as_ref());
    let sharing = config.and_then(|c| c.sharing.as_ref());
    let slicing = sharing
        .and_then(|s| s.time_slicing.as_ref())
        .and_then(|s| s.resources.as_ref());
    let mps = sharing
        .and_then(|s| s.mps.as_ref())
        .and_then(|s| s.resources.as_ref());
    let lists = slicing.into_iter().chain(mps);
    lists.flatten().any(|resource| resource.replicas > 1)
}
