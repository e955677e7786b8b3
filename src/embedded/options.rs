//! How a database is opened.

use crate::error::{Error, Result};
use crate::limits::{FLUSH, MEMORY_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::{AsyncDb, Db};
use std::path::Path;
use std::time::Duration;
pub use storage::Compression;

/// When a write counts as done, and so what it survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Flushed to the device before the call returns: survives a crash of the process, of the system, and a power loss.
    /// Threads that write at the same time share a flush.
    #[default]
    Synced,
    /// Handed to the kernel before the call returns, flushed within 100 ms ([`Options::flush_interval`]): survives a crash of
    /// the process; a crash of the system or a power loss may take the writes since the last flush.
    Buffered,
    /// Gathered in the process, up to 64 KiB or 5 ms, then as [`Durability::Buffered`]: a crash of the process (a panic that
    /// aborts, a kill) may take what was gathered, a power loss the writes since the last flush.
    Relaxed,
}

/// How keys are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Index {
    /// By a hash, some 6 bytes of memory for each key however long. Keys have no order.
    #[default]
    Hash,
    /// By a hash, with the keys themselves in memory in their order, for [`Db::range`] and [`Db::prefix`]. A folder may be
    /// opened with either.
    Radix,
}

/// How a database is opened: [`Db::builder`], then what differs from the defaults, then [`Options::open`].
///
/// ```
/// use embedded::{Compression, Db, Durability, Index};
///
/// let folder = tempfile::tempdir()?;
/// let db = Db::builder()
///     .index(Index::Radix)
///     .durability(Durability::Buffered)
///     .segment_bytes(16 << 20)
///     .memory_bytes(64 << 20)
///     .compression(Compression::Lz4)
///     .dead_share(0.4)
///     .open(folder.path())?;
/// db.put(b"key", b"value")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) index: Index,
    pub(crate) durability: Durability,
    pub(crate) segment_bytes: u64,
    pub(crate) memory_bytes: usize,
    pub(crate) compression: Compression,
    pub(crate) dead_share: f64,
    pub(crate) read_only: bool,
    pub(crate) create_if_missing: bool,
    pub(crate) flush_interval: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            index: Index::default(),
            durability: Durability::default(),
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            memory_bytes: MEMORY_BYTES_DEFAULT,
            compression: Compression::None,
            dead_share: 0.5,
            read_only: false,
            create_if_missing: true,
            flush_interval: FLUSH,
        }
    }
}

impl Options {
    pub fn new() -> Options {
        Options::default()
    }

    /// [`Index::Hash`] unless set.
    pub fn index(mut self, index: Index) -> Options {
        self.index = index;
        self
    }

    /// Of writes, unless [`Db::with_durability`] says otherwise. [`Durability::Synced`] unless set.
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// Where a segment file ends, 1 KiB to 1 GiB. 64 MiB unless set.
    pub fn segment_bytes(mut self, bytes: u64) -> Options {
        self.segment_bytes = bytes;
        self
    }

    /// Of memory, for the index and for records that were written or read of late: a get that finds its record there makes no
    /// system call. What the index takes the records leave. The ordered keys of [`Index::Radix`] come on top. 256 MiB unless set.
    pub fn memory_bytes(mut self, bytes: usize) -> Options {
        self.memory_bytes = bytes;
        self
    }

    /// How values are stored from now on; those there already are read either way. Not at all unless set.
    pub fn compression(mut self, compression: Compression) -> Options {
        self.compression = compression;
        self
    }

    /// Segments are compacted when this part of them is dead, above 0 and below 1. Half unless set: the files take at most
    /// twice what is live, and three segments.
    pub fn dead_share(mut self, share: f64) -> Options {
        self.dead_share = share;
        self
    }

    /// Nothing is written, not even to mend the end of a log that a crash left; the folder may be on media that cannot be
    /// written to.
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }

    /// With `false` a folder without a database is [`Error::Missing`].
    pub fn create_if_missing(mut self, create: bool) -> Options {
        self.create_if_missing = create;
        self
    }

    /// How often what [`Durability::Buffered`] and [`Durability::Relaxed`] wrote is flushed. 100 ms unless set.
    pub fn flush_interval(mut self, interval: Duration) -> Options {
        self.flush_interval = interval;
        self
    }

    /// Opens the database in the folder, which is made if it is missing.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        Db::open_with(path.as_ref(), self)
    }

    /// [`Options::open`] for an asynchronous program.
    pub async fn open_async(self, path: impl AsRef<Path>) -> Result<AsyncDb> {
        AsyncDb::open_with(path.as_ref(), self).await
    }

    pub(crate) fn check(&self) -> Result<()> {
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            let what = format!(
                "segments of {} bytes, {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX} are possible",
                self.segment_bytes
            );
            return Err(Error::invalid(what));
        }
        if !(self.dead_share > 0.0 && self.dead_share < 1.0) {
            return Err(Error::invalid(format!("dead share of {}, it lies between 0 and 1", self.dead_share)));
        }
        if self.flush_interval.is_zero() {
            return Err(Error::invalid("flush interval of 0: Durability::Synced flushes with each write"));
        }
        Ok(())
    }
}
