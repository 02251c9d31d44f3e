//! The validator: checks driver, toolkit, CUDA and device plugin on each node, in that order, and leaves a file for each
//! that other operands wait for.
//!
//! Facts: NVIDIA/gpu-operator v26.7.0, `assets/state-operator-validation` and `TransformValidatorComponent`.

use super::{VALIDATOR, selinux};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, ExecAction, Lifecycle, LifecycleHandler, Volume,
};
use std::collections::BTreeMap;
use tessera_api::EffectivePolicy;
use tessera_api::names::{VALIDATIONS_DIR, app, label, service_account};
use tessera_runtime::template::{
    self, Common, Operand, VALIDATIONS_VOLUME, container, env, env_field, host_path,
    main_container, merge_env, mount, mount_propagated, shell, validations_volume,
};

/// NVIDIA's default place of driver files.
const INSTALL_DIR: &str = "/run/nvidia/driver";

/// The DaemonSet.
pub fn daemon_set(policy: &EffectivePolicy, common: &Common) -> DaemonSet {
    let validator = &policy.validator;
    let mut checks = vec![
        driver_check(policy),
        toolkit_check(policy),
        cuda_check(policy, common),
    ];
    if policy.device_plugin.operand.enabled {
        checks.push(plugin_check(policy, common));
    }
    let mut volumes = host_volumes(policy);
    volumes.push(validations_volume());
    template::daemon_set(
        common,
        Operand {
            name: app::VALIDATOR.to_owned(),
            app: app::VALIDATOR.to_owned(),
            component: VALIDATOR.to_owned(),
            service_account: service_account::VALIDATOR.to_owned(),
            node_selector: BTreeMap::from([(
                label::DEPLOY_VALIDATOR.to_owned(),
                "true".to_owned(),
            )]),
            uses_gpu: true,
            nri_containers: vec!["toolkit-validation".to_owned()],
            host_network: validator.operand.host_network,
            pull_secrets: validator.operand.image_pull_secrets.clone(),
            init_containers: checks,
            containers: vec![main(policy)],
            volumes,
            ..Operand::default()
        },
    )
}

/// Volumes that [`driver_check`] mounts.
pub(super) fn host_volumes(policy: &EffectivePolicy) -> Vec<Volume> {
    let host = &policy.host_paths;
    vec![
        host_path(
            "driver-install-dir",
            &host.driver_install_dir,
            "DirectoryOrCreate",
        ),
        host_path("host-root", &host.root_fs, ""),
        host_path("host-dev-char", "/dev/char", ""),
    ]
}

/// Stays when all checks have passed; takes their results away when it goes.
fn main(policy: &EffectivePolicy) -> Container {
    let operand = &policy.validator.operand;
    let mut made = root(main_container(app::VALIDATOR, operand));
    let user_args = made.args.take();
    made = shell(
        made,
        "echo all checks have passed; while true; do sleep 86400; done",
    );
    made.args = user_args.or(made.args);
    made.env = merge_env(Vec::new(), &operand.env);
    made.volume_mounts = Some(vec![mount_propagated(
        VALIDATIONS_VOLUME,
        VALIDATIONS_DIR,
        "Bidirectional",
    )]);
    let clean = format!("rm -f {VALIDATIONS_DIR}/*-ready");
    made.lifecycle = Some(Lifecycle {
        pre_stop: Some(LifecycleHandler {
            exec: Some(ExecAction {
                command: Some(vec!["sh".to_owned(), "-c".to_owned(), clean]),
            }),
            ..LifecycleHandler::default()
        }),
        ..Lifecycle::default()
    });
    made
}

/// Waits until the driver works, on the host or in its container, and says which in a file that others source.
pub(super) fn driver_check(policy: &EffectivePolicy) -> Container {
    let host = &policy.host_paths;
    let mut ours = vec![env("WITH_WAIT", "true"), namespace()];
    if host.driver_install_dir != INSTALL_DIR {
        ours.push(env("DRIVER_INSTALL_DIR", &host.driver_install_dir));
        ours.push(env("DRIVER_INSTALL_DIR_CTR_PATH", &host.driver_install_dir));
    }
    if host.root_fs != "/" {
        ours.push(env("HOST_ROOT", &host.root_fs));
    }
    let mut made = selinux(check(policy, "driver", ours, &policy.validator.driver_env));
    let mut host_root = mount_propagated("host-root", "/host", "HostToContainer");
    host_root.read_only = Some(true);
    made.volume_mounts.get_or_insert_with(Vec::new).extend([
        host_root,
        mount_propagated(
            "driver-install-dir",
            &host.driver_install_dir,
            "HostToContainer",
        ),
        mount("host-dev-char", "/host-dev-char"),
    ]);
    made
}

fn toolkit_check(policy: &EffectivePolicy) -> Container {
    let ours = vec![
        env("WITH_WAIT", "false"),
        env("NVIDIA_VISIBLE_DEVICES", "all"),
    ];
    check(policy, "toolkit", ours, &policy.validator.toolkit_env)
}

fn cuda_check(policy: &EffectivePolicy, common: &Common) -> Container {
    let ours = [vec![env("WITH_WAIT", "false")], workload(policy, common)].concat();
    check(policy, "cuda", ours, &policy.validator.cuda_env)
}

fn plugin_check(policy: &EffectivePolicy, common: &Common) -> Container {
    let mut ours = workload(policy, common);
    ours.extend([
        env("WITH_WAIT", "false"),
        env("WITH_WORKLOAD", "false"),
        env("MIG_STRATEGY", policy.mig.strategy.as_str()),
    ]);
    check(policy, "plugin", ours, &policy.validator.plugin_env)
}

/// How the validator makes the pods in which it tries a GPU.
fn workload(policy: &EffectivePolicy, common: &Common) -> Vec<EnvVar> {
    let operand = &policy.validator.operand;
    let mut variables = vec![
        env_field("NODE_NAME", "spec.nodeName"),
        namespace(),
        env("VALIDATOR_IMAGE", operand.image.to_string()),
        env(
            "VALIDATOR_IMAGE_PULL_POLICY",
            operand.image_pull_policy.as_str(),
        ),
    ];
    if !operand.image_pull_secrets.is_empty() {
        variables.push(env(
            "VALIDATOR_IMAGE_PULL_SECRETS",
            operand.image_pull_secrets.join(","),
        ));
    }
    if let Some(class) = &common.runtime_class {
        variables.push(env("VALIDATOR_RUNTIME_CLASS", class));
    }
    variables
}

fn namespace() -> EnvVar {
    env_field("OPERATOR_NAMESPACE", "metadata.namespace")
}

fn check(
    policy: &EffectivePolicy,
    component: &str,
    mut ours: Vec<EnvVar>,
    user: &BTreeMap<String, String>,
) -> Container {
    let operand = &policy.validator.operand;
    ours.push(env("COMPONENT", component));
    let name = format!("{component}-validation");
    let made = root(container(
        &name,
        &operand.image.to_string(),
        operand.image_pull_policy.as_str(),
    ));
    let mut made = shell(made, "nvidia-validator");
    made.env = merge_env(ours, user);
    made.volume_mounts = Some(vec![mount_propagated(
        VALIDATIONS_VOLUME,
        VALIDATIONS_DIR,
        "Bidirectional",
    )]);
    made
}

/// The image's own user may not write to the host.
fn root(mut container: Container) -> Container {
    if let Some(context) = &mut container.security_context {
        context.run_as_user = Some(0);
    }
    container
}
