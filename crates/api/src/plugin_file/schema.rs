//! Every key that the device plugin's file may have (NVIDIA/k8s-device-plugin v0.20.0, `api/config/v1`), as a tree.

/// What may stand at one place of the file.
pub(super) enum Shape {
    /// A value.
    Leaf,
    /// A value that the plugin reads and then ignores; why.
    Ignored(&'static str),
    /// A map with these keys.
    Map(&'static [(&'static str, Shape)]),
    /// A list of such values.
    List(&'static Shape),
}

use Shape::{Ignored, Leaf, List, Map};

const PATTERNS: &str =
    "the plugin ignores it: resources cannot be renamed or picked by pattern in this version";

const SHARED: Shape = Map(&[
    ("renameByDefault", Leaf),
    ("failRequestsGreaterThanOne", Leaf),
    (
        "resources",
        List(&Map(&[
            ("name", Leaf),
            ("replicas", Leaf),
            (
                "rename",
                Ignored(
                    "the plugin ignores it: use renameByDefault, which makes the name <name>.shared",
                ),
            ),
            (
                "devices",
                Ignored(
                    "the plugin ignores it and shares all devices: replicas cannot differ by card of one node",
                ),
            ),
        ])),
    ),
]);

/// The file.
pub(super) const FILE: Shape = Map(&[
    ("version", Leaf),
    (
        "flags",
        Map(&[
            ("migStrategy", Leaf),
            ("failOnInitError", Leaf),
            ("mpsRoot", Leaf),
            ("nvidiaDriverRoot", Leaf),
            ("nvidiaDevRoot", Leaf),
            ("gdrcopyEnabled", Leaf),
            ("gdsEnabled", Leaf),
            ("mofedEnabled", Leaf),
            ("useNodeFeatureAPI", Leaf),
            ("deviceDiscoveryStrategy", Leaf),
            (
                "plugin",
                Map(&[
                    ("passDeviceSpecs", Leaf),
                    ("deviceListStrategy", Leaf),
                    ("deviceIDStrategy", Leaf),
                    ("cdiAnnotationPrefix", Leaf),
                    ("nvidiaCTKPath", Leaf),
                    ("containerDriverRoot", Leaf),
                    ("sharedDevicesAllocationPolicy", Leaf),
                ]),
            ),
            (
                "gfd",
                Map(&[
                    ("oneshot", Leaf),
                    ("noTimestamp", Leaf),
                    ("sleepInterval", Leaf),
                    ("outputFile", Leaf),
                    ("machineTypeFile", Leaf),
                ]),
            ),
        ]),
    ),
    ("resources", Ignored(PATTERNS)),
    ("sharing", Map(&[("timeSlicing", SHARED), ("mps", SHARED)])),
    ("imex", Map(&[("channelIDs", Leaf), ("required", Leaf)])),
]);

/// Where else in the file a key of this name belongs.
pub(super) fn place_of(key: &str) -> Option<String> {
    find(&FILE, key, "")
}

fn find(shape: &Shape, key: &str, path: &str) -> Option<String> {
    match shape {
        Map(entries) => entries.iter().find_map(|(name, inner)| {
            let here = if path.is_empty() {
                (*name).to_owned()
            } else {
                format!("{path}.{name}")
            };
            if name.eq_ignore_ascii_case(key) {
                Some(here)
            } else {
                find(inner, key, &here)
            }
        }),
        List(inner) => find(inner, key, &format!("{path}[]")),
        Leaf | Ignored(_) => None,
    }
}
