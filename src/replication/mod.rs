//! Primary-backup replication with a configuration service (PacificA).

pub mod message;

pub use message::{PeerBody, PeerMessage};
