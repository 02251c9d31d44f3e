//! Tessera's API: the custom resources, the effective policy that is resolved from them, and the names and vocabularies that all
//! processes share. Everything here is pure: no client, no async, no I/O, no clock.
//!
//! - [`policy`], [`sreagent`], [`nodeoperation`]: the CRD types; [`crds`] lists them for generators.
//! - [`effective`]: several `ClusterPolicy` objects in two dialects become one [`effective::EffectivePolicy`].
//! - [`conditions`]: condition types, reasons, and the computed summary of a policy.
//! - [`nodes`]: what a node is for us, and the labels that it should carry.
//! - [`cards`], [`mig`], [`shares`], [`plugin_file`]: GPU products, what a card can be cut into and how it can be shared; what a user's configuration file of the device plugin means.
//! - [`judge`]: what is to be said of a policy or an agent before it is stored, and after.
//! - [`image`], [`units`]: image references; durations, percentages and quantities as Kubernetes writes them.
//! - [`quote`]: how what somebody wrote is shown in a sentence.
//! - [`names`], [`ownership`]: names that must not change, and who writes what.

#![warn(missing_docs)]
// `KubeSchema` copies each struct, visibility and all, into the function that builds its schema.
#![allow(unreachable_pub)]
// kube's `printcolumn` takes the same keys again for each column.
#![allow(clippy::duplicated_attributes)]

pub mod cards;
pub mod conditions;
pub mod crds;
pub mod effective;
pub mod image;
pub mod judge;
pub mod mig;
pub mod names;
pub mod nodeoperation;
pub mod nodes;
pub mod ownership;
pub mod plugin_file;
pub mod policy;
pub mod quote;
pub mod shares;
pub mod sreagent;
pub mod units;

pub use conditions::{ComponentCondition, Reason};
pub use crds::crds;
pub use effective::{EffectivePolicy, Resolution, resolve};
pub use image::{DefaultImages, ImageRef};
pub use nodeoperation::NodeOperation;
pub use nodes::NodeFacts;
pub use policy::ClusterPolicy;
pub use sreagent::SREAgent;
