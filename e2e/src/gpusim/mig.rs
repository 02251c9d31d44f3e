//! The MIG manager's configuration (mig-parted's format) and the layouts it makes.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use serde::Deserialize;

use super::World;
use super::config::env;
use super::hardware::CardLayout;
use super::pod::Sim;
use crate::nodes::Product;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    mig_configs: BTreeMap<String, Vec<Entry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Entry {
    devices: Devices,
    mig_enabled: bool,
    #[serde(default)]
    mig_devices: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Devices {
    Some(Vec<u32>),
    /// The word `all`.
    All(#[allow(dead_code, reason = "only its presence matters")] String),
}

/// The layout that a configuration of that name makes on a node; the error is why the manager reports `failed`.
pub(super) async fn layout(
    world: &World,
    manager: &Sim,
    name: &str,
    product: Product,
    cards: u32,
) -> Result<Vec<CardLayout>, String> {
    if let Some(text) = file(world, manager).await
        && let Some(layout) = from_file(&text, name, cards)?
    {
        return Ok(layout);
    }
    generated(name, product, cards)
}

/// The mounted file, if there is one with content.
async fn file(world: &World, manager: &Sim) -> Option<String> {
    let container = manager.containers().first()?;
    let path = env(container, "CONFIG_FILE")?;
    let mount = container
        .volume_mounts
        .iter()
        .flatten()
        .find(|mount| path.starts_with(&mount.mount_path))?;
    let volumes = manager
        .pod
        .spec
        .as_ref()?
        .volumes
        .as_deref()
        .unwrap_or_default();
    let map = volumes
        .iter()
        .find(|volume| volume.name == mount.name)?
        .config_map
        .as_ref()?;
    let data = world
        .configmaps
        .get(&manager.pod.namespace().unwrap_or_default(), &map.name)
        .await?;
    data.get("config.yaml").cloned()
}

fn from_file(text: &str, name: &str, cards: u32) -> Result<Option<Vec<CardLayout>>, String> {
    let file: File = serde_saphyr::from_str(text)
        .map_err(|error| format!("the MIG configuration cannot be read: {error}"))?;
    let Some(entries) = file.mig_configs.get(name) else {
        return Ok(None);
    };
    let mut layout = Vec::new();
    for card in 0..cards {
        let of_card = entries.iter().find(|entry| match &entry.devices {
            Devices::All(_) => true,
            Devices::Some(cards) => cards.contains(&card),
        });
        layout.push(
            of_card
                .filter(|entry| entry.mig_enabled)
                .map(|entry| entry.mig_devices.clone())
                .unwrap_or_default(),
        );
    }
    Ok(Some(layout))
}

/// What the manager generates from the hardware: all-disabled, all-enabled, all-balanced, `all-<profile>`.
fn generated(name: &str, product: Product, cards: u32) -> Result<Vec<CardLayout>, String> {
    let unknown = || {
        format!(
            "MIG configuration {name} is not known for {}",
            product.label()
        )
    };
    if name == "all-disabled" {
        return Ok((0..cards).map(|_| CardLayout::new()).collect());
    }
    let slices = product.slices().ok_or_else(unknown)?;
    let card: CardLayout = match name.strip_prefix("all-").ok_or_else(unknown)? {
        "enabled" => CardLayout::new(),
        "balanced" => {
            let counts = [(1, 2), (2, 1), (3, 1)];
            let count = |g: u8| {
                counts
                    .iter()
                    .find(|(of, _)| *of == g)
                    .map(|(_, count)| *count)
            };
            slices
                .iter()
                .filter_map(|(g, gb)| Some((format!("{g}g.{gb}gb"), count(*g)?)))
                .collect()
        }
        profile => {
            let found = slices
                .into_iter()
                .find(|(g, gb)| profile == format!("{g}g.{gb}gb"));
            let (g, gb) = found.ok_or_else(unknown)?;
            CardLayout::from([(format!("{g}g.{gb}gb"), Product::most(g))])
        }
    };
    Ok((0..cards).map(|_| card.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_layouts() {
        assert_eq!(
            generated("all-1g.10gb", Product::H100, 1).unwrap(),
            [CardLayout::from([("1g.10gb".to_owned(), 7)])]
        );
        assert_eq!(
            generated("all-balanced", Product::H100, 1).unwrap()[0].len(),
            3
        );
        assert!(generated("all-1g.5gb", Product::H100, 1).is_err());
        assert!(generated("all-1g.10gb", Product::T4, 1).is_err());
        assert!(
            generated("all-disabled", Product::T4, 2)
                .unwrap()
                .iter()
                .all(CardLayout::is_empty)
        );
    }

    #[test]
    fn layouts_of_a_file() {
        let text = "version: v1\nmig-configs:\n  mine:\n  - devices: [0]\n    mig-enabled: true\n    mig-devices: {1g.10gb: 7}\n  - devices: all\n    mig-enabled: false\n    mig-devices: {}\n";
        let layout = from_file(text, "mine", 2).unwrap().unwrap();
        assert_eq!(layout[0]["1g.10gb"], 7);
        assert!(layout[1].is_empty());
        assert!(from_file(text, "other", 2).unwrap().is_none());
    }
}
