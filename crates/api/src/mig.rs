//! MIG: which profiles each product has, and which instances fit on one card together.

pub mod layout;
pub mod parts;
pub mod placement;

pub use self::{
    parts::{PARTS, Part},
    placement::{Fit, fit},
};
