//! Does a node advertise what was asked of it? A pure comparison of one node with its configuration.

use tessera_api::names::{GPU_RESOURCE, MIG_RESOURCE_PREFIX, label};
use tessera_api::nodes::NodeFacts;
use tessera_api::plugin_file::Shares;
use tessera_api::policy::MigStrategy;

/// What the comparison found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advertised {
    /// As asked.
    AsAsked,
    /// It cannot be told whether it is as asked; why.
    Unclear(String),
    /// Something else, in words: `nvidia.com/gpu is 8, asked for 32 (8 cards, 4 shares each)`.
    Differs(String),
}

/// Compares a node's capacity with what its configuration asks for. Capacity, not allocatable: a card that has become
/// unhealthy is another matter than a configuration that has not arrived.
pub fn compare(node: &NodeFacts, shares: &Shares) -> Advertised {
    let mut unclear = None;
    for (name, replicas) in &shares.shared {
        match resource(node, shares, name, *replicas) {
            Advertised::AsAsked => {}
            Advertised::Unclear(why) => unclear = Some(why),
            differs @ Advertised::Differs(_) => return differs,
        }
    }
    unclear.map_or(Advertised::AsAsked, Advertised::Unclear)
}

fn resource(node: &NodeFacts, shares: &Shares, name: &str, replicas: u32) -> Advertised {
    let shared_name = format!("{name}.shared");
    let (asked, other) = if shares.renamed {
        (shared_name.as_str(), name)
    } else {
        (name, shared_name.as_str())
    };
    let of = |resource: &str| node.capacity.get(resource).copied().unwrap_or(0);
    let (found, stale) = (of(asked), of(other));
    if stale > 0 {
        return Advertised::Differs(format!(
            "{other} is still {stale}, asked for {asked} instead"
        ));
    }
    match units(node, shares.strategy, name) {
        Units::Known(count) => {
            let want = count.saturating_mul(replicas);
            if found == want {
                return Advertised::AsAsked;
            }
            let unit = if name.starts_with(MIG_RESOURCE_PREFIX) {
                "instances"
            } else {
                "cards"
            };
            Advertised::Differs(format!(
                "{asked} is {found}, asked for {want} ({count} {unit}, {replicas} shares each)"
            ))
        }
        // The plugin leaves out what the node does not have.
        Units::Absent if found == 0 => Advertised::AsAsked,
        Units::Absent | Units::Unknown if found > 0 && found.is_multiple_of(replicas) => {
            let why = format!(
                "{asked} is {found}, a multiple of {replicas}; how many cards there are is not known without feature discovery"
            );
            Advertised::Unclear(why)
        }
        Units::Absent | Units::Unknown if found > 0 => Advertised::Differs(format!(
            "{asked} is {found}, which is not a multiple of the {replicas} shares of a card"
        )),
        Units::Absent | Units::Unknown => Advertised::Differs(format!(
            "{asked} is not advertised, asked for {replicas} shares a card"
        )),
    }
}

enum Units {
    Known(u32),
    Absent,
    Unknown,
}

/// How many cards or MIG instances a node has, as feature discovery says.
fn units(node: &NodeFacts, strategy: MigStrategy, name: &str) -> Units {
    let count = |key: &str| node.label(key).and_then(|text| text.parse::<u32>().ok());
    if name.starts_with(MIG_RESOURCE_PREFIX) {
        return match count(&format!("{name}.count")) {
            Some(count) => Units::Known(count),
            // Feature discovery has run, and found no such instance.
            None if count(label::GPU_COUNT).is_some() => Units::Absent,
            None => Units::Unknown,
        };
    }
    // With MIG on some cards, gpu.count still counts all of them, but only those without MIG are advertised as such.
    let has_instances = || {
        node.labels
            .keys()
            .any(|key| key.starts_with(MIG_RESOURCE_PREFIX))
    };
    if name != GPU_RESOURCE || strategy == MigStrategy::Mixed && has_instances() {
        return Units::Unknown;
    }
    count(label::GPU_COUNT).map_or(Units::Unknown, Units::Known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)], capacity: &[(&str, u32)]) -> NodeFacts {
        NodeFacts {
            labels: labels
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            capacity: capacity
                .iter()
                .map(|(k, v)| ((*k).to_owned(), *v))
                .collect(),
            ..NodeFacts::default()
        }
    }

    fn shares(shared: &[(&str, u32)], renamed: bool, strategy: MigStrategy) -> Shares {
        Shares {
            shared: shared.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            renamed,
            ..Shares::none(strategy)
        }
    }

    const COUNT: &[(&str, &str)] = &[("nvidia.com/gpu.count", "8")];

    #[test]
    fn whole_cards() {
        let four = shares(&[("nvidia.com/gpu", 4)], false, MigStrategy::None);
        let differs = |text: &str| Advertised::Differs(text.to_owned());
        let cases = [
            (node(COUNT, &[("nvidia.com/gpu", 32)]), Advertised::AsAsked),
            (
                node(COUNT, &[("nvidia.com/gpu", 8)]),
                differs("nvidia.com/gpu is 8, asked for 32 (8 cards, 4 shares each)"),
            ),
            (
                node(COUNT, &[]),
                differs("nvidia.com/gpu is 0, asked for 32 (8 cards, 4 shares each)"),
            ),
            (
                node(&[], &[("nvidia.com/gpu", 7)]),
                differs("nvidia.com/gpu is 7, which is not a multiple of the 4 shares of a card"),
            ),
            (
                node(&[], &[]),
                differs("nvidia.com/gpu is not advertised, asked for 4 shares a card"),
            ),
            (
                node(
                    COUNT,
                    &[("nvidia.com/gpu", 32), ("nvidia.com/gpu.shared", 32)],
                ),
                differs("nvidia.com/gpu.shared is still 32, asked for nvidia.com/gpu instead"),
            ),
            // The kubelet keeps a resource that is gone with 0 until it restarts.
            (
                node(
                    COUNT,
                    &[("nvidia.com/gpu", 32), ("nvidia.com/gpu.shared", 0)],
                ),
                Advertised::AsAsked,
            ),
        ];
        for (node, want) in cases {
            assert_eq!(compare(&node, &four), want, "{:?}", node.capacity);
        }
        assert!(matches!(
            compare(&node(&[], &[("nvidia.com/gpu", 8)]), &four),
            Advertised::Unclear(_)
        ));
    }

    #[test]
    fn renamed() {
        let renamed = shares(&[("nvidia.com/gpu", 4)], true, MigStrategy::None);
        assert_eq!(
            compare(
                &node(
                    COUNT,
                    &[("nvidia.com/gpu.shared", 32), ("nvidia.com/gpu", 0)]
                ),
                &renamed
            ),
            Advertised::AsAsked
        );
        assert!(matches!(
            compare(&node(COUNT, &[("nvidia.com/gpu", 32)]), &renamed),
            Advertised::Differs(_)
        ));
    }

    #[test]
    fn mig_instances() {
        let mixed = shares(
            &[("nvidia.com/gpu", 2), ("nvidia.com/mig-1g.5gb", 3)],
            false,
            MigStrategy::Mixed,
        );
        let labels = &[
            ("nvidia.com/gpu.count", "2"),
            ("nvidia.com/mig-1g.5gb.count", "7"),
        ];
        let good = node(
            labels,
            &[("nvidia.com/mig-1g.5gb", 21), ("nvidia.com/gpu", 2)],
        );
        assert!(
            matches!(compare(&good, &mixed), Advertised::Unclear(_)),
            "how many whole cards are left is not known"
        );
        let bad = node(
            labels,
            &[("nvidia.com/mig-1g.5gb", 7), ("nvidia.com/gpu", 2)],
        );
        assert_eq!(
            compare(&bad, &mixed),
            Advertised::Differs(
                "nvidia.com/mig-1g.5gb is 7, asked for 21 (7 instances, 3 shares each)".to_owned()
            )
        );
        let none = node(&[("nvidia.com/gpu.count", "2")], &[("nvidia.com/gpu", 4)]);
        assert_eq!(
            compare(&none, &mixed),
            Advertised::AsAsked,
            "a node without such instances advertises none"
        );
    }
}
