//! Going through all records, for export and for checks.
//!
//! First what is pending, then the index; a key that settles in between is seen twice, never not at all. A key that is
//! there from the first page to the last is given at least once, with a value it had meanwhile.

use crate::error::StorageError;
use crate::ids::Seqno;
use crate::index::IndexCursor;
use crate::log::Shared;
use crate::record::Location;
use crate::store::{Entry, read};
use bytes::Bytes;
use std::sync::Arc;

/// Where a scan goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanCursor {
    /// In what is pending, after this record.
    Pending(Seqno),
    Index(IndexCursor),
}

impl ScanCursor {
    pub const START: ScanCursor = ScanCursor::Pending(Seqno(0));
}

/// Some of a store's records.
#[derive(Debug, Default)]
pub struct ScanPage {
    /// Keys with their values, also those that have expired.
    pub entries: Vec<(Bytes, Entry)>,
    /// `None` after the last page.
    pub next: Option<ScanCursor>,
}

/// Reads a page; finish it with [`crate::Store::finish_scan`].
pub struct ScanJob {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pending: Vec<(Bytes, Entry)>,
    pub(crate) locations: Vec<Location>,
    pub(crate) next: Option<ScanCursor>,
}

#[must_use]
pub struct Scanned {
    pub(crate) pending: Vec<(Bytes, Entry)>,
    pub(crate) indexed: Vec<(Bytes, Entry)>,
    pub(crate) next: Option<ScanCursor>,
}

impl ScanJob {
    pub async fn run(self) -> Result<Scanned, StorageError> {
        let mut indexed = Vec::with_capacity(self.locations.len());
        for location in self.locations {
            let bytes = match read::try_read(&self.shared, location) {
                Some(read) => read?,
                None => read::read(&self.shared, location).await?,
            };
            indexed.push(read::parse(&self.shared, location, bytes)?);
        }
        Ok(Scanned { pending: self.pending, indexed, next: self.next })
    }
}
