//! What can go wrong with a region's store, by what the caller does next.

use std::io;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum StorageError {
    /// The device or the kernel refused. On a write or a flush the log is fenced as well.
    #[error("{doing} {path}: {source}")]
    Io { doing: &'static str, path: String, source: io::Error },
    /// Bytes that were durable once are wrong or gone. Repair from a replica; never read it as "absent".
    #[error("corrupt: {file} at {offset}: {what}")]
    Corrupt { file: String, offset: u64, what: String },
    /// No space is left. Reads go on; writing needs space freed and the log opened anew.
    #[error("disk is full: {doing} {path}")]
    Full { doing: &'static str, path: String },
    /// An earlier write or flush failed, so that what the disk holds is unknown until the log is opened anew.
    #[error("log is fenced after a failed write or flush")]
    Fenced,
    /// More is queued than the disk takes; try again once it has caught up.
    #[error("too much is queued for writing")]
    Busy,
    /// The caller asked for something that no log can do.
    #[error("invalid: {what}")]
    Invalid { what: String },
    /// Written by a newer version of this program.
    #[error("{file} has format {found}, this version knows {known}")]
    NewerFormat { file: String, found: u32, known: u32 },
    /// The folder belongs to another cluster.
    #[error("{file} belongs to cluster {found:032x}, not to {expected:032x}")]
    ForeignCluster { file: String, found: u128, expected: u128 },
    /// The folder belongs to another region.
    #[error("{file} belongs to region {found}, not to {expected}")]
    ForeignRegion { file: String, found: u64, expected: u64 },
}

impl StorageError {
    pub(crate) fn io(doing: &'static str, path: &str, source: io::Error) -> StorageError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StorageError::Full { doing, path: path.to_owned() }
            }
            _ => StorageError::Io { doing, path: path.to_owned(), source },
        }
    }

    pub(crate) fn corrupt(file: &str, offset: u64, what: impl Into<String>) -> StorageError {
        StorageError::Corrupt { file: file.to_owned(), offset, what: what.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> StorageError {
        StorageError::Invalid { what: what.into() }
    }

    pub fn is_corrupt(&self) -> bool {
        matches!(self, StorageError::Corrupt { .. })
    }
}

/// Why a backup does not take a frame.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Reject {
    /// Frames before it are missing here.
    #[error("frame begins at {found}, the log ends before {expected}")]
    Gap { expected: u64, found: u64 },
    /// It continues another history than this log's.
    #[error("frame at {first_seqno} continues another history")]
    Diverges { first_seqno: u64 },
    /// The log has it already.
    #[error("frame up to {last_seqno} is here already")]
    Duplicate { last_seqno: u64 },
    /// It was damaged on the way, or was made for another place.
    #[error("frame is corrupt: {what}")]
    Corrupt { what: String },
    /// It is longer than any frame may be, or more is queued than the disk takes.
    #[error("frame is too large: {bytes} bytes")]
    TooLarge { bytes: u64 },
    /// The sender speaks a newer format.
    #[error("frame has format {found}, this version knows {known}")]
    NewerFormat { found: u32, known: u32 },
    /// An earlier write or flush of this log failed.
    #[error("log is fenced after a failed write or flush")]
    Fenced,
}
