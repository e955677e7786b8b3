//! Writing, flushing, and moving into the index: what waits.
//!
//! The life of a put: it is encoded into the open frame under the lock, and visible. Its durability says how far it is
//! followed: nowhere, to the kernel, or to the device. Whoever wants more than there is closes the frame and writes all
//! that is queued, in one [round](Inner::round); those that come meanwhile wait for the round and share the next one:
//! that is the group commit. After a round the written frames are moved into the index.
//!
//! A round must not be abandoned half way, so that only a thread that waits ([`Mode::Here`]) or a task of our own
//! ([`Mode::Task`]) runs one, never a future that a caller may drop.

use crate::core::{Change, Core, Found, Refused, State};
use crate::error::{Error, Failure, Result};
use crate::limits::{CLOSED_BYTES_MAX, KEY_BYTES_MAX, RESERVE_BYTES_MAX, RESERVE_BYTES_MIN, VALUE_BYTES_MAX};
use crate::options::{Durability, Options};
use bytes::Bytes;
use env::Env;
use parking_lot::RwLock;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use storage::{Compression, FlushJob, Flushed, Identity, Log, NoteJob, Record, Seqno, StorageError, WriteJob, Written};
use tokio::sync::Notify;

pub(crate) struct Inner {
    pub(crate) env: Env,
    /// Of the log, relative to the environment's.
    pub(crate) folder: String,
    pub(crate) options: Options,
    pub(crate) identity: Identity,
    pub(crate) core: RwLock<Core>,
    /// Something was written, flushed, moved into the index, or failed; the log came back.
    pub(crate) progress: Notify,
    /// There may be something to write.
    pub(crate) work: Notify,
    /// There may be something to flush.
    pub(crate) unflushed: Notify,
    /// Something was flushed: there may be something to seal or to compact.
    pub(crate) flushed: Notify,
    /// The background is waiting for [`Inner::work`].
    pub(crate) idle: AtomicBool,
    /// Held while the log is compacted: one at a time, and none while it is closed.
    pub(crate) compacting: tokio::sync::Mutex<()>,
    /// Bytes written since the free space was last asked for.
    unasked_bytes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    /// The folder's lock.
    pub(crate) lock: parking_lot::Mutex<Option<Box<dyn Any + Send + Sync>>>,
}

/// Who carries out what must not be dropped half way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The caller, who waits.
    Here,
    /// A task: the caller's future may be dropped.
    Task,
}

impl Inner {
    pub(crate) fn new(
        env: Env,
        folder: String,
        options: Options,
        core: Core,
        lock: Option<Box<dyn Any + Send + Sync>>,
    ) -> Arc<Inner> {
        Arc::new(Inner {
            env,
            folder,
            options,
            identity: core.identity,
            core: RwLock::new(core),
            progress: Notify::new(),
            work: Notify::new(),
            unflushed: Notify::new(),
            flushed: Notify::new(),
            idle: AtomicBool::new(true),
            compacting: tokio::sync::Mutex::new(()),
            unasked_bytes: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            lock: parking_lot::Mutex::new(lock),
        })
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u128 {
        self.identity.key_hash(key)
    }

    pub(crate) fn wall_ms(&self) -> u64 {
        self.env.clock().wall_ms()
    }

    /// The value as it is to be stored.
    pub(crate) fn pack(&self, value: Bytes) -> (Bytes, Compression) {
        self.options.compression.pack(value)
    }

    pub(crate) fn look_up(&self, key: &[u8]) -> Result<Found> {
        check_key(key)?;
        let key_hash = self.hash(key);
        self.core.read().find(key, key_hash)
    }

    /// One change, followed nowhere. `None` while the log is away. The second number says how many bytes of frames wait.
    #[inline]
    pub(crate) fn try_change(&self, key: &[u8], value: Option<&[u8]>) -> Result<Option<(Seqno, usize)>> {
        check_key(key)?;
        let key_hash = self.hash(key);
        if let (Compression::Lz4, Some(value)) = (self.options.compression, value) {
            check_value(value)?;
            let (value, compression) = self.pack(Bytes::copy_from_slice(value));
            let record = Record::Put { key, value: &value, compression, expiry_ms: None };
            return self.try_append(&[Change { record, key_hash }]);
        }
        let record = match value {
            Some(value) => Record::Put { key, value, compression: Compression::None, expiry_ms: None },
            None => Record::Tombstone { key },
        };
        value.map_or(Ok(()), check_value)?;
        self.try_append(&[Change { record, key_hash }])
    }

    /// The changes, all or none.
    pub(crate) fn try_append(&self, changes: &[Change<'_>]) -> Result<Option<(Seqno, usize)>> {
        let mut core = self.core.write();
        if let [Change { record: Record::Tombstone { key }, key_hash }] = changes
            && core.is_absent(key, *key_hash)
        {
            core.check_writable()?;
            return Ok(Some((Seqno(0), core.closed_bytes())));
        }
        self.append_locked(&mut core, changes)
    }

    pub(crate) fn append_locked(&self, core: &mut Core, changes: &[Change<'_>]) -> Result<Option<(Seqno, usize)>> {
        let was_gathering = core.is_gathering();
        match core.append(changes, || self.wall_ms()) {
            Ok(seqno) => {
                if !was_gathering {
                    self.wake();
                }
                Ok(Some((seqno, core.closed_bytes())))
            }
            Err(Refused::Away) => Ok(None),
            Err(Refused::For(error)) => Err(error),
        }
    }

    /// Appends the changes and follows them.
    pub(crate) async fn change_all(
        self: &Arc<Self>,
        changes: &[Change<'_>],
        durability: Durability,
        mode: Mode,
    ) -> Result<()> {
        self.append_and_follow(|| self.try_append(changes), durability, mode).await
    }

    pub(crate) async fn change(
        self: &Arc<Self>,
        key: &[u8],
        value: Option<&[u8]>,
        durability: Durability,
        mode: Mode,
    ) -> Result<()> {
        self.append_and_follow(|| self.try_change(key, value), durability, mode).await
    }

    /// Tries until the log is here, and follows what was appended.
    async fn append_and_follow(
        self: &Arc<Self>,
        append: impl Fn() -> Result<Option<(Seqno, usize)>>,
        durability: Durability,
        mode: Mode,
    ) -> Result<()> {
        loop {
            let progress = self.progress.notified();
            if let Some((seqno, waiting)) = append()? {
                return self.follow(seqno, waiting, durability, mode).await;
            }
            progress.await;
        }
    }

    /// Waits for what the durability promises of the record.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        seqno: Seqno,
        waiting: usize,
        durability: Durability,
        mode: Mode,
    ) -> Result<()> {
        match durability {
            Durability::Synced => self.reach(seqno, Goal::Durable, mode).await,
            Durability::Buffered => self.reach(seqno, Goal::Written, mode).await,
            Durability::Relaxed if waiting > 0 => self.relieve(waiting, mode).await,
            Durability::Relaxed => Ok(()),
        }
    }

    /// Writes what is closed, unless somebody does; waits only if too much is. Leaving a segment, which waits for the device,
    /// is left to the background.
    async fn relieve(self: &Arc<Self>, waiting: usize, mode: Mode) -> Result<()> {
        if waiting < CLOSED_BYTES_MAX {
            let (busy, begins_segment) = {
                let core = self.core.read();
                let begins_segment = core.log.as_ref().is_some_and(Log::begins_segment_next);
                (core.writing || (begins_segment && core.flushing), begins_segment)
            };
            match begins_segment {
                _ if busy => {}
                false => drop(self.round(false, mode).await?),
                true => {
                    let inner = self.clone();
                    // An error is kept for whoever writes next.
                    drop(self.env.spawn("write", async move { inner.round_here(false).await }));
                }
            }
            return Ok(());
        }
        let first = self.core.read().applied;
        self.reach(Seqno(first.0 + 1), Goal::Applied, mode).await
    }

    /// Waits until all up to `seqno` is where the goal says.
    pub(crate) async fn reach(self: &Arc<Self>, seqno: Seqno, goal: Goal, mode: Mode) -> Result<()> {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            let busy = {
                let core = self.core.read();
                if goal.is_reached(&core, seqno) {
                    return Ok(());
                }
                if seqno > core.head() {
                    // It was dropped when a write failed.
                    core.check_writable()?;
                }
                match core.state {
                    State::Failed(_) if goal != Goal::Applied || seqno > core.written => core.check_writable()?,
                    _ => core.check_readable()?,
                }
                if core.writing {
                    core.check_room()?;
                }
                core.writing || core.log.is_none() || (goal == Goal::Durable && core.flushing)
            };
            let wrote = !busy && self.round(goal == Goal::Durable, mode).await?;
            if !wrote && !goal.is_reached(&self.core.read(), seqno) {
                progress.await;
            }
        }
    }

    /// Writes all that is queued, and flushes it if asked; then moves what is written into the index. False if somebody
    /// else was at it.
    pub(crate) async fn round(self: &Arc<Self>, sync: bool, mode: Mode) -> Result<bool> {
        match mode {
            Mode::Here => self.round_here(sync).await,
            Mode::Task => {
                let inner = self.clone();
                let task = self.env.spawn("write", async move { inner.round_here(sync).await });
                task.await.unwrap_or(Err(Error::Closed))
            }
        }
    }

    async fn round_here(self: &Arc<Self>, sync: bool) -> Result<bool> {
        self.ask_for_space().await;
        let job = {
            let mut core = self.core.write();
            let closed = if core.writing { Ok(()) } else { core.close_frame(|| self.wall_ms()) };
            match (closed, core.log.as_mut()) {
                (Err(Refused::For(error)), _) => return Err(error),
                (Ok(()), Some(log)) => {
                    self.unasked_bytes.fetch_add(log.unwritten_bytes() as u64, Ordering::Relaxed);
                    let job = if sync { log.take_unflushed() } else { log.take_unwritten() };
                    core.writing |= job.is_some();
                    job
                }
                _ => None,
            }
        };
        let wrote = job.is_some();
        if let Some(job) = job {
            self.run_write(job, sync).await?;
        }
        self.move_in().await;
        Ok(wrote)
    }

    /// A write that finds no room goes on by itself until there is some; whoever waits for it does not.
    async fn run_write(self: &Arc<Self>, job: WriteJob, sync: bool) -> Result<()> {
        let mut running = Box::pin(job.run(sync));
        let outcome = std::future::poll_fn(|context| match running.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if self.core.read().check_room().is_err() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(outcome) = outcome.await {
            return self.finish_write(outcome);
        }
        let inner = self.clone();
        drop(self.env.spawn("write", async move {
            let outcome = running.await;
            // Whoever waited was told that there is no room.
            let _ = inner.finish_write(outcome);
            inner.move_in().await;
        }));
        self.progress.notify_waiters();
        self.core.read().check_room()
    }

    fn finish_write(&self, outcome: std::result::Result<Written, StorageError>) -> Result<()> {
        let mut core = self.core.write();
        core.writing = false;
        let result = match outcome {
            Ok(written) => {
                let log = core.log.as_mut().expect("nobody takes it while a write is outstanding");
                log.finish_write(written);
                let (written, durable) = (log.written().seqno, log.durable().seqno);
                // What the log calls committed it takes for durable.
                log.set_committed(durable);
                if durable > core.durable {
                    self.flushed.notify_one();
                }
                if written > durable {
                    self.unflushed.notify_one();
                }
                (core.written, core.durable) = (written, durable);
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "a write failed");
                core.fail(Failure::of(&error));
                Err(error.into())
            }
        };
        drop(core);
        self.progress.notify_waiters();
        result
    }

    /// Flushes what is written by now, while others go on writing.
    pub(crate) async fn flush_beside(&self) {
        let Some(job) = self.take_flush().await else { return };
        let flushed = job.run().await;
        if let Some(note) = self.finish_flush(flushed) {
            let note = note.run().await;
            let mut core = self.core.write();
            core.flushing = false;
            if let Some(log) = &mut core.log {
                log.finish_note(note);
            }
        }
        self.progress.notify_waiters();
        self.flushed.notify_one();
    }

    /// Waits for whoever flushes; `None` once there is nothing to flush.
    async fn take_flush(&self) -> Option<FlushJob> {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            {
                let mut core = self.core.write();
                if !core.has_unflushed() {
                    return None;
                }
                if let Some(job) = core.log.as_mut().and_then(Log::take_flush) {
                    core.flushing = true;
                    return Some(job);
                }
            }
            progress.await;
        }
    }

    /// The note is for the next start, which does without it if the write job that has it goes on.
    fn finish_flush(&self, flushed: std::result::Result<Flushed, StorageError>) -> Option<NoteJob> {
        let mut core = self.core.write();
        core.flushing = false;
        match flushed {
            Ok(flushed) => {
                // Only a failure takes it while a flush is outstanding.
                let log = core.log.as_mut()?;
                log.finish_flush(flushed);
                let (durable, note) = (log.durable().seqno, log.take_note());
                // What the log calls committed it takes for durable.
                log.set_committed(durable);
                (core.durable, core.flushing) = (durable, note.is_some());
                note
            }
            Err(error) => {
                tracing::error!(%error, "a flush failed");
                core.fail(Failure::of(&error));
                None
            }
        }
    }

    /// Moves the written frames into the index, unless somebody does.
    async fn move_in(&self) {
        loop {
            let Some(job) = self.core.write().take_frame_job() else { return };
            let job = job.run().await;
            self.core.write().finish_frame_job(job);
            self.progress.notify_waiters();
        }
    }

    /// Looks, each time that a part of the reserve may be used up, whether it still is there.
    async fn ask_for_space(&self) {
        let reserve = (self.options.segment_bytes / 4).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX);
        if self.unasked_bytes.load(Ordering::Relaxed) > reserve / 4 || self.core.read().is_full {
            self.unasked_bytes.store(0, Ordering::Relaxed);
            // Who cannot tell finds out when a write fails.
            let free = self.env.disk().free_bytes().await.unwrap_or(u64::MAX);
            let is_full = free < reserve;
            let mut core = self.core.write();
            if core.is_full != is_full {
                core.is_full = is_full;
                tracing::warn!(
                    free,
                    reserve,
                    "puts are {}",
                    if is_full { "refused: too little space" } else { "taken again" }
                );
            }
        }
    }

    pub(crate) async fn look_for_space(&self) {
        self.unasked_bytes.store(u64::MAX, Ordering::Relaxed);
        self.ask_for_space().await;
    }

    /// Reads the value, then changes it, with nothing between.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        key: &[u8],
        value: Option<&[u8]>,
        durability: Durability,
        mode: Mode,
    ) -> Result<Option<Bytes>> {
        check_key(key)?;
        value.map_or(Ok(()), check_value)?;
        let key_hash = self.hash(key);
        let packed = value.map(|value| self.pack(Bytes::copy_from_slice(value)));
        let record = match &packed {
            Some((value, compression)) => Record::Put { key, value, compression: *compression, expiry_ms: None },
            None => Record::Tombstone { key },
        };
        loop {
            let progress = self.progress.notified();
            let (seen, found) = {
                let core = self.core.read();
                core.check_writable()?;
                (core.last_change(key_hash), core.find(key, key_hash)?)
            };
            let before = resolve(found).await?;
            let appended = {
                let mut core = self.core.write();
                if core.last_change(key_hash) != seen {
                    continue;
                }
                if before.is_none() && value.is_none() {
                    return Ok(None);
                }
                self.append_locked(&mut core, &[Change { record, key_hash }])?
            };
            match appended {
                Some((seqno, waiting)) => {
                    self.follow(seqno, waiting, durability, mode).await?;
                    return Ok(before);
                }
                None => progress.await,
            }
        }
    }

    /// Everything up to now is on the device.
    pub(crate) async fn sync(self: &Arc<Self>, mode: Mode) -> Result<()> {
        let head = {
            let core = self.core.read();
            core.check_writable()?;
            core.head()
        };
        self.reach(head, Goal::Durable, mode).await
    }

    /// Tells the background that there is something to flush.
    pub(crate) fn wake(&self) {
        if self.idle.load(Ordering::Relaxed) && self.idle.swap(false, Ordering::Relaxed) {
            self.work.notify_one();
        }
    }

    /// Takes the log for a step that needs all of it; nobody writes until it is given back.
    pub(crate) async fn take_log(&self) -> Result<Log> {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            {
                let mut core = self.core.write();
                core.check_writable()?;
                if !core.writing
                    && !core.flushing
                    && let Some(log) = core.log.take()
                {
                    return Ok(log);
                }
            }
            progress.await;
        }
    }

    pub(crate) fn give_log(&self, log: Log) {
        self.core.write().log = Some(log);
        self.progress.notify_waiters();
    }

    /// Flushes everything and leaves a mark that says so.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        let _compacting = self.compacting.lock().await;
        let state = self.core.read().state.clone();
        let closed = match state {
            State::Closed => return Ok(()),
            State::ReadOnly => Ok(()),
            State::Failed(failure) => Err(failure.error()),
            State::Open => match self.close_log().await {
                Ok(()) => Ok(()),
                Err(error) => {
                    self.give_up().await;
                    Err(error)
                }
            },
        };
        let mut core = self.core.write();
        core.state = State::Closed;
        core.log = None;
        drop(core);
        self.lock.lock().take();
        self.progress.notify_waiters();
        self.work.notify_one();
        self.unflushed.notify_one();
        self.flushed.notify_one();
        closed
    }

    /// Ends a write that waits for room.
    async fn give_up(&self) {
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            {
                let core = self.core.read();
                if !core.writing && !core.flushing {
                    return;
                }
                core.log.iter().for_each(Log::give_up);
            }
            progress.await;
        }
    }

    async fn close_log(self: &Arc<Self>) -> Result<()> {
        loop {
            let head = self.core.read().head();
            self.reach(head, Goal::Durable, Mode::Here).await?;
            self.reach(head, Goal::Applied, Mode::Here).await?;
            let mut core = self.core.write();
            if core.head() == head && !core.writing && !core.flushing && core.log.is_some() {
                // From here on nobody appends.
                core.state = State::Closed;
                break;
            }
        }
        let log = self.core.write().log.take().expect("seen above");
        self.store_keys(log.head().mark).await;
        log.close().await.map_err(Error::from)
    }
}

/// How far a record is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    Written,
    Durable,
    /// Into the index.
    Applied,
}

impl Goal {
    fn is_reached(self, core: &Core, seqno: Seqno) -> bool {
        seqno
            <= match self {
                Goal::Written => core.written,
                Goal::Durable => core.durable,
                Goal::Applied => core.applied,
            }
    }
}

/// The value that was found, read if it has to be.
pub(crate) async fn resolve(found: Found) -> Result<Option<Bytes>> {
    match found {
        Found::Ready(value) => Ok(value),
        Found::Read(mut job) => {
            let entry = match job.try_now() {
                Some(entry) => entry?,
                None => job.run().await?,
            };
            Ok(entry.map(|entry| entry.value))
        }
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    match key.len() {
        0 => Err(Error::invalid("the key is empty: keys have 1 byte at least")),
        len if len > KEY_BYTES_MAX => {
            Err(Error::invalid(format!("the key has {len} bytes: keys have {KEY_BYTES_MAX} at most")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    match value.len() {
        len if len > VALUE_BYTES_MAX => {
            Err(Error::invalid(format!("the value has {len} bytes: values have {VALUE_BYTES_MAX} at most")))
        }
        _ => Ok(()),
    }
}
