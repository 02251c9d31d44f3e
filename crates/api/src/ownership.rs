//! Who writes what (DESIGN section 3), as data: for the contract headers, for RBAC, and for tests that compare it with `managedFields`.

use crate::{
    conditions::ComponentCondition,
    names::{NODE_LABELS_MANAGER, controller},
};

/// What one writer owns. Paths are of the object named by `on`; a path owns everything below it.
#[derive(Clone, Copy, Debug)]
pub struct Ownership {
    /// The process (or, for the shared labels, the shared field manager).
    pub writer: &'static str,
    /// Its server-side apply field manager.
    pub field_manager: &'static str,
    /// Kinds that it creates and owns whole, in objects labelled `app.kubernetes.io/managed-by: <writer>`.
    pub kinds: &'static [&'static str],
    /// Parts of other objects.
    pub parts: &'static [Part],
    /// Conditions of the active ClusterPolicy.
    pub conditions: &'static [ComponentCondition],
}

/// A part of an object that several writers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// Kind.
    pub on: &'static str,
    /// Path in it; a `*` at the end stands for any rest.
    pub path: &'static str,
}

const fn part(on: &'static str, path: &'static str) -> Part {
    Part { on, path }
}

/// The one shared, computed path: whoever changes a component condition writes these with it, by compare-and-swap.
pub const COMPUTED: [Part; 4] = [
    part("ClusterPolicy", "status.state"),
    part("ClusterPolicy", "status.conditions[Ready]"),
    part("ClusterPolicy", "status.conditions[Supported]"),
    part("ClusterPolicy", "status.effective"),
];

/// Everything that is written, by writer.
pub const TABLE: [Ownership; 7] = [
    Ownership {
        writer: controller::DRIVER,
        field_manager: "driver-controller.aiops.local",
        kinds: &["DaemonSet", "ConfigMap", "RuntimeClass"],
        parts: &[
            part("ClusterPolicy", "status.driver"),
            part("ClusterPolicy", "status.namespace"),
            part("NodeOperation", "status of operation DriverUpgrade"),
            part(
                "Node",
                "metadata.labels[nvidia.com/gpu-driver-upgrade-state]",
            ),
            part(
                "Node",
                "metadata.annotations[nvidia.com/gpu-driver-upgrade-enabled]",
            ),
            part("Node", "spec.unschedulable during DriverUpgrade"),
        ],
        conditions: &[
            ComponentCondition::DriverReady,
            ComponentCondition::ToolkitReady,
            ComponentCondition::ValidatorReady,
        ],
    },
    Ownership {
        writer: controller::DEVICE_PLUGIN,
        field_manager: "device-plugin-controller.aiops.local",
        kinds: &["DaemonSet", "ConfigMap"],
        parts: &[
            part("ClusterPolicy", "status.devicePlugin"),
            part("NodeOperation", "status of operation MigChange"),
            part("Node", "metadata.labels[nvidia.com/mig.config]"),
            part("Node", "spec.unschedulable during MigChange"),
        ],
        conditions: &[
            ComponentCondition::DevicePluginReady,
            ComponentCondition::FeatureDiscoveryReady,
            ComponentCondition::SharingApplied,
            ComponentCondition::MigReady,
        ],
    },
    Ownership {
        writer: controller::DCGM_MONITOR,
        field_manager: "dcgm-monitor-controller.aiops.local",
        kinds: &[
            "DaemonSet",
            "ConfigMap",
            "Service",
            "ServiceMonitor",
            "PrometheusRule",
        ],
        parts: &[part("ClusterPolicy", "status.dcgm")],
        conditions: &[
            ComponentCondition::ExporterReady,
            ComponentCondition::MonitoringReady,
        ],
    },
    Ownership {
        writer: controller::SREAGENT,
        field_manager: "sreagent-controller.aiops.local",
        kinds: &[
            "Deployment",
            "ServiceAccount",
            "ClusterRoleBinding",
            "RoleBinding",
        ],
        parts: &[
            part("SREAgent", "status.observedGeneration"),
            part("SREAgent", "status.phase"),
            part("SREAgent", "status.conditions"),
            part("SREAgent", "metadata.finalizers"),
        ],
        conditions: &[],
    },
    Ownership {
        writer: controller::SRE_AGENT,
        field_manager: "sre-agent.aiops.local",
        kinds: &[],
        parts: &[
            part("SREAgent", "status.agent"),
            part("NodeOperation", "status of operation Repair"),
            part("Node", "spec.unschedulable during Repair"),
            part("Node", "metadata.annotations[aiops.local/cordoned-by]"),
        ],
        conditions: &[],
    },
    Ownership {
        writer: controller::WEBHOOK,
        field_manager: "webhook.aiops.local",
        kinds: &["Secret"],
        parts: &[part("ValidatingWebhookConfiguration", "webhooks")],
        conditions: &[],
    },
    Ownership {
        writer: NODE_LABELS_MANAGER,
        field_manager: NODE_LABELS_MANAGER,
        kinds: &[],
        parts: &[
            part("Node", "metadata.labels[nvidia.com/gpu.present]"),
            part("Node", "metadata.labels[nvidia.com/gpu.deploy.*]"),
        ],
        conditions: &[],
    },
];

/// The entry of a writer.
pub fn of(writer: &str) -> Option<&'static Ownership> {
    TABLE.iter().find(|entry| entry.writer == writer)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn overlaps(a: Part, b: Part) -> bool {
        let prefix = |path: &'static str| path.trim_end_matches('*');
        let covers = |outer: &'static str, inner: &'static str| {
            let outer_prefix = prefix(outer);
            inner == outer_prefix
                || outer.ends_with('*') && inner.starts_with(outer_prefix)
                || inner
                    .strip_prefix(outer_prefix)
                    .is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        a.on == b.on && (covers(a.path, b.path) || covers(b.path, a.path))
    }

    #[test]
    fn no_path_has_two_owners() {
        let condition = |c: &ComponentCondition| Part {
            on: "ClusterPolicy",
            path: Box::leak(format!("status.conditions[{c}]").into_boxed_str()),
        };
        let mut owned: Vec<(&str, Part)> = COMPUTED.iter().map(|p| ("computed", *p)).collect();
        for entry in &TABLE {
            owned.extend(entry.parts.iter().map(|p| (entry.writer, *p)));
            owned.extend(
                entry
                    .conditions
                    .iter()
                    .map(|c| (entry.writer, condition(c))),
            );
        }
        for (i, (first, a)) in owned.iter().enumerate() {
            for (second, b) in owned.iter().skip(i + 1) {
                assert!(
                    !overlaps(*a, *b),
                    "{first} and {second} both own {a:?} / {b:?}"
                );
            }
        }
    }

    #[test]
    fn every_component_condition_has_the_owner_that_it_names() {
        let by_table: BTreeMap<ComponentCondition, &str> = TABLE
            .iter()
            .flat_map(|e| e.conditions.iter().map(|c| (*c, e.writer)))
            .collect();
        for component in ComponentCondition::COMPONENTS {
            assert_eq!(
                by_table.get(&component).copied(),
                component.controller(),
                "{component}"
            );
        }
        assert_eq!(by_table.len(), ComponentCondition::COMPONENTS.len());
    }

    #[test]
    fn field_managers_are_named_after_their_writers_and_distinct() {
        for entry in TABLE.iter().filter(|e| e.writer != NODE_LABELS_MANAGER) {
            assert_eq!(entry.field_manager, controller::field_manager(entry.writer));
        }
        let distinct: BTreeSet<&str> = TABLE.iter().map(|e| e.field_manager).collect();
        assert_eq!(distinct.len(), TABLE.len());
        assert!(of("driver-controller").is_some());
        assert!(of("nobody").is_none());
    }
}
