//! The lab: a real Kubernetes control plane, simulated GPU nodes, and what scenario tests need of both.
//!
//! - [`controlplane`] finds or builds the binaries of the control plane.
//! - [`lab`] starts and stops a lab and is the handle that tests hold.
//! - [`supervisor`], [`hostnode`] and [`gpusim`] are the parts of the process `lab-agent`, which every lab has one of:
//!   it owns the control plane's processes, runs the pods of Node `lab-host`, and plays the operand pods of simulated nodes.
//! - [`nodes`] describes simulated nodes, [`audit`] counts API requests, [`rights`] tells which granted right none of them needed.
//! - `services` lets the API server reach pods by their Service.
//! - [`bench`] measures the design's budgets, [`scenario`] is what the tests in `tests/` share.

pub mod audit;
pub mod bench;
pub mod cluster;
pub mod controlplane;
pub mod gpusim;
mod hostnode;
mod http_client;
pub mod lab;
pub mod nodes;
pub mod paths;
pub mod process;
pub mod questions;
pub mod rights;
pub mod scenario;
mod services;
pub mod supervisor;

pub use self::cluster::Cluster;
pub use self::http_client::http_get;
pub use self::lab::{Lab, Options};
