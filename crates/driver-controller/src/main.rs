//! The process of the driver-controller.

use std::process::ExitCode;
use tessera_driver_controller::{Args, start};

fn main() -> ExitCode {
    tessera_runtime::process::main(|args: Args| start(args))
}
