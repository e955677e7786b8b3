//! A disk that loses what was not flushed, for one simulated node.
//!
//! A [`DiskState`] belongs to the harness and outlives the node's crashes. A booted node gets a mount of it, which implements
//! [`Disk`]. An operation is *submitted* by the call, is in flight until it is *due*, and then takes effect, whether or
//! not anybody waits for it: the future of a write may be dropped, the write may still happen, as with io_uring.
//!
//! ```text
//!   write_at ──submit──▶ in flight ──due──▶ cached ──sync──▶ durable
//!                          │                  │                 │
//!     process crash:   may happen,          stays             stays
//!                      torn, or not
//!     power loss:      the same, then       any part of it    stays
//! ```
//!
//! What any part means is drawn in [`image`] for bytes and in [`tree`] for names. [`Faults`] are switched while it runs.
//!
//! Missing on purpose: hard links, permissions, times; a file holds at most what fits in memory twice.

mod faults;
mod image;
mod mount;
mod tree;

#[cfg(test)]
mod tests;

pub use faults::{Failing, Faults, Latency};

use super::dice::{Dice, stream};
use super::limits::{DISK_BYTES, SECTOR_BYTES};
use super::timeline::Timeline;
use crate::disk::{DirEntry, Disk, OpenMode, check_path};
use bytes::Bytes;
use image::Landing;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tree::{NodeId, Tree};

/// One node's disk, held by the harness. All its methods may be called while the node runs.
pub struct DiskState {
    inner: Mutex<Inner>,
}

/// What has been done so far, for coverage marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    pub opens: u64,
    pub reads: u64,
    pub writes: u64,
    pub syncs: u64,
    pub dir_syncs: u64,
    pub renames: u64,
    pub removes: u64,
    pub bytes_written: u64,
    /// Errors given by the switches in [`Faults`].
    pub errors: u64,
    /// Reads that failed, whether by a switch or because a sector is broken.
    pub failed_reads: u64,
    pub failed_writes: u64,
    pub failed_syncs: u64,
    pub full: u64,
    pub flipped_bits: u64,
    pub broken_sectors: u64,
    pub lost_writes: u64,
    pub misdirected_writes: u64,
    pub process_crashes: u64,
    pub power_losses: u64,
}

impl DiskState {
    /// An empty, healthy disk that takes no time.
    pub fn new(seed: u64, name: &str) -> Arc<DiskState> {
        let mut dice = stream(seed, &format!("disk/{name}"));
        let boot_id = draw_boot_id(&mut dice);
        let inner = Inner {
            tree: Tree::new(),
            faults: Faults::default(),
            dice,
            counts: DiskCounts::default(),
            in_flight: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_ticket: 0,
            last_append: BTreeMap::new(),
            process: 0,
            locks: BTreeMap::new(),
            boot_id,
            stalled: false,
            stops_after: None,
        };
        Arc::new(DiskState { inner: Mutex::new(inner) })
    }

    /// The disk of a process that starts on `node`. One process at a time: mounting ends the one before as a crash would.
    pub fn mount(self: &Arc<Self>, node: &str, timeline: Arc<dyn Timeline>) -> Arc<dyn Disk> {
        let process = {
            let mut inner = self.inner();
            inner.end_process();
            inner.process
        };
        mount::SimDisk::mount(self.clone(), process, node, timeline)
    }

    /// A copy to try crashes on. What is in flight is not in it.
    pub fn fork(&self, seed: u64) -> Arc<DiskState> {
        let inner = self.inner();
        let copy = DiskState::new(seed, "fork");
        {
            let mut forked = copy.inner();
            forked.tree = inner.tree.clone();
            forked.tree.close_all();
            forked.faults = inner.faults.clone();
            forked.boot_id = inner.boot_id;
        }
        copy
    }

    /// The process died. What it had completed stays; each operation in flight happens, happens in part, or does not.
    pub fn process_crash(&self) {
        let mut inner = self.inner();
        inner.counts.process_crashes += 1;
        inner.end_process();
    }

    /// The machine lost power: what no completed flush covers is lost, kept or torn as `seed` decides.
    pub fn power_loss(&self, seed: u64) {
        let mut inner = self.inner();
        inner.counts.power_losses += 1;
        inner.end_process();
        let mut dice = stream(seed, "power loss");
        inner.boot_id = draw_boot_id(&mut dice);
        inner.tree.power_loss(&mut dice);
    }

    /// Changes the switches.
    pub fn faults<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R {
        change(&mut self.inner().faults)
    }

    /// From now on nothing completes until [`DiskState::release`].
    pub fn stall(&self) {
        self.inner().stalled = true;
    }

    pub fn release(&self) {
        let wakers = {
            let mut inner = self.inner();
            inner.stalled = false;
            inner.release()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The disk answers this many more operations, and then none for ever (until the next crash): a place to crash at.
    pub fn stop_after(&self, operations: u64) {
        self.inner().stops_after = Some(operations);
    }

    /// An operation came after those allowed by [`DiskState::stop_after`].
    pub fn is_stopped(&self) -> bool {
        self.inner().in_flight.keys().next_back().is_some_and(|(due, _)| *due == STOPPED)
    }

    pub fn counts(&self) -> DiskCounts {
        self.inner().counts
    }

    pub fn boot_id(&self) -> u128 {
        self.inner().boot_id
    }

    /// Whether `bytes` of the file at `path`, as reads show them now, survive any power loss, name and all.
    pub fn is_durable(&self, path: &str, bytes: Range<u64>) -> bool {
        let inner = self.inner();
        let image = inner.tree.find_file(path).and_then(|file| inner.tree.file(file).ok());
        image.is_some_and(|image| image.is_durable(bytes)) && inner.tree.is_entry_durable(path)
    }

    /// Every file that a process would find, with its length.
    pub fn files(&self) -> Vec<(String, u64)> {
        self.inner().tree.files()
    }

    /// The file's bytes as a process would read them.
    pub fn read_cached(&self, path: &str) -> Option<Vec<u8>> {
        let inner = self.inner();
        let file = inner.tree.find_file(path)?;
        inner.tree.file(file).ok().map(|image| image.cached().to_vec())
    }

    /// The bytes on the medium of the file that has this name on the medium.
    pub fn read_durable(&self, path: &str) -> Option<Vec<u8>> {
        self.inner().tree.find_durable(path).map(|image| image.durable().to_vec())
    }

    /// Puts a durable file there, replacing one of that name.
    pub fn write_file(&self, path: &str, bytes: Vec<u8>) -> io::Result<()> {
        self.inner().tree.plant(path, bytes)
    }

    pub fn remove_file(&self, path: &str) -> io::Result<()> {
        self.inner().tree.uproot(path)
    }

    /// Changes bytes on the medium and in memory.
    pub fn overwrite(&self, path: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner().with_file(path, |image| image.overwrite(offset, bytes))
    }

    /// Sets the length on the medium and in memory.
    pub fn truncate(&self, path: &str, len: u64) -> io::Result<()> {
        self.inner().with_file(path, |image| image.cut_both(len))
    }

    /// Flips one bit on the medium and in memory.
    pub fn flip_bit(&self, path: &str, offset: u64, bit: u8) -> io::Result<()> {
        let mut inner = self.inner();
        inner.counts.flipped_bits += 1;
        inner.with_file(path, |image| image.flip_bit(offset, bit))
    }

    /// Flips `count` bits somewhere in `range`.
    pub fn flip_bits(&self, path: &str, range: Range<u64>, count: u32, seed: u64) -> io::Result<()> {
        let mut dice = stream(seed, "bit rot");
        let mut inner = self.inner();
        inner.counts.flipped_bits += u64::from(count);
        inner.with_file(path, |image| {
            for _ in 0..count {
                image.flip_bit(dice.between(range.start, range.end - 1), dice.below(8) as u8);
            }
        })
    }

    /// Reads of these bytes' sectors answer EIO until the sectors are overwritten.
    pub fn break_sectors(&self, path: &str, range: Range<u64>) -> io::Result<()> {
        let mut inner = self.inner();
        let broken = inner.with_file(path, |image| image.break_sectors(range))?;
        inner.counts.broken_sectors += broken;
        Ok(())
    }

    /// The page cache lets go of everything clean: reads show what lost and misdirected writes did to the medium.
    pub fn drop_caches(&self) {
        self.inner().tree.drop_caches();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // After a panic in a closure of the harness the tasks still drop their handles.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Inner {
    tree: Tree,
    faults: Faults,
    dice: Dice,
    counts: DiskCounts,
    /// By the time they are due, then by order of submission.
    in_flight: BTreeMap<(Duration, Ticket), Submitted>,
    /// Who waits for what is in flight, and the answers of what is done.
    waiting: BTreeMap<Ticket, Waiting>,
    next_ticket: Ticket,
    /// Appends to one file complete in order.
    last_append: BTreeMap<NodeId, Duration>,
    /// Counts processes: handles of an earlier one do nothing.
    process: u64,
    locks: BTreeMap<String, String>,
    boot_id: u128,
    stalled: bool,
    stops_after: Option<u64>,
}

type Ticket = u64;

/// Due when the harness says so.
const STALLED: Duration = Duration::from_secs(u64::MAX - 1);
/// Never due.
const STOPPED: Duration = Duration::from_secs(u64::MAX);

#[derive(Clone)]
enum Op {
    Open {
        path: String,
        mode: OpenMode,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    CreateDir {
        path: String,
    },
    RemoveDir {
        path: String,
    },
    List {
        path: String,
    },
    SyncDir {
        path: String,
        mark: u64,
    },
    Free,
    Read {
        file: NodeId,
        buffer: Vec<u8>,
        offset: u64,
    },
    /// `None` is the end of the file.
    Write {
        file: NodeId,
        bytes: Bytes,
        offset: Option<u64>,
    },
    Sync {
        file: NodeId,
        mark: u64,
    },
    Truncate {
        file: NodeId,
        len: u64,
    },
    Allocate {
        file: NodeId,
        len: u64,
    },
    Len {
        file: NodeId,
    },
}

impl Op {
    fn check_paths(&self) -> io::Result<()> {
        match self {
            Op::List { path } | Op::SyncDir { path, .. } if path.is_empty() => Ok(()),
            Op::Rename { from, to } => check_path(from).and_then(|()| check_path(to)),
            Op::Open { path, .. }
            | Op::Remove { path }
            | Op::CreateDir { path }
            | Op::RemoveDir { path }
            | Op::List { path }
            | Op::SyncDir { path, .. } => check_path(path),
            _ => Ok(()),
        }
    }

    /// The open file that it works on.
    fn file(&self) -> Option<NodeId> {
        match self {
            Op::Read { file, .. }
            | Op::Write { file, .. }
            | Op::Sync { file, .. }
            | Op::Truncate { file, .. }
            | Op::Allocate { file, .. }
            | Op::Len { file } => Some(*file),
            _ => None,
        }
    }
}

enum Reply {
    Done,
    File(NodeId),
    Number(u64),
    Read(Vec<u8>, io::Result<usize>),
    Entries(Vec<DirEntry>),
}

struct Submitted {
    op: Op,
    fails: bool,
}

#[derive(Default)]
struct Waiting {
    answer: Option<io::Result<Reply>>,
    waker: Option<Waker>,
}

/// What becomes of a submission.
enum Placed {
    Answered(io::Result<Reply>),
    InFlight(Ticket, Duration),
}

impl Inner {
    fn submit(&mut self, op: Op, now: Duration) -> Placed {
        self.settle(now).into_iter().for_each(Waker::wake);
        let op = self.marked(op);
        let fails = self.draw_failure(&op);
        let due = self.due(&op, now);
        if due <= now {
            return Placed::Answered(self.perform(Submitted { op, fails }));
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if let Op::Write { file, offset: None, .. } = &op {
            self.last_append.insert(*file, due);
        }
        // The file stays while something is on its way to it, whatever becomes of its handles.
        op.file().into_iter().for_each(|file| self.tree.opened(file));
        self.in_flight.insert((due, ticket), Submitted { op, fails });
        self.waiting.insert(ticket, Waiting::default());
        Placed::InFlight(ticket, due)
    }

    /// What takes no time, whatever the latency: nothing was asked to wait for.
    fn perform_at_once(&mut self, op: Op) -> io::Result<Reply> {
        if let Some(left) = &mut self.stops_after {
            *left -= 1;
        }
        let fails = self.draw_failure(&op);
        self.perform(Submitted { op, fails })
    }

    /// A flush covers what is complete when it is asked for.
    fn marked(&self, mut op: Op) -> Op {
        match &mut op {
            Op::Sync { file, mark } => *mark = self.tree.file(*file).map_or(0, |image| image.mark()),
            Op::SyncDir { mark, .. } => *mark = self.tree.mark(),
            _ => {}
        }
        op
    }

    fn due(&mut self, op: &Op, now: Duration) -> Duration {
        if let Some(left) = &mut self.stops_after {
            if *left == 0 {
                return STOPPED;
            }
            *left -= 1;
        }
        if self.stalled {
            return STALLED;
        }
        let takes_no_time = matches!(op, Op::Len { .. } | Op::Free | Op::List { .. });
        let latency = if takes_no_time { Latency::NONE } else { self.faults.latency };
        let factor = if takes_no_time { 1 } else { self.faults.slow_factor };
        let due = now + latency.draw(factor, &mut self.dice);
        match op {
            Op::Write { file, offset: None, .. } => due.max(self.last_append.get(file).copied().unwrap_or_default()),
            _ => due,
        }
    }

    fn draw_failure(&mut self, op: &Op) -> bool {
        let failing = match op {
            Op::Read { file, .. } => return self.draw_read_failure(*file),
            Op::Write { .. } | Op::Truncate { .. } | Op::Allocate { .. } => &mut self.faults.write,
            Op::Sync { .. } | Op::SyncDir { .. } => &mut self.faults.sync,
            Op::Len { .. } | Op::Free => return false,
            _ => &mut self.faults.metadata,
        };
        let fails = failing.strikes(&mut self.dice);
        self.counts.errors += fails as u64;
        match op {
            Op::Write { .. } => self.counts.failed_writes += fails as u64,
            Op::Sync { .. } | Op::SyncDir { .. } => self.counts.failed_syncs += fails as u64,
            _ => {}
        }
        fails
    }

    fn draw_read_failure(&mut self, file: NodeId) -> bool {
        let fails = !self.faults.read.is_never() && self.is_meant(file) && self.faults.read.strikes(&mut self.dice);
        self.counts.errors += fails as u64;
        self.counts.failed_reads += fails as u64;
        fails
    }

    /// Whether what goes wrong in some files goes wrong in this one.
    fn is_meant(&self, file: NodeId) -> bool {
        self.tree.is_named(file, &self.faults.only_in)
    }

    /// Carries out what is due. Returns who is to be woken.
    fn settle(&mut self, now: Duration) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(entry) = self.in_flight.first_entry() {
            let (due, ticket) = *entry.key();
            if due > now {
                break;
            }
            let submitted = entry.remove();
            let file = submitted.op.file();
            let answer = self.perform(submitted);
            file.into_iter().for_each(|file| self.tree.closed(file));
            match self.waiting.get_mut(&ticket) {
                Some(waiting) => {
                    waiting.answer = Some(answer);
                    wakers.extend(waiting.waker.take());
                }
                None => self.discard(answer),
            }
        }
        wakers
    }

    /// Nobody waits for this answer any more.
    fn discard(&mut self, answer: io::Result<Reply>) {
        if let Ok(Reply::File(file)) = answer {
            self.tree.closed(file);
        }
    }

    fn release(&mut self) -> Vec<Waker> {
        let stalled = self.in_flight.split_off(&(STALLED, 0));
        for ((due, ticket), submitted) in stalled {
            let due = if due == STALLED { Duration::ZERO } else { due };
            self.in_flight.insert((due, ticket), submitted);
        }
        self.waiting.values_mut().filter_map(|waiting| waiting.waker.take()).collect()
    }

    fn perform(&mut self, Submitted { op, fails }: Submitted) -> io::Result<Reply> {
        self.count(&op);
        if fails {
            return self.fail(op);
        }
        match op {
            Op::Open { path, mode } => {
                let creates = matches!(mode, OpenMode::Create | OpenMode::CreateNew);
                if creates && self.tree.find_file(&path).is_none() {
                    self.reserve(1)?;
                }
                let file = self.tree.open(&path, mode)?;
                self.tree.opened(file);
                Ok(Reply::File(file))
            }
            Op::Rename { from, to } => self.tree.rename(&from, &to).map(|()| Reply::Done),
            Op::Remove { path } => self.tree.remove(&path).map(|()| Reply::Done),
            Op::CreateDir { path } => self.tree.create_dir(&path).map(|()| Reply::Done),
            Op::RemoveDir { path } => self.tree.remove_dir(&path).map(|()| Reply::Done),
            Op::List { path } => self.tree.list(&path).map(Reply::Entries),
            Op::SyncDir { path, mark } => self.tree.sync_dir(&path, mark).map(|()| Reply::Done),
            Op::Free => Ok(Reply::Number(self.free())),
            Op::Read { file, mut buffer, offset } => {
                let count = self.read(file, &mut buffer, offset);
                Ok(Reply::Read(buffer, count))
            }
            Op::Write { file, bytes, offset } => self.write(file, bytes, offset).map(Reply::Number),
            Op::Sync { file, mark } => {
                self.tree.file_mut(file)?.flush(mark);
                Ok(Reply::Done)
            }
            Op::Truncate { file, len } => {
                self.grow(file, len)?;
                self.tree.file_mut(file)?.truncate(len);
                Ok(Reply::Done)
            }
            Op::Allocate { file, len } => {
                self.grow(file, len)?;
                self.tree.file_mut(file)?.allocate(len);
                Ok(Reply::Done)
            }
            Op::Len { file } => Ok(Reply::Number(self.tree.file(file)?.len())),
        }
    }

    fn count(&mut self, op: &Op) {
        let counts = &mut self.counts;
        match op {
            Op::Open { .. } => counts.opens += 1,
            Op::Read { .. } => counts.reads += 1,
            Op::Write { bytes, .. } => {
                counts.writes += 1;
                counts.bytes_written += bytes.len() as u64;
            }
            Op::Sync { .. } => counts.syncs += 1,
            Op::SyncDir { .. } => counts.dir_syncs += 1,
            Op::Rename { .. } => counts.renames += 1,
            Op::Remove { .. } => counts.removes += 1,
            _ => {}
        }
    }

    fn fail(&mut self, op: Op) -> io::Result<Reply> {
        match op {
            Op::Read { buffer, .. } => return Ok(Reply::Read(buffer, Err(media_error()))),
            Op::Write { file, bytes, offset } => {
                let part = self.torn(bytes);
                let _ = self.write(file, part, offset);
            }
            Op::Sync { file, .. } => self.tree.file_mut(file)?.forget_pending(),
            Op::SyncDir { path, .. } => self.tree.fail_sync_dir(&path),
            _ => {}
        }
        Err(media_error())
    }

    /// The first sectors of a write that was interrupted.
    fn torn(&mut self, bytes: Bytes) -> Bytes {
        let whole_sectors = self.dice.between(0, bytes.len() as u64 / SECTOR_BYTES);
        bytes.slice(..(whole_sectors * SECTOR_BYTES) as usize)
    }

    /// A read of the page cache; does not wait.
    fn read_at_once(&mut self, file: NodeId, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.counts.reads += 1;
        if self.draw_read_failure(file) {
            return Err(media_error());
        }
        self.read(file, buffer, offset)
    }

    fn read(&mut self, file: NodeId, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.tree.file(file)?.read(buffer, offset);
        self.counts.failed_reads += read.is_err() as u64;
        read
    }

    fn write(&mut self, file: NodeId, bytes: Bytes, offset: Option<u64>) -> io::Result<u64> {
        let len = self.tree.file(file)?.len();
        let at = offset.unwrap_or(len);
        self.grow(file, at + bytes.len() as u64)?;
        let landing = self.draw_landing(file, len);
        self.tree.file_mut(file)?.write(at, bytes, landing)?;
        Ok(at)
    }

    fn draw_landing(&mut self, file: NodeId, len: u64) -> Landing {
        let is_sound = self.faults.lost_write.is_never() && self.faults.misdirected_write.is_never();
        if is_sound || !self.is_meant(file) {
            return Landing::Right;
        }
        if self.faults.lost_write.strikes(&mut self.dice) {
            self.counts.lost_writes += 1;
            return Landing::Nowhere;
        }
        if len >= SECTOR_BYTES && self.faults.misdirected_write.strikes(&mut self.dice) {
            self.counts.misdirected_writes += 1;
            return Landing::Elsewhere(self.dice.below(len / SECTOR_BYTES) * SECTOR_BYTES);
        }
        Landing::Right
    }

    /// Fails if the file, grown to `len`, does not fit.
    fn grow(&mut self, file: NodeId, len: u64) -> io::Result<()> {
        let has = self.tree.file(file)?.footprint();
        match len > has {
            true => self.reserve(len - has),
            false => Ok(()),
        }
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        if self.faults.capacity.is_none() || bytes <= self.free() {
            return Ok(());
        }
        self.counts.full += 1;
        Err(ErrorKind::StorageFull.into())
    }

    fn free(&self) -> u64 {
        self.faults.capacity.unwrap_or(DISK_BYTES).saturating_sub(self.tree.used())
    }

    fn end_process(&mut self) {
        let in_flight = std::mem::take(&mut self.in_flight);
        for (_, submitted) in in_flight {
            self.interrupt(submitted);
        }
        self.waiting.clear();
        self.last_append.clear();
        self.locks.clear();
        self.tree.close_all();
        self.process += 1;
        self.stalled = false;
        self.stops_after = None;
    }

    fn interrupt(&mut self, mut submitted: Submitted) {
        match self.dice.below(3) {
            0 => return,
            1 => {}
            _ => {
                if let Op::Write { bytes, .. } = &mut submitted.op {
                    *bytes = self.torn(std::mem::take(bytes));
                }
            }
        }
        let _ = self.perform(submitted);
    }

    fn with_file<R>(&mut self, path: &str, change: impl FnOnce(&mut image::Image) -> R) -> io::Result<R> {
        let file = self.tree.find_file(path).ok_or(ErrorKind::NotFound)?;
        self.tree.file_mut(file).map(change)
    }
}

fn draw_boot_id(dice: &mut Dice) -> u128 {
    (dice.next_u64() as u128) << 64 | dice.next_u64() as u128
}

/// EIO, as the kernel reports a medium that fails.
fn media_error() -> io::Error {
    const EIO: i32 = 5;
    io::Error::from_raw_os_error(EIO)
}
