//! `status`.
/// Options.
#[derive(Debug, clap::Args)]
pub struct Args {}
/// Runs.
pub async fn run(_client: kube::Client, _args: &Args) -> anyhow::Result<()> { Ok(()) }
