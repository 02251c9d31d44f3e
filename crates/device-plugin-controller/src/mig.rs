//! MIG: which profiles each product has, which layouts fit, the MIG manager's configuration, and what its protocol says
//! about a node. All pure.

pub mod deadline;
pub mod layouts;
pub mod parts;
pub mod placement;
pub mod protocol;
