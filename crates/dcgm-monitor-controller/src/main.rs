//! The dcgm-monitor-controller's process.

use std::process::ExitCode;

use tessera_dcgm_monitor_controller::{args::Args, start};

fn main() -> ExitCode {
    tessera_runtime::process::main(|args: Args| start(args))
}
