//! A lab: start, stop, and the handle that tests and `cargo xtask up` hold.
//!
//! A lab is one directory and one process, `lab-agent supervise DIR` (see [`crate::supervisor`]), which owns all others. Dropping
//! the handle stops the lab, unless it was detached; if this process dies instead, the agent notices and stops by itself.

pub mod build;
mod host;
mod leftovers;
mod ports;
mod spec;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::sync::mpsc;

pub use self::host::Order;
pub use self::leftovers::{Stopped, down};
pub use self::ports::{PortChoice, Ports};
pub use self::spec::{Ready, Spec};
use crate::audit::Audit;
use crate::cluster::Cluster;
use crate::controlplane::{self, Tools};
use crate::rights::Used;
use crate::{gpusim, paths, process, services};

/// The Node whose pods run as processes of this machine.
pub const LAB_HOST: &str = "lab-host";

/// The API server's port in a lab with fixed ports; the next three are etcd's and the node agent's.
pub const DEFAULT_PORT: u16 = 16443;

/// How a lab is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Working directory: kubeconfig, logs, audit log, pods.
    pub dir: PathBuf,
    /// Which ports to listen on.
    pub ports: PortChoice,
    /// Directory of the binaries that stand for images.
    pub images: PathBuf,
    /// The executable of `lab-agent`.
    pub agent: PathBuf,
    /// How operands behave on simulated nodes.
    pub sim: gpusim::Settings,
    /// The control plane's binaries.
    pub tools: Tools,
    /// Simulated nodes to create.
    pub nodes: Vec<Node>,
}

impl Options {
    /// A lab under `dir` with free ports, binaries of cargo's profile `dev`, and no simulated nodes.
    ///
    /// # Errors
    /// A control plane binary cannot be found or built.
    pub fn new(dir: impl Into<PathBuf>, report: controlplane::Report<'_>) -> anyhow::Result<Self> {
        let images = paths::binaries("dev");
        Ok(Self {
            dir: dir.into(),
            ports: PortChoice::Free,
            agent: images.join("lab-agent"),
            images,
            sim: gpusim::Settings::default(),
            tools: controlplane::ensure(report)?,
            nodes: Vec::new(),
        })
    }
}

/// A running lab. Dereferences to its [`Cluster`].
#[derive(Debug)]
pub struct Lab {
    cluster: Cluster,
    spec: Spec,
    ready: Ready,
    agent: Child,
    /// Closing it is the order to stop.
    orders: Option<ChildStdin>,
    failure: Arc<Mutex<Option<String>>>,
    /// Only of a test's lab: where it leaves which rights were used.
    record: Option<PathBuf>,
}

impl std::ops::Deref for Lab {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Lab {
    /// Starts a lab and waits until its control plane works and its nodes exist.
    ///
    /// # Errors
    /// A lab runs under that directory already, a port is taken, or a process did not come up; the message says what to do.
    pub async fn start(options: Options, report: controlplane::Report<'_>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&options.dir)
            .with_context(|| format!("{} cannot be made", options.dir.display()))?;
        let dir = options.dir.canonicalize()?;
        leftovers::clear(&dir, report)?;
        let spec = Spec {
            dir: dir.clone(),
            ports: ports::choose(options.ports)?,
            images: options.images,
            sim: options.sim,
            tools: options.tools,
        };
        spec.save()?;
        let mut agent = spawn_agent(&options.agent, &dir)?;
        let orders = agent.stdin.take();
        let failure = Arc::new(Mutex::new(None));
        let ready = match wait_until_ready(&mut agent, &failure, report).await {
            Ok(ready) => ready,
            Err(error) => {
                drop(orders);
                let _ = agent.wait();
                return Err(error);
            }
        };
        let cluster = Cluster::connect(ready.kubeconfig.clone(), spec.tools.clone()).await?;
        let lab = Self {
            cluster,
            spec,
            ready,
            agent,
            orders,
            failure,
            record: None,
        };
        lab.add_nodes(options.nodes).await?;
        Ok(lab)
    }

    /// A lab for one test: under `target/lab-tests/<name>-<pid>` (its logs stay until the test runs again), with free ports, the given simulated nodes, and every binary built.
    ///
    /// # Errors
    /// As [`Lab::start`].
    pub async fn for_test(name: &str, nodes: Vec<Node>) -> anyhow::Result<Self> {
        Self::for_test_with(name, nodes, |_| {}).await
    }

    /// As [`Lab::for_test`], with options changed by `change`.
    ///
    /// # Errors
    /// As [`Lab::start`].
    pub async fn for_test_with(
        name: &str,
        nodes: Vec<Node>,
        change: impl FnOnce(&mut Options),
    ) -> anyhow::Result<Self> {
        // Once a process: cargo takes a second to find out that there is nothing to do.
        static BUILT: std::sync::OnceLock<Result<PathBuf, String>> = std::sync::OnceLock::new();
        let built = BUILT
            .get_or_init(|| build::binaries("dev", false).map_err(|error| format!("{error:#}")));
        built.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
        Self::bare(name, nodes, change).await
    }

    /// As [`Lab::for_test_with`], with the binaries as they are: for tests that install nothing of ours.
    ///
    /// # Errors
    /// As [`Lab::start`].
    pub async fn bare(
        name: &str,
        nodes: Vec<Node>,
        change: impl FnOnce(&mut Options),
    ) -> anyhow::Result<Self> {
        let labs = paths::target().join("lab-tests");
        leftovers::forget_runs(&labs, name);
        let run = format!("{name}-{}", std::process::id());
        let dir = labs.join(&run);
        let mut options = Options::new(dir, &|_| {})?;
        options.nodes = nodes;
        change(&mut options);
        let mut lab = Self::start(options, &|_| {}).await?;
        lab.record = Some(paths::used_rights().join(format!("{run}.json")));
        Ok(lab)
    }

    /// The working directory.
    pub fn dir(&self) -> &Path {
        &self.spec.dir
    }

    /// Opens a connection as the API server does: `target` is an address and a port, of a Service or of anything else.
    ///
    /// # Errors
    /// Nothing could be reached; the message says why.
    pub async fn dial(&self, target: &str) -> anyhow::Result<tokio::net::UnixStream> {
        services::connect(self.spec.ports.api, target).await
    }

    /// How long the start took.
    pub fn timings(&self) -> &Ready {
        &self.ready
    }

    /// The audit log, read from its beginning.
    pub fn audit(&self) -> Audit {
        Audit::open(self.spec.dir.join("audit.log"))
    }

    /// Why the lab ended by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Leaves the lab running when this handle goes; `down` stops it.
    pub fn detach(mut self) {
        if let Some(orders) = self.orders.as_mut() {
            let _ = orders.write_all(b"detach\n");
        }
        self.orders = None;
        // From here `drop` finds no orders to withdraw and leaves the agent alone.
    }

    /// Writes down which rights were used, whether the test passed or not.
    #[allow(
        clippy::print_stderr,
        reason = "a record that is missing must not hide why a test failed, but must be known"
    )]
    fn leave_record(&self) {
        let Some(path) = &self.record else { return };
        let used = self.audit().next_requests();
        if let Err(error) = used.and_then(|requests| Used::of(&requests).save(path)) {
            eprintln!("the rights that were used are not on record: {error:#}");
        }
    }

    /// Stops the lab in order and waits for its end.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let Some(orders) = self.orders.take() else {
            return;
        };
        drop(orders);
        let started = Instant::now();
        while matches!(self.agent.try_wait(), Ok(None)) {
            if started.elapsed() > Duration::from_secs(20) {
                let _ = self.agent.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.leave_record();
    }
}

/// Starts the agent in a process group of its own, so that Ctrl-C at the terminal reaches only its owner.
fn spawn_agent(agent: &Path, dir: &Path) -> anyhow::Result<Child> {
    use std::os::unix::process::CommandExt as _;
    std::fs::create_dir_all(dir.join("log"))?;
    let log = std::fs::File::create(dir.join("log").join("lab-agent.log"))?;
    Command::new(agent)
        .arg("supervise")
        .arg(dir)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .with_context(|| {
            format!(
                "{} cannot be started: build it with `cargo build -p tessera-e2e`",
                agent.display()
            )
        })
}

/// Follows what the agent says until it says `ready`. A thread goes on reading after that, so that the agent never blocks.
async fn wait_until_ready(
    agent: &mut Child,
    failure: &Arc<Mutex<Option<String>>>,
    report: controlplane::Report<'_>,
) -> anyhow::Result<Ready> {
    let output = agent
        .stdout
        .take()
        .context("the agent's output is not piped")?;
    let (sender, mut lines) = mpsc::unbounded_channel();
    let failure = Arc::clone(failure);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(text) = line.strip_prefix("failed ") {
                *failure.lock() = Some(text.to_owned());
            }
            let _ = sender.send(line);
        }
    });
    while let Some(line) = lines.recv().await {
        match line.split_once(' ') {
            Some(("progress", text)) => report(text),
            Some(("ready", text)) => {
                return serde_json::from_str(text).context("the agent's report cannot be read");
            }
            Some(("failed", text)) => bail!("the lab did not start: {text}"),
            _ => {}
        }
    }
    bail!("the lab's agent ended without a word: see lab-agent.log in the lab's log directory")
}

/// Memory and CPU of a process of the lab.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Usage {
    /// Name of the process: a control plane binary, `lab-agent`, or `namespace/pod/container`.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// Resident set size, MiB.
    pub rss_mib: f64,
    /// Proportional set size, MiB; 0 when the kernel does not say.
    pub pss_mib: f64,
    /// CPU time used, seconds.
    pub cpu_seconds: f64,
}

impl Usage {
    fn of(name: String, pid: u32) -> Option<Self> {
        let (rss_mib, cpu_seconds) = process::usage(pid)?;
        Some(Self {
            name,
            pid,
            rss_mib,
            pss_mib: process::proportional_memory(pid).unwrap_or_default(),
            cpu_seconds,
        })
    }
}
