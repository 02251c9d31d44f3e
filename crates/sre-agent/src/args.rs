//! Flags.

use clap::Parser;
use std::time::Duration;
use tessera_runtime::args::{RuntimeArgs, duration};

/// Watches GPU nodes for one SREAgent, reports faults, and isolates nodes where that is allowed.
#[derive(Parser, Clone, Debug)]
#[command(name = "sre-agent", version)]
pub struct Args {
    /// Common flags.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Name of the SREAgent that this agent works for.
    #[arg(long, env = "SREAGENT_NAME")]
    pub sreagent_name: String,
    /// Namespace of that SREAgent.
    #[arg(long, env = "SREAGENT_NAMESPACE")]
    pub sreagent_namespace: String,
    /// Longest time that one exporter may take to answer.
    #[arg(long, env = "SCRAPE_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub scrape_timeout: Duration,
    /// How many exporters are asked at the same time; at least 1.
    #[arg(long, env = "SCRAPE_CONCURRENCY", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub scrape_concurrency: u16,
    /// Clean time before an isolated node is released.
    #[arg(long, env = "PROBATION_SECONDS", default_value = "600", value_parser = duration, hide = true)]
    pub probation_seconds: Duration,
    /// Time after a node was made or booted in which it is not isolated.
    #[arg(long, env = "BOOT_GRACE_SECONDS", default_value = "600", value_parser = duration, hide = true)]
    pub boot_grace_seconds: Duration,
}
