//! Entry point of the controller.

fn main() -> std::process::ExitCode {
    tessera_runtime::process::main(tessera_sreagent_controller::start)
}
