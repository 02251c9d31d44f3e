//! What the charts render and refuse. Only helm is needed, no cluster.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a scenario fails by panicking and shows what it measured"
)]

mod admission;
mod helm;
mod pods;
mod policy;
mod refusals;
mod values;
