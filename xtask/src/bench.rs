//! `cargo xtask bench`: the design's budgets, measured.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;
use tessera_e2e::bench::{self, Plan, Row};
use tessera_e2e::lab::{self, Lab, Options};
use tessera_e2e::{nodes, paths};

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sizes to measure, each in a cluster of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [3, 100], value_name = "N")]
    nodes: Vec<usize>,
    /// Cargo profile of the controllers' binaries.
    #[arg(long, default_value = "release", value_name = "NAME")]
    profile: String,
    /// Use the binaries as they are instead of building them.
    #[arg(long)]
    no_build: bool,
    /// More arguments for `helm install`, for example `--helm=--set=driverController.replicas=1`.
    #[arg(long = "helm", value_name = "ARGUMENT", allow_hyphen_values = true)]
    helm: Vec<String>,
    /// Write the measurements to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The measurements of one size.
#[derive(Debug, Serialize)]
struct Measured {
    nodes: usize,
    rows: Vec<Row>,
}

/// Runs the command: exit code 1 when a measurement is out of its budget.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    // The lab's own processes are quick enough as tests have them.
    let images = if args.no_build {
        paths::binaries(&args.profile)
    } else {
        lab::build::binaries("dev", true)?;
        lab::build::binaries(&args.profile, true)?
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let mut all = Vec::new();
    for nodes in args.nodes {
        println!("measuring {nodes} nodes ...");
        let rows = runtime.block_on(one(nodes, &args.helm, images.clone()))?;
        println!("\n{}", bench::print(nodes, &rows));
        all.push(Measured { nodes, rows });
    }
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&all)?)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let over = all.iter().flat_map(|m| &m.rows).filter(|row| !row.within);
    Ok(if over.count() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn one(count: usize, helm: &[String], images: PathBuf) -> anyhow::Result<Vec<Row>> {
    let dir = paths::target().join("lab-bench").join(count.to_string());
    let mut options = Options::new(dir, &|text| println!("{text}"))?;
    options.images = images;
    options.nodes = nodes::gpu_nodes(count);
    let lab = Lab::start(options, &|_| {}).await?;
    let plan = Plan {
        nodes: count,
        // With a thousand nodes both would measure the lab.
        broken_minute: count <= 100,
        upgrade: count <= 100,
        admission: true,
    };
    let helm: Vec<&str> = helm.iter().map(String::as_str).collect();
    bench::measure(&lab, plan, &helm).await
}
