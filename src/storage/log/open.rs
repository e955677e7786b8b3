//! Frames that are filled record by record, for a log that is its own only replica.
//!
//! Whoever replicates makes a frame of what came in one turn ([`Log::append`]). Where nothing has to be sent, a frame can stay
//! open while records come: an [`OpenFrame`] lies where the log will take it, so that each record is encoded once, in its
//! place, and a table of its keys answers for it meanwhile. [`Log::append_open`] closes it; a [`ClosedFrame`] answers until
//! the index does ([`crate::Store::frame_job`]).

use crate::error::StorageError;
use crate::folder::Folder;
use crate::frame::{FRAME_HEADER_LEN, Frame, Position, Stamp};
use crate::ids::{Epoch, RegionId, Seqno};
use crate::limits::{FRAME_BYTES_MAX, FRAME_RECORDS_MAX};
use crate::log::{Log, LogOptions, Shared};
use crate::record::{Location, Record};
use crate::recovery::{Evidence, survey};
use crate::seed::{Identity, Seeds};
use crate::state::{self, DurableNote, State, state_path};
use env::Env;

/// A frame that takes records.
pub struct OpenFrame {
    bytes: Vec<u8>,
    table: KeyTable,
    seeds: Seeds,
    start: Position,
    segment_bytes: u64,
}

/// What a frame is made for without allocating anew; it takes more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRoom {
    pub bytes: usize,
    pub records: usize,
}

/// A frame of the log, with the table of its keys.
pub struct ClosedFrame {
    pub frame: Frame,
    table: KeyTable,
}

impl Log {
    /// A log as it was found, without changing anything: it takes no frames, and what a crash left at its end is passed over.
    pub async fn open_read_only(
        env: &Env,
        dir: &str,
        region: RegionId,
        options: LogOptions,
    ) -> Result<Log, StorageError> {
        let identity = Identity { cluster: options.cluster, region };
        let shared = Shared::new(env, dir, region, options);
        let disk = env.disk().as_ref();
        let Some(state) = State::load(disk, dir, &identity).await? else {
            return Err(StorageError::corrupt(&state_path(dir), 0, "state file is missing"));
        };
        let clean = state::load_clean(disk, dir, &identity).await?;
        let (note, noted) = DurableNote::load(disk, dir, identity).await?;
        let power_loss_suspected = clean.is_none() && state.boot_id != disk.boot_id();
        let evidence = Evidence { clean, noted, power_loss_suspected };
        let folder = Folder::list(&shared).await?;
        let survey = survey(&shared, &folder, &evidence).await?;
        Ok(Log::for_reading(shared, survey, note))
    }

    /// A frame for the log's end, whose first records take `first_len` bytes. Nothing else may be appended before it.
    pub fn open_frame(&self, first_len: usize, room: FrameRoom) -> OpenFrame {
        let start = self.next_start(FRAME_HEADER_LEN + first_len);
        let mut bytes = Vec::with_capacity(room.bytes.max(FRAME_HEADER_LEN + first_len));
        bytes.resize(FRAME_HEADER_LEN, 0);
        let seeds = self.shared.identity.seeds(start.segment);
        OpenFrame { bytes, table: KeyTable::with_room(room.records), seeds, start, segment_bytes: self.segment_bytes }
    }

    /// The next frame begins a segment, so that the one before it is sealed.
    pub fn roll(&mut self) {
        self.rolls = true;
    }

    /// Where a frame of that length goes.
    pub(super) fn next_start(&self, length: usize) -> Position {
        let full = self.head.offset + length as u64 > self.segment_bytes;
        if (full || self.rolls) && !self.head.begins_segment() { self.head.rolled() } else { self.head }
    }

    /// Closes the frame, which holds a record at least, and queues it for writing. Who fills frames bounds what is unwritten.
    pub fn append_open(&mut self, open: OpenFrame, epoch: Epoch, wall_ms: u64) -> Result<ClosedFrame, StorageError> {
        self.shared.check_fence()?;
        let in_place = open.start == self.head || open.start == self.head.rolled();
        assert!(in_place, "frame for {:?}, the log ends at {:?}", open.start, self.head);
        let OpenFrame { bytes, table, seeds, start, .. } = open;
        let stamp = Stamp { epoch, committed: self.committed, wall_ms };
        let frame = Frame::close(bytes, table.entries.len() as u32, stamp, &seeds, start);
        self.drafts.begin();
        self.push(frame.clone());
        Ok(ClosedFrame { frame, table })
    }
}

impl OpenFrame {
    /// Adds a put or a tombstone, which the caller has checked ([`Record::check`]), and says what its seqno is.
    pub fn push(&mut self, record: &Record<'_>, key_hash: u128) -> Seqno {
        let at = self.bytes.len();
        record.encode(&self.seeds, self.start.offset, &mut self.bytes);
        let len = (self.bytes.len() - at) as u32;
        self.table.push(record.key().expect("a put or a tombstone"), key_hash, at as u32, len, &self.bytes);
        self.last_seqno()
    }

    /// Whether a record of so many bytes still belongs here.
    pub fn takes(&self, len: usize) -> bool {
        let end = self.bytes.len() + len;
        let in_segment = self.is_empty() || self.start.offset + end as u64 <= self.segment_bytes;
        end <= FRAME_BYTES_MAX && self.table.entries.len() < FRAME_RECORDS_MAX && in_segment
    }

    /// Bytes that it takes so far, header included.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn records(&self) -> usize {
        self.table.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.entries.is_empty()
    }

    /// That of its last record.
    pub fn last_seqno(&self) -> Seqno {
        Seqno(self.start.mark.seqno.0 + self.table.entries.len() as u64)
    }

    /// The newest record of the key.
    pub fn newest(&self, key: &[u8], key_hash: u128) -> Option<Record<'_>> {
        let entry = self.table.find(key, key_hash, &self.bytes)?;
        Some(self.table.record(entry, &self.bytes))
    }

    /// The keys of its records.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.table.entries.iter().map(|entry| self.table.key(entry, &self.bytes))
    }
}

impl ClosedFrame {
    /// One that was appended otherwise.
    pub(crate) fn of(frame: Frame, identity: &Identity) -> ClosedFrame {
        let mut table = KeyTable::with_room(frame.header.records as usize);
        for item in frame.records() {
            let at = (item.location.offset - frame.start.offset) as u32;
            match item.record.key() {
                Some(key) => table.push(key, identity.key_hash(key), at, item.location.len, &frame.bytes),
                None => table.pass(),
            }
        }
        ClosedFrame { frame, table }
    }

    /// One that was appended otherwise and holds no puts or tombstones.
    pub fn without_keys(frame: Frame) -> ClosedFrame {
        assert!(frame.records().all(|item| item.record.key().is_none()), "its keys would not be found");
        ClosedFrame { frame, table: KeyTable::default() }
    }

    /// The newest record of the key.
    pub fn newest(&self, key: &[u8], key_hash: u128) -> Option<Record<'_>> {
        let entry = self.table.find(key, key_hash, &self.frame.bytes)?;
        Some(self.table.record(entry, &self.frame.bytes))
    }

    /// Of each key its newest record, and the puts that this one hides.
    pub(crate) fn changes(&self) -> impl Iterator<Item = KeyChange<'_>> {
        let newest = self.table.entries.iter().enumerate().filter(|(_, entry)| !entry.hidden);
        newest.map(|(at, entry)| {
            let record = self.table.record(entry, &self.frame.bytes);
            KeyChange {
                key: record.key().expect("a put or a tombstone"),
                key_hash: entry.key_hash,
                seqno: Seqno(self.frame.header.first_seqno.0 + at as u64),
                put: matches!(record, Record::Put { .. }).then(|| self.location(entry)),
                hidden: self.hidden_by(entry),
            }
        })
    }

    fn hidden_by(&self, entry: &KeyEntry) -> Vec<Location> {
        let mut hidden = Vec::new();
        let mut before = entry.before;
        while let Some(entry) = before.checked_sub(1).map(|at| &self.table.entries[at as usize]) {
            if matches!(self.table.record(entry, &self.frame.bytes), Record::Put { .. }) {
                hidden.push(self.location(entry));
            }
            before = entry.before;
        }
        hidden.reverse();
        hidden
    }

    fn location(&self, entry: &KeyEntry) -> Location {
        let Position { segment, offset, .. } = self.frame.start;
        Location { segment, offset: offset + entry.at as u64, len: entry.len }
    }

    /// The keys of [`ClosedFrame::changes`], with their hashes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&[u8], u128)> {
        let newest = self.table.entries.iter().filter(|entry| !entry.hidden);
        newest.map(|entry| (self.table.key(entry, &self.frame.bytes), entry.key_hash))
    }

    /// A frame for as much as is in this one.
    pub fn room(&self) -> FrameRoom {
        FrameRoom { bytes: self.frame.bytes.len(), records: self.table.entries.len() }
    }
}

/// What a frame did to a key.
pub(crate) struct KeyChange<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) key_hash: u128,
    pub(crate) seqno: Seqno,
    /// `None`: it was deleted.
    pub(crate) put: Option<Location>,
    pub(crate) hidden: Vec<Location>,
}

/// A frame's records by key: open addressing over their numbers.
#[derive(Default)]
struct KeyTable {
    entries: Vec<KeyEntry>,
    /// Number + 1 of a key's newest entry; a power of two of them, at most half in use.
    slots: Vec<u32>,
    keys: usize,
}

const SLOTS_FIRST: usize = 16;

struct KeyEntry {
    key_hash: u128,
    /// In the frame.
    at: u32,
    len: u32,
    /// Number + 1 of the record of the key before it; 0 if there is none.
    before: u32,
    /// There is one after it, or it has no key.
    hidden: bool,
}

impl KeyTable {
    fn with_room(records: usize) -> KeyTable {
        let slots = (records * 2).next_power_of_two().max(SLOTS_FIRST);
        KeyTable { entries: Vec::with_capacity(records), slots: vec![0; slots], keys: 0 }
    }

    /// The next record has no key.
    fn pass(&mut self) {
        self.entries.push(KeyEntry { key_hash: 0, at: 0, len: 0, before: 0, hidden: true });
    }

    fn push(&mut self, key: &[u8], key_hash: u128, at: u32, len: u32, frame: &[u8]) {
        if self.slots.len() <= self.keys * 2 {
            self.grow();
        }
        let slot = self.slot(key, key_hash, frame);
        let before = std::mem::replace(&mut self.slots[slot], self.entries.len() as u32 + 1);
        match before.checked_sub(1) {
            Some(before) => self.entries[before as usize].hidden = true,
            None => self.keys += 1,
        }
        self.entries.push(KeyEntry { key_hash, at, len, before, hidden: false });
    }

    fn find(&self, key: &[u8], key_hash: u128, frame: &[u8]) -> Option<&KeyEntry> {
        if self.slots.is_empty() {
            return None;
        }
        let found = self.slots[self.slot(key, key_hash, frame)];
        Some(&self.entries[found.checked_sub(1)? as usize])
    }

    /// Where the key is, or would be.
    fn slot(&self, key: &[u8], key_hash: u128, frame: &[u8]) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = first_slot(key_hash, mask);
        while let Some(at) = self.slots[slot].checked_sub(1) {
            let entry = &self.entries[at as usize];
            if entry.key_hash == key_hash && self.key(entry, frame) == key {
                break;
            }
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        let count = (self.slots.len() * 2).max(SLOTS_FIRST);
        let mut slots = vec![0; count];
        for (at, entry) in self.entries.iter().enumerate().filter(|(_, entry)| !entry.hidden) {
            let mut slot = first_slot(entry.key_hash, count - 1);
            while slots[slot] != 0 {
                slot = (slot + 1) & (count - 1);
            }
            slots[slot] = at as u32 + 1;
        }
        self.slots = slots;
    }

    fn key<'a>(&self, entry: &KeyEntry, frame: &'a [u8]) -> &'a [u8] {
        self.record(entry, frame).key().expect("a put or a tombstone")
    }

    fn record<'a>(&self, entry: &KeyEntry, frame: &'a [u8]) -> Record<'a> {
        let bytes = &frame[entry.at as usize..(entry.at + entry.len) as usize];
        Record::parse(bytes).expect("it was encoded there").0
    }
}

/// The index uses the hash's lowest and highest bits of 64; these are others.
fn first_slot(key_hash: u128, mask: usize) -> usize {
    (key_hash >> 64) as usize & mask
}
