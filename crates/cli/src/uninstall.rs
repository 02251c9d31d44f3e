//! `uninstall`: stops controllers and takes away what they made.
//!
//! Everything is found by label or field manager, never by a list of names, and only what is ours goes: custom resource
//! definitions, ClusterPolicies, SREAgents and foreign marks on nodes stay. Each step may run any number of times, on any
//! leftovers, so a hook that failed half-way is simply run again.

mod admission;
mod agents;
mod controllers;
mod nodes;
mod objects;
mod policies;

use std::time::{Duration, Instant};

use anyhow::bail;
use kube::Client;
use tessera_api::names::controller;

pub use admission::CONFIGURATIONS;
pub use nodes::{NodeCleanup, Owners};

/// All controllers whose work can be taken away.
pub const CONTROLLERS: [&str; 5] = [
    controller::DRIVER,
    controller::DEVICE_PLUGIN,
    controller::DCGM_MONITOR,
    controller::SREAGENT,
    controller::WEBHOOK,
];

/// Whether a controller has a Lease: the webhook's replicas elect nobody.
pub(crate) fn elects(name: &str) -> bool {
    name != controller::WEBHOOK
}

/// The controllers that share the GPU nodes' labels.
const GPU_CONTROLLERS: [&str; 3] = [
    controller::DRIVER,
    controller::DEVICE_PLUGIN,
    controller::DCGM_MONITOR,
];

/// Time between two looks at something that is going away.
const POLL: Duration = Duration::from_millis(300);

/// Options of `uninstall`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Namespace of the controllers and their operands.
    #[arg(long, short, env = "POD_NAMESPACE", default_value = "gpu-operator")]
    pub namespace: String,
    /// Only what this controller made (can be given more than once); without it, all of them.
    #[arg(long = "controller", value_parser = CONTROLLERS)]
    pub controllers: Vec<String>,
    /// Time limit for everything, for example 240s or 4m.
    #[arg(long, default_value = "240s", value_parser = tessera_runtime::args::duration)]
    pub timeout: Duration,
}

/// What one run works on.
pub(crate) struct Run {
    client: Client,
    namespace: String,
    controllers: Vec<String>,
    deadline: Instant,
}

impl Run {
    fn has(&self, name: &str) -> bool {
        self.controllers.iter().any(|have| have == name)
    }

    /// Label selector of everything that the chosen controllers made.
    fn selector(&self) -> String {
        format!(
            "app.kubernetes.io/part-of=tessera,app.kubernetes.io/managed-by in ({})",
            self.controllers.join(",")
        )
    }

    /// Waits until `remaining` gives nothing, and says what is still there when time is up.
    async fn until_gone<F>(
        &self,
        what: &str,
        mut remaining: impl FnMut() -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<Vec<String>>>,
    {
        loop {
            let left = remaining().await?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= self.deadline {
                bail!(
                    "{what} did not go in time: {}; look at them, then run this again",
                    few(&left)
                );
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// At most five names, and how many more there are.
pub(crate) fn few(names: &[String]) -> String {
    let shown = names.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(5) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Runs the command.
///
/// # Errors
/// Something could not be taken away; the message says what and what to do.
pub async fn run(client: Client, args: &Args) -> anyhow::Result<()> {
    let controllers = if args.controllers.is_empty() {
        CONTROLLERS.map(str::to_owned).to_vec()
    } else {
        args.controllers.clone()
    };
    let run = Run {
        client,
        namespace: args.namespace.clone(),
        controllers,
        deadline: Instant::now() + args.timeout,
    };
    // First of all: nothing below may be refused because nobody answers any more.
    admission::close(&run).await?;
    // A controller that still ran would repair what is taken away.
    controllers::stop(&run).await?;
    if run.has(controller::SREAGENT) {
        agents::remove(&run).await?;
    }
    objects::remove(&run).await?;
    admission::forget_authority(&run).await?;
    let owners = Owners::new(&run.controllers, controllers::others_run(&run).await?);
    nodes::clean(&run, &owners).await?;
    nodes::remove_operations(&run, &owners).await?;
    policies::forget(&run).await?;
    println!(
        "done: nothing of {} is left in namespace {} or on the nodes",
        run.controllers.join(", "),
        run.namespace
    );
    Ok(())
}
