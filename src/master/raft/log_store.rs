//! The Raft log and vote on a disk.
//!
//! An append's life: its entries become one frame, written behind the last one and flushed; only then are they in memory,
//! where all reads are served, and reported as durable. Writes take turns, so at most one frame is unflushed at any time,
//! and a power loss can damage only the last. The log is short (snapshots cut it), so all of it fits in memory.
//!
//! ```text
//!   log        frames; replaced by a shorter file when most of it is purged
//!   durable    how far `log` was flushed, and what was committed: written after each flush, itself not flushed
//!   vote       replaced as a whole
//! ```
//!
//! A frame:
//!
//! ```text
//!   0   4  "SRLF"
//!   4   4  length of the payload
//!   8   8  generation: which log file it belongs to, counted up at each replacement
//!  16   8  number of the frame in the file, from 0
//!  24   8  xxh3 of bytes 0..24 and the payload
//!  32   n  payload: a Frame, postcard
//! ```
//!
//! At start the frames are read in order. The first bad one ends the log if it may be the one that a crash interrupted:
//! if `durable` does not say that it was flushed, and no later frame follows. Otherwise something that was flushed, and
//! may have been promised to other masters, is gone: that is an error, never a shorter log.
//!
//! After a failed write or flush the store answers nothing but errors: Raft stops, and with it this master.

use super::types::{Entry, LogId, Types, Vote};
use crate::master::limits::{DEAD_BYTES_MAX, FRAME_BYTES_MAX};
use env::{Disk, Env, File, OpenMode};
use openraft::alias::VoteOf;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard};
use storage::small_file::{self, corrupt};

const FRAME_MAGIC: [u8; 4] = *b"SRLF";
const FRAME_HEADER_BYTES: usize = 32;
const VOTE_MAGIC: [u8; 4] = *b"SRVT";
const DURABLE_MAGIC: [u8; 4] = *b"SRDU";

/// A handle; clones share the store.
#[derive(Clone)]
pub struct LogStore {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    folder: String,
    memory: Mutex<Memory>,
    writer: tokio::sync::Mutex<Writer>,
    _lock: Box<dyn Any + Send + Sync>,
}

/// What the files say.
#[derive(Default)]
struct Memory {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Stored>,
    /// Payload bytes of all `entries`.
    bytes: u64,
}

struct Stored {
    entry: Entry,
    bytes: u64,
}

struct Writer {
    log: Arc<dyn File>,
    durable: Arc<dyn File>,
    generation: u64,
    /// The number of the next frame, and where it goes.
    next: u64,
    end: u64,
    /// A write was begun and has not succeeded: what the file holds is unknown.
    broken: bool,
}

/// One step of the log.
#[derive(Debug, Serialize, Deserialize)]
enum Frame {
    /// The first frame of a file: what came before it.
    Begin {
        purged: Option<LogId>,
    },
    /// Entries with their encoded lengths.
    Append(Vec<(u64, Entry)>),
    /// Entries from this index on are void.
    Truncate {
        from: u64,
    },
    Purge(LogId),
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Durable {
    generation: u64,
    end: u64,
    committed: Option<LogId>,
}

impl LogStore {
    /// Opens the log in `folder`, or begins one if there is none.
    pub async fn open(env: &Env, folder: &str) -> io::Result<LogStore> {
        let disk = env.disk().clone();
        small_file::create_folder(&disk, folder).await?;
        let lock = disk.lock(&format!("{folder}/lock")).await?;
        // A process that was killed may have left a renaming that no power loss has tested yet.
        disk.sync_dir(folder).await?;
        let vote = read_vote(&disk, folder).await?;
        let (log_path, durable_path) = (format!("{folder}/log"), format!("{folder}/durable"));
        let durable = read_durable(&disk, &durable_path).await?;
        let bytes = match small_file::read_all(&disk, &log_path).await? {
            Some(bytes) => bytes,
            None if vote.is_some() || durable.end > 0 => return Err(corrupt(format_args!("{log_path} is gone"))),
            None => begin(&disk, folder).await?,
        };
        let mut memory = Memory { vote, committed: durable.committed, ..Memory::default() };
        let place = memory.recover(&bytes, &durable).map_err(|what| corrupt(format_args!("{log_path}: {what}")))?;
        let log = disk.open(&log_path, OpenMode::Write).await?;
        log.truncate(place.end).await?;
        log.sync_data().await?;
        let durable = disk.open(&durable_path, OpenMode::Create).await?;
        let Place { generation, next, end } = place;
        let writer = Writer { log, durable, generation, next, end, broken: false };
        writer.note(memory.committed).await?;
        let (memory, writer) = (Mutex::new(memory), tokio::sync::Mutex::new(writer));
        let shared = Shared { disk, folder: folder.to_owned(), memory, writer, _lock: lock };
        Ok(LogStore { shared: Arc::new(shared) })
    }

    /// Bytes of the entries that no snapshot has replaced yet.
    pub fn entry_bytes(&self) -> u64 {
        self.memory().bytes
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.shared.memory.lock().expect("nothing panics under this lock")
    }

    /// Writes a frame, flushes it and then makes it true in memory.
    async fn log(&self, frame: Frame) -> io::Result<()> {
        let payload = postcard::to_stdvec(&frame).map_err(io::Error::other)?;
        let mut writer = self.shared.writer.lock().await;
        writer.write(&payload).await?;
        self.memory().apply(frame).map_err(io::Error::other)?;
        let committed = self.memory().committed;
        writer.note(committed).await
    }

    /// Replaces the log file by one without what was purged, if that is most of it.
    async fn shrink(&self) -> io::Result<()> {
        let mut writer = self.shared.writer.lock().await;
        let frames = {
            let memory = self.memory();
            let dead = writer.end.saturating_sub(memory.bytes);
            if dead < DEAD_BYTES_MAX || dead < memory.bytes {
                return Ok(());
            }
            memory.frames()
        };
        writer.begin_write()?;
        let generation = writer.generation + 1;
        let mut bytes = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            bytes.extend_from_slice(&encode_frame(generation, number as u64, frame));
        }
        let end = bytes.len() as u64;
        small_file::replace_with(&self.shared.disk, &self.shared.folder, "log", bytes).await?;
        writer.log = self.shared.disk.open(&format!("{}/log", self.shared.folder), OpenMode::Write).await?;
        (writer.generation, writer.next, writer.end) = (generation, frames.len() as u64, end);
        writer.broken = false;
        let committed = self.memory().committed;
        writer.note(committed).await
    }
}

impl Writer {
    async fn write(&mut self, payload: &[u8]) -> io::Result<()> {
        if payload.len() > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("a log frame of {} bytes", payload.len())));
        }
        self.begin_write()?;
        let bytes = encode_frame(self.generation, self.next, payload);
        let len = bytes.len() as u64;
        self.log.write_at(vec![bytes.into()], self.end).await?;
        if !env::mutants::active("raft-log-no-flush") {
            self.log.sync_data().await?;
        }
        self.next += 1;
        self.end += len;
        self.broken = false;
        Ok(())
    }

    /// Also covers a write whose future was dropped.
    fn begin_write(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.broken, true) {
            return Err(io::Error::other("an earlier write of the log failed"));
        }
        Ok(())
    }

    /// Notes how far the log was flushed. A crash may undo the note, never make it say more than was true.
    async fn note(&self, committed: Option<LogId>) -> io::Result<()> {
        let durable = Durable { generation: self.generation, end: self.end, committed };
        let payload = postcard::to_stdvec(&durable).map_err(io::Error::other)?;
        self.durable.write_at(vec![small_file::encode(DURABLE_MAGIC, &payload).into()], 0).await
    }
}

async fn read_vote(disk: &Arc<dyn Disk>, folder: &str) -> io::Result<Option<Vote>> {
    let payload = small_file::read(disk, &format!("{folder}/vote"), VOTE_MAGIC).await?;
    payload.map(|payload| postcard::from_bytes(&payload).map_err(corrupt)).transpose()
}

/// An unreadable note says nothing.
async fn read_durable(disk: &Arc<dyn Disk>, path: &str) -> io::Result<Durable> {
    let bytes = small_file::read_all(disk, path).await?.unwrap_or_default();
    let payload = small_file::decode(DURABLE_MAGIC, &bytes);
    Ok(payload.and_then(|payload| postcard::from_bytes(payload).ok()).unwrap_or_default())
}

/// An empty log file.
async fn begin(disk: &Arc<dyn Disk>, folder: &str) -> io::Result<Vec<u8>> {
    let payload = postcard::to_stdvec(&Frame::Begin { purged: None }).map_err(io::Error::other)?;
    let bytes = encode_frame(1, 0, &payload);
    small_file::replace_with(disk, folder, "log", bytes.clone()).await?;
    Ok(bytes)
}

fn encode_frame(generation: u64, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
    bytes.extend_from_slice(&FRAME_MAGIC);
    bytes.extend_from_slice(&u32::try_from(payload.len()).expect("within FRAME_BYTES_MAX").to_le_bytes());
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    let checksum = small_file::checksum(&bytes, payload);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

struct RawFrame<'a> {
    generation: u64,
    number: u64,
    payload: &'a [u8],
}

/// The frame that begins at the beginning of `bytes`, if it is whole.
fn decode_frame(bytes: &[u8]) -> Option<RawFrame<'_>> {
    let (header, rest) = bytes.split_at_checked(FRAME_HEADER_BYTES)?;
    let number_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let len = u32::from_le_bytes(header[4..8].try_into().expect("four bytes"));
    let payload = rest.get(..len as usize)?;
    let good = header[..4] == FRAME_MAGIC && number_at(24) == small_file::checksum(&header[..24], payload);
    good.then(|| RawFrame { generation: number_at(8), number: number_at(16), payload })
}

/// Whether a frame of this file later than `number` begins anywhere in `bytes`.
fn has_later_frame(bytes: &[u8], generation: u64, number: u64) -> bool {
    (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&FRAME_MAGIC)).any(|at| {
        decode_frame(&bytes[at..]).is_some_and(|frame| frame.generation == generation && frame.number > number)
    })
}

/// Where a log file ends.
struct Place {
    generation: u64,
    next: u64,
    end: u64,
}

impl Memory {
    /// Takes up the frames of a log file, or says why they are not what was flushed.
    fn recover(&mut self, bytes: &[u8], durable: &Durable) -> Result<Place, String> {
        let first = decode_frame(bytes).filter(|frame| frame.number == 0).ok_or("the first frame does not check")?;
        let (generation, mut next, mut at) = (first.generation, 0, 0);
        if durable.generation > generation {
            return Err(format!("it is file {generation}, but file {} was flushed", durable.generation));
        }
        while let Some(frame) = decode_frame(&bytes[at..]).filter(|f| f.generation == generation && f.number == next) {
            let step = postcard::from_bytes(frame.payload).map_err(|error| format!("frame {next}: {error}"))?;
            self.apply(step).map_err(|what| format!("frame {next}: {what}"))?;
            next += 1;
            at += FRAME_HEADER_BYTES + frame.payload.len();
        }
        if durable.generation == generation && (at as u64) < durable.end {
            return Err(format!("frame {next} at {at} was flushed and does not check; flushed to {}", durable.end));
        }
        if has_later_frame(&bytes[at..], generation, next) {
            return Err(format!("frame {next} at {at} does not check, and later frames do"));
        }
        Ok(Place { generation, next, end: at as u64 })
    }

    fn apply(&mut self, frame: Frame) -> Result<(), String> {
        match frame {
            Frame::Begin { purged } => self.purged = purged,
            Frame::Append(entries) => {
                for (bytes, entry) in entries {
                    self.push(Stored { entry, bytes })?;
                }
            }
            Frame::Truncate { from } => self.keep(|entries| _ = entries.split_off(&from)),
            Frame::Purge(upto) => {
                self.keep(|entries| *entries = entries.split_off(&(upto.index + 1)));
                self.purged = self.purged.max(Some(upto));
            }
        }
        Ok(())
    }

    fn push(&mut self, stored: Stored) -> Result<(), String> {
        let index = stored.entry.log_id.index;
        match self.last() {
            Some(last) if last.index + 1 != index => return Err(format!("entry {index} follows {last}")),
            _ => (),
        }
        self.bytes += stored.bytes;
        self.entries.insert(index, stored);
        Ok(())
    }

    fn keep(&mut self, cut: impl FnOnce(&mut BTreeMap<u64, Stored>)) {
        cut(&mut self.entries);
        self.bytes = self.entries.values().map(|stored| stored.bytes).sum();
    }

    fn last(&self) -> Option<LogId> {
        self.entries.values().next_back().map(|stored| stored.entry.log_id).or(self.purged)
    }

    /// The payloads of a file that says the same.
    fn frames(&self) -> Vec<Vec<u8>> {
        let encode = |frame: &Frame| postcard::to_stdvec(frame).expect("it was encoded before");
        let entries = self.entries.values().map(|stored| (stored.bytes, stored.entry.clone())).collect();
        vec![encode(&Frame::Begin { purged: self.purged }), encode(&Frame::Append(entries))]
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<Entry>> {
        Ok(self.memory().entries.range(range).map(|(_, stored)| stored.entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<Types>>> {
        Ok(self.memory().vote)
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let memory = self.memory();
        Ok(LogState { last_purged_log_id: memory.purged, last_log_id: memory.last() })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let payload = postcard::to_stdvec(vote).map_err(io::Error::other)?;
        let mut writer = self.shared.writer.lock().await;
        writer.begin_write()?;
        small_file::replace(&self.shared.disk, &self.shared.folder, "vote", VOTE_MAGIC, &payload).await?;
        writer.broken = false;
        self.memory().vote = Some(*vote);
        Ok(())
    }

    /// Not flushed: a restart may find an older one, and Raft finds out the rest.
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let writer = self.shared.writer.lock().await;
        self.memory().committed = committed;
        writer.note(committed).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.memory().committed)
    }

    async fn append<I>(&mut self, entries: I, done: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let measure = |entry: Entry| match postcard::experimental::serialized_size(&entry) {
            Ok(bytes) => Ok((bytes as u64, entry)),
            Err(error) => Err(io::Error::other(error)),
        };
        let entries = entries.into_iter().map(measure).collect::<io::Result<Vec<_>>>()?;
        self.log(Frame::Append(entries)).await?;
        done.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.log(Frame::Truncate { from: last.map_or(0, |last| last.index + 1) }).await
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.log(Frame::Purge(upto)).await?;
        self.shrink().await
    }
}

#[cfg(test)]
mod tests;
