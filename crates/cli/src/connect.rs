//! Which cluster: the flags that every kubectl command has.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Longest wait for an answer; a read of all nodes of a large cluster takes a few seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Flags that say which cluster to talk to.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// Kubeconfig file; without it KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    pub context: Option<String>,
}

impl Args {
    /// A client for that cluster.
    ///
    /// # Errors
    /// There is no usable configuration.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let mut config = self
            .config()
            .await
            .context("no cluster to talk to: give --kubeconfig, set KUBECONFIG, or run in a pod with a ServiceAccount token")?;
        config.read_timeout = Some(READ_TIMEOUT);
        Client::try_from(config).context("the client configuration cannot be used")
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        Ok(match &self.kubeconfig {
            Some(path) => {
                Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options).await?,
            None => Config::infer().await?,
        })
    }
}
