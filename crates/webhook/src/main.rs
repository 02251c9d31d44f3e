//! The webhook's process.

use std::process::ExitCode;

use tessera_webhook::{args::Args, start};

fn main() -> ExitCode {
    tessera_runtime::process::main(|args: Args| start(args))
}
