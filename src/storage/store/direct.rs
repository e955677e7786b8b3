//! The short way for a store whose log is its own only replica.
//!
//! What is written there is committed. Its frames answer for their keys until they are in the index
//! ([`crate::ClosedFrame`]), so that nothing is ever pending: [`Store::frame_job`] takes a written frame as a whole and
//! looks its keys up at once, [`Store::find`] asks the index alone.

use crate::ids::Seqno;
use crate::index::{Candidate, Candidates};
use crate::log::ClosedFrame;
use crate::record::Location;
use crate::store::read::{Probe, ReadJob};
use crate::store::settle::{Change, SettleJob};
use crate::store::{Lookup, Store, take};
use bytes::Bytes;

/// What settling did to a key.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'a> {
    pub key: &'a Bytes,
    pub seqno: Seqno,
    /// Where the index had it. `None` also if what it had could not be read.
    pub old: Option<Location>,
    /// `None`: the key was removed.
    pub new: Option<Location>,
}

impl Change {
    pub(crate) fn as_applied(&self) -> Applied<'_> {
        let old = self.probe.found.as_ref().map(|hit| hit.location);
        Applied { key: &self.probe.key, seqno: self.seqno, old, new: self.new }
    }
}

impl Store {
    /// Looks a key up that no frame outside of the index holds. `key_hash` is its [`crate::Identity::key_hash`].
    pub fn find(&self, key: &[u8], key_hash: u128) -> Lookup {
        // Two waits for memory that overlap.
        let cache = self.shared.cache.open(self.view.hash(key_hash));
        let mut candidates = Candidates::default();
        self.index.lookup(self.indexed(key_hash), &mut candidates);
        if candidates.is_empty() {
            return Lookup::Ready(None);
        }
        let fits = |location| self.candidate_of(key_hash, &candidates, location).is_some();
        match cache.get(key, &self.shared.identity, fits, take) {
            Some(found) => self.found(found),
            None => self.read(key, key_hash, candidates),
        }
    }

    /// Reads a put of the key that was in the index, from a segment that somebody kept.
    pub fn find_at(&self, key: Bytes, key_hash: u128, location: Location) -> ReadJob {
        let mut candidates = Candidates::default();
        candidates.push(Candidate::exact(location));
        // What was overwritten is no entry of the key's.
        let mut probe = Probe::new(key, key_hash, candidates);
        probe.caches = false;
        ReadJob::new(self.sight(), probe)
    }

    /// Moves a written frame, the next after those in the index, into it; finish it with [`Store::finish_settle_telling`].
    /// `None` while a job is outstanding.
    pub fn frame_job(&mut self, closed: &ClosedFrame) -> Option<SettleJob> {
        if self.settling.is_some() {
            return None;
        }
        let frame = &closed.frame;
        let mut changes = Vec::with_capacity(closed.keys());
        let mut hashes = Vec::with_capacity(closed.keys());
        for change in closed.changes() {
            hashes.push(self.indexed(change.key_hash));
            let probe = Probe::new(frame.share(change.key), change.key_hash, Candidates::default());
            changes.push(Change { seqno: change.seqno, probe, new: change.put, hidden: change.hidden });
        }
        let mut found = vec![Candidates::default(); hashes.len()];
        self.index.lookup_many(&hashes, &mut found);
        changes.iter_mut().zip(found).for_each(|(change, found)| change.probe.candidates = found);
        self.look_in_cache(&mut changes);
        let up_to = frame.header.last_seqno();
        self.appended = self.appended.max(up_to);
        self.committed = self.committed.max(up_to);
        self.settling = Some(up_to);
        let end = (frame.end.segment, frame.end.offset);
        Some(SettleJob { sight: self.sight(), changes, frame: Some(Box::new(frame.clone())), up_to, end, decided: 0 })
    }

    /// Where a scan meets a key: [`crate::ScanCursor::place`]s ascend, and a key whose place lies before a page was given by
    /// an earlier one, if it was there then.
    pub fn place(&self, key_hash: u128) -> u64 {
        self.indexed(key_hash).reverse_bits()
    }

    /// What keeps the segments that the index points to now.
    pub fn hold(&self) -> Hold {
        Hold { _pin: self.pin.clone() }
    }
}

/// While it lives, what the index pointed to when it was taken can be read, and segments are compacted at most once.
#[derive(Clone)]
pub struct Hold {
    _pin: std::sync::Arc<crate::log::Pin>,
}
