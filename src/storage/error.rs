//! What can go wrong with a region's store, by what the caller does next.

use std::{fmt, io};

#[derive(Debug)]
pub enum StorageError {
    /// The device or the kernel refused. On a write or a flush the log is fenced as well.
    Io { doing: &'static str, path: String, source: io::Error },
    /// Bytes that were durable once are wrong or gone. Repair from a replica; never read it as "absent".
    Corrupt { file: String, offset: u64, what: String },
    /// No space is left. Reads go on; what was refused may be tried again.
    Full { doing: &'static str, path: String },
    /// An earlier write or flush failed, so that what the disk holds is unknown until the log is opened anew.
    Fenced,
    /// More is queued than the disk takes; try again once it has caught up.
    Busy,
    /// The caller asked for something that no log can do.
    Invalid { what: String },
    /// Written by a newer version of this program.
    NewerFormat { file: String, found: u32, known: u32 },
    /// The folder belongs to another cluster.
    ForeignCluster { file: String, found: u128, expected: u128 },
    /// The folder belongs to another region.
    ForeignRegion { file: String, found: u64, expected: u64 },
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::Io { doing, path, source } => write!(f, "{doing} {path}: {source}"),
            StorageError::Corrupt { file, offset, what } => write!(f, "corrupt: {file} at {offset}: {what}"),
            StorageError::Full { doing, path } => write!(f, "disk is full: {doing} {path}"),
            StorageError::Fenced => f.write_str("log is fenced after a failed write or flush"),
            StorageError::Busy => f.write_str("too much is queued for writing"),
            StorageError::Invalid { what } => write!(f, "invalid: {what}"),
            StorageError::NewerFormat { file, found, known } => {
                write!(f, "{file} has format {found}, this version knows {known}")
            }
            StorageError::ForeignCluster { file, found, expected } => {
                write!(f, "{file} belongs to cluster {found:032x}, not to {expected:032x}")
            }
            StorageError::ForeignRegion { file, found, expected } => {
                write!(f, "{file} belongs to region {found}, not to {expected}")
            }
        }
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StorageError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reject {
    /// Frames before it are missing here.
    Gap { expected: u64, found: u64 },
    /// It continues another history than this log's.
    Diverges { first_seqno: u64 },
    /// The log has it already.
    Duplicate { last_seqno: u64 },
    /// It was damaged on the way, or was made for another place.
    Corrupt { what: String },
    /// It is longer than any frame may be, or more is queued than the disk takes.
    TooLarge { bytes: u64 },
    /// The sender speaks a newer format.
    NewerFormat { found: u32, known: u32 },
    /// An earlier write or flush of this log failed.
    Fenced,
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reject::Gap { expected, found } => write!(f, "frame begins at {found}, the log ends before {expected}"),
            Reject::Diverges { first_seqno } => write!(f, "frame at {first_seqno} continues another history"),
            Reject::Duplicate { last_seqno } => write!(f, "frame up to {last_seqno} is here already"),
            Reject::Corrupt { what } => write!(f, "frame is corrupt: {what}"),
            Reject::TooLarge { bytes } => write!(f, "frame is too large: {bytes} bytes"),
            Reject::NewerFormat { found, known } => write!(f, "frame has format {found}, this version knows {known}"),
            Reject::Fenced => f.write_str("log is fenced after a failed write or flush"),
        }
    }
}

impl std::error::Error for Reject {}
