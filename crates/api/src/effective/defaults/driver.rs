//! Driver.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Builder, env, name, text};
use crate::{
    effective::{
        Component, Drain, Driver, DriverManager, DriverSidecar, Licensing, PodDeletion, ProbeTimes,
        Rdma, UpgradePolicy,
    },
    image::{ImageKind, resolve_image},
    policy::{
        ClusterPolicySpec, DriverManagerSpec, DriverSidecarSpec, KernelModuleType, Probe,
        UpgradePolicySpec,
    },
    units::IntOrPercent,
};

const STARTUP: ProbeTimes = ProbeTimes {
    initial_delay_seconds: 60,
    timeout_seconds: 60,
    period_seconds: 10,
    success_threshold: 1,
    failure_threshold: 120,
};

/// Kubernetes' own defaults.
const PROBE: ProbeTimes = ProbeTimes {
    initial_delay_seconds: 0,
    timeout_seconds: 1,
    period_seconds: 10,
    success_threshold: 1,
    failure_threshold: 3,
};

impl Builder<'_> {
    pub(super) fn driver(&mut self, spec: &ClusterPolicySpec) -> Driver {
        let section = spec.driver.as_ref();
        let precompiled = section.and_then(|s| s.use_precompiled).unwrap_or(false);
        let gds = self.sidecar("gds", spec.gds.as_ref(), ImageKind::Gds, precompiled);
        let gdrcopy = self.sidecar(
            "gdrcopy",
            spec.gdrcopy.as_ref(),
            ImageKind::GdrCopy,
            precompiled,
        );
        let operand = self.operand(
            Component::Driver,
            "driver",
            section,
            true,
            ImageKind::Driver,
        );
        let section = section.cloned().unwrap_or_default();
        Driver {
            operand,
            use_precompiled: precompiled,
            kernel_module_type: self.kernel_module_type(section.kernel_module_type),
            startup_probe: section
                .startup_probe
                .as_ref()
                .map_or(STARTUP, |p| times(p, STARTUP)),
            liveness_probe: section.liveness_probe.as_ref().map(|p| times(p, PROBE)),
            readiness_probe: section.readiness_probe.as_ref().map(|p| times(p, PROBE)),
            rdma: Rdma {
                enabled: section
                    .rdma
                    .as_ref()
                    .and_then(|r| r.enabled)
                    .unwrap_or(false),
                use_host_mofed: section
                    .rdma
                    .as_ref()
                    .and_then(|r| r.use_host_mofed)
                    .unwrap_or(false),
            },
            upgrade: self.upgrade(section.upgrade_policy.unwrap_or_default()),
            manager: self.manager(section.manager.unwrap_or_default()),
            gds,
            gdrcopy,
            repo_config: name(section.repo_config.and_then(|c| c.config_map_name)),
            cert_config: name(section.cert_config.and_then(|c| c.name)),
            licensing: section.licensing_config.map(|l| Licensing {
                secret_name: name(l.secret_name),
                config_map_name: name(l.config_map_name),
                nls_enabled: l.nls_enabled.unwrap_or(true),
            }),
            virtual_topology: name(section.virtual_topology.and_then(|c| c.config)),
            kernel_module_config: name(section.kernel_module_config.and_then(|c| c.name)),
            secret_env: name(section.secret_env),
        }
    }

    fn kernel_module_type(&mut self, given: Option<KernelModuleType>) -> KernelModuleType {
        match given {
            Some(KernelModuleType::Unrecognised) => {
                let message = "is not one of auto, open, proprietary: write one of them";
                self.problem(Component::Driver, "driver.kernelModuleType", message);
                KernelModuleType::Auto
            }
            Some(kind) => kind,
            None => KernelModuleType::Auto,
        }
    }

    fn upgrade(&mut self, section: UpgradePolicySpec) -> UpgradePolicy {
        let given = section
            .max_unavailable
            .unwrap_or_else(|| IntOrString::String("25%".into()));
        let max_unavailable = IntOrPercent::try_from(&given).unwrap_or_else(|error| {
            self.problem(
                Component::Driver,
                "driver.upgradePolicy.maxUnavailable",
                error.to_string(),
            );
            IntOrPercent::Percent(25)
        });
        let max_parallel = section.max_parallel_upgrades.unwrap_or(1);
        let max_parallel_upgrades = u32::try_from(max_parallel).unwrap_or_else(|_| {
            let message = format!(
                "is {max_parallel}: write 0 for no limit, or how many nodes are upgraded at once"
            );
            self.problem(
                Component::Driver,
                "driver.upgradePolicy.maxParallelUpgrades",
                message,
            );
            1
        });
        let wait = section.wait_for_completion.unwrap_or_default();
        let pods = section.pod_deletion.unwrap_or_default();
        let drain = section.drain.unwrap_or_default();
        UpgradePolicy {
            auto_upgrade: section.auto_upgrade.unwrap_or(true),
            max_parallel_upgrades,
            max_unavailable,
            wait_pod_selector: text(wait.pod_selector.as_ref(), ""),
            wait_timeout_seconds: seconds(wait.timeout_seconds, 0),
            pod_deletion: PodDeletion {
                force: pods.force.unwrap_or(false),
                timeout_seconds: seconds(pods.timeout_seconds, 300),
                delete_empty_dir: pods.delete_empty_dir.unwrap_or(false),
            },
            drain: Drain {
                enable: drain.enable.unwrap_or(false),
                force: drain.force.unwrap_or(false),
                pod_selector: text(drain.pod_selector.as_ref(), ""),
                timeout_seconds: seconds(drain.timeout_seconds, 300),
                delete_empty_dir: drain.delete_empty_dir.unwrap_or(false),
            },
        }
    }

    /// `gds` or `gdrcopy`, when it is on. Its modules are built against the driver's sources, which precompiled drivers lack.
    fn sidecar(
        &mut self,
        path: &str,
        section: Option<&DriverSidecarSpec>,
        image: ImageKind,
        precompiled: bool,
    ) -> Option<DriverSidecar> {
        let section = section.filter(|s| s.enabled == Some(true))?;
        if precompiled {
            let message = "does not go together with driver.usePrecompiled: turn one of them off";
            self.problem(Component::Driver, &format!("{path}.enabled"), message);
        }
        let default = self.images.get(image);
        let (repository, name, version) = (
            section.repository.as_deref(),
            section.image.as_deref(),
            section.version.as_deref(),
        );
        let image = resolve_image(repository, name, version, &default).unwrap_or_else(|error| {
            self.problem(
                Component::Driver,
                &format!("{path}.image"),
                error.to_string(),
            );
            default
        });
        Some(DriverSidecar {
            image,
            image_pull_policy: self.pull_policy(Component::Driver, path, section.image_pull_policy),
            image_pull_secrets: section.image_pull_secrets.clone().unwrap_or_default(),
            args: section.args.clone().unwrap_or_default(),
            env: env(section.env.as_deref().unwrap_or_default()),
        })
    }

    fn manager(&mut self, section: DriverManagerSpec) -> DriverManager {
        let default = self.images.get(ImageKind::DriverManager);
        let (repository, image, version) = (
            section.repository.as_deref(),
            section.image.as_deref(),
            section.version.as_deref(),
        );
        let image = resolve_image(repository, image, version, &default).unwrap_or_else(|error| {
            self.problem(Component::Driver, "driver.manager.image", error.to_string());
            default
        });
        DriverManager {
            image,
            image_pull_policy: self.pull_policy(
                Component::Driver,
                "driver.manager",
                section.image_pull_policy,
            ),
            image_pull_secrets: section.image_pull_secrets.unwrap_or_default(),
            env: env(section.env.as_deref().unwrap_or_default()),
        }
    }
}

/// A stored negative time limit means none is left to wait: the default is used instead, as no one can have meant that.
fn seconds(given: Option<i64>, default: u64) -> u64 {
    given.and_then(|s| u64::try_from(s).ok()).unwrap_or(default)
}

fn times(given: &Probe, default: ProbeTimes) -> ProbeTimes {
    let at_least_one =
        |given: Option<i32>, default: i32| given.filter(|n| *n >= 1).unwrap_or(default);
    ProbeTimes {
        initial_delay_seconds: given
            .initial_delay_seconds
            .filter(|n| *n >= 0)
            .unwrap_or(default.initial_delay_seconds),
        timeout_seconds: at_least_one(given.timeout_seconds, default.timeout_seconds),
        period_seconds: at_least_one(given.period_seconds, default.period_seconds),
        success_threshold: at_least_one(given.success_threshold, default.success_threshold),
        failure_threshold: at_least_one(given.failure_threshold, default.failure_threshold),
    }
}
