//! What can go wrong, by what the caller does next.

use std::{fmt, io};
use storage::StorageError;

/// Why a call did not do what it was asked to. Each variant is a different thing to do.
#[derive(Debug)]
pub enum Error {
    /// The caller asked for what no database does: an empty key, a value too long, a range without an order.
    Invalid { what: String },
    /// A key that the transaction read was written by somebody else. Run the transaction again.
    Conflict,
    /// No space is left. Reads go on; writes work again by themselves once there is space.
    Full { what: String },
    /// Bytes that were durable once are wrong or gone. What does not depend on them is still served.
    Corrupt { file: String, offset: u64, what: String },
    /// The device or the system refused. After one of a write nothing more is written until the database is opened anew.
    Io { what: String, source: Option<io::Error> },
    /// Somebody else has the database open; the text says who.
    Locked { holder: String },
    /// The folder was written by a newer version of this library: open it with that one.
    NewerFormat { file: String, found: u32, known: u32 },
    /// There is no database in the folder, and the options say not to make one.
    Missing { path: String },
    /// The database was opened for reading only.
    ReadOnly,
    /// The database was closed.
    Closed,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn invalid(what: impl Into<String>) -> Error {
        Error::Invalid { what: what.into() }
    }

    pub(crate) fn io(doing: &str, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full { what: doing.to_owned() },
            _ => Error::Io { what: doing.to_owned(), source: Some(source) },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid { what } => f.write_str(what),
            Error::Conflict => f.write_str("what the transaction read was changed meanwhile: run it again"),
            Error::Full { what } => {
                write!(f, "no space is left on the device ({what}): free some, writes then work again by themselves")
            }
            Error::Corrupt { file, offset, what } => {
                write!(f, "{file} is damaged at {offset}: {what}; restore it from a copy, other keys are still served")
            }
            Error::Io { what, source: Some(source) } => write!(f, "{what}: {source}"),
            Error::Io { what, source: None } => f.write_str(what),
            Error::Locked { holder } => write!(f, "{holder}; close it there first"),
            Error::NewerFormat { file, found, known } => {
                write!(f, "{file} has format {found}, this version knows {known}: open it with a newer version")
            }
            Error::Missing { path } => {
                write!(f, "there is no database in {path}, and `create_if_missing(false)` says not to make one")
            }
            Error::ReadOnly => f.write_str("the database was opened with `read_only(true)`"),
            Error::Closed => f.write_str("the database was closed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source: Some(source), .. } => Some(source),
            _ => None,
        }
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Error {
        match error {
            StorageError::Io { doing, path, source } => Error::io(&format!("{doing} {path}"), source),
            StorageError::Corrupt { file, offset, what } => Error::Corrupt { file, offset, what },
            StorageError::Full { doing, path } => Error::Full { what: format!("{doing} {path}") },
            StorageError::NewerFormat { file, found, known } => Error::NewerFormat { file, found, known },
            StorageError::Invalid { what } => Error::Invalid { what },
            StorageError::ForeignCluster { file, .. } | StorageError::ForeignRegion { file, .. } => {
                Error::Invalid { what: format!("{file} belongs to another database: keep each in a folder of its own") }
            }
            StorageError::Fenced | StorageError::Busy => Error::Io { what: error.to_string(), source: None },
        }
    }
}

/// What made the log stop taking frames. Every writer gets an error made of it.
#[derive(Clone, Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn of(error: &StorageError) -> Failure {
        Failure(error.to_string())
    }

    pub(crate) fn error(&self) -> Error {
        let what = format!("an earlier write failed ({}): open the database anew to write again", self.0);
        Error::Io { what, source: None }
    }
}
