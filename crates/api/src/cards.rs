//! GPU products: how much memory a card has, which of them can do MIG and how, and what a node's labels say of its cards.
//!
//! Memory is in MiB as NVML reports it with ECC on; it moves by up to two percent with driver and ECC. Source of the figures: the
//! label `nvidia.com/gpu.memory` that GPU feature discovery has written on nodes with such cards.

use crate::{
    mig::{PARTS, Part},
    names::label,
    nodes::NodeFacts,
};

/// A product.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Value of label `nvidia.com/gpu.product`; one `*` stands for any text.
    pub pattern: &'static str,
    /// Memory of a card, MiB; none where no figure is published.
    pub memory: Option<u32>,
    /// Name of its [`Part`]; none where it cannot do MIG.
    part: Option<&'static str>,
}

const fn card(pattern: &'static str, memory: u32) -> Product {
    Product {
        pattern,
        memory: Some(memory),
        part: None,
    }
}

const fn mig(pattern: &'static str, memory: u32, part: &'static str) -> Product {
    Product {
        pattern,
        memory: Some(memory),
        part: Some(part),
    }
}

const fn unmeasured(pattern: &'static str, part: &'static str) -> Product {
    Product {
        pattern,
        memory: None,
        part: Some(part),
    }
}

/// All known products.
pub const PRODUCTS: &[Product] = &[
    card("Tesla-T4", 15_360),
    card("Tesla-P4", 7_680),
    card("Tesla-V100-*-16GB", 16_384),
    card("Tesla-V100-*-32GB", 32_768),
    card("NVIDIA-L4", 23_034),
    card("NVIDIA-A10", 23_028),
    card("NVIDIA-A10G", 23_028),
    mig("NVIDIA-A30", 24_576, "A30 24 GB"),
    card("NVIDIA-A40", 46_068),
    card("NVIDIA-L40", 46_068),
    card("NVIDIA-L40S", 46_068),
    card("NVIDIA-L20", 46_068),
    card("NVIDIA-RTX-A6000", 46_068),
    mig("NVIDIA-A100-*-40GB", 40_960, "A100 40 GB"),
    mig("NVIDIA-A100-*-80GB", 81_920, "A100 80 GB, H100 80 GB"),
    mig("NVIDIA-A100-80GB-*", 81_920, "A100 80 GB, H100 80 GB"),
    mig("NVIDIA-H100-80GB-HBM3", 81_559, "A100 80 GB, H100 80 GB"),
    mig("NVIDIA-H100-PCIe", 81_559, "A100 80 GB, H100 80 GB"),
    mig("NVIDIA-H100-NVL", 95_830, "H100 NVL 94 GB"),
    mig("NVIDIA-H20", 97_871, "H20 96 GB, GH200 96 GB"),
    mig("NVIDIA-GH200-480GB", 97_871, "H20 96 GB, GH200 96 GB"),
    unmeasured("NVIDIA-GH200-144G-*", "GH200 144 GB"),
    mig("NVIDIA-H200", 143_771, "H200 141 GB"),
    unmeasured("NVIDIA-H200-NVL", "H200 141 GB"),
    mig("NVIDIA-B200", 183_359, "B200 180 GB"),
    mig("NVIDIA-GB200", 189_471, "GB200"),
    mig("NVIDIA-B300-SXM6-AC", 275_040, "B300"),
    unmeasured("NVIDIA-GB300", "GB300"),
    mig(
        "NVIDIA-RTX-PRO-6000-Blackwell-*",
        97_887,
        "RTX PRO 6000 96 GB",
    ),
    card("NVIDIA-GeForce-RTX-5090", 32_607),
];

impl Product {
    /// The product of a label's value. What feature discovery appends for shared cards and MIG (`-SHARED`, `-MIG-<profile>`) does not
    /// matter. `None` for a product that is not listed.
    pub fn of(label: &str) -> Option<&'static Self> {
        let plain = label.strip_suffix("-SHARED").unwrap_or(label);
        let plain = plain
            .split_once("-MIG-")
            .map_or(plain, |(product, _)| product);
        PRODUCTS.iter().find(|product| product.matches(plain))
    }

    fn matches(&self, product: &str) -> bool {
        match self.pattern.split_once('*') {
            None => product == self.pattern,
            Some((start, end)) => {
                product.len() > start.len() + end.len()
                    && product.starts_with(start)
                    && product.ends_with(end)
            }
        }
    }

    /// How it can be cut by MIG; `None` if it cannot.
    pub fn part(&self) -> Option<&'static Part> {
        PARTS.iter().find(|part| Some(part.name) == self.part)
    }
}

/// Memory of the largest card that any table knows, MiB; for a product without a figure, of its profile for the whole card.
pub fn largest_known() -> u32 {
    let measured = PRODUCTS.iter().filter_map(|product| product.memory);
    let whole = PARTS.iter().map(Part::memory);
    measured.chain(whole).max().unwrap_or(0)
}

/// Figures of tables move by so many percent with driver and ECC.
const TOLERANCE: u64 = 2;

/// The most memory that a card with such a figure may have, MiB: a node's own figure is exact.
pub fn most(memory: u32, is_measured: bool) -> u64 {
    let memory = u64::from(memory);
    if is_measured {
        memory
    } else {
        memory * (100 + TOLERANCE) / 100
    }
}

/// What a node's labels say of its cards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cards {
    /// The node.
    pub node: String,
    /// Product, as labelled.
    pub product: Option<String>,
    /// Memory of a card in MiB: the node's label, else that of its product.
    pub memory: Option<u32>,
    /// Whether `memory` is the node's own figure.
    pub is_measured: bool,
    /// How many cards.
    pub count: Option<u32>,
    /// CUDA compute capability.
    pub compute: Option<(u32, u32)>,
    /// Whether the cards can do MIG.
    pub mig_capable: Option<bool>,
    /// Layout that the node is labelled with.
    pub layout: Option<String>,
    /// MIG profiles of which the node has instances, as labels write them.
    pub profiles: Vec<String>,
}

impl Cards {
    /// Reads a node's labels (GPU feature discovery's, and `nvidia.com/mig.config`).
    pub fn of(node: &NodeFacts) -> Self {
        let text = |key: &str| {
            node.label(key)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let number = |key: &str| node.label(key).and_then(|text| text.parse::<u32>().ok());
        let product = text(label::GPU_PRODUCT);
        let listed = product.as_deref().and_then(Product::of);
        let measured = number(label::GPU_MEMORY).filter(|memory| *memory > 0);
        let profiles = node.labels.iter().filter_map(|(key, value)| {
            let profile = key.strip_prefix(crate::names::MIG_RESOURCE_PREFIX)?;
            let profile = profile.strip_suffix(".count")?;
            (value.parse::<u32>().is_ok_and(|count| count > 0)).then(|| profile.to_owned())
        });
        Self {
            node: node.name.clone(),
            memory: measured.or_else(|| listed.and_then(|product| product.memory)),
            is_measured: measured.is_some(),
            count: number(label::GPU_COUNT),
            compute: number(label::GPU_COMPUTE_MAJOR)
                .map(|major| (major, number(label::GPU_COMPUTE_MINOR).unwrap_or(0))),
            mig_capable: node.label(label::MIG_CAPABLE).map(|text| text == "true"),
            layout: text(label::MIG_CONFIG),
            profiles: profiles.collect(),
            product,
        }
    }

    /// How its cards can be cut by MIG, if its product is listed.
    pub fn part(&self) -> Option<&'static Part> {
        self.product.as_deref().and_then(Product::of)?.part()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_by_label() {
        let memory = |label: &str| Product::of(label).and_then(|product| product.memory);
        for (label, want) in [
            ("Tesla-T4", Some(15_360)),
            ("Tesla-T4-SHARED", Some(15_360)),
            ("Tesla-V100-SXM2-32GB", Some(32_768)),
            ("NVIDIA-A100-SXM4-40GB", Some(40_960)),
            ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", Some(40_960)),
            ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", Some(40_960)),
            ("NVIDIA-A100-80GB-PCIe", Some(81_920)),
            ("NVIDIA-H200-NVL", None),
            ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", Some(97_887)),
            ("NVIDIA-A100-40GB", None),
            ("NVIDIA-L4000", None),
        ] {
            assert_eq!(memory(label), want, "{label}");
        }
    }

    #[test]
    fn every_part_has_a_product_and_the_two_tables_agree() {
        for part in PARTS {
            let own: Vec<&Product> = PRODUCTS
                .iter()
                .filter(|product| product.part == Some(part.name))
                .collect();
            assert!(!own.is_empty(), "{}", part.name);
            for memory in own.iter().filter_map(|product| product.memory) {
                let (less, more) = (part.memory() * 95 / 100, part.memory() * 105 / 100);
                assert!(
                    (less..=more).contains(&memory),
                    "{}: {memory} and {}",
                    part.name,
                    part.memory()
                );
            }
        }
        for product in PRODUCTS.iter().filter(|product| product.part.is_some()) {
            assert!(product.part().is_some(), "{}", product.pattern);
        }
    }

    #[test]
    fn the_largest_card_is_at_least_every_card() {
        assert_eq!(largest_known(), 278 * 1024);
    }
}
