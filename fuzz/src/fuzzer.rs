//! The fuzzer's program: libFuzzer around the target that environment variable `TESSERA_FUZZ` names. Made and started by
//! `cargo xtask fuzz`, for it needs the coverage counters that only that asks the compiler for.

#![no_main]
#![allow(clippy::panic)]

use std::sync::LazyLock;

use rustix::process::{Resource, Rlimit, setrlimit};
use tessera_fuzz::{ADDRESSES, TARGET, Target};

static CHOSEN: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var(TARGET).unwrap_or_default();
    match Target::of(&name) {
        Some(target) => target,
        None => panic!("{TARGET} is {name:?}, which is no target: start it by `cargo xtask fuzz`"),
    }
});

libfuzzer_sys::fuzz_target!(init: limit(), |bytes: &[u8]| (CHOSEN.feed)(bytes));

/// libFuzzer's own limit of one allocation (`-malloc_limit_mb`) needs a sanitizer's allocator, which stable Rust has not.
fn limit() {
    let addresses = Rlimit {
        current: Some(ADDRESSES),
        maximum: Some(ADDRESSES),
    };
    if let Err(error) = setrlimit(Resource::As, addresses) {
        panic!("the limit of {ADDRESSES} bytes of addresses cannot be set: {error}");
    }
}
