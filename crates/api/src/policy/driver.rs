//! Driver, toolkit, CDI, validator.

use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::util::intstr::IntOrString};

use super::{
    common::{DriverManagerSpec, EnvVar, Probe, Switch},
    fields::{choice, operand, section},
};

choice! {
    /// Which kernel modules the driver builds.
    KernelModuleType {
        /// The best for the card and the driver branch.
        Auto = "auto",
        /// The open modules.
        Open = "open",
        /// The proprietary modules.
        Proprietary = "proprietary",
    }
}

operand! {
    /// NVIDIA driver: one DaemonSet for each operating system among the GPU nodes.
    #[x_kube(validation = crate::policy::rules::driver_repo())]
    DriverSpec {
        /// Short form of `repository`; both given must be equal.
        #[schemars(length(max = 512))]
        repo: String,
        /// Tolerations of the driver and of every later operand on the node; joined with `daemonsets.tolerations`.
        #[schemars(length(max = 64))]
        tolerations: Vec<Toleration>,
        /// Leave the driver to NVIDIADriver objects. Not supported by Tessera: reported in condition Supported.
        #[serde(rename = "useNvidiaDriverCRD")]
        use_nvidia_driver_crd: bool,
        /// Use images with precompiled kernel modules. Default false.
        use_precompiled: bool,
        /// Kernel modules. Default auto.
        kernel_module_type: KernelModuleType,
        /// Deprecated by NVIDIA and ignored: use kernelModuleType.
        use_open_kernel_modules: bool,
        /// Times of the startup probe. Default 60 s delay, 60 s timeout, 10 s period, 120 failures.
        startup_probe: Probe,
        /// Times of the liveness probe. Default none.
        liveness_probe: Probe,
        /// Times of the readiness probe. Default none.
        readiness_probe: Probe,
        /// GPUDirect RDMA.
        rdma: RdmaSpec,
        /// How a changed driver reaches the nodes.
        upgrade_policy: UpgradePolicySpec,
        /// The init container that unloads the old driver.
        manager: DriverManagerSpec,
        /// Package repositories for the driver container.
        repo_config: RepoConfigSpec,
        /// Certificates for the driver container.
        cert_config: super::common::ConfigMapName,
        /// vGPU licence.
        licensing_config: LicensingConfigSpec,
        /// vGPU topology daemon.
        virtual_topology: VirtualTopologySpec,
        /// Kernel module parameters.
        kernel_module_config: super::common::ConfigMapName,
        /// Name of a Secret whose entries become environment variables of the driver container.
        #[schemars(length(max = 253))]
        secret_env: String,
    }
}

section! {
    /// GPUDirect RDMA.
    RdmaSpec {
        /// Load nvidia-peermem. Default false.
        enabled: bool,
        /// The RDMA driver (MOFED) is on the host. Default false.
        use_host_mofed: bool,
    }
}

section! {
    /// How a changed driver reaches the nodes (`DriverUpgradePolicySpec` of NVIDIA's k8s-operator-libs).
    UpgradePolicySpec {
        /// Upgrade nodes one after the other without being asked. Default true (as in NVIDIA's chart).
        auto_upgrade: bool,
        /// Nodes that are upgraded at once; 0 is no limit. Default 1.
        #[schemars(range(min = 0))]
        max_parallel_upgrades: i32,
        /// Nodes that may be out of service, as a number or a percentage, rounded up. Default 25%.
        #[x_kube(validation = crate::policy::rules::int_or_percent("driver.upgradePolicy.maxUnavailable"))]
        max_unavailable: IntOrString,
        /// Jobs to wait for before pods are evicted.
        wait_for_completion: WaitForCompletionSpec,
        /// Eviction of pods that use GPUs.
        pod_deletion: PodDeletionSpec,
        /// Drain of the whole node when the eviction of GPU pods is not enough.
        drain: DrainSpec,
    }
}

section! {
    /// Jobs to wait for.
    WaitForCompletionSpec {
        /// Selector of the pods. Default empty: wait for none.
        #[schemars(length(max = 4096))]
        pod_selector: String,
        /// Longest wait in seconds; 0 is for ever. Default 0.
        #[schemars(range(min = 0))]
        timeout_seconds: i64,
    }
}

section! {
    /// Eviction of pods that use GPUs.
    PodDeletionSpec {
        /// Also pods that no controller would make again. Default false.
        force: bool,
        /// Longest wait in seconds; 0 is for ever. Default 300.
        #[schemars(range(min = 0))]
        timeout_seconds: i64,
        /// Also pods with emptyDir volumes, whose data is lost. Default false.
        delete_empty_dir: bool,
    }
}

section! {
    /// Drain of a node.
    DrainSpec {
        /// Default false.
        enable: bool,
        /// Also pods that no controller would make again. Default false.
        force: bool,
        /// Only pods with these labels. Default all.
        #[schemars(length(max = 4096))]
        pod_selector: String,
        /// Longest wait in seconds; 0 is for ever. Default 300.
        #[schemars(range(min = 0))]
        timeout_seconds: i64,
        /// Also pods with emptyDir volumes, whose data is lost. Default false.
        delete_empty_dir: bool,
    }
}

section! {
    /// Package repositories for the driver container.
    RepoConfigSpec {
        /// Name of a ConfigMap in the operands' namespace.
        #[schemars(length(max = 253))]
        config_map_name: String,
    }
}

section! {
    /// vGPU licence.
    LicensingConfigSpec {
        /// Name of the Secret with gridd.conf and client token.
        #[schemars(length(max = 253))]
        secret_name: String,
        /// Deprecated by NVIDIA: name of a ConfigMap with the same.
        #[schemars(length(max = 253))]
        config_map_name: String,
        /// Use NVIDIA License System. Default true.
        nls_enabled: bool,
    }
}

section! {
    /// vGPU topology daemon.
    VirtualTopologySpec {
        /// Name of a ConfigMap.
        #[schemars(length(max = 253))]
        config: String,
    }
}

operand! {
    /// NVIDIA container toolkit.
    ToolkitSpec {
        /// Where it is installed on the host. Default /usr/local/nvidia.
        #[schemars(length(max = 1024))]
        install_dir: String,
    }
}

section! {
    /// Short form of `toolkit` and `cdi`.
    ContainerRuntimeSpec {
        /// Short form of `toolkit.enabled`; both given must be equal.
        enabled: bool,
        /// Short form of `cdi`.
        cdi: Switch,
    }
}

section! {
    /// Container Device Interface.
    #[x_kube(validation = crate::policy::rules::nri_needs_cdi())]
    CdiSpec {
        /// Hand devices to containers by CDI. Default true.
        enabled: bool,
        /// Deprecated by NVIDIA and ignored.
        default: bool,
        /// Use the NRI plugin instead of runtime configuration and RuntimeClasses. Default false.
        nri_plugin_enabled: bool,
    }
}

operand! {
    /// Checks on each node that driver, toolkit, CUDA and plugin work. `enabled` (default true) is Tessera's: in NVIDIA's operator it
    /// always runs.
    ValidatorSpec {
        /// Check of the driver.
        driver: ValidatorCheckSpec,
        /// Check of the toolkit.
        toolkit: ValidatorCheckSpec,
        /// Check of CUDA.
        cuda: ValidatorCheckSpec,
        /// Check of the device plugin.
        plugin: ValidatorCheckSpec,
        /// Check of VFIO-PCI. Not supported by Tessera: reported in condition Supported.
        #[serde(rename = "vfioPCI")]
        vfio_pci: ValidatorCheckSpec,
        /// Check of the vGPU manager. Not supported by Tessera: reported in condition Supported.
        vgpu_manager: ValidatorCheckSpec,
        /// Check of vGPU devices. Not supported by Tessera: reported in condition Supported.
        vgpu_devices: ValidatorCheckSpec,
    }
}

section! {
    /// One check of the validator.
    ValidatorCheckSpec {
        /// Environment of this check alone.
        env: Vec<EnvVar>,
    }
}
