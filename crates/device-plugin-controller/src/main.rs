//! The process: see the library.

use std::process::ExitCode;
use tessera_device_plugin_controller::{Args, start};

fn main() -> ExitCode {
    tessera_runtime::process::main(|args: Args| start(args))
}
