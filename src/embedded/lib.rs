//! Steadfast as a library: a key-value store in a folder of your process. The same log, index, recovery and compaction as the
//! server, without the server.
//!
//! ```
//! use embedded::Db;
//!
//! let folder = tempfile::tempdir()?;
//! let db = Db::open(folder.path())?;
//! db.put(b"greeting", b"hello")?;
//! assert_eq!(db.get(b"greeting")?.as_deref(), Some(&b"hello"[..]));
//! db.delete(b"greeting")?;
//! db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Programs use it as `steadfast::Db`; with `default-features = false` the package `steadfast` is this library.
//!
//! # What a crash takes
//!
//! | | crash of the process | crash of the system, power loss |
//! |---|---|---|
//! | [`Durability::Synced`] (unless set otherwise) | nothing that returned | nothing that returned |
//! | [`Durability::Buffered`] | nothing that returned | what was written since the last flush, at most the [flush interval](Options::flush_interval) (100 ms) and the time that a flush takes |
//! | [`Durability::Relaxed`] | what was gathered: at most 64 KiB for each thread that writes, or 5 ms | as for `Buffered` |
//!
//! What is lost is always an end: if a write is there, all before it are. A [`Batch`] and a [`Transaction`] are there whole or
//! not at all. [`Db::sync`] and [`Db::close`] make everything before them durable, whatever it was written with. A call that
//! returned [`Error::Io`] or [`Error::Full`] may have happened or not; the database knows after it was opened anew. A write or a flush that
//! fails ends writing until then: what the device holds is unknown, and a second try that seems to work proves nothing.
//! Damage is found by checksums over each record and each frame, and reported as [`Error::Corrupt`], never as an absent key.
//!
//! # How it is made
//!
//! A put is encoded once, into the frame at the log's end, and is visible. Frames are written, flushed as the durability
//! wants, and moved into the index, which takes some 6 bytes for each key; values stay in the log, and a get reads one. With
//! [`Index::Radix`] the keys are held in memory too, in order. Segments of the log whose dead part grows are compacted in the
//! background. A thread of the library's own does what waits for nobody; the blocking calls write on the thread that called.
//!
//! # Bounds
//!
//! Keys of 1 byte to 64 KiB, any bytes. Values up to 8 MiB. 65,536 changes and 32 MiB in a batch. One process at a time has a
//! folder open. While a snapshot, an iterator or a transaction lives, compaction goes one step further and then waits.
//!
//! Missing on purpose: expiry, which the server has, and several databases in one folder.

mod asynchronous;
mod background;
mod batch;
mod core;
mod db;
mod engine;
mod error;
mod handle;
mod keys;
pub mod limits;
mod merge;
mod open;
mod options;
mod snapshot;
mod stats;
mod transaction;
mod versions;
mod walk;

pub use asynchronous::{AsyncDb, AsyncIter, AsyncSnapshot, AsyncTransaction};
pub use batch::Batch;
/// What keys and values are returned as: a slice of bytes that is cheap to clone.
pub use bytes::Bytes;
pub use db::{Db, Iter, Snapshot, Transaction};
pub use error::{Error, Result};
pub use merge::MergeProgress;
pub use options::{Compression, Durability, Index, Options};
pub use stats::Stats;
