//! The process that owns a lab, or with `exec-with-parent` the launcher of one of its children.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(std::ffi::OsStr::to_str) {
        Some(tessera_e2e::process::LAUNCH) => complain(&tessera_e2e::process::launch(args)),
        Some("supervise") => supervise(args.next().map(PathBuf::from)),
        _ => complain(&"usage: lab-agent supervise DIRECTORY (started by the lab, not by hand)"),
    }
}

fn supervise(dir: Option<PathBuf>) -> ExitCode {
    let Some(dir) = dir else {
        return complain(&"supervise needs a directory");
    };
    // The client's own log reports every answer that is no success, also those that are waited for.
    let filter = tracing_subscriber::EnvFilter::new("info,kube_client=off");
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error),
    };
    let outcome = runtime.block_on(tessera_e2e::supervisor::run(&dir));
    // Requests of the last moment are not waited for.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&format!("{error:#}")),
    }
}

/// Says what went wrong on standard error, which is the agent's log.
fn complain(error: &dyn std::fmt::Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "lab-agent: {error}");
    ExitCode::FAILURE
}
