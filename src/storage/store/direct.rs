//! The short way for a store whose log is its own only replica.
//!
//! What is written there is committed. Its frames answer for their keys until they are in the index
//! ([`crate::ClosedFrame`]), so that nothing is ever pending: [`Store::frame_job`] takes a written frame as a whole and
//! looks its keys up at once, [`Store::find`] asks the index alone.
//!
//! Most keys of a frame are new, or the cache tells where their records lie: those take a few words in a [`FrameJob`]. Only
//! of a key that the index may hold somewhere else is a record read.
//!
//! A store of any other log may come to the same point now and then: a frame that was written, and committed by that, before
//! anybody asked for its keys ([`Store::append_committed`]).

use crate::frame::{Frame, Position};
use crate::ids::Seqno;
use crate::index::{Candidate, Candidates};
use crate::log::{ClosedFrame, KeyChange};
use crate::record::{Location, Record};
use crate::store::read::{Probe, ReadJob, Sight, decide, decide_now};
use crate::store::{Lookup, Store, Stored, cache_settled};
use bytes::Bytes;

/// Shorter values of the cache are copied for whoever asks: one that is kept is not to hold the whole chunk it lies in.
const SHARED_BYTES_MIN: usize = 64 << 10;

/// What settling did to a key.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'a> {
    pub key: &'a [u8],
    pub seqno: Seqno,
    /// Where the index had it. `None` also if what it had could not be read.
    pub old: Option<Location>,
    /// `None`: the key was removed.
    pub new: Option<Location>,
}

/// A frame that is about to go into the index: take it, run it, finish it ([`Store::frame_job`]).
#[must_use]
pub struct FrameJob {
    sight: Sight,
    /// One for each key, as [`ClosedFrame::changes`].
    steps: Vec<Step>,
    /// What has to be read, and the number of the step that it is for.
    unsure: Vec<(usize, Probe)>,
    up_to: Seqno,
}

/// What the index holds of a key.
struct Step {
    old: Option<(Candidate, Location)>,
    /// It held at most one candidate of the key's hash.
    alone: bool,
}

impl FrameJob {
    fn decide_now(&mut self) -> bool {
        self.unsure.iter_mut().all(|(_, probe)| decide_now(&self.sight, probe))
    }

    pub async fn run(mut self) -> FrameJob {
        for (_, probe) in &mut self.unsure {
            decide(&self.sight, probe).await;
        }
        self
    }
}

impl Store {
    /// Looks a key up that no frame outside of the index holds. `key_hash` is its [`crate::Identity::key_hash`]. A value
    /// that it has at once is the caller's to keep.
    pub fn find(&self, key: &[u8], key_hash: u128) -> Lookup {
        // Two waits for memory that overlap.
        let cache = self.shared.cache.open(self.view.hash(key_hash));
        let mut candidates = Candidates::default();
        self.index.lookup(self.indexed(key_hash), &mut candidates);
        if candidates.is_empty() {
            return Lookup::Ready(None);
        }
        let fits = |location| self.candidate_of(key_hash, &candidates, location).is_some();
        match cache.get(key, &self.shared.identity, fits, take_own) {
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

    /// Moves a written frame, the next after those in the index, into it; finish it with [`Store::finish_frame`].
    /// `None` while a job is outstanding.
    pub fn frame_job(&mut self, closed: &ClosedFrame) -> Option<FrameJob> {
        if self.settling.is_some() {
            return None;
        }
        let (keys, key_hashes): (Vec<&[u8]>, Vec<u128>) = closed.keys().unzip();
        let hashes: Vec<u64> = key_hashes.iter().map(|&hash| self.indexed(hash)).collect();
        let mut found = vec![Candidates::default(); hashes.len()];
        self.index.lookup_many(&hashes, &mut found);
        let mut steps: Vec<Step> = found.iter().map(|held| Step { old: None, alone: held.len() <= 1 }).collect();
        let mut unsure = Vec::new();
        let (known, new): (Vec<usize>, Vec<usize>) = (0..keys.len()).partition(|&at| !found[at].is_empty());
        for (&at, cached) in known.iter().zip(self.locate(&known, &keys, &key_hashes)) {
            let candidates = std::mem::take(&mut found[at]);
            let located = |location| Some((self.candidate_of(key_hashes[at], &candidates, location)?, location));
            steps[at].old = cached.and_then(located);
            if steps[at].old.is_none() {
                unsure.push((at, Probe::new(closed.frame.share(keys[at]), key_hashes[at], candidates)));
            }
        }
        // Those will be put into the cache: the waits for where they go overlap here.
        new.iter().for_each(|&at| drop(self.shared.cache.open(self.view.hash(key_hashes[at]))));
        let up_to = closed.frame.header.last_seqno();
        self.appended = self.appended.max(up_to);
        self.committed = self.committed.max(up_to);
        self.settling = Some(up_to);
        Some(FrameJob { sight: self.sight(), steps, unsure, up_to })
    }

    /// Where the cache knows the records of some of the keys to lie.
    fn locate(&self, some: &[usize], keys: &[&[u8]], key_hashes: &[u128]) -> Vec<Option<Location>> {
        let hashes: Vec<_> = some.iter().map(|&at| self.view.hash(key_hashes[at])).collect();
        let keys: Vec<&[u8]> = some.iter().map(|&at| keys[at]).collect();
        self.shared.cache.locate_many(&hashes, &keys)
    }

    /// The frame's changes are in the index, and `tell` is told what became of each key, in the order of the log.
    pub fn finish_frame(&mut self, closed: &ClosedFrame, job: FrameJob, mut tell: impl FnMut(Applied<'_>)) {
        let FrameJob { mut steps, unsure, up_to, .. } = job;
        assert_eq!(self.settling.take(), Some(up_to), "one settling at a time");
        for (at, probe) in unsure {
            self.doubtful |= probe.failed().is_some();
            steps[at].old = probe.found.map(|hit| (hit.candidate, hit.location));
        }
        let frame = &closed.frame;
        for (KeyChange { key, key_hash, seqno, put, hidden }, step) in closed.changes().zip(steps) {
            let Step { old, alone } = step;
            tell(Applied { key, seqno, old: old.map(|(_, location)| location), new: put });
            let record = put.map(|location| (location, frame.record_bytes(location)));
            cache_settled(&self.shared.cache, self.view.hash(key_hash), key, record);
            self.apply(key_hash, old, put);
            // Where nothing else of the hash was, only what this frame added might lead to the dead record, from its page.
            if let Some((candidate, dead)) = old
                && !(alone && lies_before(&candidate, frame.start))
            {
                self.bury(key_hash, dead, put);
            }
            hidden.into_iter().for_each(|dead| self.bury(key_hash, dead, put));
        }
        self.settled = (frame.end.segment, frame.end.offset);
    }

    /// [`Store::appended`] and [`Store::committed`] of a frame at once. It goes straight into the index where nothing is
    /// pending and nothing has to be waited for.
    pub fn append_committed(&mut self, frame: &Frame) {
        if self.pending.len() > 0 || !self.take_frame(frame) {
            self.appended(frame);
            self.committed(frame.header.last_seqno());
        }
    }

    /// Into the index with it; false, and nothing was done, where that waits.
    fn take_frame(&mut self, frame: &Frame) -> bool {
        let closed = ClosedFrame::of(frame.clone(), &self.shared.identity);
        let Some(mut job) = self.frame_job(&closed) else { return false };
        if !job.decide_now() {
            self.settling = None;
            return false;
        }
        self.note_sessions(frame);
        self.finish_frame(&closed, job, |_| ());
        true
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

/// Whether the candidate is a page that the frame which begins at `start` has no part of.
fn lies_before(candidate: &Candidate, start: Position) -> bool {
    let page_end = candidate.offset + candidate.window as u64;
    candidate.window > 1 && (candidate.segment != start.segment || page_end <= start.offset)
}

fn take_own(location: Location, record: &Record<'_>, share: &dyn Fn(&[u8]) -> Bytes) -> Option<(Location, Stored)> {
    let own = |part: &[u8]| if part.len() < SHARED_BYTES_MIN { Bytes::copy_from_slice(part) } else { share(part) };
    Some((location, Stored::of(record, own)?))
}
