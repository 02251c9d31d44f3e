//! GPU products: what their cards report.

/// A product that nodes can have. Memory is what NVML reports in MiB, with ECC on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Tesla T4, without MIG.
    T4,
    /// L40S, without MIG.
    L40s,
    /// A100 with 80 GB.
    A100,
    /// H100 with 80 GB of HBM3.
    H100,
    /// H200.
    H200,
    /// B200.
    B200,
}

impl Product {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::T4,
        Self::L40s,
        Self::A100,
        Self::H100,
        Self::H200,
        Self::B200,
    ];

    /// The value of label `nvidia.com/gpu.product` without suffixes.
    pub fn label(self) -> &'static str {
        match self {
            Self::T4 => "Tesla-T4",
            Self::L40s => "NVIDIA-L40S",
            Self::A100 => "NVIDIA-A100-SXM4-80GB",
            Self::H100 => "NVIDIA-H100-80GB-HBM3",
            Self::H200 => "NVIDIA-H200",
            Self::B200 => "NVIDIA-B200",
        }
    }

    /// The product of a label.
    pub fn of_label(label: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|product| product.label() == label)
    }

    /// Memory of a card, MiB.
    pub fn memory_mib(self) -> u32 {
        match self {
            Self::T4 => 15_360,
            Self::L40s => 46_068,
            Self::A100 => 81_920,
            Self::H100 => 81_559,
            Self::H200 => 143_771,
            Self::B200 => 183_359,
        }
    }

    /// Value of `nvidia.com/gpu.family`.
    pub fn family(self) -> &'static str {
        match self {
            Self::T4 => "turing",
            Self::L40s => "ada-lovelace",
            Self::A100 => "ampere",
            Self::H100 | Self::H200 => "hopper",
            Self::B200 => "blackwell",
        }
    }

    /// CUDA compute capability.
    pub fn compute(self) -> (u8, u8) {
        match self {
            Self::T4 => (7, 5),
            Self::L40s => (8, 9),
            Self::A100 => (8, 0),
            Self::H100 | Self::H200 => (9, 0),
            Self::B200 => (10, 0),
        }
    }

    /// Memory of a MIG slice in GB as profile names have it, for 1g, 2g, 3g, 4g and 7g; `None` without MIG.
    pub fn slices(self) -> Option<[(u8, u16); 5]> {
        let sizes = match self {
            Self::T4 | Self::L40s => return None,
            Self::A100 | Self::H100 => [10, 20, 40, 40, 80],
            Self::H200 => [18, 35, 71, 71, 141],
            Self::B200 => [23, 45, 90, 90, 180],
        };
        let [one, two, three, four, seven] = sizes;
        Some([(1, one), (2, two), (3, three), (4, four), (7, seven)])
    }

    /// Most instances of a profile of `g` compute slices on one card.
    pub fn most(g: u8) -> u32 {
        match g {
            1 => 7,
            2 => 3,
            3 => 2,
            _ => 1,
        }
    }
}
