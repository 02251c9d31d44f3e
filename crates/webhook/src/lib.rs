//! webhook: answers the API server's admission questions about ClusterPolicies, SREAgents, and Pods that ask for GPUs.
//!
//! **Watches.** Nodes as metadata, ConfigMaps of its own namespace, ClusterPolicies, SREAgents: what the rules compare with. Its CA
//! Secret and its two webhook configurations, each by name.
//!
//! **Reads.** Nothing while it answers: all reads are watches. What is not known yet only leads to warnings.
//!
//! **Writes.** The CA Secret, by compare-and-swap. `webhooks` of the configurations that the chart made, by server-side apply.
//! Nothing for an answer, so a dry run is the same as a run.
//!
//! **Field manager and owned paths.** `webhook.aiops.local`: its own entries in `webhooks`. It never makes a configuration, so one that
//! an uninstall has deleted stays away.
//!
//! **No leader.** Every replica does the same, and that is safe. The Secret is created or replaced only as it was read, so of two
//! replicas one wins and the other takes what it made. The configuration is a function of the Secret and of this version, so two
//! replicas of a version write the same, and the second has nothing to write. During a roll-out old and new version may each
//! write theirs, at most once in two seconds, until the old one is gone; both are right for both.
//!
//! **Relies on.** The Service `webhook` leads to ready replicas only. The API servers take over a changed configuration within `--settle`.
//!
//! **Guarantees.** A certificate is only served when the published bundle trusts it; the next CA is in the bundle for `--settle` before
//! anything is signed with it, and the old one until it has expired. `webhooks` is empty until a replica has been ready for
//! `--settle`: before it serves, nothing is refused for want of it. The validating configuration never matches anything but creations and
//! updates of our own two kinds that change the specification. An object that is being deleted always passes. The mutating one never
//! matches anything but creations of Pods that ask for an `nvidia.com` resource, and none of those is ever held up by us being away.
//!
//! **Failure modes.** Secret gone, unreadable or expired: a new CA within seconds, the old one stays in the bundle while it is valid.
//! Bundle or entry edited by hand: repaired at once, and not ready until then. Clock steps: certificates are valid from two hours
//! before they were made, and looked at every 30 s at least by the wall clock. No answer in 3 s: HTTP 503, and the API server refuses
//! (`failurePolicy: Fail`). No rights or no API server: it goes on with the certificate that it has, and says in `/readyz` what is wrong.

#![warn(missing_docs)]

pub mod admission;
pub mod args;
pub mod certificates;
pub mod configuration;
mod context;
mod facts;
mod keeper;
mod metrics;
pub mod pods;
pub mod rbac;
pub mod rules;
mod server;

use std::sync::Arc;

use tessera_runtime::Process;

/// Its name: binary, Deployment, ServiceAccount, Service.
pub const NAME: &str = tessera_api::names::controller::WEBHOOK;

/// Field manager of the configurations' entries.
pub const FIELD_MANAGER: &str = "webhook.aiops.local";

/// Serves until the process is told to stop.
///
/// # Errors
/// The process could not start, or a part of it died.
pub async fn start(args: args::Args) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let settings = args.settings()?;
    let mut process = Process::start(NAME, args.runtime).await?;
    let context = Arc::new(context::Context::new(&mut process, settings));
    let server = server::Server::bind(&context, process.args().bind_address).await?;
    let drained = server.drained();
    process.spawn(server.run(process.stopping()));
    process.spawn(keeper::run(Arc::clone(&context)));
    process.serve(drained).await?;
    Ok(())
}
