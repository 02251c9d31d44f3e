//! The process that owns a lab: `lab-agent supervise DIR`.
//!
//! It is the parent of everything that runs: control plane and host pods. They get SIGKILL when it ends, so whatever happens to
//! it, nothing is left. It itself stops everything in order when its standard input ends (its owner died or closed it) or on
//! SIGTERM. The line `detach` on standard input makes it stay when the owner goes.
//!
//! Standard output speaks to the owner, one line each: `progress TEXT`, `ready JSON`, `failed TEXT`.

mod components;
pub(crate) mod config;
pub(crate) mod etcd_data;
mod pki;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::config::Files;
use self::pki::{Pki, User};
use crate::controlplane::Tool;
use crate::lab::{LAB_HOST, Ready, Spec};
use crate::process::{self, Identity};
use crate::{gpusim, hostnode, services};

/// How long the API server may take to come up.
const API_PATIENCE: Duration = Duration::from_secs(60);

/// Runs the lab that `dir/lab-spec.json` describes until it is told to stop.
///
/// # Errors
/// A part could not be started, or a process of the control plane ended by itself. Everything is stopped in any case.
pub async fn run(dir: &Path) -> anyhow::Result<()> {
    let spec = Spec::load(dir)?;
    let mut running = Running::new(spec)?;
    let outcome = running.live().await;
    running.stop().await;
    if let Err(error) = &outcome {
        say("failed", &format!("{error:#}"));
    }
    outcome
}

/// A line for the owner; nobody may be listening any more.
fn say(kind: &str, text: &str) {
    let line = format!("{kind} {}\n", text.replace('\n', " "));
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(line.as_bytes());
    let _ = out.flush();
}

struct Running {
    spec: Spec,
    etcd_data: PathBuf,
    children: BTreeMap<Tool, Child>,
    /// Ends the node agent and gpusim.
    cancel: CancellationToken,
    host: Option<hostnode::Handle>,
    /// Held for as long as the lab lives.
    _lock: File,
}

impl Running {
    fn new(spec: Spec) -> anyhow::Result<Self> {
        let lock = File::create(spec.dir.join("lock"))?;
        if lock.try_lock().is_err() {
            bail!("another lab runs under {}", spec.dir.display());
        }
        for dir in ["log/pods", "pids", "pods", "pki"] {
            std::fs::create_dir_all(spec.dir.join(dir))?;
        }
        let me = Identity::of(std::process::id()).context("/proc is not mounted")?;
        me.save(&spec.pid_file("lab-agent"))?;
        Ok(Self {
            etcd_data: etcd_data::choose(&spec.dir),
            spec,
            children: BTreeMap::new(),
            cancel: CancellationToken::new(),
            host: None,
            _lock: lock,
        })
    }

    /// Starts everything, then waits for an order to stop or for the death of a child.
    async fn live(&mut self) -> anyhow::Result<()> {
        let mut stop = Box::pin(stop_order()?);
        tokio::select! {
            started = self.start() => started?,
            () = &mut stop => return Ok(()),
        }
        tokio::select! {
            () = stop => Ok(()),
            error = watch_children(&mut self.children, &self.spec.dir) => Err(error),
        }
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        let (dir, ports) = (self.spec.dir.clone(), self.spec.ports);
        let server = format!("https://127.0.0.1:{}", ports.api);
        let pki = Pki::create(&dir.join("pki"))?;
        let files = Files::create(&dir, &pki, &server, ports)?;
        let data = self.etcd_data.join("data");
        std::fs::create_dir_all(&data)
            .with_context(|| format!("{} cannot be made", data.display()))?;

        say(
            "progress",
            &format!("starting etcd and kube-apiserver {server}"),
        );
        self.spawn(Tool::Etcd, components::etcd(&data, ports))?;
        self.spawn(
            Tool::KubeApiserver,
            components::api_server(&dir, &pki, &files, ports),
        )?;
        let client = client(&files.kubeconfig(User::Agent)).await?;
        self.wait_for_api(&client).await?;
        services::start(client.clone(), ports.api, self.cancel.clone())?;
        let api_seconds = started.elapsed().as_secs_f64();

        say(
            "progress",
            "starting kube-controller-manager, kube-scheduler and kwok",
        );
        self.spawn(
            Tool::KubeControllerManager,
            components::controller_manager(&pki, &files),
        )?;
        self.spawn(Tool::KubeScheduler, components::scheduler(&files))?;
        self.spawn(Tool::Kwok, components::kwok(&files))?;

        let net = hostnode::Net::reserve()?;
        let settings = hostnode::Settings {
            dir: dir.clone(),
            images: self.spec.images.clone(),
            server: server.clone(),
            ca: pki.ca(),
            api_port: ports.api,
            kubelet_port: ports.kubelet,
            kubelet_tls: Pki::kubelet_tls()?,
        };
        self.host = Some(
            hostnode::start(client.clone(), settings, net.clone(), self.cancel.clone()).await?,
        );
        gpusim::start(
            client.clone(),
            self.spec.sim.clone(),
            net,
            self.cancel.clone(),
        );
        self.wait_for_accounts(&client).await?;
        let ready = Ready {
            server,
            kubeconfig: files.kubeconfig(User::Admin),
            api_seconds,
            total_seconds: started.elapsed().as_secs_f64(),
        };
        say("ready", &serde_json::to_string(&ready)?);
        Ok(())
    }

    fn spawn(&mut self, tool: Tool, args: Vec<OsString>) -> anyhow::Result<()> {
        let log = File::create(self.log(tool))?;
        let path = self.spec.tools.path(tool);
        let child = process::command(path, &log)?
            .args(args)
            .current_dir(&self.spec.dir)
            .spawn()
            .with_context(|| format!("{} cannot be started", path.display()))?;
        if let Some(identity) = child.id().and_then(Identity::of) {
            identity.save(&self.spec.pid_file(tool.name()))?;
        }
        self.children.insert(tool, child);
        Ok(())
    }

    fn log(&self, tool: Tool) -> PathBuf {
        log_of(&self.spec.dir, tool)
    }

    async fn wait_for_api(&mut self, client: &Client) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let answer =
                tokio::time::timeout(Duration::from_secs(2), client.request_text(request)).await;
            if matches!(answer, Ok(Ok(_))) {
                return Ok(());
            }
            if let Some(error) = dead_child(&mut self.children, &self.spec.dir)? {
                return Err(error);
            }
            if started.elapsed() > API_PATIENCE {
                bail!(
                    "kube-apiserver did not become ready in {} s: see {}",
                    API_PATIENCE.as_secs(),
                    self.log(Tool::KubeApiserver).display()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until namespace `default` has its ServiceAccount (the controller manager works) and the host node is there.
    async fn wait_for_accounts(&mut self, client: &Client) -> anyhow::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let started = Instant::now();
        while !matches!(accounts.get_opt("default").await, Ok(Some(_))) {
            if let Some(error) = dead_child(&mut self.children, &self.spec.dir)? {
                return Err(error);
            }
            if started.elapsed() > API_PATIENCE {
                bail!(
                    "kube-controller-manager made no ServiceAccount: see {}",
                    self.log(Tool::KubeControllerManager).display()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tracing::info!(node = LAB_HOST, "lab is up");
        Ok(())
    }

    /// Stops host pods first, so that controllers can release their leases, then the control plane from the outside in.
    async fn stop(&mut self) {
        if let Some(host) = self.host.take() {
            host.stop().await;
        }
        self.cancel.cancel();
        for tool in components::STOP_ORDER {
            if let Some(mut child) = self.children.remove(&tool) {
                if let Some(identity) = child.id().and_then(Identity::of) {
                    identity.signal(rustix::process::Signal::TERM);
                }
                if tokio::time::timeout(Duration::from_secs(1), child.wait())
                    .await
                    .is_err()
                {
                    let _ = child.kill().await;
                }
            }
            let _ = std::fs::remove_file(self.spec.pid_file(tool.name()));
        }
        let _ = std::fs::remove_dir_all(&self.etcd_data);
        let _ = std::fs::remove_file(self.spec.pid_file("lab-agent"));
    }
}

/// A client for the lab's own parts: no retries, because every caller has a loop of its own.
pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default())
            .await?;
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(2));
    Ok(Client::try_from(config)?)
}

fn log_of(dir: &Path, tool: Tool) -> PathBuf {
    dir.join("log").join(format!("{}.log", tool.name()))
}

/// The error for a child that has ended, if one has.
fn dead_child(
    children: &mut BTreeMap<Tool, Child>,
    dir: &Path,
) -> anyhow::Result<Option<anyhow::Error>> {
    for (tool, child) in children {
        if let Some(status) = child.try_wait()? {
            let log = log_of(dir, *tool);
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let last = text
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("nothing was logged")
                .to_owned();
            return Ok(Some(anyhow::anyhow!(
                "{} ended ({status}): {last} (see {})",
                tool.name(),
                log.display()
            )));
        }
    }
    Ok(None)
}

async fn watch_children(children: &mut BTreeMap<Tool, Child>, dir: &Path) -> anyhow::Error {
    loop {
        match dead_child(children, dir) {
            Ok(Some(error)) | Err(error) => return error,
            Ok(None) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Ends when the lab is to stop: SIGTERM, SIGINT, or the end of standard input before the line `detach`.
fn stop_order() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (sender, owner_gone) = tokio::sync::oneshot::channel();
    // A thread, because nothing can wake a read of standard input; it ends with the process.
    std::thread::spawn(move || {
        let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
        if lines.any(|line| line.trim() == "detach") {
            loop {
                std::thread::park();
            }
        }
        let _ = sender.send(());
    });
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = owner_gone => {}
        }
    })
}
