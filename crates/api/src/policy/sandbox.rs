//! Sections that NVIDIA's operator has and Tessera does not act on: accepted, kept, and reported in condition Supported.

use std::collections::BTreeMap;

use super::{
    common::{ConfigMapName, DriverManagerSpec, EnvVar, PullPolicy},
    fields::{choice, operand, section},
};

choice! {
    /// What GPUs of a node are used for.
    SandboxWorkload {
        /// Containers.
        Container = "container",
        /// Virtual machines with whole cards.
        VmPassthrough = "vm-passthrough",
        /// Virtual machines with vGPUs.
        VmVgpu = "vm-vgpu",
    }
}

choice! {
    /// Kind of sandbox.
    SandboxMode {
        /// KubeVirt.
        Kubevirt = "kubevirt",
        /// Kata containers.
        Kata = "kata",
    }
}

section! {
    /// Virtual machines. Not supported by Tessera: reported in condition Supported.
    SandboxWorkloadsSpec {
        /// Default false.
        enabled: bool,
        /// Default container.
        default_workload: SandboxWorkload,
        /// Default kubevirt.
        mode: SandboxMode,
    }
}

operand! {
    /// VFIO-PCI manager. Not supported by Tessera: reported in condition Supported.
    VfioManagerSpec {
        /// Its init container.
        driver_manager: DriverManagerSpec,
    }
}

operand! {
    /// vGPU manager. Not supported by Tessera: reported in condition Supported.
    VgpuManagerSpec {
        /// Its init container.
        driver_manager: DriverManagerSpec,
        /// Kernel module parameters.
        kernel_module_config: ConfigMapName,
    }
}

operand! {
    /// vGPU device manager. Not supported by Tessera: reported in condition Supported.
    VgpuDeviceManagerSpec {
        /// Its configuration.
        config: VgpuDevicesConfigSpec,
    }
}

section! {
    /// vGPU devices.
    VgpuDevicesConfigSpec {
        /// Name of a ConfigMap.
        #[schemars(length(max = 253))]
        name: String,
        /// Default `default`.
        #[schemars(length(max = 63))]
        default: String,
    }
}

operand! {
    /// Device plugin for virtual machines. Not supported by Tessera: reported in condition Supported.
    SandboxDevicePluginSpec {}
}

operand! {
    /// Device plugin for Kata containers. Not supported by Tessera: reported in condition Supported.
    KataSandboxDevicePluginSpec {}
}

operand! {
    /// Kata manager; deprecated by NVIDIA. Not supported by Tessera: reported in condition Supported.
    KataManagerSpec {
        /// Kata runtimes.
        config: KataConfigSpec,
    }
}

section! {
    /// Kata runtimes.
    KataConfigSpec {
        /// Where artifacts are kept on the host.
        #[schemars(length(max = 1024))]
        artifacts_dir: String,
        /// Runtime classes.
        runtime_classes: Vec<KataRuntimeClassSpec>,
    }
}

section! {
    /// A Kata runtime class.
    KataRuntimeClassSpec {
        /// Name.
        name: String,
        /// Nodes.
        node_selector: BTreeMap<String, String>,
        /// Artifacts.
        artifacts: KataArtifactsSpec,
    }
}

section! {
    /// Artifacts of a Kata runtime class.
    KataArtifactsSpec {
        /// Where they are pulled from.
        url: String,
        /// Secret for the pull.
        pull_secret: String,
    }
}

choice! {
    /// Confidential computing mode.
    CcMode {
        /// On.
        On = "on",
        /// Off.
        Off = "off",
        /// Development.
        Devtools = "devtools",
    }
}

operand! {
    /// Confidential computing manager. Not supported by Tessera: reported in condition Supported.
    CcManagerSpec {
        /// Default mode.
        default_mode: CcMode,
    }
}

section! {
    /// A sidecar of the driver pod. Not with `driver.usePrecompiled`.
    #[x_kube(validation = crate::policy::rules::image())]
    DriverSidecarSpec {
        /// Default false.
        enabled: bool,
        /// Registry and path.
        #[schemars(length(max = 512))]
        repository: String,
        /// Name of the image, or alone a complete reference.
        #[schemars(length(max = 512))]
        image: String,
        /// Tag or digest.
        #[schemars(length(max = 128))]
        version: String,
        /// When the kubelet pulls. Default IfNotPresent.
        image_pull_policy: PullPolicy,
        /// Names of Secrets in the operands' namespace.
        image_pull_secrets: Vec<String>,
        /// Arguments.
        args: Vec<String>,
        /// Environment.
        env: Vec<EnvVar>,
    }
}
