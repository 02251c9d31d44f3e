//! Flags that every process has. Each is also an environment variable, so that a chart or a person may use either.

use clap::Args;
use std::net::IpAddr;
use std::time::Duration;

/// Flags common to all processes.
#[derive(Args, Clone, Debug)]
pub struct RuntimeArgs {
    /// Namespace of this process, its Lease and its operands.
    #[arg(long, env = "POD_NAMESPACE", default_value = "gpu-operator")]
    pub namespace: String,
    /// Name of this pod; the identity in the leader election. Must differ between replicas.
    #[arg(long, env = "POD_NAME", default_value_t = default_identity())]
    pub pod_name: String,
    /// Address that the metrics and health ports listen on.
    #[arg(long, env = "BIND_ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port of `/metrics` (Prometheus text format).
    #[arg(long, env = "METRICS_PORT", default_value_t = 8080)]
    pub metrics_port: u16,
    /// Port of `/healthz` and `/readyz`.
    #[arg(long, env = "HEALTH_PORT", default_value_t = 8081)]
    pub health_port: u16,
    /// How often everything is looked at again although nothing changed; a safety net.
    #[arg(long, env = "RECONCILE_INTERVAL", default_value = "10m", value_parser = duration)]
    pub reconcile_interval: Duration,
    /// How many keys are reconciled at the same time; at least 1.
    #[arg(long, env = "MAX_CONCURRENT_RECONCILES", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub max_concurrent_reconciles: u16,
    /// Longest wait between two tries of something that fails; tries start one second apart.
    #[arg(long, env = "RETRY_DELAY", default_value = "1m", value_parser = duration)]
    pub retry_delay: Duration,
    /// Longest time that one API request may take; at most lease duration minus renew deadline.
    #[arg(long, env = "REQUEST_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub request_timeout: Duration,
    /// Whether replicas elect a leader; without it, run one replica only.
    #[arg(long, env = "LEADER_ELECT", default_value_t = true, action = clap::ArgAction::Set)]
    pub leader_elect: bool,
    /// How long a standby waits after the last sign of life before it takes over.
    #[arg(long, env = "LEASE_DURATION", default_value = "15s", value_parser = duration)]
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it stops leading.
    #[arg(long, env = "RENEW_DEADLINE", default_value = "10s", value_parser = duration)]
    pub renew_deadline: Duration,
    /// Time between two renewals or two tries to acquire.
    #[arg(long, env = "RETRY_PERIOD", default_value = "2s", value_parser = duration)]
    pub retry_period: Duration,
    /// Format of the log on standard error.
    #[arg(long, env = "LOG_FORMAT", default_value = "json")]
    pub log_format: LogFormat,
    /// Log level, or directives such as `info,kube=warn`.
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One readable line an entry.
    Text,
    /// One JSON object a line.
    Json,
}

/// A combination of flags that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// client-go's rule: a leader must give up before a standby may take over.
    #[error(
        "--lease-duration ({lease:?}) must be longer than --renew-deadline ({renew:?}); give a longer lease or a shorter deadline"
    )]
    LeaseTooShort {
        /// The lease duration given.
        lease: Duration,
        /// The renew deadline given.
        renew: Duration,
    },
    /// client-go's rule: at least one retry, with its jitter of 20 %, must fit before the deadline.
    #[error(
        "--renew-deadline ({renew:?}) must be longer than 1.2 times --retry-period ({retry:?})"
    )]
    DeadlineTooShort {
        /// The renew deadline given.
        renew: Duration,
        /// The retry period given.
        retry: Duration,
    },
    /// A request that outlives the lease could write after another replica took over.
    #[error(
        "--request-timeout ({request:?}) must be at most --lease-duration minus --renew-deadline ({margin:?}), or a late write could follow a take-over"
    )]
    RequestTooLong {
        /// The request timeout given.
        request: Duration,
        /// The longest allowed.
        margin: Duration,
    },
    /// A zero or sub-second period would spin.
    #[error("{flag} must be at least one second, not {value:?}")]
    TooSmall {
        /// The flag's name.
        flag: &'static str,
        /// Its value.
        value: Duration,
    },
}

impl RuntimeArgs {
    /// Checks what one flag alone cannot prove.
    pub fn validate(&self) -> Result<(), ArgsError> {
        let small = [
            ("--reconcile-interval", self.reconcile_interval),
            ("--retry-delay", self.retry_delay),
            ("--request-timeout", self.request_timeout),
            ("--retry-period", self.retry_period),
        ];
        if let Some((flag, value)) = small
            .into_iter()
            .find(|(_, value)| *value < Duration::from_secs(1))
        {
            return Err(ArgsError::TooSmall { flag, value });
        }
        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        if lease <= renew {
            return Err(ArgsError::LeaseTooShort { lease, renew });
        }
        if renew <= retry.mul_f64(1.2) {
            return Err(ArgsError::DeadlineTooShort { renew, retry });
        }
        let (request, margin) = (self.request_timeout, lease.saturating_sub(renew));
        if request > margin {
            return Err(ArgsError::RequestTooLong { request, margin });
        }
        Ok(())
    }
}

/// Parses `10m`, `30s`, `1h30m`, or a plain number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    tessera_api::units::parse_duration(text).map_err(|error| error.to_string())
}

/// Host name, so that two replicas started by hand differ.
fn default_identity() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(
        |_| "tessera".to_owned(),
        |name| format!("{}_{}", name.trim(), std::process::id()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        runtime: RuntimeArgs,
    }

    fn parse(args: &[&str]) -> RuntimeArgs {
        Cli::parse_from(std::iter::once(&"test").chain(args)).runtime
    }

    #[test]
    fn defaults_are_valid_and_impossible_combinations_are_named() {
        assert_eq!(parse(&[]).validate(), Ok(()));
        let bad: [(&[&str], &str); 4] = [
            (&["--lease-duration=10s"], "--lease-duration"),
            (&["--renew-deadline=2s"], "1.2 times --retry-period"),
            (&["--request-timeout=6s"], "--request-timeout"),
            (&["--reconcile-interval=0s"], "--reconcile-interval"),
        ];
        for (args, want) in bad {
            let text = parse(args).validate().unwrap_err().to_string();
            assert!(text.contains(want), "{text}");
        }
    }
}
