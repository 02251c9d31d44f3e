//! What all four DaemonSets take from the policy.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, EnvVar};
use std::collections::BTreeMap;
use tessera_api::EffectivePolicy;
use tessera_api::effective::Operand;
use tessera_api::names::controller;
use tessera_api::policy::MigStrategy;
use tessera_runtime::template::{
    self, Common, container, env, main_container, merge_env, wait_for_file,
};

/// Policy and namespace: what every builder gets.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    pub(super) policy: &'a EffectivePolicy,
    pub(super) namespace: &'a str,
}

impl Shape<'_> {
    /// Nodes that the label writer admits, within the policy's own selector.
    pub(super) fn nodes(&self, deploy_label: &str) -> BTreeMap<String, String> {
        let mut selector = self.policy.node_selector.clone();
        selector.insert(deploy_label.to_owned(), "true".to_owned());
        selector
    }

    /// Whether the validator leaves its files on the nodes: without it nobody would ever make them.
    pub(super) fn has_validator(&self) -> bool {
        self.policy.validator.operand.enabled
    }

    /// The init container that waits for the container toolkit, if there is a validator to say so.
    pub(super) fn wait_for_toolkit(&self) -> Vec<Container> {
        let validator = &self.policy.validator.operand;
        let image = validator.image.to_string();
        let wait = || wait_for_file("toolkit", &image, validator.image_pull_policy.as_str());
        if self.has_validator() {
            vec![wait()]
        } else {
            Vec::new()
        }
    }

    /// Secrets for the operand's image and the validator's.
    pub(super) fn pull_secrets(&self, operand: &Operand) -> Vec<String> {
        let validator = self
            .has_validator()
            .then_some(&self.policy.validator.operand.image_pull_secrets);
        operand
            .image_pull_secrets
            .iter()
            .chain(validator.into_iter().flatten())
            .cloned()
            .collect()
    }

    /// Makes all GPUs visible to the container, with MIG also their monitoring devices.
    pub(super) fn gpu_env(&self) -> Vec<EnvVar> {
        let mut list = vec![
            env("NVIDIA_VISIBLE_DEVICES", "all"),
            env("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
        ];
        if self.policy.mig.strategy != MigStrategy::None {
            list.push(env("NVIDIA_MIG_MONITOR_DEVICES", "all"));
        }
        list
    }

    /// The path of the CDI hook that the toolkit installs on the host.
    pub(super) fn cdi_hook(&self) -> String {
        format!(
            "{}/toolkit/nvidia-cdi-hook",
            self.policy.toolkit.install_dir
        )
    }

    /// The DaemonSet, with containers that see each other's processes if `share_processes`.
    pub(super) fn finish(&self, operand: template::Operand, share_processes: bool) -> DaemonSet {
        let common = Common::of(self.policy, controller::DEVICE_PLUGIN, self.namespace);
        let mut set = template::daemon_set(&common, operand);
        if let Some(pod) = set
            .spec
            .as_mut()
            .and_then(|spec| spec.template.spec.as_mut())
        {
            pod.share_process_namespace = share_processes.then_some(true);
        }
        set
    }
}

/// A container of the operand's image, nothing else.
pub(super) fn plain(name: &str, operand: &Operand) -> Container {
    container(
        name,
        &operand.image.to_string(),
        operand.image_pull_policy.as_str(),
    )
}

/// The main container: image, resources, arguments and environment as the policy says.
pub(super) fn main(name: &str, operand: &Operand, command: &str, ours: Vec<EnvVar>) -> Container {
    Container {
        command: Some(vec![command.to_owned()]),
        env: merge_env(ours, &operand.env),
        ..main_container(name, operand)
    }
}
