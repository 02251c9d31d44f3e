//! Names that other programs rely on: labels, annotations, objects, files. NVIDIA's are kept as they are (DESIGN section 9); ours
//! start with `aiops.local/`.

/// Prefix of everything of ours.
pub const PREFIX: &str = "aiops.local/";

/// Field manager of the labels that the three GPU controllers share (one pure function, one write).
pub const NODE_LABELS_MANAGER: &str = "node-labels.aiops.local";

/// Controllers: binary, Deployment, ServiceAccount and `app.kubernetes.io/managed-by` carry the same name.
pub mod controller {
    /// Driver, toolkit, runtime classes, validator, upgrades.
    pub const DRIVER: &str = "driver-controller";
    /// Device plugin, feature discovery, sharing, MIG.
    pub const DEVICE_PLUGIN: &str = "device-plugin-controller";
    /// DCGM, exporters, monitors.
    pub const DCGM_MONITOR: &str = "dcgm-monitor-controller";
    /// SREAgent to agent Deployment.
    pub const SREAGENT: &str = "sreagent-controller";
    /// The agent itself.
    pub const SRE_AGENT: &str = "sre-agent";
    /// Admission: not a controller, but named, labelled and installed as one.
    pub const WEBHOOK: &str = "webhook";

    /// `<controller>.aiops.local`, the controller's server-side apply field manager.
    pub fn field_manager(controller: &str) -> String {
        format!("{controller}.aiops.local")
    }
}

/// What the webhook fills, and what an uninstall takes away.
pub mod admission {
    /// The validating webhook configuration.
    pub const CONFIGURATION: &str = "tessera-webhook";
    /// The Secret of the certificate authority.
    pub const CA_SECRET: &str = "webhook-ca";
    /// Label of a Pod or a namespace whose Pods nobody is to look at, with value [`IGNORE`].
    pub const OPT_OUT: &str = "aiops.local/admission";
    /// Value of [`OPT_OUT`] and of HAMi's own label.
    pub const IGNORE: &str = "ignore";
}

/// Labels.
pub mod label {
    /// Which controller made the object; pod watches are scoped by it.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
    /// Always [`PART_OF_TESSERA`].
    pub const PART_OF: &str = "app.kubernetes.io/part-of";
    /// Value of [`PART_OF`].
    pub const PART_OF_TESSERA: &str = "tessera";
    /// The operand.
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// NVIDIA's own selector label of DaemonSets and their pods; driver-manager and mig-manager wait for pods by it.
    pub const APP: &str = "app";
    /// `base` on the policy that the umbrella chart renders from its values.
    pub const POLICY_ROLE: &str = "aiops.local/policy-role";
    /// Value of [`POLICY_ROLE`].
    pub const POLICY_ROLE_BASE: &str = "base";

    /// The node has a GPU.
    pub const GPU_PRESENT: &str = "nvidia.com/gpu.present";
    /// Prefix of the labels that admit an operand to a node.
    pub const DEPLOY_PREFIX: &str = "nvidia.com/gpu.deploy.";
    /// `false` on a node takes every operand away from it.
    pub const DEPLOY_OPERANDS: &str = "nvidia.com/gpu.deploy.operands";
    /// Driver.
    pub const DEPLOY_DRIVER: &str = "nvidia.com/gpu.deploy.driver";
    /// Container toolkit.
    pub const DEPLOY_TOOLKIT: &str = "nvidia.com/gpu.deploy.container-toolkit";
    /// Validator.
    pub const DEPLOY_VALIDATOR: &str = "nvidia.com/gpu.deploy.operator-validator";
    /// Device plugin and MPS daemon.
    pub const DEPLOY_DEVICE_PLUGIN: &str = "nvidia.com/gpu.deploy.device-plugin";
    /// GPU feature discovery.
    pub const DEPLOY_GFD: &str = "nvidia.com/gpu.deploy.gpu-feature-discovery";
    /// MIG manager.
    pub const DEPLOY_MIG_MANAGER: &str = "nvidia.com/gpu.deploy.mig-manager";
    /// DCGM host engine.
    pub const DEPLOY_DCGM: &str = "nvidia.com/gpu.deploy.dcgm";
    /// DCGM exporter.
    pub const DEPLOY_DCGM_EXPORTER: &str = "nvidia.com/gpu.deploy.dcgm-exporter";
    /// Node status exporter.
    pub const DEPLOY_NODE_STATUS_EXPORTER: &str = "nvidia.com/gpu.deploy.node-status-exporter";
    /// Opt-in for third-party DaemonSets that want to be paused with the operands (gpu-operator 26.7).
    pub const DEPLOY_CLIENT: &str = "nvidia.com/gpu.deploy.client";
    /// Value that driver-manager writes while it replaces a driver.
    pub const PAUSED_FOR_DRIVER_UPGRADE: &str = "paused-for-driver-upgrade";
    /// Value that mig-manager writes while it changes a layout.
    pub const PAUSED_FOR_MIG_CHANGE: &str = "paused-for-mig-change";
    /// Values of deploy labels by which NVIDIA's managers take an operand off its node for a while.
    pub const PAUSES: [&str; 2] = [PAUSED_FOR_DRIVER_UPGRADE, PAUSED_FOR_MIG_CHANGE];
    /// Value of [`DEPLOY_DRIVER`] where driver-manager found a driver on the host.
    pub const PRE_INSTALLED: &str = "pre-installed";

    /// Wanted MIG layout.
    pub const MIG_CONFIG: &str = "nvidia.com/mig.config";
    /// What became of it: pending, rebooting, success, failed.
    pub const MIG_CONFIG_STATE: &str = "nvidia.com/mig.config.state";
    /// The card can do MIG (feature discovery).
    pub const MIG_CAPABLE: &str = "nvidia.com/mig.capable";
    /// MIG strategy in force (feature discovery).
    pub const MIG_STRATEGY: &str = "nvidia.com/mig.strategy";
    /// An MPS daemon is wanted on this node (feature discovery).
    pub const MPS_CAPABLE: &str = "nvidia.com/mps.capable";
    /// `true` on a node where every container gets a library that keeps it to `CUDA_DEVICE_MEMORY_LIMIT_<i>` (HAMi-core, for example).
    pub const MEMORY_ENFORCER: &str = "aiops.local/gpu-memory-enforcer";
    /// Which key of the device plugin's ConfigMap this node uses.
    pub const DEVICE_PLUGIN_CONFIG: &str = "nvidia.com/device-plugin.config";
    /// Product name (feature discovery).
    pub const GPU_PRODUCT: &str = "nvidia.com/gpu.product";
    /// Physical cards (feature discovery).
    pub const GPU_COUNT: &str = "nvidia.com/gpu.count";
    /// Replicas a card (feature discovery).
    pub const GPU_REPLICAS: &str = "nvidia.com/gpu.replicas";
    /// Memory of a card in MiB (feature discovery).
    pub const GPU_MEMORY: &str = "nvidia.com/gpu.memory";
    /// CUDA compute capability before the dot (feature discovery).
    pub const GPU_COMPUTE_MAJOR: &str = "nvidia.com/gpu.compute.major";
    /// CUDA compute capability after the dot (feature discovery).
    pub const GPU_COMPUTE_MINOR: &str = "nvidia.com/gpu.compute.minor";
    /// State of NVIDIA's upgrade machine, kept for compatibility.
    pub const UPGRADE_STATE: &str = "nvidia.com/gpu-driver-upgrade-state";
    /// `true` keeps a node out of driver upgrades.
    pub const UPGRADE_SKIP: &str = "nvidia.com/gpu-driver-upgrade.skip";
    /// `true` on a pod keeps it out of the upgrade's drain.
    pub const UPGRADE_DRAIN_SKIP: &str = "nvidia.com/gpu-driver-upgrade-drain.skip";

    /// NFD's labels of an NVIDIA display controller: any class, 3D controller, VGA controller.
    pub const NFD_PCI: [&str; 3] = [
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/pci-0302_10de.present",
        "feature.node.kubernetes.io/pci-0300_10de.present",
    ];
    /// NFD: `ID` of os-release.
    pub const NFD_OS_ID: &str = "feature.node.kubernetes.io/system-os_release.ID";
    /// NFD: `VERSION_ID` of os-release.
    pub const NFD_OS_VERSION: &str = "feature.node.kubernetes.io/system-os_release.VERSION_ID";
    /// NFD: kernel release.
    pub const NFD_KERNEL: &str = "feature.node.kubernetes.io/kernel-version.full";
}

/// Annotations.
pub mod annotation {
    /// On pod templates: hash of every input that the pods read at start.
    pub const CONFIG_HASH: &str = "aiops.local/config-hash";
    /// On every applied object: hash of what was applied.
    pub const APPLIED_HASH: &str = "aiops.local/applied-hash";
    /// On a NodeOperation from its creation: who will hold it (status is a subresource, so it comes a write later).
    pub const HOLDER: &str = "aiops.local/holder";
    /// `true` on a node: the agent leaves it alone.
    pub const SKIP: &str = "aiops.local/skip";
    /// Mark of our own cordon: `<operation>` that made it.
    pub const CORDONED_BY: &str = "aiops.local/cordoned-by";
    /// On a Pod: how much memory of each GPU share its containers should use, as `memoryLimit` of the policy.
    pub const MEMORY_LIMIT: &str = "aiops.local/gpu-memory-limit";
    /// Prefix of the same for one container, whose name follows.
    pub const MEMORY_LIMIT_PREFIX: &str = "gpu-memory-limit.aiops.local/";
    /// On a Pod that got a limit: `enforced`, or `advisory` where nothing on the nodes enforces it.
    pub const MEMORY_LIMIT_MODE: &str = "aiops.local/gpu-memory-limit-mode";
    /// NVIDIA: an upgrade of this node was asked for.
    pub const UPGRADE_REQUESTED: &str = "nvidia.com/gpu-driver-upgrade-requested";
    /// While it is `true` on a node, NVIDIA's driver-manager leaves cordons and evictions to whoever set it.
    pub const UPGRADE_ENABLED: &str = "nvidia.com/gpu-driver-upgrade-enabled";
}

/// `app` label (and, but for pools, name) of each operand's DaemonSet.
pub mod app {
    /// Driver; a pool suffix follows in the name.
    pub const DRIVER: &str = "nvidia-driver-daemonset";
    /// Container toolkit; a pool suffix may follow in the name.
    pub const TOOLKIT: &str = "nvidia-container-toolkit-daemonset";
    /// Validator.
    pub const VALIDATOR: &str = "nvidia-operator-validator";
    /// Device plugin.
    pub const DEVICE_PLUGIN: &str = "nvidia-device-plugin-daemonset";
    /// MPS control daemon.
    pub const MPS: &str = "nvidia-device-plugin-mps-control-daemon";
    /// GPU feature discovery.
    pub const GFD: &str = "gpu-feature-discovery";
    /// MIG manager.
    pub const MIG_MANAGER: &str = "nvidia-mig-manager";
    /// DCGM host engine.
    pub const DCGM: &str = "nvidia-dcgm";
    /// DCGM exporter.
    pub const DCGM_EXPORTER: &str = "nvidia-dcgm-exporter";
    /// Node status exporter.
    pub const NODE_STATUS_EXPORTER: &str = "nvidia-node-status-exporter";
}

/// ServiceAccounts of the operands: static chart objects.
pub mod service_account {
    /// Driver.
    pub const DRIVER: &str = "nvidia-driver";
    /// Container toolkit.
    pub const TOOLKIT: &str = "nvidia-container-toolkit";
    /// Validator.
    pub const VALIDATOR: &str = "nvidia-operator-validator";
    /// Device plugin, and the MPS daemon.
    pub const DEVICE_PLUGIN: &str = "nvidia-device-plugin";
    /// GPU feature discovery.
    pub const GFD: &str = "nvidia-gpu-feature-discovery";
    /// MPS control daemon: shares the device plugin's account.
    pub const MPS: &str = DEVICE_PLUGIN;
    /// MIG manager.
    pub const MIG_MANAGER: &str = "nvidia-mig-manager";
    /// DCGM host engine.
    pub const DCGM: &str = "nvidia-dcgm";
    /// DCGM exporter.
    pub const DCGM_EXPORTER: &str = "nvidia-dcgm-exporter";
    /// Node status exporter.
    pub const NODE_STATUS_EXPORTER: &str = "nvidia-node-status-exporter";
}

/// ConfigMaps.
pub mod config_map {
    /// Start probe script of the driver.
    pub const DRIVER_STARTUP_PROBE: &str = "nvidia-driver-startup-probe";
    /// Rendered device plugin configuration.
    pub const DEVICE_PLUGIN_CONFIG: &str = "nvidia-device-plugin-config";
    /// Entry point script of the device plugin.
    pub const DEVICE_PLUGIN_ENTRYPOINT: &str = "nvidia-device-plugin-entrypoint";
    /// Layouts of the MIG manager.
    pub const MIG_PARTED_CONFIG: &str = "default-mig-parted-config";
    /// Key of the MIG manager's layouts, and of the rendered device plugin configuration.
    pub const CONFIG_KEY: &str = "config.yaml";
    /// Key of a user's list of programs that the MIG manager stops on the host (`migManager.gpuClientsConfig.name`).
    pub const GPU_CLIENTS_KEY: &str = "clients.yaml";
    /// Programs that the MIG manager stops on the host.
    pub const GPU_CLIENTS: &str = "default-gpu-clients";
    /// Entry point script of the MIG manager.
    pub const MIG_MANAGER_ENTRYPOINT: &str = "nvidia-mig-manager-entrypoint";
    /// Metrics that the exporter collects.
    pub const DCGM_EXPORTER_METRICS: &str = "nvidia-dcgm-exporter-metrics";
    /// Key of a user's metrics ConfigMap (`dcgmExporter.config.name`).
    pub const DCGM_METRICS_KEY: &str = "dcgm-metrics.csv";
}

/// Services and monitors.
pub mod service {
    /// Exporter, for users' own monitors: label `app: dcgm-exporter`, port `metrics`.
    pub const DCGM_EXPORTER: &str = "dcgm-exporter";
    /// Exporter as NVIDIA's chart names it: label `app: nvidia-dcgm-exporter`, port `gpu-metrics`.
    pub const NVIDIA_DCGM_EXPORTER: &str = "nvidia-dcgm-exporter";
    /// Host engine.
    pub const DCGM: &str = "nvidia-dcgm";
    /// Node status exporter.
    pub const NODE_STATUS_EXPORTER: &str = "nvidia-node-status-exporter";
}

/// RuntimeClasses (name = handler).
pub mod runtime_class {
    /// Default of `operator.runtimeClass`.
    pub const NVIDIA: &str = "nvidia";
    /// CDI mode.
    pub const NVIDIA_CDI: &str = "nvidia-cdi";
    /// Legacy hook mode.
    pub const NVIDIA_LEGACY: &str = "nvidia-legacy";
}

/// Prefix of NVIDIA's extended resources.
pub const RESOURCE_PREFIX: &str = "nvidia.com/";
/// Extended resource of a whole card.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";
/// Prefix of the extended resources of MIG instances.
pub const MIG_RESOURCE_PREFIX: &str = "nvidia.com/mig-";
/// Files by which operands on a node wait for each other.
pub const VALIDATIONS_DIR: &str = "/run/nvidia/validations";
/// The taint key that NVIDIA's operands tolerate by default.
pub const GPU_TAINT: &str = "nvidia.com/gpu";
