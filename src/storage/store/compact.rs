//! A store's part in compaction: which records of a run are needed, and moving the index to where they are then.
//!
//! Both go through many records, a step at a time on the task that owns the store, with the hints read beside it:
//! [`Planner::load`] and [`Mover::load`] wait for the disk and own what they need, [`Store::mark`] and [`Store::move_on`]
//! take a step and do not wait.
//!
//! An index names pages, not records ([`Candidate`]). What it holds of a page stands for the last record there of each key
//! with such a hash, if that is a put and has no grave ([`Graves`]): so [`Store::live_at`] asks hints what comes after a
//! record in its page, as a read looks at the page itself.

use crate::compaction::policy::{self, SegmentUse};
use crate::compaction::{Bitmap, CompactJob, Keep, Needed, Output, Run, is_plan};
use crate::error::StorageError;
use crate::hint::{Hint, HintEntry};
use crate::ids::{SegmentId, Seqno};
use crate::index::Candidate;
use crate::limits::{COMPACT_OLDER_RECORDS_MAX, COMPACT_STEP_RECORDS};
use crate::log::{Log, Pin, Retired, Segment, Shared};
use crate::record::{Location, Record};
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of the records in the index, by segment and in all.
#[derive(Default)]
pub(crate) struct LiveBytes {
    by_segment: BTreeMap<SegmentId, u64>,
    total: u64,
}

impl LiveBytes {
    pub(crate) fn add(&mut self, location: Location) {
        self.add_bytes(location.segment, location.len as u64);
    }

    /// [`LiveBytes::add`] of several records.
    pub(crate) fn add_bytes(&mut self, segment: SegmentId, bytes: u64) {
        if bytes > 0 {
            *self.by_segment.entry(segment).or_default() += bytes;
            self.total += bytes;
        }
    }

    fn remove(&mut self, location: Location) {
        let bytes = self.by_segment.get_mut(&location.segment).expect("counted when it was added");
        *bytes -= location.len as u64;
        self.total -= location.len as u64;
        if *bytes == 0 {
            self.by_segment.remove(&location.segment);
        }
    }

    pub(crate) fn replace(&mut self, old: Option<Location>, new: Option<Location>) {
        if let Some(new) = new {
            self.add(new);
        }
        if let Some(old) = old {
            self.remove(old);
        }
    }

    fn of(&self, segment: SegmentId) -> u64 {
        self.by_segment.get(&segment).copied().unwrap_or(0)
    }
}

/// What a region's log takes, and what of it is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Of the segment files, those that were replaced and not yet removed left out.
    pub total_bytes: u64,
    /// Records that the index points to or that are on their way into it.
    pub live_bytes: u64,
}

impl Space {
    /// What compaction may free: all that is not a live record.
    pub fn dead_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.live_bytes)
    }
}

/// Finds out which records of a run are needed. The way of one: [`Store::planner`], then [`Planner::load`] and
/// [`Store::mark`] in turn until the first finds no more, then [`Planner::finish`], whose job gives the output and the plan.
pub struct Planner {
    shared: Arc<Shared>,
    pin: Arc<Pin>,
    run: Run,
    before: Vec<Segment>,
    wall_ms: u64,
    /// Inputs loaded so far.
    loaded: usize,
    /// The hint of the last one loaded, and how far it was gone through.
    hint: Option<HintWalk>,
    records: u64,
    marked: Bitmap,
    /// Tombstones that no later record of the key in the run takes the place of.
    tombstones: env::HashMap<u128, u64>,
    /// Live puts that expire.
    expiring: env::HashSet<u128>,
}

/// A hint's entries and extras in log order.
struct HintWalk {
    hint: Hint,
    entry: usize,
    extra: usize,
}

enum Walked<'a> {
    /// The number of a put or tombstone.
    Entry(usize),
    Extra(Seqno, Record<'a>),
}

impl HintWalk {
    fn new(hint: Hint) -> HintWalk {
        HintWalk { hint, entry: 0, extra: 0 }
    }

    fn next(&mut self) -> Option<Walked<'_>> {
        let at = self.entry;
        let entry = (at < self.hint.header.entries() as usize).then(|| self.hint.entry(at));
        match (entry, self.hint.extra(self.extra)) {
            (Some(entry), extra) if extra.as_ref().is_none_or(|(seqno, ..)| entry.seqno < *seqno) => {
                self.entry += 1;
                Some(Walked::Entry(at))
            }
            (_, Some((seqno, record, next))) => {
                self.extra = next;
                Some(Walked::Extra(seqno, record))
            }
            (_, None) => None,
        }
    }
}

async fn load_hint(shared: &Shared, segment: &Segment) -> Result<Hint, StorageError> {
    let disk = shared.env.disk().as_ref();
    let handle = shared.add_handle(segment.id());
    Hint::load_or_scan(disk, &shared.dir, &handle, &shared.identity, segment.base, segment.end).await
}

impl Planner {
    /// Reads the hint of the next segment of the run; false when there is none.
    pub async fn load(&mut self) -> Result<bool, StorageError> {
        let Some(input) = self.run.inputs.get(self.loaded) else { return Ok(false) };
        self.loaded += 1;
        self.hint = Some(HintWalk::new(load_hint(&self.shared, input).await?));
        Ok(true)
    }

    /// The job that writes what is needed. `None` if a switch came between, so that the answers may be wrong.
    pub async fn finish(self) -> Result<Option<CompactJob>, StorageError> {
        if self.shared.pin().switches != self.pin.switches {
            return Ok(None);
        }
        let hiding = self.tombstones.keys().chain(&self.expiring);
        let mut nothing_older: env::HashSet<u128> = hiding.copied().collect();
        if !env::mutants::active("M12") {
            self.look_before(&mut nothing_older).await?;
        }
        let needed = Needed { marked: self.marked, nothing_older, wall_ms: self.wall_ms };
        Ok(Some(CompactJob::new(self.shared, self.run, Keep::Needed(needed))))
    }

    /// Takes out the hashes of which a segment before the run holds a record.
    async fn look_before(&self, hashes: &mut env::HashSet<u128>) -> Result<(), StorageError> {
        let mut records = 0;
        for segment in &self.before {
            if hashes.is_empty() {
                return Ok(());
            }
            let hint = load_hint(&self.shared, segment).await?;
            records += hint.header.entries();
            if records > COMPACT_OLDER_RECORDS_MAX {
                hashes.clear();
            }
            for entry in hint.entries() {
                hashes.remove(&entry.key_hash);
            }
        }
        Ok(())
    }
}

/// Moves the index from segments that were replaced to the one in their place. The way of one: [`Store::mover`], then
/// [`Mover::load`] and [`Store::move_on`] in turn until the first finds no more, then [`Store::moved`].
pub struct Mover {
    shared: Arc<Shared>,
    retired: Arc<Retired>,
    loaded: usize,
    /// Of the last segment loaded, and its next entry.
    input: Option<(Hint, usize)>,
    /// Of the output; gone through once, beside the inputs.
    output: Option<Arc<Hint>>,
    next: usize,
}

/// A put of a segment that was replaced.
struct Moved {
    /// Its number among the input's entries.
    at: usize,
    /// Its number among the output's, if it was kept.
    kept: Option<usize>,
}

impl Mover {
    /// Reads the hint of the next segment that was replaced; false when there is none.
    pub async fn load(&mut self) -> Result<bool, StorageError> {
        let Some(&input) = self.retired.inputs.get(self.loaded) else { return Ok(false) };
        if self.output.is_none() {
            self.output = Some(Arc::new(load_hint(&self.shared, &self.retired.output).await?));
        }
        self.loaded += 1;
        self.input = Some((load_hint(&self.shared, &input).await?, 0));
        Ok(true)
    }

    /// The next put of the input.
    fn next(&mut self) -> Option<Moved> {
        let output = self.output.as_ref().expect("loaded first");
        while let Some((input, next)) = &mut self.input {
            let at = *next;
            if at == input.header.entries() as usize {
                self.input = None;
                return None;
            }
            let old = input.entry(at);
            *next += 1;
            let is_next = self.next < output.header.entries() as usize && output.entry(self.next).seqno == old.seqno;
            let kept = is_next.then_some(self.next);
            self.next += is_next as usize;
            if !old.tombstone {
                return Some(Moved { at, kept });
            }
        }
        None
    }
}

/// Whether the entry is the last one of its key that begins before `end`.
fn is_last_before(end: u64, hint: &Hint, at: usize) -> bool {
    let key_hash = hint.entry(at).key_hash;
    let later = (at + 1..hint.header.entries() as usize).map(|at| hint.entry(at));
    let mut in_page = later.take_while(|entry| entry.location.offset < end);
    in_page.all(|entry| entry.key_hash != key_hash)
}

impl Store {
    /// What the log takes and what is live of it.
    pub fn space(&self, log: &Log) -> Space {
        Space { total_bytes: log.stats().bytes, live_bytes: self.live_bytes() + self.pending_bytes() as u64 }
    }

    /// Of the records that the index points to.
    pub fn live_bytes(&self) -> u64 {
        self.live.total
    }

    /// The log's sealed segments, for [`policy::choose`].
    pub fn segment_uses(&self, log: &Log) -> Vec<SegmentUse> {
        log.segment_uses(|segment| self.live.of(segment))
    }

    /// The run most worth compacting, if any is.
    pub fn choose_run(&self, log: &Log, dead_share: f64, wall_ms: u64) -> Option<policy::Choice> {
        let (segment_bytes, session_bytes) = (log.segment_bytes(), self.sessions.memory_bytes() as u64);
        let settings = policy::Settings { dead_share, segment_bytes, session_bytes, wall_ms };
        policy::choose(&self.segment_uses(log), settings)
    }

    /// Begins to plan the compaction of the segments from `first` to `last`. `None` while that cannot be told: the
    /// index does not yet hold all of it, or has not followed the last switch, or is in doubt.
    pub fn planner(&self, log: &Log, first: SegmentId, last: SegmentId, wall_ms: u64) -> Option<Planner> {
        let run = log.run(first, last)?;
        let end = run.last().end.mark.seqno;
        let settled = end <= self.committed && self.pending.first().is_none_or(|seqno| end < seqno);
        let moved = self.pin.switches == self.shared.pin().switches;
        if self.doubtful || !settled || !moved || log.has_ordered() || log.has_retired() {
            return None;
        }
        Some(Planner {
            shared: self.shared.clone(),
            pin: self.shared.pin(),
            before: log.before(first),
            run,
            wall_ms,
            loaded: 0,
            hint: None,
            records: 0,
            marked: Bitmap::default(),
            tombstones: env::HashMap::default(),
            expiring: env::HashSet::default(),
        })
    }

    /// Says of some records of the planner's segment whether they are needed; true when that was all of them.
    pub fn mark(&self, planner: &mut Planner) -> bool {
        self.mark_some(planner, COMPACT_STEP_RECORDS)
    }

    pub(crate) fn mark_some(&self, planner: &mut Planner, most: usize) -> bool {
        for _ in 0..most {
            let Some(walk) = &mut planner.hint else { return true };
            let at = planner.records;
            let needed = match walk.next() {
                None => {
                    planner.hint = None;
                    return true;
                }
                Some(Walked::Entry(number)) => {
                    let entry = walk.hint.entry(number);
                    if let Some(hidden) = planner.tombstones.remove(&entry.key_hash) {
                        planner.marked.set(hidden, false);
                    }
                    if entry.tombstone {
                        planner.tombstones.insert(entry.key_hash, at);
                    }
                    let live = !entry.tombstone && self.live_at(&walk.hint, number).is_some();
                    if live && entry.expires {
                        planner.expiring.insert(entry.key_hash);
                    }
                    entry.tombstone || live
                }
                Some(Walked::Extra(seqno, Record::Session { session, number, .. })) => {
                    self.sessions.needs(seqno, session, number)
                }
                Some(Walked::Extra(_, record)) => !is_plan(&record),
            };
            planner.marked.set(at, needed);
            planner.records += 1;
        }
        false
    }

    /// What the index holds of a put, if it is live.
    fn live_at(&self, hint: &Hint, at: usize) -> Option<Candidate> {
        let HintEntry { key_hash, location, .. } = hint.entry(at);
        let candidate = self.candidate_for(self.indexed(key_hash), location)?;
        let page_end = candidate.offset + candidate.window as u64;
        let live = !self.graves.contains(&candidate, key_hash) && is_last_before(page_end, hint, at);
        live.then_some(candidate)
    }

    /// What has to be moved in the index since a switch of the log, if anything. A store in doubt cannot follow, and has to
    /// be built anew.
    pub fn mover(&self) -> Option<Mover> {
        if self.doubtful {
            return None;
        }
        let retired = self.shared.retired().filter(|retired| retired.switches > self.pin.switches)?;
        let shared = self.shared.clone();
        Some(Mover { shared, retired, loaded: 0, input: None, output: None, next: 0 })
    }

    /// Moves some of the index's candidates; true when that was all of the mover's segment. Does nothing while a
    /// settling is outstanding, which has looked at what the index holds.
    pub fn move_on(&mut self, mover: &mut Mover) -> bool {
        self.move_some(mover, COMPACT_STEP_RECORDS)
    }

    pub(crate) fn move_some(&mut self, mover: &mut Mover, most: usize) -> bool {
        if self.settling.is_some() {
            return false;
        }
        for _ in 0..most {
            let Some(Moved { at, kept }) = mover.next() else { return true };
            let (input, _) = mover.input.as_ref().expect("it has another");
            let old = input.entry(at);
            match (kept, self.live_at(input, at)) {
                (Some(kept), Some(candidate)) => {
                    let output = mover.output.as_ref().expect("loaded first");
                    self.move_record(&old, candidate, output, kept);
                }
                (None, Some(candidate)) if old.expires => self.drop_expired(&old, candidate),
                // It is dead, by now or since long.
                _ => {}
            }
        }
        false
    }

    fn move_record(&mut self, record: &HintEntry, old: Candidate, output: &Hint, at: usize) {
        let (hash, key_hash) = (self.indexed(record.key_hash), record.key_hash);
        let new = output.entry(at).location;
        let is_first = self.candidate_for(hash, new).is_none();
        assert!(self.index.replace(hash, old, new), "looked up just now");
        self.live.replace(Some(record.location), Some(new));
        let candidate = self.candidate_for(hash, new).expect("put there just now");
        if is_first {
            self.bury_neighbours(output, at, candidate);
        }
        if !self.graves.is_empty() {
            Arc::make_mut(&mut self.graves).lift(&candidate, key_hash);
        }
        self.bury(key_hash, record.location, Some(new));
    }

    /// The index holds its first candidate of a page of the output: others that it would be taken for are dead, or not
    /// moved yet. Their graves are lifted when their turn comes.
    fn bury_neighbours(&mut self, output: &Hint, at: usize, candidate: Candidate) {
        let own = output.entry(at);
        let page = candidate.offset..candidate.offset + candidate.window as u64;
        let mask = self.hash_mask & self.index.hash_mask();
        let in_page = |entry: &HintEntry| page.contains(&entry.location.offset);
        let before = (0..at).rev().map(|at| output.entry(at)).take_while(in_page);
        let after = (at + 1..output.header.entries() as usize).map(|at| output.entry(at)).take_while(in_page);
        for entry in before.chain(after) {
            let alike = (entry.key_hash as u64 ^ own.key_hash as u64) & mask == 0;
            if !entry.tombstone && alike && candidate.covers(entry.location) {
                Arc::make_mut(&mut self.graves).add(&candidate, entry.key_hash);
            }
        }
    }

    /// The index held a record that had expired, and was not kept.
    fn drop_expired(&mut self, record: &HintEntry, old: Candidate) {
        assert!(self.index.remove(self.indexed(record.key_hash), old), "looked up just now");
        self.live.replace(Some(record.location), None);
        self.bury(record.key_hash, record.location, None);
    }

    /// The index points to nothing any more that was replaced.
    pub fn moved(&mut self, mover: Mover) {
        assert!(mover.input.is_none() && mover.loaded == mover.retired.inputs.len(), "moved to the end");
        self.pin = self.shared.pin();
        for input in &mover.retired.inputs {
            let left = self.live.of(input.id());
            assert_eq!(left, 0, "bytes of segment {} that are in the index and were not kept", input.id());
            self.index.forget_segment(input.id());
            if !self.graves.is_empty() {
                Arc::make_mut(&mut self.graves).forget_segment(input.id());
            }
        }
    }

    /// Plans the compaction of a run and writes its output, for whoever need not do anything else meanwhile.
    pub async fn compact(
        &self,
        log: &Log,
        (first, last): (SegmentId, SegmentId),
        wall_ms: u64,
    ) -> Result<Option<Output>, StorageError> {
        let Some(mut planner) = self.planner(log, first, last, wall_ms) else { return Ok(None) };
        while planner.load().await? {
            while !self.mark(&mut planner) {}
        }
        match planner.finish().await? {
            Some(job) => job.run().await.map(Some),
            None => Ok(None),
        }
    }

    /// Follows the log's last switch, if it has not yet.
    pub async fn follow_switch(&mut self) -> Result<(), StorageError> {
        let Some(mut mover) = self.mover() else { return Ok(()) };
        assert!(self.settling.is_none(), "it could not move on");
        while mover.load().await? {
            while !self.move_on(&mut mover) {}
        }
        self.moved(mover);
        Ok(())
    }
}
