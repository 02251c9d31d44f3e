//! Nodes: what we need to know of them, which of them are GPU nodes, and the labels that they should carry.

mod facts;
mod labels;

pub use self::{
    facts::{ContainerRuntime, NodeFacts, keep_label, owned_labels},
    labels::{LabelChange, desired_labels, has_cards, is_gpu_node, is_mig_capable},
};
