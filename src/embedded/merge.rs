//! Compaction: rewriting segments so that only what is live is left.
//!
//! The storage package knows which records are needed and writes them to a new file; here is who drives it. A step takes one
//! run of segments: plan it against the index a piece at a time, write the output, order it in the log, switch, and
//! move the index on. Reads and writes go on, but for the moment of the switch, when the log is away. A snapshot holds what
//! it may read: while one older than the last switch lives, the next one waits.

use crate::core::Refused;
use crate::engine::{Goal, Inner, Mode};
use crate::error::{Error, Failure, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use storage::{Log, Record, Seqno, StorageError};

/// What a [`crate::Db::merge`] has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeProgress {
    /// Runs of segments rewritten.
    pub steps: u64,
    /// Bytes of the files of the database before it began, and now.
    pub bytes_before: u64,
    pub bytes_now: u64,
}

/// With less than this share of a run dead, a merge leaves it as it is.
const MERGE_DEAD_SHARE: f64 = 0.01;

impl Inner {
    /// Compacts whatever has dead bytes, the segment that is written to included.
    pub(crate) async fn merge(self: &Arc<Self>, mut progress: impl FnMut(MergeProgress)) -> Result<MergeProgress> {
        let _compacting = self.compacting.lock().await;
        let mut done = MergeProgress { bytes_before: self.log_bytes().await?, ..MergeProgress::default() };
        self.seal_current().await?;
        loop {
            done.bytes_now = self.log_bytes().await?;
            progress(done);
            match self.compact_step(MERGE_DEAD_SHARE).await? {
                Some(()) => done.steps += 1,
                None => return Ok(done),
            }
        }
    }

    /// Ends the segment that is written to, if it holds anything.
    async fn seal_current(self: &Arc<Self>) -> Result<()> {
        // A record that no key's value depends on; the next compaction that meets it drops it.
        let marker = Record::Session { session: 0, number: 0, floor: 0, outcome: b"" };
        let seqno = self.append_control(marker, true).await?;
        self.reach(seqno, Goal::Durable, Mode::Here).await?;
        self.reach(seqno, Goal::Applied, Mode::Here).await
    }

    async fn append_control(self: &Arc<Self>, record: Record<'_>, rolls: bool) -> Result<Seqno> {
        loop {
            let progress = self.progress.notified();
            match self.core.write().append_control(record, rolls, self.wall_ms()) {
                Ok(seqno) => return Ok(seqno),
                Err(Refused::For(error)) => return Err(error),
                Err(Refused::Away) => {}
            }
            progress.await;
        }
    }

    async fn log_bytes(&self) -> Result<u64> {
        self.with_log(|log| log.stats().bytes).await
    }

    /// Asks the log, once it is here.
    pub(crate) async fn with_log<T>(&self, mut ask: impl FnMut(&mut Log) -> T) -> Result<T> {
        loop {
            let progress = self.progress.notified();
            {
                let mut core = self.core.write();
                core.check_readable()?;
                if let Some(log) = core.log.as_mut() {
                    return Ok(ask(log));
                }
            }
            progress.await;
        }
    }

    /// Compacts the run most worth it; `None` if none is. The caller holds [`Inner::compacting`].
    pub(crate) async fn compact_step(self: &Arc<Self>, dead_share: f64) -> Result<Option<()>> {
        self.seal().await?;
        self.follow_switch().await?;
        if !self.remove_replaced().await? {
            return Ok(None);
        }
        let wall_ms = self.wall_ms();
        let planner = {
            let core = self.core.read();
            core.check_writable()?;
            let log = core.log.as_ref().ok_or(Error::Closed)?;
            let choice = core.store.choose_run(log, dead_share, wall_ms);
            choice.and_then(|choice| core.store.planner(log, choice.first, choice.last, wall_ms))
        };
        let Some(mut planner) = planner else { return Ok(None) };
        while planner.load().await? {
            while !self.core.read().store.mark(&mut planner) {
                self.yield_now().await;
            }
        }
        let Some(job) = planner.finish().await? else { return Ok(None) };
        let output = job.run().await?;
        if !output.is_worth_it() {
            output.discard().await;
            return Ok(None);
        }
        let (kind, bytes) = output.plan().encode();
        let ordered = self.append_control(Record::Control { kind, bytes: &bytes }, false).await?;
        self.reach(ordered, Goal::Durable, Mode::Here).await?;
        let mut log = self.take_log().await?;
        let switched = log.switch(output).await;
        self.give_log(log);
        if !self.not_fenced(switched)? {
            return Ok(None);
        }
        self.compactions.fetch_add(1, Ordering::Relaxed);
        self.follow_switch().await?;
        self.remove_replaced().await?;
        Ok(Some(()))
    }

    /// Writes the hints of sealed segments.
    async fn seal(self: &Arc<Self>) -> Result<()> {
        while let Some(job) = self.with_log(|log| log.take_drafted_seal()).await? {
            let mut sealed = Some(job.run().await?);
            self.with_log(|log| log.finish_seal(sealed.take().expect("asked once"))).await?;
        }
        Ok(())
    }

    /// Moves the index to where the last switch put its records.
    async fn follow_switch(&self) -> Result<()> {
        let Some(mut mover) = self.core.read().store.mover() else { return Ok(()) };
        while mover.load().await? {
            loop {
                let (moved, settling) = {
                    let mut core = self.core.write();
                    let settling = core.store.is_settling();
                    (core.store.move_on(&mut mover), settling)
                };
                if moved {
                    break;
                }
                if settling {
                    self.env.sleep(std::time::Duration::from_millis(1)).await;
                } else {
                    self.yield_now().await;
                }
            }
        }
        self.core.write().store.moved(mover);
        Ok(())
    }

    /// Removes the segments that were replaced; false while somebody may read them.
    async fn remove_replaced(&self) -> Result<bool> {
        if !self.with_log(|log| log.has_retired()).await? {
            return Ok(true);
        }
        let mut log = self.take_log().await?;
        let removed = log.remove_retired().await;
        self.give_log(log);
        self.not_fenced(removed)
    }

    fn not_fenced<T>(&self, result: std::result::Result<T, StorageError>) -> Result<T> {
        result.map_err(|error| {
            let mut core = self.core.write();
            if core.log.as_ref().is_some_and(|log| log.stats().fenced) {
                core.fail(Failure::of(&error));
            }
            error.into()
        })
    }

    /// Lets others at the lock.
    async fn yield_now(&self) {
        self.env.sleep(std::time::Duration::ZERO).await;
    }
}
