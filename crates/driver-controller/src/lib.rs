//! x
pub mod args;
pub mod build;
pub mod fleet;
pub mod pools;
pub mod upgrade;
pub mod validate;
pub use args::Args;
