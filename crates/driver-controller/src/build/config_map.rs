//! The script by which a driver pod becomes ready.

use super::DRIVER;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use tessera_api::names::{VALIDATIONS_DIR, app, config_map, label};

/// Key and file name of the script.
pub const SCRIPT: &str = "startup-probe.sh";

/// The ConfigMap with the driver's startup probe.
pub fn startup_probe(namespace: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(config_map::DRIVER_STARTUP_PROBE.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([
                (label::APP.to_owned(), app::DRIVER.to_owned()),
                (label::COMPONENT.to_owned(), DRIVER.to_owned()),
            ])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(SCRIPT.to_owned(), script())])),
        ..ConfigMap::default()
    }
}

/// The driver is up when its kernel module is loaded and nvidia-smi can talk to it. Then the file is written that the
/// validator waits for; it tells which optional modules the validator must find too. It appears by a rename, so that
/// nobody reads half of it.
fn script() -> String {
    format!(
        r#"#!/bin/sh
set -eu
ready={VALIDATIONS_DIR}/.driver-ctr-ready
if ! [ -e /sys/module/nvidia/refcnt ]; then
    echo "the kernel module nvidia is not loaded yet"
    exit 1
fi
if ! nvidia-smi; then
    echo "nvidia-smi cannot talk to the driver"
    exit 1
fi
mkdir -p {VALIDATIONS_DIR}
cat > "$ready.new" <<END
GDRCOPY_ENABLED: ${{GDRCOPY_ENABLED:-false}}
GDS_ENABLED: ${{GDS_ENABLED:-false}}
GPU_DIRECT_RDMA_ENABLED: ${{GPU_DIRECT_RDMA_ENABLED:-false}}
END
mv "$ready.new" "$ready"
"#
    )
}
