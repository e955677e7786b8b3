//! A region's records by key: what a primary holds beside its log.
//!
//! What it promises: a read sees the newest committed record of its key (or the newest of all, if it asks for that), and
//! what cannot be read is an error, never "absent".
//!
//! The life of a record: [`Store::appended`] puts it among the pending ones, where only [`View::Latest`] sees it;
//! [`Store::committed`] makes it visible; [`Store::settle_job`] moves it into the index, which knows only where it lies. A
//! read that finds its key pending is answered at once; one that finds candidates in the index gets a [`ReadJob`], which
//! answers at once too if the kernel has the bytes, and can be awaited or spawned if not.
//!
//! The index may change under a running job, segments may be closed: a job owns what it reads.
//!
//! A switch of the log to compacted segments ([`crate::compaction`]) leaves the store as it was, with what it points to;
//! [`Mover`] then moves the index on, step by step, and only then do the segments that were replaced go.
//!
//! Missing on purpose: cutting a suffix. A primary never cuts its own log; whoever does builds its store anew.

mod build;
mod compact;
mod direct;
mod graves;
mod pending;
mod read;
mod scan;
mod sessions;
mod settle;
mod stretch;

pub use compact::{Mover, Planner, Space};
pub use direct::{Applied, FrameJob, Hold};
pub use read::{ReadJob, read_all};
pub use scan::{ScanCursor, ScanJob, ScanPage, Scanned};
pub use sessions::{Seen, SessionTable};
pub use settle::{SettleJob, Settled};

use crate::cache::{Buffered, EntryHash, ReadCache, ViewNumber};
use crate::compression::Compression;
use crate::error::StorageError;
use crate::frame::Frame;
use crate::ids::{SegmentId, Seqno};
use crate::index::{Candidate, Candidates, HashIndex, HashOptions, Index, IndexCursor};
use crate::limits::SETTLE_RECORDS_MAX;
use crate::log::{Log, Pin, Shared};
use crate::record::{Location, Record};
use crate::segment::segment_path;
use build::Build;
use bytes::Bytes;
use compact::LiveBytes;
use graves::Graves;
use pending::{Pending, Version};
use read::{Hit, Probe, Sight};
use settle::Change;
use std::sync::Arc;

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Bytes,
    pub expiry_ms: Option<u64>,
}

/// A key's value as its record holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    value: Bytes,
    compression: Compression,
    expiry_ms: Option<u64>,
}

impl Stored {
    /// What a record that was taken from somewhere says: `share` gives the bytes of its parts. `None` is a tombstone.
    pub(crate) fn of(record: &Record<'_>, share: impl Fn(&[u8]) -> Bytes) -> Option<Stored> {
        match *record {
            Record::Put { value, compression, expiry_ms, .. } => {
                Some(Stored { value: share(value), compression, expiry_ms })
            }
            _ => None,
        }
    }

    /// What [`Stored::of`] was given, with its key.
    fn record<'a>(&'a self, key: &'a [u8]) -> Record<'a> {
        Record::Put { key, value: &self.value, compression: self.compression, expiry_ms: self.expiry_ms }
    }

    /// `at` says where it was read.
    pub(crate) fn entry(&self, shared: &Shared, at: Location) -> Result<Entry, StorageError> {
        self.clone().into_entry(shared, at)
    }

    pub(crate) fn into_entry(self, shared: &Shared, at: Location) -> Result<Entry, StorageError> {
        let value = self.compression.unpack(self.value);
        let value = value.map_err(|what| {
            let path = segment_path(&shared.dir, at.segment);
            StorageError::corrupt(&path, at.offset, what)
        })?;
        Ok(Entry { value, expiry_ms: self.expiry_ms })
    }
}

impl Entry {
    /// Whether the entry counts as absent at this wall time.
    pub fn expired(&self, wall_ms: u64) -> bool {
        self.expiry_ms.is_some_and(|expiry_ms| wall_ms >= expiry_ms)
    }
}

/// Which records a read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Those up to the commit point.
    Committed,
    /// All that were appended: for the primary's own decisions about what to append next.
    Latest,
}

/// A read's answer, or the way to it.
pub enum Lookup {
    Ready(Option<Entry>),
    Read(Box<ReadJob>),
}

pub struct Store {
    /// Segments that the index may point to stay.
    pin: Arc<Pin>,
    shared: Arc<Shared>,
    index: Box<dyn Index>,
    /// The bits of a key's hash that the index sees; fewer than all only in tests, to make hashes collide.
    hash_mask: u64,
    graves: Arc<Graves>,
    pending: Pending,
    /// The bytes of what is pending, for the cache to yield to.
    buffered: Buffered,
    /// This store's entries in the cache.
    view: ViewNumber,
    committed: Seqno,
    appended: Seqno,
    /// Up to where the log is in the index.
    settled: (SegmentId, u64),
    /// The last record of the outstanding settling.
    settling: Option<Seqno>,
    sessions: SessionTable,
    live: LiveBytes,
    /// The index may hold records that were overwritten.
    doubtful: bool,
}

impl Store {
    /// Makes the store of a log as it is now. The log may go on meanwhile: frames appended since are then handed over with
    /// [`Store::appended`] in their order.
    pub fn build(log: &Log) -> impl Future<Output = Result<Store, StorageError>> + Send + use<> {
        let index = HashIndex::new(&log.shared.heap, HashOptions::default());
        Store::build_with(log, Box::new(index), u64::MAX)
    }

    /// `hash_mask` says which bits of a key's hash the index sees.
    pub(crate) fn build_with(
        log: &Log,
        index: Box<dyn Index>,
        hash_mask: u64,
    ) -> impl Future<Output = Result<Store, StorageError>> + Send + use<> {
        Build::new(log).run(index, hash_mask)
    }

    /// The store of a log up to `settled`, all of which is in the index.
    fn new(
        shared: Arc<Shared>,
        index: Box<dyn Index>,
        hash_mask: u64,
        committed: Seqno,
        settled: (SegmentId, u64),
    ) -> Store {
        Store {
            pin: shared.pin(),
            buffered: Buffered::new(&shared.cache),
            view: shared.cache.new_view(),
            shared,
            index,
            hash_mask,
            graves: Arc::default(),
            pending: Pending::default(),
            committed,
            appended: committed,
            settled,
            settling: None,
            sessions: SessionTable::default(),
            live: LiveBytes::default(),
            doubtful: false,
        }
    }

    /// The log has this frame at its end.
    pub fn appended(&mut self, frame: &Frame) {
        for item in frame.records() {
            self.pending.add(frame, item.seqno, item.location, item.record);
        }
        self.note_sessions(frame);
        self.appended = frame.header.last_seqno();
        self.buffered.set(self.pending.bytes());
    }

    fn note_sessions(&mut self, frame: &Frame) {
        for item in frame.records() {
            if let Record::Session { session, number, floor, outcome } = item.record {
                // A copy: it is kept for longer than the frame should be.
                self.sessions.record(item.seqno, session, number, floor, Bytes::copy_from_slice(outcome));
            }
        }
    }

    /// Everything up to here is committed, and so written on this replica.
    pub fn committed(&mut self, up_to: Seqno) {
        assert!(up_to <= self.appended, "commit point {up_to} past what was appended, {}", self.appended);
        self.committed = self.committed.max(up_to);
    }

    /// Looks up a key. Does not wait and, if the key is pending or in the cache, does not allocate.
    pub fn get(&self, key: &[u8], view: View) -> Lookup {
        if let Some(version) = self.pending.newest(key, self.limit(view)) {
            return self.ready(version);
        }
        let hash = self.shared.identity.key_hash(key);
        self.find(key, hash)
    }

    /// [`Store::get`], if the answer needs no device: it may be pending, in the cache or in the kernel's.
    pub fn get_now(&self, key: &[u8], view: View) -> Option<Result<Option<Entry>, StorageError>> {
        match self.get(key, view) {
            Lookup::Ready(entry) => Some(Ok(entry)),
            Lookup::Read(mut job) => job.try_now(),
        }
    }

    /// [`Store::get`] of many keys, whose waits for memory overlap.
    pub fn get_many(&self, keys: &[&[u8]], view: View) -> Vec<Lookup> {
        let limit = self.limit(view);
        let (hashes, candidates) = self.candidates(keys);
        let asked: Vec<_> = keys.iter().zip(&hashes).map(|(&key, &hash)| (self.view.hash(hash), key)).collect();
        let fits = |at: usize, location| self.candidate_of(hashes[at], &candidates[at], location).is_some();
        let cached = self.shared.cache.get_many(&asked, &self.shared.identity, fits, take);
        let found = keys.iter().zip(cached).zip(hashes.iter().zip(&candidates));
        let answer = |((key, cached), (&hash, candidates)): ((&&[u8], _), (&u128, &Candidates))| match (
            self.pending.newest(key, limit),
            cached,
        ) {
            (Some(version), _) => self.ready(version),
            (None, Some(found)) => self.found(found),
            (None, None) if candidates.is_empty() => Lookup::Ready(None),
            (None, None) => self.read(key, hash, candidates.clone()),
        };
        found.map(answer).collect()
    }

    /// The keys' hashes, and where the index says that they may be.
    fn candidates<K: AsRef<[u8]>>(&self, keys: &[K]) -> (Vec<u128>, Vec<Candidates>) {
        let key_hashes: Vec<u128> = keys.iter().map(|key| self.shared.identity.key_hash(key.as_ref())).collect();
        let hashes: Vec<u64> = key_hashes.iter().map(|&hash| self.indexed(hash)).collect();
        let mut candidates = vec![Candidates::default(); keys.len()];
        self.index.lookup_many(&hashes, &mut candidates);
        (key_hashes, candidates)
    }

    fn found(&self, (location, stored): (Location, Stored)) -> Lookup {
        match stored.into_entry(&self.shared, location) {
            Ok(entry) => Lookup::Ready(Some(entry)),
            Err(error) => Lookup::Read(Box::new(ReadJob::failed(self.sight(), error))),
        }
    }

    fn read(&self, key: &[u8], hash: u128, candidates: Candidates) -> Lookup {
        let probe = Probe::new(Bytes::copy_from_slice(key), hash, candidates);
        Lookup::Read(Box::new(ReadJob::new(self.sight(), probe)))
    }

    /// The candidate that says that the key's record, which the cache says lies there, is live.
    fn candidate_of(&self, hash: u128, candidates: &Candidates, location: Location) -> Option<Candidate> {
        // One of them may stand for a record that was overwritten: reads try the newest first.
        if self.doubtful && candidates.len() > 1 {
            return None;
        }
        candidates.iter().find(|candidate| candidate.covers(location) && !self.graves.contains(candidate, hash))
    }

    fn ready(&self, version: &Version) -> Lookup {
        match version.entry(&self.shared) {
            Ok(entry) => Lookup::Ready(entry),
            Err(error) => Lookup::Read(Box::new(ReadJob::failed(self.sight(), error))),
        }
    }

    /// The last record that a read sees.
    fn limit(&self, view: View) -> Seqno {
        match view {
            View::Committed => self.committed,
            View::Latest => Seqno(u64::MAX),
        }
    }

    /// The part of a key's hash that the index is given.
    fn indexed(&self, key_hash: u128) -> u64 {
        key_hash as u64 & self.hash_mask
    }

    fn sight(&self) -> Sight {
        Sight {
            _pin: self.shared.pin(),
            shared: self.shared.clone(),
            mask: self.hash_mask & self.index.hash_mask(),
            settled: self.settled,
            graves: self.graves.clone(),
            view: self.view,
        }
    }

    /// Some committed records to be moved into the index; `None` if there are none, or while a job is outstanding.
    pub fn settle_job(&mut self) -> Option<SettleJob> {
        if self.settling.is_some() {
            return None;
        }
        let oldest = || self.pending.oldest(self.committed, SETTLE_RECORDS_MAX);
        let (up_to, _) = *oldest().last()?;
        // Of several changes of a key the last one counts. The index is to see those in the order of the log.
        let versions = oldest().map(|(seqno, key)| (seqno, key, self.pending.versions(key, up_to)));
        let newest = versions.filter(|(seqno, _, versions)| versions.last().is_some_and(|last| last.seqno == **seqno));
        let (keys, versions): (Vec<&Bytes>, Vec<&[Version]>) = newest.map(|(_, key, versions)| (key, versions)).unzip();
        let location = versions.last().and_then(|versions| versions.last()).expect("the last of all").location;
        let end = (location.segment, location.offset + location.len as u64);
        let (hashes, candidates) = self.candidates(&keys);
        let probes = keys.iter().zip(hashes.into_iter().zip(candidates));
        let probes = probes.map(|(&key, (hash, candidates))| Probe::new(key.clone(), hash, candidates));
        let mut changes = probes.zip(versions).map(|(probe, versions)| change(probe, versions)).collect::<Vec<_>>();
        self.look_in_cache(&mut changes);
        self.settling = Some(up_to);
        Some(SettleJob { sight: self.sight(), changes, up_to, end, decided: 0 })
    }

    /// Spares those changes a read whose keys' records the cache knows to be where the index says.
    fn look_in_cache(&self, changes: &mut [Change]) {
        let hashes: Vec<_> = changes.iter().map(|change| self.view.hash(change.probe.hash)).collect();
        let keys: Vec<&Bytes> = changes.iter().map(|change| &change.probe.key).collect();
        let cached = self.shared.cache.locate_many(&hashes, &keys);
        for (Change { probe, .. }, cached) in changes.iter_mut().zip(cached) {
            let hit = |location| {
                let candidate = self.candidate_of(probe.hash, &probe.candidates, location)?;
                Some(Hit { candidate, location, stored: None })
            };
            probe.found = cached.and_then(hit);
        }
    }

    pub fn finish_settle(&mut self, settled: Settled) {
        assert_eq!(self.settling.take(), Some(settled.up_to), "one settling at a time");
        for Change { probe, new, hidden } in settled.changes {
            self.doubtful |= probe.failed().is_some();
            let old = probe.found.map(|hit| (hit.candidate, hit.location));
            self.apply(probe.hash, old, new);
            for dead in old.map(|(_, location)| location).into_iter().chain(hidden) {
                self.bury(probe.hash, dead, new);
            }
        }
        let (shared, view, mut bytes) = (&self.shared, self.view, Vec::new());
        self.pending.settled(settled.up_to, |key, Version { location, stored, .. }| {
            bytes.clear();
            let seeds = shared.identity.seeds(location.segment);
            stored.iter().for_each(|stored| stored.record(key).encode(&seeds, location.offset, &mut bytes));
            let record = stored.as_ref().map(|_| (*location, bytes.as_slice()));
            cache_settled(&shared.cache, view.hash(shared.identity.key_hash(key)), key, record);
        });
        self.buffered.set(self.pending.bytes());
        self.settled = settled.end;
    }

    /// The key is there from now on, or nowhere. Who calls this buries what is dead now.
    fn apply(&mut self, key_hash: u128, old: Option<(Candidate, Location)>, new: Option<Location>) {
        let hash = self.indexed(key_hash);
        let done = match (old, new) {
            (Some((old, _)), Some(new)) => self.index.replace(hash, old, new),
            (Some((old, _)), None) => self.index.remove(hash, old),
            (None, Some(new)) => {
                self.index.insert(hash, new);
                true
            }
            (None, None) => true,
        };
        assert!(done, "only settling changes the index, and moving while nothing is being settled");
        self.live.replace(old.map(|(_, location)| location), new);
        if let Some(new) = new.filter(|_| !self.graves.is_empty())
            && let Some(candidate) = self.candidate_for(hash, new)
        {
            Arc::make_mut(&mut self.graves).lift(&candidate, key_hash);
        }
    }

    /// A put of a key is dead, and its live one, if there is one, is `live`. Sees to it that a candidate that covers the
    /// dead one as well leads nobody to it.
    fn bury(&mut self, key_hash: u128, dead: Location, live: Option<Location>) {
        if let Some(candidate) = self.candidate_for(self.indexed(key_hash), dead) {
            self.bury_under(candidate, key_hash, live);
        }
    }

    /// [`Store::bury`] of some puts, whose waits for memory overlap.
    fn bury_many(&mut self, dead: &[(u128, Location, Option<Location>)]) {
        let hashes: Vec<u64> = dead.iter().map(|&(key_hash, ..)| self.indexed(key_hash)).collect();
        let mut candidates = vec![Candidates::default(); dead.len()];
        self.index.lookup_many(&hashes, &mut candidates);
        for (&(key_hash, dead, live), candidates) in dead.iter().zip(&candidates) {
            if let Some(candidate) = candidates.iter().find(|candidate| candidate.covers(dead)) {
                self.bury_under(candidate, key_hash, live);
            }
        }
    }

    /// The candidate covers a dead put of the key.
    fn bury_under(&mut self, candidate: Candidate, key_hash: u128, live: Option<Location>) {
        let hash = self.indexed(key_hash);
        if live.is_some_and(|live| candidate.covers(live)) {
            self.index.mark_repeated(hash, candidate);
        } else {
            Arc::make_mut(&mut self.graves).add(&candidate, key_hash);
        }
    }

    fn candidate_for(&self, hash: u64, location: Location) -> Option<Candidate> {
        let mut candidates = Candidates::default();
        self.index.lookup(hash, &mut candidates);
        candidates.iter().find(|candidate| candidate.covers(location))
    }

    /// Moves all that is committed into the index.
    pub async fn settle(&mut self) {
        while let Some(job) = self.settle_job() {
            let settled = job.run().await;
            self.finish_settle(settled);
        }
    }

    /// Reads some `limit` records; see [`scan`] for what a scan promises.
    pub fn scan_job(&self, cursor: ScanCursor, limit: usize) -> ScanJob {
        let mut job = ScanJob { sight: self.sight(), pending: Vec::new(), candidates: Vec::new(), next: None };
        match cursor {
            ScanCursor::Pending(after) => job.next = Some(self.scan_pending(after, limit, &mut job.pending)),
            ScanCursor::Index(cursor) => {
                job.next = self.index.scan(cursor, limit, &mut job.candidates).map(ScanCursor::Index);
            }
        }
        job
    }

    fn scan_pending(&self, after: Seqno, limit: usize, found: &mut Vec<(Bytes, Location, Stored)>) -> ScanCursor {
        for (seqno, key) in self.pending.after(after).take_while(|(seqno, _)| *seqno <= self.committed) {
            if found.len() >= limit {
                return ScanCursor::Pending(Seqno(seqno.0 - 1));
            }
            let newest = self.pending.newest(key, self.committed).expect("it is in order");
            if let (true, Some(stored)) = (newest.seqno == *seqno, &newest.stored) {
                found.push((key.clone(), newest.location, stored.clone()));
            }
        }
        ScanCursor::Index(IndexCursor::default())
    }

    /// Puts what is pending by now in the place of what it replaces or removes.
    pub fn finish_scan(&self, scanned: Scanned) -> Result<ScanPage, StorageError> {
        let mut entries = scanned.pending;
        for (key, entry) in scanned.indexed {
            match self.pending.newest(&key, self.committed) {
                None => entries.push((key, entry)),
                Some(newer) => entries.extend(newer.entry(&self.shared)?.map(|entry| (key, entry))),
            }
        }
        Ok(ScanPage { entries, next: scanned.next })
    }

    pub async fn scan(&self, cursor: ScanCursor, limit: usize) -> Result<ScanPage, StorageError> {
        self.finish_scan(self.scan_job(cursor, limit).run().await?)
    }

    /// A record that may have been overwritten could not be read, so that it may still be in the index. Reads find the newer
    /// one first; compaction, which has to know what is live, waits until the store is built anew.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// A settling is outstanding.
    pub fn is_settling(&self) -> bool {
        self.settling.is_some()
    }

    pub fn sessions(&self) -> &SessionTable {
        &self.sessions
    }

    /// Keys in the index; those pending are not counted.
    pub fn len(&self) -> u64 {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty() && self.pending.len() == 0
    }

    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    pub fn pending_bytes(&self) -> usize {
        self.pending.bytes()
    }

    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.graves.memory_bytes() + self.pending.bytes() + self.sessions.memory_bytes()
    }
}

fn take(location: Location, record: &Record<'_>, share: &dyn Fn(&[u8]) -> Bytes) -> Option<(Location, Stored)> {
    Some((location, Stored::of(record, share)?))
}

/// Of several changes of a key the last one counts.
fn change(probe: Probe, versions: &[Version]) -> Change {
    let put = |version: &Version| version.stored.as_ref().map(|_| version.location);
    let (last, hidden) = versions.split_last().expect("a change is of something");
    Change { probe, new: put(last), hidden: hidden.iter().filter_map(put).collect() }
}

/// The key's record is this one by now, or none.
fn cache_settled(cache: &ReadCache, hash: EntryHash, key: &[u8], record: Option<(Location, &[u8])>) {
    match record {
        Some((location, bytes)) => cache.insert(hash, key, location, bytes),
        None => cache.remove(hash, key),
    }
}

#[cfg(test)]
mod tests;
