//! What strangers write and Tessera reads, as functions of bytes that must hold whatever the bytes are: the fuzzer
//! (`cargo xtask fuzz`) looks for bytes for which they do not, and an ordinary test feeds them all of `corpus/`.

// These functions are tests: they fail by panicking.
#![allow(clippy::panic)]
#![warn(missing_docs)]

mod admission_review;
mod cluster;
mod mig_layouts;
mod plugin_file;
mod resource_names;
mod sentence;

use std::path::{Path, PathBuf};

/// Environment variable that tells the fuzzer's program its target.
pub const TARGET: &str = "TESSERA_FUZZ";

/// The most memory that the fuzzer's process has at any time, its own tables and inputs included, in MiB.
pub const RESIDENT: u32 = 256;

/// The most addresses that it has, in bytes: an allocation that would never fit fails before a page of it is touched.
pub const ADDRESSES: u64 = 1 << 30;

/// The longest that one input takes, in seconds: as long as the API server waits for the webhook.
pub const TIMEOUT: u32 = 5;

/// Something that reads what strangers write.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its directory in `corpus/`.
    pub name: &'static str,
    /// What is fed with bytes.
    pub what: &'static str,
    /// Length of the longest input that the fuzzer makes, in bytes. What is let in may be longer, which only repeats more of the same.
    pub longest: usize,
    /// Panics where the bytes break something.
    pub feed: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "admission_review",
        what: "what the webhook answers about policies and agents",
        longest: 64 * 1024,
        feed: admission_review::objects,
    },
    Target {
        name: "pod_review",
        what: "what the webhook answers about Pods, and changes in them",
        longest: 64 * 1024,
        feed: admission_review::pods,
    },
    Target {
        name: "plugin_file",
        what: "a user's configuration file of the device plugin",
        longest: 32 * 1024,
        feed: plugin_file::feed,
    },
    Target {
        name: "mig_layouts",
        what: "a user's file of MIG layouts, and the search for places on the cards",
        longest: 32 * 1024,
        feed: mig_layouts::feed,
    },
    Target {
        name: "resource_names",
        what: "names, images, quantities, durations, limits and labels",
        longest: 4 * 1024,
        feed: resource_names::feed,
    },
];

impl Target {
    /// The target of this name.
    pub fn of(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// The directory of the inputs that are kept: what users write, and what once broke something.
    pub fn kept(&self) -> PathBuf {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        corpus.join(self.name)
    }
}
