//! Every default, and every check of a merged policy. Sources: NVIDIA/gpu-operator v26.7.0's CRD and chart, and DESIGN where it decides
//! differently (noted at the field in [`crate::policy`]).

mod driver;
mod monitoring;
mod plugin;
mod unsupported;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ResourceRequirements, Toleration};

use super::{
    Cdi, Component, Daemonsets, EffectivePolicy, HostPaths, Operand, Problem, Toolkit,
    UpdateStrategy, Validator,
};
use crate::{
    image::{DefaultImages, ImageKind, resolve_image},
    names::{self, runtime_class},
    policy::{
        ClusterPolicySpec, CommonFields, EnvVar, OperandFields, PullPolicy, UpdateStrategyType,
        ValidatorCheckSpec,
    },
    quote::quoted,
    units::{IntOrPercent, parse_quantity},
};

/// Collects what cannot be used while a policy is built.
pub(super) struct Builder<'a> {
    images: &'a DefaultImages,
    problems: Vec<Problem>,
}

/// Fills every default into a merged spec. `problems` holds what was found before.
pub(super) fn apply(
    spec: &ClusterPolicySpec,
    images: &DefaultImages,
    problems: Vec<Problem>,
) -> EffectivePolicy {
    let mut builder = Builder { images, problems };
    let node_selector = spec.node_selector.clone().unwrap_or_default();
    let mut policy = EffectivePolicy {
        runtime_class: text(
            spec.operator
                .as_ref()
                .and_then(|o| o.runtime_class.as_ref()),
            runtime_class::NVIDIA,
        ),
        daemonsets: builder.daemonsets(spec),
        host_paths: host_paths(spec),
        driver: builder.driver(spec),
        toolkit: builder.toolkit(spec),
        cdi: builder.cdi(spec),
        validator: builder.validator(spec),
        device_plugin: builder.device_plugin(spec),
        gfd: builder.gfd(spec),
        mig: builder.mig(spec),
        mig_manager: builder.mig_manager(spec),
        dcgm: builder.dcgm(spec),
        dcgm_exporter: builder.dcgm_exporter(spec),
        node_status_exporter: builder.node_status_exporter(spec),
        unsupported: unsupported::paths(spec),
        problems: Vec::new(),
        node_selector,
    };
    builder.problems.sort();
    builder.problems.dedup();
    policy.problems = builder.problems;
    mark_invalid(&mut policy);
    policy
}

/// Puts each component's problems on its operand.
fn mark_invalid(policy: &mut EffectivePolicy) {
    let problems = policy.problems.clone();
    let operands = [
        (Component::Driver, &mut policy.driver.operand),
        (Component::Toolkit, &mut policy.toolkit.operand),
        (Component::Validator, &mut policy.validator.operand),
        (Component::DevicePlugin, &mut policy.device_plugin.operand),
        (Component::Gfd, &mut policy.gfd.operand),
        (Component::MigManager, &mut policy.mig_manager.operand),
        (Component::Dcgm, &mut policy.dcgm.operand),
        (Component::DcgmExporter, &mut policy.dcgm_exporter.operand),
        (
            Component::NodeStatusExporter,
            &mut policy.node_status_exporter.operand,
        ),
    ];
    for (component, operand) in operands {
        let own: Vec<String> = problems
            .iter()
            .filter(|p| p.component == component)
            .map(ToString::to_string)
            .collect();
        operand.invalid = (!own.is_empty()).then(|| own.join("; "));
    }
}

impl Builder<'_> {
    fn problem(&mut self, component: Component, path: &str, message: impl Into<String>) {
        self.problems.push(Problem {
            component,
            path: path.to_owned(),
            message: message.into(),
        });
    }

    /// The shared fields of an operand; `path` is its section's name.
    fn operand(
        &mut self,
        component: Component,
        path: &str,
        section: Option<&impl OperandFields>,
        enabled_by_default: bool,
        image: ImageKind,
    ) -> Operand {
        let common = section.map(OperandFields::common).unwrap_or_default();
        let default = self.images.get(image);
        let image = resolve_image(common.repository, common.image, common.version, &default)
            .unwrap_or_else(|error| {
                self.problem(component, &format!("{path}.image"), error.to_string());
                default
            });
        Operand {
            enabled: common.enabled.unwrap_or(enabled_by_default),
            invalid: None,
            image,
            image_pull_policy: self.pull_policy(component, path, common.image_pull_policy),
            image_pull_secrets: common.image_pull_secrets.to_vec(),
            resources: self.resources(component, path, &common),
            args: common.args.to_vec(),
            env: env(common.env),
            host_network: common.host_network.unwrap_or(false),
        }
    }

    fn pull_policy(
        &mut self,
        component: Component,
        path: &str,
        given: Option<PullPolicy>,
    ) -> PullPolicy {
        match given {
            Some(PullPolicy::Unrecognised) => {
                let message = "is not one of Always, IfNotPresent, Never: write one of them";
                self.problem(component, &format!("{path}.imagePullPolicy"), message);
                PullPolicy::IfNotPresent
            }
            Some(policy) => policy,
            None => PullPolicy::IfNotPresent,
        }
    }

    fn resources(
        &mut self,
        component: Component,
        path: &str,
        common: &CommonFields<'_>,
    ) -> Option<ResourceRequirements> {
        let given = common.resources?;
        let amounts = given.limits.iter().chain(&given.requests).flatten();
        let bad: Vec<String> = amounts
            .filter_map(|(name, q)| {
                Some(format!("{}: {}", quoted(name), parse_quantity(&q.0).err()?))
            })
            .collect();
        for message in bad {
            self.problem(component, &format!("{path}.resources"), message);
        }
        Some(ResourceRequirements {
            limits: given.limits.clone(),
            requests: given.requests.clone(),
            claims: None,
        })
    }

    fn daemonsets(&mut self, spec: &ClusterPolicySpec) -> Daemonsets {
        let common = spec.daemonsets.clone().unwrap_or_default();
        let max_unavailable = common.rolling_update.and_then(|r| r.max_unavailable);
        let max_unavailable = match max_unavailable.as_deref().map(str::parse::<IntOrPercent>) {
            None => IntOrPercent::Int(1),
            Some(Ok(value)) => value,
            Some(Err(error)) => {
                let message = format!("{error}; 1 is used");
                self.problem(
                    Component::Policy,
                    "daemonsets.rollingUpdate.maxUnavailable",
                    message,
                );
                IntOrPercent::Int(1)
            }
        };
        let update_strategy = match common.update_strategy {
            Some(UpdateStrategyType::OnDelete) => UpdateStrategy::OnDelete,
            Some(UpdateStrategyType::Unrecognised) => {
                self.problem(
                    Component::Policy,
                    "daemonsets.updateStrategy",
                    "is neither RollingUpdate nor OnDelete; RollingUpdate is used",
                );
                UpdateStrategy::RollingUpdate { max_unavailable }
            }
            Some(UpdateStrategyType::RollingUpdate) | None => {
                UpdateStrategy::RollingUpdate { max_unavailable }
            }
        };
        Daemonsets {
            labels: common.labels.unwrap_or_default(),
            annotations: common.annotations.unwrap_or_default(),
            tolerations: tolerations(spec),
            priority_class_name: text(common.priority_class_name.as_ref(), "system-node-critical"),
            update_strategy,
            pod_security_context: common.pod_security_context,
        }
    }

    fn toolkit(&mut self, spec: &ClusterPolicySpec) -> Toolkit {
        let section = spec.toolkit.as_ref();
        Toolkit {
            operand: self.operand(
                Component::Toolkit,
                "toolkit",
                section,
                true,
                ImageKind::Toolkit,
            ),
            install_dir: text(
                section.and_then(|s| s.install_dir.as_ref()),
                "/usr/local/nvidia",
            ),
        }
    }

    fn cdi(&mut self, spec: &ClusterPolicySpec) -> Cdi {
        let section = spec.cdi.clone().unwrap_or_default();
        let enabled = section.enabled.unwrap_or(true);
        let nri = section.nri_plugin_enabled.unwrap_or(false);
        if nri && !enabled {
            let message = "the NRI plugin hands out devices by CDI, and cdi.enabled is false: set it to true, or turn the plugin off";
            self.problem(Component::Toolkit, "cdi.nriPluginEnabled", message);
        }
        Cdi {
            enabled,
            nri: nri && enabled,
        }
    }

    fn validator(&mut self, spec: &ClusterPolicySpec) -> Validator {
        let section = spec.validator.clone().unwrap_or_default();
        let check = |check: Option<ValidatorCheckSpec>| {
            env(check.and_then(|c| c.env).as_deref().unwrap_or_default())
        };
        Validator {
            operand: self.operand(
                Component::Validator,
                "validator",
                Some(&section),
                true,
                ImageKind::Validator,
            ),
            driver_env: check(section.driver),
            toolkit_env: check(section.toolkit),
            cuda_env: check(section.cuda),
            plugin_env: check(section.plugin),
        }
    }
}

fn host_paths(spec: &ClusterPolicySpec) -> HostPaths {
    let section = spec.host_paths.clone().unwrap_or_default();
    HostPaths {
        root_fs: text(section.root_fs.as_ref(), "/"),
        driver_install_dir: text(section.driver_install_dir.as_ref(), "/run/nvidia/driver"),
        kubelet_root_dir: text(section.kubelet_root_dir.as_ref(), "/var/lib/kubelet"),
    }
}

/// The tolerations of every operand.
///
/// `daemonsets.tolerations` (default: `nvidia.com/gpu` Exists NoSchedule) and `driver.tolerations` are joined. A pool of GPU nodes that
/// is selected by a label is commonly closed to others by a taint with the same key and value; so for each entry of `nodeSelector` a
/// taint `key=value`, of whatever effect, is tolerated.
fn tolerations(spec: &ClusterPolicySpec) -> Vec<Toleration> {
    let gpu_taint = Toleration {
        key: Some(names::GPU_TAINT.into()),
        operator: Some("Exists".into()),
        effect: Some("NoSchedule".into()),
        ..Toleration::default()
    };
    let common = spec
        .daemonsets
        .as_ref()
        .and_then(|d| d.tolerations.clone())
        .unwrap_or_else(|| vec![gpu_taint]);
    let driver = spec
        .driver
        .as_ref()
        .and_then(|d| d.tolerations.clone())
        .unwrap_or_default();
    let pool = spec
        .node_selector
        .iter()
        .flatten()
        .map(|(key, value)| Toleration {
            key: Some(key.clone()),
            operator: Some("Equal".into()),
            value: Some(value.clone()),
            ..Toleration::default()
        });
    let mut all: Vec<Toleration> = common
        .into_iter()
        .chain(driver)
        .chain(pool)
        .map(normal)
        .collect();
    let order = |t: &Toleration| {
        (
            t.key.clone(),
            t.operator.clone(),
            t.value.clone(),
            t.effect.clone(),
            t.toleration_seconds,
        )
    };
    all.sort_by_key(order);
    all.dedup();
    all
}

/// Equal spelt out, empty fields left out: so that equal tolerations are equal.
fn normal(toleration: Toleration) -> Toleration {
    let filled = |field: Option<String>| field.filter(|text| !text.is_empty());
    let operator = filled(toleration.operator).or_else(|| Some("Equal".into()));
    Toleration {
        key: filled(toleration.key),
        operator,
        value: filled(toleration.value),
        effect: filled(toleration.effect),
        toleration_seconds: toleration.toleration_seconds,
    }
}

/// A text, or its default when absent or empty.
fn text(given: Option<&String>, default: &str) -> String {
    given
        .filter(|t| !t.is_empty())
        .cloned()
        .unwrap_or_else(|| default.to_owned())
}

/// A name, absent when empty.
fn name(given: Option<String>) -> Option<String> {
    given.filter(|t| !t.is_empty())
}

/// Environment by name; of two equal names the last wins, as in a container.
fn env(list: &[EnvVar]) -> BTreeMap<String, String> {
    list.iter()
        .map(|var| (var.name.clone(), var.value.clone()))
        .collect()
}
