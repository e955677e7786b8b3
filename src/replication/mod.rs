//! Primary-backup replication with a configuration service (PacificA).

pub use crate::protocol::peer as message;
pub use message::{PeerBody, PeerMessage};
