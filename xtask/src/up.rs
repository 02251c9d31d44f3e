//! `cargo xtask up`: from nothing to a cluster whose policy is `ready`.

mod guide;
mod measure;
mod progress;
mod screen;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kubectl_tessera::status;
use tessera_e2e::cluster::{Cluster, NAMESPACE};
use tessera_e2e::lab::{self, Lab, Options, PortChoice};
use tessera_e2e::{controlplane, nodes, paths, scenario};
use tokio::signal::unix::{SignalKind, signal};

use self::progress::Verdict;
use self::screen::Screen;

/// Options of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of simulated GPU nodes.
    #[arg(long, default_value_t = 3, value_name = "N")]
    nodes: usize,
    /// Stop everything when it is ready: exit code 0, or 1 with what is not ready and why.
    #[arg(long, conflicts_with = "keep")]
    once: bool,
    /// Return when it is ready and leave it running; `cargo xtask down` stops it.
    #[arg(long)]
    keep: bool,
    /// Longest time from the installation until ready: seconds, or like 90s, 5m.
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "TIME")]
    timeout: Duration,
    /// Use an existing cluster instead of starting one. Its nodes must be able to pull the images.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keep", "nodes", "port"])]
    kubeconfig: Option<PathBuf>,
    /// Write the measurements to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Cargo profile of the controllers' binaries.
    #[arg(long, default_value = "dev", value_name = "NAME")]
    profile: String,
    /// Use the binaries as they are instead of building them.
    #[arg(long)]
    no_build: bool,
    /// Port of the API server; the next three are taken as well.
    #[arg(long, default_value_t = lab::DEFAULT_PORT)]
    port: u16,
    /// More arguments for `helm install`, for example `--helm=--set=dcgm.enabled=false`.
    #[arg(long = "helm", value_name = "ARGUMENT", allow_hyphen_values = true)]
    helm: Vec<String>,
}

/// `90`, `90s`, `5m`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text} is not like 90, 90s or 5m"))?;
    Ok(Duration::from_secs(number * unit))
}

/// Runs the command.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let screen = Screen::new();
    let prepared = prepare(&args, &screen)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // An interruption is the normal end of a session that had become ready.
    let ready = AtomicBool::new(false);
    let interrupted = |code: u8| {
        screen.line("stopping ...");
        if ready.load(Ordering::Relaxed) {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(code)
        }
    };
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // Leaving the session drops what it has started.
        let outcome = tokio::select! {
            outcome = session(&args, prepared, &screen, &ready) => outcome,
            _ = interrupt.recv() => Ok(interrupted(130)),
            _ = terminate.recv() => Ok(interrupted(143)),
        };
        screen.leave();
        outcome
    })
}

/// What is found and built before anything starts.
enum Prepared {
    Lab(Box<Options>),
    Existing(PathBuf, controlplane::Tools),
}

fn prepare(args: &Args, screen: &Screen) -> anyhow::Result<Prepared> {
    let report = |text: &str| screen.detail(text);
    if let Some(kubeconfig) = &args.kubeconfig {
        let path = kubeconfig
            .canonicalize()
            .with_context(|| format!("{} cannot be read", kubeconfig.display()))?;
        return Ok(Prepared::Existing(path, controlplane::ensure(&report)?));
    }
    let step = screen.step("control plane binaries");
    let mut options = Options::new(paths::default_lab(), &report)?;
    step.done("");
    let step = screen.step("controllers and lab agent");
    options.images = if args.no_build {
        paths::binaries(&args.profile)
    } else {
        lab::build::binaries(&args.profile, true)?
    };
    options.agent = options.images.join("lab-agent");
    step.done(&format!("profile {}", args.profile));
    options.ports = PortChoice::Fixed(args.port);
    options.nodes = nodes::gpu_nodes(args.nodes);
    Ok(Prepared::Lab(Box::new(options)))
}

async fn session(
    args: &Args,
    prepared: Prepared,
    screen: &Screen,
    ready: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    match prepared {
        Prepared::Existing(kubeconfig, tools) => {
            let cluster = Cluster::connect(kubeconfig, tools).await?;
            let code = install_and_follow(args, &cluster, None, screen, started).await?;
            guide::existing(screen, &cluster);
            Ok(code)
        }
        Prepared::Lab(options) => {
            let images = options.images.clone();
            let step = screen.step("real control plane, simulated nodes");
            let lab = Lab::start(*options, &|text| screen.detail(text)).await?;
            step.done(&format!(
                "{} GPU nodes, {:.1} s",
                args.nodes,
                lab.timings().total_seconds
            ));
            let code = install_and_follow(args, &lab, Some(&lab), screen, started).await?;
            if args.once || code != ExitCode::SUCCESS {
                screen.line("stopping ...");
                lab.stop();
                return Ok(code);
            }
            guide::lab(screen, &lab, &images, args.keep);
            if args.keep {
                lab.detach();
                return Ok(code);
            }
            ready.store(true, Ordering::Relaxed);
            let failure = stay(&lab).await;
            bail!("the lab ended by itself: {failure}");
        }
    }
}

/// Waits for as long as the lab lives; Ctrl-C ends this from outside.
async fn stay(lab: &Lab) -> String {
    loop {
        if let Some(failure) = lab.failure() {
            return failure;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Installs by helm, applies the inputs, and shows what happens until it is ready.
async fn install_and_follow(
    args: &Args,
    cluster: &Cluster,
    lab: Option<&Lab>,
    screen: &Screen,
    started: Instant,
) -> anyhow::Result<ExitCode> {
    let step = screen.step("helm install gpu-operator");
    install(args, cluster, lab.is_some()).await?;
    step.done("charts/gpu-operator with e2e/inputs/values-gpu.yaml");
    let mut audit = lab.map(Lab::audit);
    let step = screen.step("kubectl apply");
    let applied = Instant::now();
    for file in ["cluster-policy.yaml", "sre-agent.yaml"] {
        cluster.apply_file(&scenario::input(file)).await?;
    }
    step.done("cluster-policy.yaml, sre-agent.yaml");

    let verdict = follow(args, cluster, lab, screen, started, applied).await?;
    let measured = measure::Measured {
        nodes: args.nodes,
        lab_seconds: lab.map(|lab| lab.timings().total_seconds),
        api_seconds: lab.map(|lab| lab.timings().api_seconds),
        policy_seconds: applied.elapsed().as_secs_f64(),
        total_seconds: started.elapsed().as_secs_f64(),
        ready: verdict.is_ready(),
        requests: audit.as_mut().and_then(|audit| audit.next_summary().ok()),
        processes: lab.map(Lab::usage).unwrap_or_default(),
    };
    if let Some(path) = &args.json {
        measured.write(path)?;
    }
    match verdict {
        Verdict::Ready => {
            screen.line(&measured.sentence());
            Ok(ExitCode::SUCCESS)
        }
        Verdict::Waiting(reasons) => {
            screen.line(&format!("not ready within {} s:", args.timeout.as_secs()));
            reasons
                .iter()
                .for_each(|reason| screen.line(&format!("  {reason}")));
            if let Some(lab) = lab {
                screen.line(&format!("logs: {}", lab.dir().join("log").display()));
            }
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn install(args: &Args, cluster: &Cluster, fresh: bool) -> anyhow::Result<()> {
    let extra: Vec<&str> = args.helm.iter().map(String::as_str).collect();
    let values = scenario::input("values-gpu.yaml");
    if fresh {
        cluster
            .apply_file(&scenario::fixture("servicemonitor-crd.yaml"))
            .await?;
        cluster.helm_install(&values, &extra).await?;
    } else {
        cluster
            .helm_upgrade(
                &values,
                &[&["--install", "--create-namespace"], extra.as_slice()].concat(),
            )
            .await?;
    }
    Ok(())
}

/// Shows the cluster until it is ready or the time is over.
async fn follow(
    args: &Args,
    cluster: &Cluster,
    lab: Option<&Lab>,
    screen: &Screen,
    started: Instant,
    applied: Instant,
) -> anyhow::Result<Verdict> {
    // Each look lists all nodes: with a thousand, that is megabytes.
    let pause = Duration::from_millis(250 + u64::try_from(args.nodes).unwrap_or(0) * 4);
    loop {
        if let Some(failure) = lab.and_then(Lab::failure) {
            bail!("the lab ended by itself: {failure}");
        }
        let overview = match status::gather(cluster.client(), NAMESPACE).await {
            Ok(overview) => overview,
            // Just after the installation the API server may not serve every new kind yet.
            Err(_) if applied.elapsed() < Duration::from_secs(10) => {
                tokio::time::sleep(pause).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let verdict = progress::verdict(&overview);
        screen.show(
            &progress::table(&overview, started.elapsed()),
            &progress::facts(&overview),
            started.elapsed(),
        );
        if verdict.is_ready() || applied.elapsed() > args.timeout {
            screen.keep();
            return Ok(verdict);
        }
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert!(duration("soon").is_err());
    }
}
