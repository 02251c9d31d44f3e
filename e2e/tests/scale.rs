//! A hundred GPU nodes: the budgets that must not grow with the cluster. (Issue "The main job", section 7, item 3.)
//!
//! `main_job` has the same with three nodes, and the policy as an overlay; `cargo xtask bench` takes more measurements.

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

use tessera_e2e::bench::{self, Plan};
use tessera_e2e::{Lab, nodes};

const N: usize = 100;

/// Memory is judged by `cargo xtask bench` alone: its budget is for release binaries.
const NOT_HERE: &str = "memory";

#[tokio::test]
async fn a_hundred_nodes_stay_within_the_budgets() -> anyhow::Result<()> {
    let lab = Lab::for_test("hundred", nodes::gpu_nodes(N)).await?;
    let plan = Plan {
        nodes: N,
        broken_minute: false,
        upgrade: false,
        // Answers of a debug build beside everything else that a test run does tell nothing.
        admission: false,
    };
    let rows = bench::measure(&lab, plan, &[]).await?;
    let table = bench::print(N, &rows);
    println!("{table}");
    let over = rows
        .iter()
        .any(|row| !row.within && !row.what.starts_with(NOT_HERE));
    assert!(!over, "{table}");
    Ok(())
}
