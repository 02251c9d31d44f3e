//! The built-in list of metrics: what the exporter collects by default, and what dashboards, alerts and the repair agent need beyond.
//!
//! Names are those of DCGM before 4.6, which newer versions keep as aliases. Sources: NVIDIA/dcgm-exporter `etc/dcp-metrics-included.csv`
//! and NVIDIA/go-dcgm `pkg/dcgm/const_fields.go`, which decides what a build of the exporter knows.

use std::fmt::Write;

use tessera_api::ImageRef;

type Metric = (&'static str, &'static str, &'static str);

/// The first exporter whose build knows every field of [`RECENT`] (go-dcgm of April 2026).
const RECENT_SINCE: [u32; 3] = [4, 8, 2];

/// Known to every exporter since 2021.
const PROVEN: [(&str, &[Metric]); 9] = [
    (
        "Clocks",
        &[
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
        ],
    ),
    (
        "Temperature and power",
        &[
            (
                "DCGM_FI_DEV_MEMORY_TEMP",
                "gauge",
                "Memory temperature (in C).",
            ),
            ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
            (
                "DCGM_FI_DEV_SLOWDOWN_TEMP",
                "gauge",
                "Temperature at which the GPU slows down (in C).",
            ),
            ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
            (
                "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
                "gauge",
                "Power limit in force (in W).",
            ),
            (
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
                "counter",
                "Total energy consumption since the driver was loaded (in mJ).",
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
        ],
    ),
    (
        "Utilization (not on MIG instances: see DCGM_FI_PROF_GR_ENGINE_ACTIVE)",
        &[
            ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
            (
                "DCGM_FI_DEV_MEM_COPY_UTIL",
                "gauge",
                "Memory bandwidth utilization (in %).",
            ),
            (
                "DCGM_FI_DEV_ENC_UTIL",
                "gauge",
                "Encoder utilization (in %).",
            ),
            (
                "DCGM_FI_DEV_DEC_UTIL",
                "gauge",
                "Decoder utilization (in %).",
            ),
        ],
    ),
    (
        "Memory",
        &[
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
        ],
    ),
    (
        "Errors",
        &[
            (
                "DCGM_FI_DEV_XID_ERRORS",
                "gauge",
                "The last XID error; keeps its value until the driver is reloaded.",
            ),
            (
                "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
                "counter",
                "PCIe retries.",
            ),
            (
                "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
                "counter",
                "Single-bit ECC errors since the driver was loaded.",
            ),
            (
                "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
                "counter",
                "Double-bit ECC errors since the driver was loaded.",
            ),
            (
                "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
                "counter",
                "Double-bit ECC errors in the life of the card.",
            ),
            (
                "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
                "counter",
                "Rows remapped because of uncorrectable errors.",
            ),
            (
                "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
                "counter",
                "Rows remapped because of correctable errors.",
            ),
            (
                "DCGM_FI_DEV_ROW_REMAP_FAILURE",
                "gauge",
                "Whether remapping of rows has failed.",
            ),
            (
                "DCGM_FI_DEV_ROW_REMAP_PENDING",
                "gauge",
                "Whether rows wait for a reset to be remapped.",
            ),
        ],
    ),
    (
        "NVLink",
        &[
            (
                "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
                "counter",
                "NVLink bandwidth counters of all lanes.",
            ),
            (
                "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
                "counter",
                "NVLink flow-control CRC errors.",
            ),
            (
                "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
                "counter",
                "NVLink data CRC errors.",
            ),
            (
                "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
                "counter",
                "NVLink retries.",
            ),
            (
                "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
                "counter",
                "NVLink recovery errors.",
            ),
        ],
    ),
    (
        "vGPU",
        &[(
            "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
            "gauge",
            "vGPU license status.",
        )],
    ),
    (
        "Labels of the other metrics",
        &[("DCGM_FI_DRIVER_VERSION", "label", "Driver version.")],
    ),
    (
        "Profiling",
        &[
            (
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
                "gauge",
                "Ratio of time the graphics engine is active.",
            ),
            (
                "DCGM_FI_PROF_SM_ACTIVE",
                "gauge",
                "Ratio of cycles an SM has at least one warp assigned.",
            ),
            (
                "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
                "gauge",
                "Ratio of cycles the tensor pipe is active.",
            ),
            (
                "DCGM_FI_PROF_DRAM_ACTIVE",
                "gauge",
                "Ratio of cycles the device memory interface sends or receives.",
            ),
            (
                "DCGM_FI_PROF_PCIE_TX_BYTES",
                "gauge",
                "Bytes a second sent over PCIe, headers included.",
            ),
            (
                "DCGM_FI_PROF_PCIE_RX_BYTES",
                "gauge",
                "Bytes a second received over PCIe, headers included.",
            ),
        ],
    ),
];

/// Fields that older builds do not know, which would stop them. Not here: DCGM_EXP_GPU_HEALTH_STATUS, with which the exporter ends on
/// cards that are not made for data centres.
const RECENT: (&str, &[Metric]) = (
    "Known since exporter 4.8.2",
    &[
        (
            "DCGM_FI_DEV_FB_RESERVED",
            "gauge",
            "Framebuffer memory reserved (in MiB).",
        ),
        (
            "DCGM_FI_DEV_GPU_TEMP_LIMIT",
            "gauge",
            "Margin to the temperature at which the GPU slows down (in C).",
        ),
        (
            "DCGM_FI_DEV_THRESHOLD_SRM",
            "gauge",
            "Whether SRAM errors exceed their threshold.",
        ),
        (
            "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY",
            "gauge",
            "Health of the fabric: 1 healthy, 2 unhealthy, 3 limited.",
        ),
        (
            "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION",
            "gauge",
            "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset.",
        ),
        (
            "DCGM_EXP_XID_ERRORS_COUNT",
            "gauge",
            "XID errors within the last window, by xid.",
        ),
        (
            "DCGM_EXP_CLOCK_EVENTS_COUNT",
            "gauge",
            "Samples with a clock event within the last window, by clock_event.",
        ),
    ],
);

/// The metrics file for an exporter of `image`: the full list where its build is known to have every field.
pub fn metrics_file(image: &ImageRef) -> String {
    let recent = is_recent(image).then_some(RECENT);
    let mut text = String::from("# field, type, help\n");
    for (title, metrics) in PROVEN.into_iter().chain(recent) {
        let _ = writeln!(text, "\n# {title}");
        for (name, kind, help) in metrics {
            let help = if help.contains(',') {
                format!("\"{help}\"")
            } else {
                (*help).to_owned()
            };
            let _ = writeln!(text, "{name},{kind},{help}");
        }
    }
    text
}

/// NVIDIA's tags are `<DCGM version>-<exporter version>-<base>`, e.g. `4.6.0-4.8.3-distroless`.
fn is_recent(image: &ImageRef) -> bool {
    let Some(tag) = image.tag.as_deref().filter(|_| image.digest.is_none()) else {
        return false;
    };
    let exporter = tag.split('-').nth(1).unwrap_or_default();
    let numbers: Option<Vec<u32>> = exporter.split('.').map(|part| part.parse().ok()).collect();
    numbers
        .is_some_and(|numbers| numbers.len() == 3 && numbers.as_slice() >= RECENT_SINCE.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics_csv::check;
    use tessera_api::image::ImageKind;

    #[test]
    fn the_list_follows_the_image() {
        let cases = [
            (ImageKind::DcgmExporter.builtin(), true),
            (
                "mirror.example:5000/x/dcgm-exporter:4.6.0-4.8.3-distroless",
                true,
            ),
            (
                "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-ubuntu22.04",
                true,
            ),
            (
                "nvcr.io/nvidia/k8s/dcgm-exporter:4.7.1-4.10.0-distroless",
                true,
            ),
            (
                "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3-4.1.3-ubuntu22.04",
                false,
            ),
            (
                "nvcr.io/nvidia/k8s/dcgm-exporter:3.3.9-3.6.1-ubuntu22.04",
                false,
            ),
            ("example.org/mine:latest", false),
            ("example.org/mine", false),
            ("nvcr.io/nvidia/k8s/dcgm-exporter@sha256:0123", false),
        ];
        for (image, recent) in cases {
            let file = metrics_file(&ImageRef::parse(image));
            assert_eq!(
                file.contains("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY"),
                recent,
                "{image}"
            );
            assert!(check(&file).is_ok(), "{image}: {:?}", check(&file));
        }
    }

    #[test]
    fn each_field_once() {
        let file = metrics_file(&ImageRef::parse(ImageKind::DcgmExporter.builtin()));
        let mut names: Vec<&str> = file
            .lines()
            .filter(|l| l.starts_with("DCGM"))
            .filter_map(|l| l.split(',').next())
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(check(&file), Ok(all));
    }
}
