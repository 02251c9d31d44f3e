//! `status`: one screen about a cluster's GPUs, gathered in a handful of reads.

mod gather;
mod render;

use clap::ValueEnum;
use kube::Client;
use serde::Serialize;

pub use gather::gather;
pub use render::render;

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Namespace of the controllers and their operands.
    #[arg(long, short, env = "POD_NAMESPACE", default_value = "gpu-operator")]
    pub namespace: String,
    /// Format of the output.
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// All that `status` shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Namespace of the controllers and their operands.
    pub namespace: String,
    /// Every ClusterPolicy, the active one first.
    pub policies: Vec<Policy>,
    /// Every controller that there could be.
    pub controllers: Vec<Controller>,
    /// Every operand.
    pub operands: Vec<Operand>,
    /// GPU nodes, counted.
    pub nodes: Nodes,
    /// Operations that run or have failed.
    pub operations: Vec<Operation>,
    /// Every agent.
    pub agents: Vec<Agent>,
}

/// A ClusterPolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Name.
    pub name: String,
    /// Whether it is the chart's.
    pub base: bool,
    /// ready, notReady, ignored; empty when no controller has looked at it yet.
    pub state: String,
    /// The conditions as controllers wrote them.
    pub conditions: Vec<Condition>,
    /// Nodes that are not as they should be, by reason.
    pub exceptions: Vec<String>,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False, Unknown.
    pub status: String,
    /// Reason.
    pub reason: String,
    /// Cause and next step.
    pub message: String,
    /// Whether it is about the newest generation of the policy.
    pub current: bool,
}

/// A controller's Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Controller {
    /// Name.
    pub name: String,
    /// Whether there is a Deployment.
    pub installed: bool,
    /// Wanted replicas.
    pub replicas: i32,
    /// Ready replicas.
    pub ready: i32,
}

/// An operand's DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operand {
    /// Name.
    pub name: String,
    /// The controller that made it.
    pub controller: String,
    /// Nodes that should run it.
    pub desired: i32,
    /// Nodes where it is ready.
    pub ready: i32,
    /// Nodes that run its newest form.
    pub updated: i32,
}

/// GPU nodes, counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    /// All.
    pub gpu: usize,
    /// Those that are cordoned.
    pub cordoned: usize,
    /// Those that are not Ready.
    pub not_ready: usize,
    /// Allocatable `nvidia.com/gpu` of all of them.
    pub allocatable: i64,
}

/// A NodeOperation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Node.
    pub node: String,
    /// What is done.
    pub operation: String,
    /// How far it is.
    pub phase: String,
    /// Who does it.
    pub holder: String,
    /// Why it is there.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// An SREAgent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// In one word.
    pub phase: String,
    /// Whether it may act.
    pub auto_repair: bool,
    /// Nodes with an incident.
    pub unhealthy: i32,
    /// Open incidents.
    pub incidents: i32,
    /// Its Ready condition, in words.
    pub message: String,
}

/// Runs the command.
///
/// # Errors
/// The cluster cannot be read.
pub async fn run(client: Client, args: &Args) -> anyhow::Result<()> {
    let overview = gather(client, &args.namespace).await?;
    match args.output {
        Format::Text => print!("{}", render(&overview)),
        Format::Json => println!("{}", serde_json::to_string_pretty(&overview)?),
    }
    Ok(())
}
