//! A cluster to install into: the lab's, or any that a kubeconfig points to.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::controlplane::{Tool, Tools};
use crate::paths;

/// The namespace that the charts are installed into.
pub const NAMESPACE: &str = "gpu-operator";
/// The Helm release's name.
pub const RELEASE: &str = "gpu-operator";

/// Access to a cluster as its administrator.
#[derive(Clone)]
pub struct Cluster {
    kubeconfig: PathBuf,
    tools: Tools,
    client: Client,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("kubeconfig", &self.kubeconfig)
            .finish_non_exhaustive()
    }
}

/// What a program printed.
#[derive(Clone, Debug)]
pub struct Output {
    /// Whether it ended with exit code 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Cluster {
    /// Connects with the kubeconfig's current context.
    ///
    /// # Errors
    /// The file is not a usable kubeconfig.
    pub async fn connect(kubeconfig: PathBuf, tools: Tools) -> anyhow::Result<Self> {
        let client = crate::supervisor::client(&kubeconfig).await?;
        Ok(Self {
            kubeconfig,
            tools,
            client,
        })
    }

    /// A client with the administrator's rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The programs that talk to the cluster.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Runs kubectl; a non-zero exit code is not an error.
    ///
    /// # Errors
    /// kubectl cannot be started.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<Output> {
        self.run(Tool::Kubectl, args, "").await
    }

    /// Runs kubectl and returns what it printed.
    ///
    /// # Errors
    /// It cannot be started or failed; the message holds its standard error.
    pub async fn kubectl_ok(&self, args: &[&str]) -> anyhow::Result<String> {
        succeeded(Tool::Kubectl, args, self.kubectl(args).await?)
    }

    /// `kubectl apply -f FILE`.
    ///
    /// # Errors
    /// The API server refused it; the message holds its words.
    pub async fn apply_file(&self, file: &Path) -> anyhow::Result<String> {
        self.kubectl_ok(&["apply", "-f", path_str(file)?]).await
    }

    /// `kubectl apply -f -` with the given YAML or JSON.
    ///
    /// # Errors
    /// The API server refused it; the message holds its words.
    pub async fn apply(&self, manifest: &str) -> anyhow::Result<String> {
        let args = ["apply", "-f", "-"];
        succeeded(
            Tool::Kubectl,
            &args,
            self.run(Tool::Kubectl, &args, manifest).await?,
        )
    }

    /// `kubectl apply -f -`, whatever comes of it: for manifests that must be refused.
    ///
    /// # Errors
    /// kubectl cannot be started.
    pub async fn try_apply(&self, manifest: &str) -> anyhow::Result<Output> {
        self.run(Tool::Kubectl, &["apply", "-f", "-"], manifest)
            .await
    }

    /// Runs helm; a non-zero exit code is not an error.
    ///
    /// # Errors
    /// helm cannot be started.
    pub async fn helm(&self, args: &[&str]) -> anyhow::Result<Output> {
        self.run(Tool::Helm, args, "").await
    }

    /// Runs helm and returns what it printed.
    ///
    /// # Errors
    /// It cannot be started or failed; the message holds its standard error.
    pub async fn helm_ok(&self, args: &[&str]) -> anyhow::Result<String> {
        succeeded(Tool::Helm, args, self.helm(args).await?)
    }

    /// `helm install gpu-operator charts/gpu-operator -n gpu-operator --create-namespace -f VALUES EXTRA...`
    ///
    /// # Errors
    /// Helm refused it; the message holds its words.
    pub async fn helm_install(&self, values: &Path, extra: &[&str]) -> anyhow::Result<String> {
        self.helm_release(
            "install",
            values,
            &[&["--create-namespace"], extra].concat(),
        )
        .await
    }

    /// `helm upgrade` of the same release.
    ///
    /// # Errors
    /// Helm refused it; the message holds its words.
    pub async fn helm_upgrade(&self, values: &Path, extra: &[&str]) -> anyhow::Result<String> {
        self.helm_release("upgrade", values, extra).await
    }

    /// `helm uninstall gpu-operator -n gpu-operator EXTRA...`
    ///
    /// # Errors
    /// Helm refused it; the message holds its words.
    pub async fn helm_uninstall(&self, extra: &[&str]) -> anyhow::Result<String> {
        self.helm_ok(&[&["uninstall", RELEASE, "-n", NAMESPACE], extra].concat())
            .await
    }

    async fn helm_release(
        &self,
        verb: &str,
        values: &Path,
        extra: &[&str],
    ) -> anyhow::Result<String> {
        let chart = paths::root().join("charts").join("gpu-operator");
        if !chart.join("Chart.yaml").exists() {
            bail!(
                "{} is not there: run this from a complete checkout",
                chart.display()
            );
        }
        let args = [
            verb,
            RELEASE,
            path_str(&chart)?,
            "-n",
            NAMESPACE,
            "-f",
            path_str(values)?,
        ];
        self.helm_ok(&[&args, extra].concat()).await
    }

    /// Creates nodes, 16 at a time.
    ///
    /// # Errors
    /// The API server refused one.
    pub async fn add_nodes(&self, nodes: Vec<Node>) -> anyhow::Result<()> {
        let api: Api<Node> = Api::all(self.client());
        stream::iter(nodes)
            .map(|node| {
                let api = api.clone();
                async move { api.create(&PostParams::default(), &node).await.map(drop) }
            })
            .buffer_unordered(16)
            .try_collect::<()>()
            .await
            .context("a node cannot be created")
    }

    /// Deletes a node; one that is gone already is no error.
    ///
    /// # Errors
    /// The API server refused it.
    pub async fn remove_node(&self, name: &str) -> anyhow::Result<()> {
        let api: Api<Node> = Api::all(self.client());
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error).with_context(|| format!("node {name} cannot be deleted")),
        }
    }

    /// Calls `check` every 50 ms until it returns `Ok`; the error after `patience` holds the last reason.
    ///
    /// # Errors
    /// `check` did not succeed in time.
    pub async fn wait_for<T, F>(
        &self,
        what: &str,
        patience: Duration,
        check: impl FnMut() -> F,
    ) -> anyhow::Result<T>
    where
        F: Future<Output = Result<T, String>>,
    {
        wait_for(what, patience, check).await
    }

    async fn run(&self, tool: Tool, args: &[&str], input: &str) -> anyhow::Result<Output> {
        let path = self.tools.path(tool);
        let mut child = Command::new(path)
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            // Helm keeps state in the home directory otherwise; the lab leaves no trace there.
            .env("HELM_CACHE_HOME", paths::target().join("helm"))
            .env("HELM_CONFIG_HOME", paths::target().join("helm"))
            .env("HELM_DATA_HOME", paths::target().join("helm"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be started", path.display()))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).await?;
        }
        let output = child.wait_with_output().await?;
        Ok(Output {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// Calls `check` every 50 ms until it returns `Ok`; the error after `patience` holds the last reason.
///
/// # Errors
/// `check` did not succeed in time.
pub async fn wait_for<T, F>(
    what: &str,
    patience: Duration,
    mut check: impl FnMut() -> F,
) -> anyhow::Result<T>
where
    F: Future<Output = Result<T, String>>,
{
    let started = Instant::now();
    loop {
        match check().await {
            Ok(value) => return Ok(value),
            Err(reason) if started.elapsed() >= patience => {
                bail!("{what}: not within {} s: {reason}", patience.as_secs_f32())
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn succeeded(tool: Tool, args: &[&str], output: Output) -> anyhow::Result<String> {
    if output.success {
        return Ok(output.stdout);
    }
    let words = if output.stderr.trim().is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    bail!(
        "`{} {}` failed: {}",
        tool.name(),
        args.join(" "),
        words.trim()
    )
}

fn path_str(path: &Path) -> anyhow::Result<&str> {
    path.to_str()
        .with_context(|| format!("the path {} is not UTF-8", path.display()))
}
