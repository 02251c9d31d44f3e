//! Flags.

use std::path::PathBuf;
use std::time::Duration;
use tessera_api::names::admission;

use clap::Parser;
use tessera_runtime::args::{RuntimeArgs, duration};

use crate::certificates::Lifetimes;

/// Answers the API server's admission questions about ClusterPolicies, SREAgents and Pods that ask for GPUs. All replicas serve: nobody is elected, and the
/// flags about leases and reconciles have no effect.
#[derive(Clone, Debug, Parser)]
#[command(name = crate::NAME, version)]
pub struct Args {
    /// What all processes have.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Port of the admission endpoint (HTTPS).
    #[arg(long, env = "WEBHOOK_PORT", default_value_t = 9443)]
    pub webhook_port: u16,
    /// The Service by which the API server comes; certificates are made for its name.
    #[arg(long, env = "WEBHOOK_SERVICE", default_value = crate::NAME)]
    pub service: String,
    /// Name of the webhook configurations, validating and mutating, whose entries are filled.
    #[arg(long, env = "WEBHOOK_CONFIGURATION", default_value = admission::CONFIGURATION)]
    pub configuration: String,
    /// Secret that holds the certificate authority.
    #[arg(long, env = "CA_SECRET", default_value = admission::CA_SECRET)]
    pub ca_secret: String,
    /// Directory of tls.crt, tls.key and ca.crt, from cert-manager or your own: no certificates are made then. Read again when they change.
    #[arg(long, env = "CERTIFICATE_DIR")]
    pub certificate_dir: Option<PathBuf>,
    /// Life of the certificate authority; renewed at two thirds.
    #[arg(long, env = "CA_LIFETIME", default_value = "8760h", value_parser = duration)]
    pub ca_lifetime: Duration,
    /// Life of a replica's own certificate; renewed at two thirds.
    #[arg(long, env = "CERTIFICATE_LIFETIME", default_value = "24h", value_parser = duration)]
    pub certificate_lifetime: Duration,
    /// How long a change of the configuration may take to reach every API server, and readiness to reach the Service's endpoints.
    #[arg(long, env = "SETTLE", default_value = "10s", value_parser = duration)]
    pub settle: Duration,
    /// How long connections are still taken after the order to stop: until no API server sends any here.
    #[arg(long, env = "DRAIN", default_value = "5s", value_parser = duration)]
    pub drain: Duration,
}

/// What the rest of the program needs of the flags.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of this process.
    pub namespace: String,
    /// Port of the admission endpoint.
    pub port: u16,
    /// Name of the Service.
    pub service: String,
    /// Name of the configuration.
    pub configuration: String,
    /// Name of the Secret.
    pub ca_secret: String,
    /// Where certificates are given.
    pub certificate_dir: Option<PathBuf>,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
    /// See the flag.
    pub drain: Duration,
    /// Time limit of an API request.
    pub request_timeout: Duration,
}

/// A combination of flags that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// A CA must outlive what it signs, and leave room for its successor to become known.
    #[error(
        "--ca-lifetime ({ca:?}) must be at least six times --settle ({settle:?}) and not shorter than --certificate-lifetime ({leaf:?})"
    )]
    CaTooShort {
        /// The CA's life.
        ca: Duration,
        /// The leaf's life.
        leaf: Duration,
        /// The settle time.
        settle: Duration,
    },
}

impl Args {
    /// Checks and collects the flags.
    ///
    /// # Errors
    /// Two flags contradict each other.
    pub fn settings(&self) -> Result<Settings, ArgsError> {
        let (ca, leaf, settle) = (self.ca_lifetime, self.certificate_lifetime, self.settle);
        if ca < settle * 6 || ca < leaf {
            return Err(ArgsError::CaTooShort { ca, leaf, settle });
        }
        Ok(Settings {
            namespace: self.runtime.namespace.clone(),
            port: self.webhook_port,
            service: self.service.clone(),
            configuration: self.configuration.clone(),
            ca_secret: self.ca_secret.clone(),
            certificate_dir: self.certificate_dir.clone(),
            lifetimes: Lifetimes { ca, leaf, settle },
            drain: self.drain,
            request_timeout: self.runtime.request_timeout,
        })
    }
}

impl Settings {
    /// The name that API servers ask for.
    pub fn dns_name(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_that_cannot_overlap_is_refused() {
        let parse = |args: &[&str]| Args::parse_from(std::iter::once(&"test").chain(args));
        assert!(parse(&[]).settings().is_ok());
        let short = parse(&["--ca-lifetime=50s", "--certificate-lifetime=20s"]).settings();
        assert!(short.unwrap_err().to_string().contains("--settle"));
        assert!(parse(&["--ca-lifetime=1h"]).settings().is_err());
    }
}
