//! The labels that GPU feature discovery makes (k8s-device-plugin v0.20, internal/lm).

use std::collections::BTreeMap;

use super::config::{PluginConfig, Strategy};
use super::hardware::{Hardware, resource_name};

/// All labels of a node with this hardware.
pub(super) fn of(
    hardware: &Hardware,
    config: &PluginConfig,
    mig_strategy: &str,
    driver: &str,
    present: u32,
) -> BTreeMap<String, String> {
    let product = hardware.product;
    let (sharing, _) = config.sharing();
    let sharing_label = match sharing {
        Strategy::None => "none",
        Strategy::TimeSlicing => "time-slicing",
        Strategy::Mps => "mps",
    };
    let (major, minor) = product.compute();
    let mut version = driver.split('.');
    let mut labels: BTreeMap<&str, String> = BTreeMap::from([
        ("gpu.count", present.to_string()),
        ("gpu.family", product.family().to_owned()),
        ("gpu.machine", "simulated".to_owned()),
        ("gpu.memory", product.memory_mib().to_string()),
        ("gpu.compute.major", major.to_string()),
        ("gpu.compute.minor", minor.to_string()),
        ("gpu.mode", "compute".to_owned()),
        (
            "gpu.replicas",
            config.replicas("nvidia.com/gpu").to_string(),
        ),
        ("gpu.sharing-strategy", sharing_label.to_owned()),
        ("mig.capable", product.slices().is_some().to_string()),
        ("mig.strategy", mig_strategy.to_owned()),
        ("mps.capable", (sharing == Strategy::Mps).to_string()),
        ("vgpu.present", "false".to_owned()),
        ("cuda.driver-version.full", driver.to_owned()),
        (
            "cuda.driver-version.major",
            version.next().unwrap_or_default().to_owned(),
        ),
        (
            "cuda.driver-version.minor",
            version.next().unwrap_or_default().to_owned(),
        ),
        (
            "cuda.driver-version.revision",
            version.next().unwrap_or_default().to_owned(),
        ),
        ("cuda.runtime-version.full", "12.2".to_owned()),
        ("cuda.runtime-version.major", "12".to_owned()),
        ("cuda.runtime-version.minor", "2".to_owned()),
    ]);
    labels.insert("gpu.product", product_label(hardware, config, mig_strategy));
    let mut labels: BTreeMap<String, String> = labels
        .into_iter()
        .map(|(key, value)| (format!("nvidia.com/{key}"), value))
        .collect();
    if hardware.mig() {
        mig_labels(hardware, config, mig_strategy, &mut labels);
    }
    labels
}

fn product_label(hardware: &Hardware, config: &PluginConfig, mig_strategy: &str) -> String {
    let mut name = hardware.product.label().to_owned();
    if let ("single", Some(layout)) = (mig_strategy, hardware.instances(0)) {
        match layout.keys().next() {
            Some(profile) if layout.len() == 1 => {
                name.push_str("-MIG-");
                name.push_str(&resource_name(profile));
            }
            _ => name.push_str("-MIG-INVALID"),
        }
    }
    if config.replicas("nvidia.com/gpu") > 1 && !config.renames() {
        name += "-SHARED";
    }
    name
}

fn mig_labels(
    hardware: &Hardware,
    config: &PluginConfig,
    mig_strategy: &str,
    labels: &mut BTreeMap<String, String>,
) {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for (profile, count) in hardware.layout.iter().flatten() {
        *counts.entry(profile).or_default() += count;
    }
    match mig_strategy {
        "single" => {
            let total: u32 = counts.values().sum();
            labels.insert("nvidia.com/gpu.count".to_owned(), total.to_string());
        }
        "mixed" => {
            for (profile, count) in counts {
                let name = format!("nvidia.com/mig-{}", resource_name(profile));
                labels.insert(format!("{name}.count"), count.to_string());
                labels.insert(
                    format!("{name}.product"),
                    format!(
                        "{}-MIG-{}",
                        hardware.product.label(),
                        resource_name(profile)
                    ),
                );
                labels.insert(
                    format!("{name}.replicas"),
                    config.replicas(&name).to_string(),
                );
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Product;

    #[test]
    fn a_shared_card_says_so() {
        let config = PluginConfig::parse(
            "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
        )
        .unwrap();
        let hardware = Hardware {
            product: Product::H100,
            cards: 8,
            layout: Vec::new(),
        };
        let labels = of(&hardware, &config, "none", "535.104.05", 8);
        assert_eq!(
            labels["nvidia.com/gpu.product"],
            "NVIDIA-H100-80GB-HBM3-SHARED"
        );
        assert_eq!(labels["nvidia.com/gpu.replicas"], "4");
        assert_eq!(labels["nvidia.com/gpu.sharing-strategy"], "time-slicing");
        assert_eq!(labels["nvidia.com/cuda.driver-version.revision"], "05");
        assert!(labels.values().all(|value| value.len() <= 63));
    }
}
