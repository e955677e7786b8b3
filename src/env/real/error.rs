//! Errors that say what was tried on which file.

use std::io;
use std::path::Path;

/// What was tried, on what, and what came of it. Its `io::Error` has the kind of its source.
#[derive(Debug)]
struct Failed {
    what: String,
    source: io::Error,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// `verb path: source`, for [`Result::map_err`].
pub(super) fn at<'a>(verb: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> io::Error + 'a {
    move |source| context(format!("{verb} {}", path.display()), source)
}

pub(super) fn context(what: String, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), Failed { what, source })
}

/// "No room" is said of writes only, which may be tried again.
pub(super) fn flush_failed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => io::Error::other(error),
        _ => error,
    }
}
