//! What NVIDIA's MIG manager says about a node by its labels (NVIDIA/mig-parted v0.15.0): `nvidia.com/mig.config` asks,
//! `nvidia.com/mig.config.state` answers, and operands are paused by their deploy labels in between.

use tessera_api::names::label;
use tessera_api::nodes::NodeFacts;
use tessera_api::policy::MigStrategy;

/// Where a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No layout is asked for, or it is in place.
    Settled,
    /// A layout is being applied, or will be; what is known of it.
    Pending(String),
    /// It could not be applied; what to do.
    Failed(String),
    /// It is in place and the device plugin cannot advertise it; why.
    Unusable(String),
}

/// Reads a node's labels. `layouts` are the names in the user's own list of layouts; `None` where the MIG manager derives
/// them from the cards.
pub fn standing(node: &NodeFacts, strategy: MigStrategy, layouts: Option<&[String]>) -> Standing {
    let Some(layout) = node
        .label(label::MIG_CONFIG)
        .filter(|layout| !layout.is_empty())
    else {
        return Standing::Settled;
    };
    if let Some(known) = layouts.filter(|known| !known.iter().any(|name| name == layout)) {
        let why = format!(
            "label {} asks for layout {layout}, and the ConfigMap has only {}",
            label::MIG_CONFIG,
            known.join(", ")
        );
        return Standing::Failed(why);
    }
    match node.label(label::MIG_CONFIG_STATE).unwrap_or_default() {
        "success" => usable(node, strategy, layout),
        "failed" => {
            let pod = "kubectl logs -l app=nvidia-mig-manager";
            Standing::Failed(format!(
                "layout {layout} could not be applied; see {pod} on that node, then set the label again"
            ))
        }
        "rebooting" => Standing::Pending(format!("layout {layout} is applied after a reboot")),
        "pending" => Standing::Pending(format!("layout {layout} is being applied")),
        _ => Standing::Pending(format!(
            "the MIG manager has not looked at layout {layout} yet"
        )),
    }
}

/// Partitioned is not usable: under `single` all instances of a node must be alike (feature discovery marks it otherwise).
fn usable(node: &NodeFacts, strategy: MigStrategy, layout: &str) -> Standing {
    let is_marked = node
        .label(label::GPU_PRODUCT)
        .is_some_and(|product| product.ends_with("-MIG-INVALID"));
    if is_marked && strategy == MigStrategy::Single {
        let why = format!(
            "layout {layout} has different instances, and strategy single needs equal ones: choose another layout, or strategy mixed"
        );
        return Standing::Unusable(why);
    }
    Standing::Settled
}

/// Whether the MIG manager has paused operands on this node.
pub fn is_paused(node: &NodeFacts) -> bool {
    let paused = |(key, value): (&String, &String)| {
        key.starts_with(label::DEPLOY_PREFIX) && value == label::PAUSED_FOR_MIG_CHANGE
    };
    node.labels.iter().any(paused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)]) -> NodeFacts {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        NodeFacts {
            labels,
            ..NodeFacts::default()
        }
    }

    #[test]
    fn labels_are_read_as_the_mig_manager_writes_them() {
        let config = ("nvidia.com/mig.config", "all-1g.5gb");
        let state = |state: &'static str| node(&[config, ("nvidia.com/mig.config.state", state)]);
        let read = |node: &NodeFacts| standing(node, MigStrategy::Single, None);
        assert_eq!(read(&node(&[])), Standing::Settled);
        assert_eq!(read(&state("success")), Standing::Settled);
        assert!(matches!(read(&node(&[config])), Standing::Pending(_)));
        assert!(matches!(read(&state("pending")), Standing::Pending(_)));
        assert!(
            matches!(read(&state("rebooting")), Standing::Pending(text) if text.contains("reboot"))
        );
        assert!(matches!(read(&state("failed")), Standing::Failed(_)));
        let uneven = [
            config,
            ("nvidia.com/mig.config.state", "success"),
            ("nvidia.com/gpu.product", "NVIDIA-A100-MIG-INVALID"),
        ];
        assert!(matches!(read(&node(&uneven)), Standing::Unusable(_)));
        assert_eq!(
            standing(&node(&uneven), MigStrategy::Mixed, None),
            Standing::Settled
        );
        let known = ["all-disabled".to_owned()];
        assert!(
            matches!(standing(&state("success"), MigStrategy::Single, Some(&known)), Standing::Failed(text) if text.contains("all-disabled"))
        );
    }

    #[test]
    fn pauses_are_seen() {
        assert!(is_paused(&node(&[(
            "nvidia.com/gpu.deploy.dcgm",
            "paused-for-mig-change"
        )])));
        assert!(!is_paused(&node(&[(
            "nvidia.com/gpu.deploy.dcgm",
            "paused-for-driver-upgrade"
        )])));
    }
}
