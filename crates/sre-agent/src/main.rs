//! Entry point of the agent.

fn main() -> std::process::ExitCode {
    tessera_runtime::process::main(tessera_sre_agent::start)
}
