//! The body of every `main`: flags, one thread, and an error as a sentence.

use crate::error::chain;
use std::sync::OnceLock;

/// All flags of this process as they came out, for its first line: the log is set up when they have been read.
static FLAGS: OnceLock<String> = OnceLock::new();

/// All flags, as one would give them; empty in a process without [`main`] (a test).
pub(super) fn told() -> &'static str {
    FLAGS.get().map(String::as_str).unwrap_or_default()
}

/// `--name=value` for each flag that has a value, given or by default or from the environment.
fn flags(command: &clap::Command, matches: &clap::ArgMatches) -> String {
    let mut words = Vec::new();
    for flag in command.get_arguments() {
        let Some(name) = flag.get_long() else {
            continue;
        };
        // What has no value of its own (--help) is no flag of the process.
        let Ok(Some(values)) = matches.try_get_raw(flag.get_id().as_str()) else {
            continue;
        };
        for value in values {
            words.push(format!("--{name}={}", value.to_string_lossy()));
        }
    }
    words.join(" ")
}

/// The body of every `main`: parses `A`, runs `start` on one thread and turns an error into one sentence and exit
/// code 1.
pub fn main<A, F>(start: impl FnOnce(A) -> F) -> std::process::ExitCode
where
    A: clap::Parser,
    F: Future<Output = Result<(), Box<dyn std::error::Error + Send + Sync>>>,
{
    let command = A::command();
    let matches = command.clone().get_matches();
    let args = match A::from_arg_matches(&matches) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    let _ = FLAGS.set(flags(&command, &matches));
    // One thread: these processes wait far more than they compute, and memory counts.
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    match runtime.block_on(start(args)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => fail(error.as_ref()),
    }
}

#[allow(clippy::print_stderr)] // logging may not be set up yet
fn fail(error: &(dyn std::error::Error + 'static)) -> std::process::ExitCode {
    eprintln!("error: {}", chain(error));
    std::process::ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[derive(clap::Parser)]
    struct Cli {
        /// A flag.
        #[arg(long, default_value = "10m")]
        interval: String,
        /// Another.
        #[arg(long)]
        image: Option<String>,
    }

    #[test]
    fn flags_are_told_as_one_would_give_them() {
        for (args, want) in [
            (vec!["x"], "--interval=10m"),
            (
                vec!["x", "--image", "a/b:c", "--interval=1s"],
                "--interval=1s --image=a/b:c",
            ),
        ] {
            let command = Cli::command();
            let matches = command.clone().get_matches_from(args);
            assert_eq!(flags(&command, &matches), want);
        }
    }
}
