//! Where requests come in from the network.

pub mod limits;
pub mod native;
