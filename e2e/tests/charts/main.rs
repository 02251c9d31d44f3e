//! What the charts render and refuse. Only helm is needed, no cluster.

mod helm;
mod pods;
mod policy;
mod refusals;
mod values;
