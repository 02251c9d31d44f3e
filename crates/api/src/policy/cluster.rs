//! Sections about the whole cluster: operator, DaemonSets, host paths, pod security.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSecurityContext, Toleration};

use super::{
    common::ImageSource,
    fields::{choice, section},
    monitoring::ServiceMonitorSpec,
};

choice! {
    /// Container runtime.
    ContainerRuntime {
        /// Docker.
        Docker = "docker",
        /// CRI-O.
        Crio = "crio",
        /// containerd.
        Containerd = "containerd",
    }
}

section! {
    /// The operator itself.
    OperatorSpec {
        /// Deprecated by NVIDIA and ignored: the runtime of each node is detected.
        default_runtime: ContainerRuntime,
        /// Name of the RuntimeClass for GPU pods. Default nvidia.
        #[schemars(length(max = 63))]
        runtime_class: String,
        /// Deprecated by NVIDIA and ignored.
        init_container: ImageSource,
        /// Labels of the operator's objects. Not supported by Tessera: reported in condition Supported.
        labels: BTreeMap<String, String>,
        /// Annotations of the operator's objects. Not supported by Tessera: reported in condition Supported.
        annotations: BTreeMap<String, String>,
        /// OpenShift driver toolkit. Not supported by Tessera: reported in condition Supported.
        #[serde(rename = "use_ocp_driver_toolkit")]
        use_ocp_driver_toolkit: bool,
        /// The operator's own metrics.
        metrics: OperatorMetricsSpec,
    }
}

section! {
    /// The operator's own metrics.
    OperatorMetricsSpec {
        /// Its ServiceMonitor. Not supported by Tessera here (a value of each chart): reported in condition Supported.
        service_monitor: ServiceMonitorSpec,
    }
}

choice! {
    /// How changed pods of a DaemonSet are replaced.
    UpdateStrategyType {
        /// Node after node.
        RollingUpdate = "RollingUpdate",
        /// When someone deletes the old pod.
        OnDelete = "OnDelete",
    }
}

section! {
    /// What all operand DaemonSets share.
    DaemonsetsSpec {
        /// Labels of DaemonSets and pods.
        labels: BTreeMap<String, String>,
        /// Annotations of DaemonSets and pods.
        annotations: BTreeMap<String, String>,
        /// Tolerations of all operands. Default: nvidia.com/gpu Exists NoSchedule, which a list given here replaces.
        #[schemars(length(max = 64))]
        tolerations: Vec<Toleration>,
        /// Default system-node-critical.
        #[schemars(length(max = 253))]
        priority_class_name: String,
        /// Default RollingUpdate; the driver is always OnDelete.
        update_strategy: UpdateStrategyType,
        /// Rolling update.
        rolling_update: RollingUpdateSpec,
        /// Security context of operand pods.
        pod_security_context: PodSecurityContext,
    }
}

section! {
    /// Rolling update of operand DaemonSets.
    RollingUpdateSpec {
        /// Nodes at once, as a number or a percentage. Default 1.
        #[schemars(length(max = 8))]
        #[x_kube(validation = crate::policy::rules::percent_text("daemonsets.rollingUpdate.maxUnavailable"))]
        max_unavailable: String,
    }
}

section! {
    /// Paths on the host.
    HostPathsSpec {
        /// Root file system that can be chrooted into. Default /.
        #[serde(rename = "rootFS")]
        #[schemars(length(max = 1024))]
        root_fs: String,
        /// Where driver files are found. Default /run/nvidia/driver.
        #[schemars(length(max = 1024))]
        driver_install_dir: String,
        /// The kubelet's directory. Default /var/lib/kubelet.
        #[schemars(length(max = 1024))]
        kubelet_root_dir: String,
    }
}

/// Labels of nodes.
pub type NodeSelector = BTreeMap<String, String>;
