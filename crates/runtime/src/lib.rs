//! Everything impure that Tessera's processes share.
//!
//! A controller's author needs this map and the table of rooms in `docs/`: parse [`args::RuntimeArgs`], make a
//! [`process::Process`], give it watches ([`watch`]), a [`queue::Queue`] of keys and a [`process::Reconciler`], and
//! the runtime does the rest: leader election, bounded retries, health, metrics, an orderly end.
//!
//! - [`apply`]: the one engine that writes owned objects (server-side apply, no-op skip, pruning).
//! - [`status`]: compare-and-swap writer of a `ClusterPolicy`'s status, with the summary computed from one revision.
//! - [`node_labels`]: the shared writer of `nvidia.com/gpu.*` node labels.
//! - [`operation`]: the per-node lock, a `NodeOperation`.
//! - [`operands`]: pure reading of DaemonSets and pods into counts and plain reasons.
//! - [`template`]: the pod template that all operand DaemonSets share, pure.
//! - [`optional`]: kinds that may come and go (ServiceMonitor).

pub mod apply;
pub mod args;
pub mod backoff;
pub mod clients;
pub mod clock;
pub mod drain;
pub mod election;
pub mod error;
pub mod events;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod node_labels;
pub mod operands;
pub mod operation;
pub mod optional;
pub mod policy;
pub mod process;
pub mod queue;
pub mod rbac;
pub mod status;
pub mod template;
pub mod watch;

pub use error::{Class, Classify};
pub use process::{Outcome, Process, Reconciler};
