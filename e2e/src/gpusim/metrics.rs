//! The text that dcgm-exporter 4.6 serves for the cards of a node, its default fields and those that Tessera adds.

use std::fmt::Write as _;

use super::faults::Cards;
use super::hardware::Hardware;

/// Everything the text depends on, except time.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) node: String,
    pub(super) hardware: Hardware,
    pub(super) cards: Cards,
    pub(super) driver: String,
}

/// A field: name, type, help.
type Field = (&'static str, &'static str, &'static str);

const FIELDS: [Field; 26] = [
    (
        "DCGM_FI_DEV_SM_CLOCK",
        "gauge",
        "SM clock frequency (in MHz).",
    ),
    (
        "DCGM_FI_DEV_MEM_CLOCK",
        "gauge",
        "Memory clock frequency (in MHz).",
    ),
    (
        "DCGM_FI_DEV_MEMORY_TEMP",
        "gauge",
        "Memory temperature (in C).",
    ),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    (
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
    ),
    (
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "counter",
        "Total number of PCIe retries.",
    ),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
    (
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "gauge",
        "Memory utilization (in %).",
    ),
    (
        "DCGM_FI_DEV_XID_ERRORS",
        "gauge",
        "Value of the last XID error encountered.",
    ),
    (
        "DCGM_FI_DEV_FB_FREE",
        "gauge",
        "Framebuffer memory free (in MiB).",
    ),
    (
        "DCGM_FI_DEV_FB_USED",
        "gauge",
        "Framebuffer memory used (in MiB).",
    ),
    (
        "DCGM_FI_DEV_FB_RESERVED",
        "gauge",
        "Framebuffer memory reserved (in MiB).",
    ),
    (
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "counter",
        "Total number of NVLink bandwidth counters for all lanes.",
    ),
    (
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "counter",
        "Total number of single-bit volatile ECC errors.",
    ),
    (
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "counter",
        "Total number of double-bit volatile ECC errors.",
    ),
    (
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for uncorrectable errors.",
    ),
    (
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Number of remapped rows for correctable errors.",
    ),
    (
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        "gauge",
        "Whether remapping of rows has failed.",
    ),
    (
        "DCGM_FI_DEV_ROW_REMAP_PENDING",
        "gauge",
        "Whether remapping of rows is pending.",
    ),
    (
        "DCGM_FI_DEV_GPU_RECOVERY_ACTION",
        "gauge",
        "Recovery action that the driver asks for.",
    ),
    (
        "DCGM_FI_DEV_SLOWDOWN_TEMP",
        "gauge",
        "Slowdown temperature (in C).",
    ),
    (
        "DCGM_FI_DEV_POWER_VIOLATION",
        "counter",
        "Throttling duration due to power constraints (in ns).",
    ),
    (
        "DCGM_FI_DEV_THERMAL_VIOLATION",
        "counter",
        "Throttling duration due to thermal constraints (in ns).",
    ),
    (
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "gauge",
        "Ratio of time the graphics engine is active.",
    ),
    (
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "gauge",
        "Ratio of cycles the tensor pipe is active.",
    ),
];

/// The whole text, `uptime` seconds after the exporter's start.
pub(super) fn text(facts: &Facts, uptime: f64) -> String {
    let mut out = String::with_capacity(64 * 1024);
    let cards: Vec<u32> = (0..facts.hardware.cards)
        .filter(|card| !facts.cards.missing.contains(card))
        .collect();
    for field in FIELDS {
        header(&mut out, field);
        for card in &cards {
            let mut labels = labels(facts, *card);
            if let ("DCGM_FI_DEV_XID_ERRORS", Some(xid)) = (field.0, facts.cards.xid.get(card)) {
                let _ = write!(
                    labels,
                    ",err_code=\"{xid}\",err_msg=\"{}\"",
                    xid_message(*xid)
                );
            }
            let _ = writeln!(
                out,
                "{}{{{labels}}} {}",
                field.0,
                value(facts, field.0, *card, uptime)
            );
        }
    }
    xid_counts(&mut out, facts, &cards);
    out
}

fn header(out: &mut String, (name, kind, help): Field) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn labels(facts: &Facts, card: u32) -> String {
    format!(
        "gpu=\"{card}\",UUID=\"{}\",pci_bus_id=\"00000000:{:02X}:00.0\",device=\"nvidia{card}\",modelName=\"{}\",Hostname=\"{}\",DCGM_FI_DRIVER_VERSION=\"{}\"",
        uuid(&facts.node, card),
        0x10 + card * 8,
        facts.hardware.product.label().replace('-', " "),
        facts.node,
        facts.driver,
    )
}

/// Always the same for the same card.
fn uuid(node: &str, card: u32) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    (node, card).hash(&mut hasher);
    let bits = hasher.finish();
    format!(
        "GPU-{:08x}-{:04x}-4{card:03x}-8000-{:012x}",
        bits >> 32,
        bits & 0xffff,
        bits & 0xffff_ffff_ffff
    )
}

/// A quiet card, except for what the faults say.
fn value(facts: &Facts, field: &str, card: u32, uptime: f64) -> String {
    let cards = &facts.cards;
    let of = |map: &std::collections::BTreeMap<u32, u32>| map.get(&card).copied().unwrap_or(0);
    let temperature = cards
        .temperature
        .get(&card)
        .copied()
        .unwrap_or(38 + card % 5);
    let number = match field {
        "DCGM_FI_DEV_SM_CLOCK" => 1_980,
        "DCGM_FI_DEV_MEM_CLOCK" => 2_619,
        "DCGM_FI_DEV_MEMORY_TEMP" => temperature + 6,
        "DCGM_FI_DEV_GPU_TEMP" => temperature,
        "DCGM_FI_DEV_POWER_USAGE" => return format!("{:.3}", 71.25 + f64::from(card)),
        // 72 W for as long as the exporter runs.
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" => {
            return format!("{:.0}", 72_000.0f64.mul_add(uptime, 1.0e9));
        }
        "DCGM_FI_DEV_XID_ERRORS" => of(&cards.xid),
        "DCGM_FI_DEV_FB_FREE" => facts.hardware.product.memory_mib() - 624,
        "DCGM_FI_DEV_FB_USED" => 1,
        "DCGM_FI_DEV_FB_RESERVED" => 623,
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" => of(&cards.double_bit_errors),
        "DCGM_FI_DEV_ROW_REMAP_FAILURE" => u32::from(cards.remap_failure.contains(&card)),
        "DCGM_FI_DEV_ROW_REMAP_PENDING" => u32::from(cards.remap_pending.contains(&card)),
        "DCGM_FI_DEV_GPU_RECOVERY_ACTION" => of(&cards.recovery_action),
        "DCGM_FI_DEV_SLOWDOWN_TEMP" => 87,
        _ => 0,
    };
    number.to_string()
}

/// With no event there is one series without the label xid (dcgm-exporter, internal/pkg/collector/xid_collector.go).
fn xid_counts(out: &mut String, facts: &Facts, cards: &[u32]) {
    let name = "DCGM_EXP_XID_ERRORS_COUNT";
    header(
        out,
        (
            name,
            "gauge",
            "Count of XID Errors within user-specified time window (see xid-count-window-size param).",
        ),
    );
    for card in cards {
        let labels = labels(facts, *card);
        let _ = match facts.cards.xid.get(card) {
            Some(xid) => writeln!(
                out,
                "{name}{{{labels},window_size_in_ms=\"300000\",xid=\"{xid}\"}} 1"
            ),
            None => writeln!(out, "{name}{{{labels},window_size_in_ms=\"300000\"}} 0"),
        };
    }
}

fn xid_message(xid: u32) -> &'static str {
    match xid {
        13 => "Graphics Engine Exception",
        31 => "GPU memory page fault",
        48 => "Double Bit ECC Error",
        62 => "Internal micro-controller halt",
        63 => "Row remapping event",
        64 => "Row remapping failure",
        74 => "NVLINK Error",
        79 => "GPU has fallen off the bus",
        94 => "Contained ECC error",
        95 => "Uncontained ECC error",
        119 => "GSP RPC Timeout",
        _ => "Unknown Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::Product;

    #[test]
    fn a_series_for_each_card_that_is_there() {
        let facts = Facts {
            node: "gpu-00000".to_owned(),
            hardware: Hardware {
                product: Product::H100,
                cards: 8,
                layout: Vec::new(),
            },
            cards: Cards {
                missing: [7].into(),
                xid: [(3, 79)].into(),
                ..Cards::default()
            },
            driver: "535.104.05".to_owned(),
        };
        let text = text(&facts, 10.0);
        let temperatures = text
            .lines()
            .filter(|line| line.starts_with("DCGM_FI_DEV_GPU_TEMP{"))
            .count();
        assert_eq!(temperatures, 7);
        let xid: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("DCGM_FI_DEV_XID_ERRORS{gpu=\"3\""))
            .collect();
        assert!(
            xid[0].ends_with("} 79") && xid[0].contains("fallen off the bus"),
            "{xid:?}"
        );
        assert!(text.contains("xid=\"79\"} 1"));
        assert!(text.contains("DCGM_FI_DRIVER_VERSION=\"535.104.05\""));
    }
}
