//! What a policy asks for and Tessera does not do.

use crate::policy::{ClusterPolicySpec, OperandFields};

/// Paths of such fields, in the order of the spec. A switch that is off asks for nothing, and fields that NVIDIA itself ignores as
/// deprecated are not listed.
pub(super) fn paths(spec: &ClusterPolicySpec) -> Vec<String> {
    let on = |section: Option<&dyn OperandFields>| {
        section.is_some_and(|s| s.common().enabled == Some(true))
    };
    let operator = spec.operator.as_ref();
    let driver = spec.driver.as_ref();
    let validator = spec.validator.as_ref();
    let has_entries = |map: Option<&std::collections::BTreeMap<String, String>>| {
        map.is_some_and(|m| !m.is_empty())
    };
    let own_monitor = operator
        .and_then(|o| o.metrics.as_ref())
        .and_then(|m| m.service_monitor.as_ref());
    let found = [
        (
            "operator.labels",
            has_entries(operator.and_then(|o| o.labels.as_ref())),
        ),
        (
            "operator.annotations",
            has_entries(operator.and_then(|o| o.annotations.as_ref())),
        ),
        (
            "operator.use_ocp_driver_toolkit",
            operator.and_then(|o| o.use_ocp_driver_toolkit) == Some(true),
        ),
        (
            "operator.metrics.serviceMonitor",
            own_monitor.is_some_and(|m| m.enabled != Some(false)),
        ),
        (
            "driver.useNvidiaDriverCRD",
            driver.and_then(|d| d.use_nvidia_driver_crd) == Some(true),
        ),
        (
            "validator.vfioPCI",
            validator.is_some_and(|v| v.vfio_pci.is_some()),
        ),
        (
            "validator.vgpuManager",
            validator.is_some_and(|v| v.vgpu_manager.is_some()),
        ),
        (
            "validator.vgpuDevices",
            validator.is_some_and(|v| v.vgpu_devices.is_some()),
        ),
        (
            "dcgm.hostPort",
            spec.dcgm
                .as_ref()
                .is_some_and(|d| d.host_port.is_some_and(|port| port != 0)),
        ),
        (
            "psa.enabled",
            spec.psa.as_ref().and_then(|s| s.enabled) == Some(true),
        ),
        (
            "sandboxWorkloads.enabled",
            spec.sandbox_workloads.as_ref().and_then(|s| s.enabled) == Some(true),
        ),
        (
            "vfioManager.enabled",
            on(spec.vfio_manager.as_ref().map(|s| s as _)),
        ),
        (
            "sandboxDevicePlugin.enabled",
            on(spec.sandbox_device_plugin.as_ref().map(|s| s as _)),
        ),
        (
            "kataSandboxDevicePlugin.enabled",
            on(spec.kata_sandbox_device_plugin.as_ref().map(|s| s as _)),
        ),
        (
            "vgpuManager.enabled",
            on(spec.vgpu_manager.as_ref().map(|s| s as _)),
        ),
        (
            "vgpuDeviceManager.enabled",
            on(spec.vgpu_device_manager.as_ref().map(|s| s as _)),
        ),
        (
            "kataManager.enabled",
            on(spec.kata_manager.as_ref().map(|s| s as _)),
        ),
        (
            "ccManager.enabled",
            on(spec.cc_manager.as_ref().map(|s| s as _)),
        ),
    ];
    found
        .into_iter()
        .filter(|(_, given)| *given)
        .map(|(path, _)| path.to_owned())
        .collect()
}
