//! Logging to standard error, as text or JSON.

use crate::args::{LogFormat, RuntimeArgs};
use tracing_subscriber::EnvFilter;

/// The client libraries warn about what we then explain ourselves, with a dump of the whole answer.
const QUIET: &str = "kube_runtime=error,kube_client=error";

/// Installs the subscriber. A second call (in tests) changes nothing.
///
/// # Errors
/// A sentence when `--log-level` cannot be read.
pub fn init(args: &RuntimeArgs) -> Result<(), String> {
    let filter = EnvFilter::try_new(format!("{QUIET},{}", args.log_level))
        .map_err(|error| format!("--log-level `{}` cannot be read: {error}", args.log_level))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    let installed = match args.log_format {
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .try_init(),
        LogFormat::Text => builder.with_ansi(false).try_init(),
    };
    if installed.is_err() {
        tracing::debug!("logging was already set up");
    }
    Ok(())
}
