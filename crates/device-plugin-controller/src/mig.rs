//! MIG: the layouts that every install has, and what the MIG manager's protocol says about a node. All pure.

pub mod deadline;
pub mod layouts;
pub mod protocol;
