//! Going through all records, for export and for checks.
//!
//! First what is pending, then the index; a key that settles in between is seen twice, never not at all. A key that is
//! there from the first page to the last is given at least once, with a value it had meanwhile.

use crate::error::StorageError;
use crate::ids::Seqno;
use crate::index::{Candidate, IndexCursor};
use crate::record::Location;
use crate::store::read::{self, Sight, Unfit, Wanted};
use crate::store::{Entry, Stored};
use bytes::Bytes;

/// Where a scan goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanCursor {
    /// In what is pending, after this record.
    Pending(Seqno),
    Index(IndexCursor),
}

impl ScanCursor {
    pub const START: ScanCursor = ScanCursor::Pending(Seqno(0));

    /// Keys before it were given, see [`crate::Store::place`].
    pub fn place(&self) -> u64 {
        match self {
            ScanCursor::Pending(_) => 0,
            ScanCursor::Index(cursor) => cursor.0,
        }
    }
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
    pub(crate) sight: Sight,
    pub(crate) pending: Vec<(Bytes, Location, Stored)>,
    /// With what is known of their hashes.
    pub(crate) candidates: Vec<(u64, Candidate)>,
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
        let mut indexed = Vec::with_capacity(self.candidates.len());
        let mut rest = self.candidates.as_slice();
        while let Some(&(hash, candidate)) = rest.first() {
            // Candidates that are alike stand for as many records: the index gives them one after the other.
            let alike = |entry: &(u64, Candidate)| entry.0 == hash && entry.1.same_place(&candidate);
            let count = rest.iter().take_while(|entry| alike(entry)).count();
            let repeated = rest[..count].iter().any(|(_, candidate)| candidate.repeated);
            self.read_page(hash, Candidate { repeated, ..candidate }, count, &mut indexed).await?;
            rest = &rest[count..];
        }
        let shared = &self.sight.shared;
        let pending = self.pending.into_iter().map(|(key, at, stored)| Ok((key, stored.entry(shared, at)?)));
        Ok(Scanned { pending: pending.collect::<Result<_, StorageError>>()?, indexed, next: self.next })
    }

    async fn read_page(
        &self,
        hash: u64,
        candidate: Candidate,
        count: usize,
        entries: &mut Vec<(Bytes, Entry)>,
    ) -> Result<(), StorageError> {
        let shared = &self.sight.shared;
        let handle = shared.add_handle(candidate.segment);
        let mut wanted = Wanted { candidate, len: candidate.len as usize };
        loop {
            let bytes = match read::try_read(shared, wanted) {
                Some(read) => read?,
                None => read::read(shared, wanted).await?,
            };
            let stretch = self.sight.stretch(wanted, &bytes, &handle.seeds);
            match self.sight.fitting(&stretch, hash, count) {
                Ok(items) => {
                    for item in items {
                        let stored = Stored::of(&item.record, |part| bytes.slice_ref(part));
                        if let (Some(key), Some(stored)) = (item.record.key(), stored) {
                            entries.push((bytes.slice_ref(key), stored.entry(shared, item.location)?));
                        }
                    }
                    return Ok(());
                }
                Err(Unfit::Longer(len)) => wanted.len = len,
                Err(Unfit::Damaged) => return Err(self.sight.damaged(&candidate)),
            }
        }
    }
}
