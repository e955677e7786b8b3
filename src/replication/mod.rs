//! Primary-backup replication with a configuration service (PacificA).
//!
//! The master group says who holds a region at which epoch ([`crate::region::RegionConfig`]). Within an epoch the primary
//! appends, its followers append the same bytes, and what is durable on every in-sync replica is committed. The deciding
//! parts are pure: [`primary`], [`backup`], [`lease`]. [`replica`] runs them for one replica of one region: it owns the log,
//! does the I/O, and answers clients. What is dead in the log goes by compactions, which the log itself orders
//! (`compacting`), so that replicas stay alike.

pub mod backup;
mod compacting;
mod following;
mod leading;
pub mod lease;
pub mod limits;
pub mod operate;
pub mod primary;
mod probe;
pub mod replica;
pub mod timing;

pub use crate::protocol::peer as message;
pub use lease::LeaseBook;
pub use message::{PeerBody, PeerMessage};
pub use replica::{Context, Masters, Peers, Replica};
pub use timing::Timing;
