//! Moving committed records from pending into the index.
//!
//! A matching hash is no proof of the same key, so the records that the index holds under it are read before one is
//! replaced. That waits for a device, so it is a job: take it, run it, finish it, while the store goes on serving. At most
//! one job is outstanding, and only settling changes the index, so what a job found is still true when it is finished.

use crate::ids::Seqno;
use crate::index::Candidates;
use crate::log::Shared;
use crate::record::Location;
use crate::store::read;
use bytes::Bytes;
use std::sync::Arc;

pub struct SettleJob {
    pub(crate) shared: Arc<Shared>,
    pub(crate) changes: Vec<Change>,
    pub(crate) up_to: Seqno,
    /// Changes that are decided.
    pub(crate) decided: usize,
}

/// The last change of one key in this job.
pub(crate) struct Change {
    pub(crate) key: Bytes,
    pub(crate) hash: u64,
    /// `None` removes the key.
    pub(crate) new: Option<Location>,
    /// What the index holds under the hash.
    pub(crate) candidates: Candidates,
    /// Which of them is the key's record.
    pub(crate) old: Option<Location>,
    tried: usize,
}

/// What a [`SettleJob`] found, for [`crate::Store::finish_settle`].
#[must_use]
pub struct Settled {
    pub(crate) changes: Vec<Change>,
    pub(crate) up_to: Seqno,
}

impl Change {
    pub(crate) fn new(key: Bytes, hash: u64, new: Option<Location>, candidates: Candidates) -> Change {
        Change { key, hash, new, candidates, old: None, tried: 0 }
    }

    /// Whether the key's record is found, or known not to be in the index.
    fn decided(&self) -> bool {
        self.old.is_some() || self.candidates.get(self.tried).is_none()
    }

    /// A record that cannot be read stays in the index: if it was this key's, reads find the newer one first.
    fn look_at(&mut self, shared: &Shared, location: Location, read: Result<Bytes, crate::StorageError>) {
        self.tried += 1;
        match read.and_then(|bytes| read::parse(shared, location, bytes)) {
            Ok((key, _)) if key == self.key => self.old = Some(location),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "could not read a record that may be overwritten"),
        }
    }
}

impl SettleJob {
    /// Goes as far as it can without waiting for a device; `None` if that is not to the end.
    pub fn try_now(mut self) -> Result<Settled, SettleJob> {
        while let Some(change) = self.changes.get_mut(self.decided) {
            while !change.decided() {
                let location = change.candidates.get(change.tried).expect("not decided");
                let Some(read) = read::try_read(&self.shared, location) else { return Err(self) };
                change.look_at(&self.shared, location, read);
            }
            self.decided += 1;
        }
        Ok(Settled { changes: self.changes, up_to: self.up_to })
    }

    pub async fn run(self) -> Settled {
        let mut job = self;
        loop {
            job = match job.try_now() {
                Ok(settled) => return settled,
                Err(job) => job,
            };
            let change = &mut job.changes[job.decided];
            let location = change.candidates.get(change.tried).expect("not decided");
            let read = read::read(&job.shared, location).await;
            change.look_at(&job.shared, location, read);
        }
    }
}
