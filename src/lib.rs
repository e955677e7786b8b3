//! Steadfast, a distributed key-value database.

pub mod bench;
pub mod client;
pub mod frontend;
pub mod master;
pub mod node;
pub mod protocol;
pub mod region;
pub mod replication;
pub mod shell;
