//! Device plugin, feature discovery, sharing, MIG.

use serde::{Deserialize, Serialize};

use super::{
    common::ConfigMapName,
    fields::{choice, operand, section},
};

operand! {
    /// NVIDIA device plugin.
    DevicePluginSpec {
        /// Its configuration: inline, or by ConfigMap.
        config: DevicePluginConfigSpec,
        /// Multi-Process Service.
        mps: MpsRootSpec,
    }
}

section! {
    /// Configuration of the device plugin: either `sharing` here, or a ConfigMap by `name`.
    #[x_kube(validation = crate::policy::rules::sharing_or_config_map())]
    DevicePluginConfigSpec {
        /// Name of a ConfigMap in the operands' namespace; a node chooses a key by label nvidia.com/device-plugin.config.
        #[schemars(length(max = 253))]
        name: String,
        /// Key of that ConfigMap for nodes that choose none. Default none: such nodes get no sharing.
        #[schemars(length(max = 63))]
        default: String,
        /// Sharing of cards.
        sharing: SharingSpec,
    }
}

section! {
    /// Sharing of cards among containers: by time-slicing or by MPS, not both.
    #[x_kube(validation = crate::policy::rules::time_slicing_or_mps())]
    SharingSpec {
        /// Containers take turns; no isolation of memory or faults.
        time_slicing: TimeSlicingSpec,
        /// CUDA Multi-Process Service; memory is limited per client.
        mps: SharedResourcesSpec,
    }
}

section! {
    /// Which resources are shared by turns, how many times, and how much memory each share is told to use.
    TimeSlicingSpec {
        /// Advertise `<name>.shared` instead of `<name>`. Default false.
        rename_by_default: bool,
        /// Refuse containers that ask for more than one share: two shares are not twice the speed. Default true.
        fail_requests_greater_than_one: bool,
        /// The resources. Each name once; names without a domain mean nvidia.com/.
        #[schemars(length(max = 32))]
        #[x_kube(validation = crate::policy::rules::shared_not_empty())]
        #[x_kube(validation = crate::policy::rules::shared_unique())]
        resources: Vec<SharedResourceSpec>,
        /// Memory of the card that a container with one share is told to keep to (CUDA_DEVICE_MEMORY_LIMIT_<i>): `Auto` (the smallest
        /// card's memory by the number of shares, less a reserve), an amount such as 8192Mi or 8Gi, or `Off` (in quotes: YAML reads a bare
        /// Off as false). Default Auto.
        #[schemars(length(max = 16))]
        #[x_kube(validation = crate::policy::rules::memory_limit())]
        memory_limit: String,
    }
}

impl TimeSlicingSpec {
    /// What it has in common with MPS.
    pub fn shared(&self) -> SharedResourcesSpec {
        SharedResourcesSpec {
            rename_by_default: self.rename_by_default,
            fail_requests_greater_than_one: self.fail_requests_greater_than_one,
            resources: self.resources.clone(),
        }
    }
}

section! {
    /// Which resources are shared, and how many times.
    SharedResourcesSpec {
        /// Advertise `<name>.shared` instead of `<name>`. Default false.
        rename_by_default: bool,
        /// Refuse containers that ask for more than one share: two shares are not twice the speed. Default true.
        fail_requests_greater_than_one: bool,
        /// The resources. Each name once; names without a domain mean nvidia.com/.
        #[schemars(length(max = 32))]
        #[x_kube(validation = crate::policy::rules::shared_not_empty())]
        #[x_kube(validation = crate::policy::rules::shared_unique())]
        resources: Vec<SharedResourceSpec>,
    }
}

/// One shared resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, kube::KubeSchema)]
pub struct SharedResourceSpec {
    /// Name of the resource: `nvidia.com/gpu`, or `nvidia.com/mig-<profile>`.
    #[schemars(length(max = 63))]
    #[x_kube(validation = crate::policy::rules::shared_name())]
    pub name: String,
    /// How many containers share one card; 1 means that this resource is not shared.
    #[x_kube(validation = crate::policy::rules::replicas())]
    pub replicas: i32,
}

section! {
    /// MPS.
    MpsRootSpec {
        /// Directory on the host. Default /run/nvidia/mps.
        #[schemars(length(max = 1024))]
        root: String,
    }
}

operand! {
    /// GPU feature discovery: labels nodes with what their cards are.
    GfdSpec {}
}

choice! {
    /// How MIG instances are advertised.
    MigStrategy {
        /// Whole cards only.
        None = "none",
        /// All instances of a node are alike and are advertised as nvidia.com/gpu.
        Single = "single",
        /// Each profile is a resource of its own, nvidia.com/mig-<profile>.
        Mixed = "mixed",
    }
}

section! {
    /// Multi-Instance GPU.
    MigSpec {
        /// Default: single while the MIG manager is on and nothing is shared, else none.
        strategy: MigStrategy,
    }
}

operand! {
    /// MIG manager: partitions the cards of a node as its label nvidia.com/mig.config says.
    MigManagerSpec {
        /// Its layouts.
        config: MigManagerConfigSpec,
        /// Programs to stop on the host while cards are partitioned.
        gpu_clients_config: ConfigMapName,
    }
}

section! {
    /// Layouts of the MIG manager.
    MigManagerConfigSpec {
        /// Name of a ConfigMap with key config.yaml. Default: layouts generated for each node.
        #[schemars(length(max = 253))]
        name: String,
        /// Layout of nodes that have no label yet: all-disabled, or empty for none. Default all-disabled.
        default: MigDefault,
    }
}

choice! {
    /// Layout of nodes that have no label yet.
    MigDefault {
        /// MIG off.
        AllDisabled = "all-disabled",
        /// Leave such nodes alone.
        Empty = "",
    }
}
