//! Tests of everything between the stores and the API server: from policies, ConfigMaps and nodes to objects and status.

mod limits;
mod objects;
mod reports;
mod samples;
mod validation;
