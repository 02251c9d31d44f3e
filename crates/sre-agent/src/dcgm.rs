//! DCGM's metrics, as the exporter serves them, into one sample a node.
//!
//! Both generations of metric names and the known variants of labels are read; DCGM's blank values are not values
//! (`reference/self-healing.md` section 2.4).

use crate::exposition::Row;
use std::collections::{BTreeMap, BTreeSet};

/// Most GPUs that are read from one node, MIG parents counted once; a guard against label explosions.
const MAX_GPUS: usize = 256;

/// What a rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// The last XID; sticky.
    Xid,
    /// XIDs in a time window, by number.
    XidCount,
    /// Degrees Celsius.
    Temperature,
    /// Degrees below the limit.
    TemperatureMargin,
    /// Degrees at which the clock is slowed down.
    SlowdownTemperature,
    /// A row could not be remapped.
    RowRemapFailed,
    /// A row waits for a reset to be remapped.
    RowRemapPending,
    /// Double-bit errors since the driver was loaded.
    DoubleBitErrors,
    /// What the driver itself asks for.
    RecoveryAction,
    /// Millijoules since the driver was loaded.
    Energy,
    /// DCGM's health verdict: 0 pass, 10 warn, 20 fail.
    Health,
}

/// Names of each metric, the one that is told to people first.
const NAMES: &[(Metric, &[&str])] = &[
    (
        Metric::Xid,
        &["DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"],
    ),
    (Metric::XidCount, &["DCGM_EXP_XID_ERRORS_COUNT"]),
    (Metric::Temperature, &["DCGM_FI_DEV_GPU_TEMP"]),
    (
        Metric::TemperatureMargin,
        &[
            "DCGM_FI_DEV_GPU_TEMP_LIMIT",
            "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS",
        ],
    ),
    (Metric::SlowdownTemperature, &["DCGM_FI_DEV_SLOWDOWN_TEMP"]),
    (
        Metric::RowRemapFailed,
        &[
            "DCGM_FI_DEV_ROW_REMAP_FAILURE",
            "DCGM_FI_DEV_ROW_REMAP_FAILED",
        ],
    ),
    (Metric::RowRemapPending, &["DCGM_FI_DEV_ROW_REMAP_PENDING"]),
    (Metric::DoubleBitErrors, &["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"]),
    (
        Metric::RecoveryAction,
        &[
            "DCGM_FI_DEV_GPU_RECOVERY_ACTION",
            "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION",
        ],
    ),
    (Metric::Energy, &["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]),
    (Metric::Health, &["DCGM_EXP_GPU_HEALTH_STATUS"]),
];

/// What the rules cannot do without; an exporter that lacks one is blind to a class of faults.
const NEEDED: [Metric; 5] = [
    Metric::Xid,
    Metric::Temperature,
    Metric::RowRemapFailed,
    Metric::RowRemapPending,
    Metric::RecoveryAction,
];

/// A pod that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// What one scrape says about one GPU. `None` is "not told": never a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// Last XID, 0 for none.
    pub xid: Option<u32>,
    /// Occurrences in the exporter's window, by XID; `None` if the exporter does not count at all.
    pub xid_counts: BTreeMap<u32, f64>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// Degrees below the limit.
    pub margin: Option<f64>,
    /// Degrees at which the clock is slowed down.
    pub slowdown: Option<f64>,
    /// A row could not be remapped.
    pub remap_failed: Option<bool>,
    /// A row waits for a reset.
    pub remap_pending: Option<bool>,
    /// Double-bit errors.
    pub double_bit_errors: Option<f64>,
    /// NVML's recovery action.
    pub recovery_action: Option<u32>,
    /// Millijoules.
    pub energy: Option<f64>,
    /// DCGM's worst health verdict.
    pub health: Option<f64>,
    /// Pods that use it, as far as the exporter knows.
    pub pods: BTreeSet<PodRef>,
}

/// What one scrape says about one node, by UUID.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// GPUs by UUID (or `index-<n>` where the exporter gives none).
    pub gpus: BTreeMap<String, Gpu>,
    metrics: BTreeSet<Metric>,
}

impl Sample {
    /// Takes one row; rows of other metrics, without a GPU, or blank, are passed over.
    pub fn take(&mut self, row: &Row<'_>) {
        let Some((metric, _)) = NAMES.iter().find(|(_, names)| names.contains(&row.name)) else {
            return;
        };
        let uuid = row.label(&["UUID", "uuid", "gpu_uuid"]).map(str::to_owned);
        let Some(gpu) = uuid.or_else(|| row.label(&["gpu"]).map(|index| format!("index-{index}")))
        else {
            return;
        };
        if !self.gpus.contains_key(&gpu) && self.gpus.len() >= MAX_GPUS {
            return;
        }
        let entry = self.gpus.entry(gpu).or_default();
        if let (Some(namespace), Some(name)) = (
            row.label(&["namespace", "exported_namespace"]),
            row.label(&["pod", "exported_pod"]),
        ) {
            entry.pods.insert(PodRef {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            });
        }
        let Some(value) = value(*metric, row.value) else {
            return;
        };
        self.metrics.insert(*metric);
        store(entry, *metric, value, row.label(&["xid"]));
    }

    /// Whether any GPU is told of.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// Whether the exporter serves a metric.
    pub fn has(&self, metric: Metric) -> bool {
        self.metrics.contains(&metric)
    }

    /// The energy of all GPUs, if all have it: two equal ones in a row mean that the exporter repeats itself.
    pub fn energies(&self) -> Option<Vec<f64>> {
        if self.gpus.is_empty() {
            None
        } else {
            self.gpus.values().map(|gpu| gpu.energy).collect()
        }
    }
}

/// Metrics that rules need and none of `samples` has; none without samples, for then nothing is known.
pub fn missing(samples: &[&Sample]) -> Vec<String> {
    if samples.is_empty() {
        return Vec::new();
    }
    let absent = NEEDED
        .into_iter()
        .filter(|metric| !samples.iter().any(|sample| sample.has(*metric)));
    absent.map(|metric| name(metric).to_owned()).collect()
}

fn name(metric: Metric) -> &'static str {
    NAMES
        .iter()
        .find(|(have, _)| *have == metric)
        .and_then(|(_, names)| names.first())
        .copied()
        .unwrap_or_default()
}

/// DCGM's blanks (`dcgm_structs.h`): INT32 from 0x7ffffff0, INT64 from 0x7ffffffffffffff0, FP64 from 2^47. Counters of
/// 64 bits may rightly pass through the range of the INT32 blanks.
fn value(metric: Metric, value: f64) -> Option<f64> {
    const FP64_BLANK: f64 = 140_737_488_355_328.0;
    const INT32_BLANKS: std::ops::RangeInclusive<f64> = 2_147_483_632.0..=2_147_483_647.0;
    let wide = matches!(metric, Metric::Energy | Metric::DoubleBitErrors);
    let blank =
        !value.is_finite() || value >= FP64_BLANK || (!wide && INT32_BLANKS.contains(&value));
    let negative =
        value < 0.0 && metric != Metric::TemperatureMargin && metric != Metric::Temperature;
    (!blank && !negative).then_some(value)
}

/// The same GPU appears in several rows (time-slicing, MIG): the worst value counts.
fn store(gpu: &mut Gpu, metric: Metric, value: f64, xid: Option<&str>) {
    let max = |old: &mut Option<f64>| *old = Some(old.map_or(value, |old| old.max(value)));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // not negative and below 2^47; `as` saturates
    let whole = value as u32;
    match metric {
        Metric::Xid => gpu.xid = Some(gpu.xid.unwrap_or(0).max(whole)),
        Metric::XidCount => {
            if let Some(number) = xid.and_then(|text| text.parse().ok()) {
                let count = gpu.xid_counts.entry(number).or_insert(0.0);
                *count = count.max(value);
            }
        }
        Metric::Temperature => max(&mut gpu.temperature),
        Metric::TemperatureMargin => {
            gpu.margin = Some(gpu.margin.map_or(value, |old| old.min(value)));
        }
        Metric::SlowdownTemperature => max(&mut gpu.slowdown),
        Metric::RowRemapFailed => {
            gpu.remap_failed = Some(gpu.remap_failed.unwrap_or(false) || value >= 1.0);
        }
        Metric::RowRemapPending => {
            gpu.remap_pending = Some(gpu.remap_pending.unwrap_or(false) || value >= 1.0);
        }
        Metric::DoubleBitErrors => max(&mut gpu.double_bit_errors),
        Metric::RecoveryAction => {
            gpu.recovery_action = Some(gpu.recovery_action.unwrap_or(0).max(whole));
        }
        Metric::Energy => max(&mut gpu.energy),
        Metric::Health => max(&mut gpu.health),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::Reader;

    pub(crate) fn sample(text: &str) -> Sample {
        let mut sample = Sample::default();
        let mut reader = Reader::default();
        reader
            .feed(text.as_bytes(), &mut |row| sample.take(row))
            .unwrap();
        sample
    }

    #[test]
    fn both_generations_of_names_and_labels() {
        let old = sample(
            "DCGM_FI_DEV_XID_ERRORS{gpu=\"0\",UUID=\"GPU-a\",Hostname=\"n\"} 79\nDCGM_FI_DEV_ROW_REMAP_FAILURE{UUID=\"GPU-a\"} 1\n",
        );
        let new = sample(
            "DCGM_FI_DEV_XID_ERROR{gpu=\"0\",uuid=\"GPU-a\",hostname=\"n\"} 79\nDCGM_FI_DEV_ROW_REMAP_FAILED{gpu_uuid=\"GPU-a\"} 1\n",
        );
        assert_eq!(old, new);
        assert_eq!(old.gpus["GPU-a"].xid, Some(79));
        assert_eq!(old.gpus["GPU-a"].remap_failed, Some(true));
    }

    #[test]
    fn blanks_are_not_values() {
        for blank in [
            "9223372036854775794",
            "9223372036854775792",
            "2147483632",
            "140737488355328",
            "NaN",
            "+Inf",
            "-1",
        ] {
            let sample = sample(&format!(
                "DCGM_FI_DEV_XID_ERRORS{{UUID=\"GPU-a\"}} {blank}\n"
            ));
            assert_eq!(sample.gpus["GPU-a"].xid, None, "{blank}");
            assert!(!sample.has(Metric::Xid));
        }
        let energy = sample("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID=\"GPU-a\"} 2147483640\n");
        assert_eq!(energy.energies(), Some(vec![2_147_483_640.0]));
    }

    #[test]
    fn rows_of_shared_gpus_are_one_gpu_with_its_pods() {
        let sample = sample(
            "DCGM_FI_DEV_GPU_TEMP{UUID=\"GPU-a\",pod=\"one\",namespace=\"x\"} 60\nDCGM_FI_DEV_GPU_TEMP{UUID=\"GPU-a\",pod=\"two\",namespace=\"x\"} 61\n",
        );
        assert_eq!(sample.gpus.len(), 1);
        assert_eq!(sample.gpus["GPU-a"].pods.len(), 2);
        assert_eq!(sample.gpus["GPU-a"].temperature, Some(61.0));
    }

    #[test]
    fn counts_are_kept_by_xid() {
        let sample = sample(
            "DCGM_EXP_XID_ERRORS_COUNT{UUID=\"GPU-a\",window_size_in_ms=\"300000\",xid=\"119\"} 2\n",
        );
        assert_eq!(
            sample.gpus["GPU-a"].xid_counts,
            BTreeMap::from([(119, 2.0)])
        );
    }

    #[test]
    fn what_no_exporter_has_is_named() {
        let default = sample(
            "DCGM_FI_DEV_XID_ERRORS{UUID=\"a\"} 0\nDCGM_FI_DEV_GPU_TEMP{UUID=\"a\"} 40\nDCGM_FI_DEV_ROW_REMAP_FAILURE{UUID=\"a\"} 0\n",
        );
        assert_eq!(
            missing(&[&default]),
            [
                "DCGM_FI_DEV_ROW_REMAP_PENDING",
                "DCGM_FI_DEV_GPU_RECOVERY_ACTION"
            ]
        );
        assert!(missing(&[]).is_empty());
    }
}
