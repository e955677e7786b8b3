//! Steadfast, a distributed key-value database: the map of the crate.
//!
//! ```text
//! shell, bench         the command line, the load generator
//! client               routing, retries, exactly-once sessions
//! node                 a region server or a master behind its listener; wires what is below
//! frontend             the answering side of the native protocol: hands requests to a node's Service
//! replication, master  who holds what (the master group), and how a region's replicas stay one (primary and backups)
//! protocol, region     what is said, and what it is about
//! embedded             a package of its own: one region's store as a library, [`Db`]
//! storage, env         packages of their own: a region's log and indexes, and the only door to the world
//! ```
//! All but the library is the feature `server`, which is on unless `default-features = false` says otherwise.
//!
//! The life of a write: `client` routes it by the region map and numbers it in a session; `frontend` decodes it; the
//! region's [`replication::Replica`] evaluates it and appends one frame with all that came in the same turn; the frame is
//! flushed here and on every in-sync backup at the same time; then it is committed, visible and answered.
//!
//! The life of a failure: a backup that hears no beacon for a grace period asks the master group for the lead; the epoch
//! rises by one, the old primary is out of the set, and its frames are refused from then on.

#[cfg(feature = "server")]
pub mod bench;
#[cfg(feature = "server")]
pub mod client;
#[cfg(feature = "server")]
pub mod frontend;
#[cfg(feature = "server")]
pub mod master;
#[cfg(feature = "server")]
pub mod node;
#[cfg(feature = "server")]
pub mod protocol;
#[cfg(feature = "server")]
pub mod region;
#[cfg(feature = "server")]
pub mod replication;
#[cfg(feature = "server")]
pub mod shell;

/// The embedded library, see [`embedded`].
pub use embedded::{
    AsyncDb, AsyncIter, AsyncSnapshot, AsyncTransaction, Batch, Bytes, Compression, Db, Durability, Error, Index, Iter,
    MergeProgress, Options, Result, Snapshot, Stats, Transaction,
};
