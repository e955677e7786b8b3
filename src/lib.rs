//! Steadfast, a distributed key-value database: the map of the crate.
//!
//! ```text
//! shell, bench         the command line, the load generator
//! client               routing, retries, exactly-once sessions
//! node                 a region server or a master behind its listener; wires what is below
//! frontend             the answering side of the native protocol: hands requests to a node's Service
//! replication, master  who holds what (the master group), and how a region's replicas stay one (primary and backups)
//! protocol, region     what is said, and what it is about
//! storage, env         packages of their own: a region's log and indexes, and the only door to the world
//! ```
//!
//! The life of a write: `client` routes it by the region map and numbers it in a session; `frontend` decodes it; the
//! region's [`replication::Replica`] evaluates it and appends one frame with all that came in the same turn; the frame is
//! flushed here and on every in-sync backup at the same time; then it is committed, visible and answered.
//!
//! The life of a failure: a backup that hears no beacon for a grace period asks the master group for the lead; the epoch
//! rises by one, the old primary is out of the set, and its frames are refused from then on.

pub mod bench;
pub mod client;
pub mod frontend;
pub mod master;
pub mod node;
pub mod protocol;
pub mod region;
pub mod replication;
pub mod shell;
