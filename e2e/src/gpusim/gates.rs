//! What init containers wait for.

use k8s_openapi::api::core::v1::Container;

/// State of a node that operands wait for.
#[allow(clippy::struct_excessive_bools, reason = "four independent facts")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// A driver is loaded: by a driver pod that is ready, or by the host.
    pub(super) driver: bool,
    /// The toolkit has configured the runtime.
    pub(super) toolkit: bool,
    /// The plugin has registered resources.
    pub(super) plugin: bool,
    /// The driver manager has unloaded what was there before.
    pub(super) unloaded: bool,
}

/// What a container waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Nothing,
    Driver,
    Toolkit,
    Plugin,
    /// k8s-driver-manager: pauses other operands before it lets a new driver in.
    Unload,
}

impl Gate {
    /// By the container's name, or by what its environment tells NVIDIA's validator to check.
    pub(super) fn of(container: &Container) -> Self {
        let component = container
            .env
            .iter()
            .flatten()
            .find(|var| var.name == "COMPONENT")
            .and_then(|var| var.value.as_deref());
        match (container.name.as_str(), component) {
            ("k8s-driver-manager", _) => Self::Unload,
            ("driver-validation", _) | (_, Some("driver")) => Self::Driver,
            ("toolkit-validation" | "cuda-validation", _) | (_, Some("toolkit" | "cuda")) => {
                Self::Toolkit
            }
            ("plugin-validation", _) | (_, Some("plugin")) => Self::Plugin,
            _ => Self::Nothing,
        }
    }

    pub(super) fn open(self, facts: Facts) -> bool {
        match self {
            Self::Nothing => true,
            Self::Driver => facts.driver,
            Self::Toolkit => facts.toolkit,
            Self::Plugin => facts.plugin,
            Self::Unload => facts.unloaded,
        }
    }
}
