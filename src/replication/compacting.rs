//! A replica's driver while it compacts: what a primary plans, and every replica carries out.
//!
//! The life of a compaction at the primary:
//!
//! ```text
//! look            now and then: which run of segments is most worth it
//! mark            hints are read beside the task, and the index is asked what is needed, some records a turn
//! write           beside the task, in turn with the server's other regions and at the server's rate
//! order           the plan is a frame of its own in the log; once it is committed the output takes the run's place
//! move            the index goes on to where the records are now, some records a turn
//! clear away      what was replaced, once nobody reads it any more
//! ```
//!
//! Every other replica carries the plan out when it learns that it is committed, and so does a primary with the plans of
//! one before it: write, switch, move, clear away. An output whose maker no longer leads is thrown away; if its plan is
//! committed all the same, it is made again.
//!
//! Whoever comes to another result than the plan says does not hold what the primary held, and gives its log up as for any
//! damage. A lone copy has nobody to learn from: it serves what it has, and compacts no more.

use crate::replication::leading::FrameBuilder;
use crate::replication::replica::{Driver, Event, Role};
use crate::replication::{limits, probe};
use env::Instant;
use std::time::Duration;
use storage::compaction::{CompactJob, Output};
use storage::{Log, Mover, OwnedRecord, Planner, StorageError, Store};

pub(super) struct Compacting {
    stage: Stage,
    /// One more whenever something is given up, so that what comes of it later is known to be of no use.
    attempt: u64,
    /// Nothing is begun before.
    rest_until: Instant,
    finished: u64,
}

enum Stage {
    Idle,
    /// Something goes on beside the task, which will hear of its end.
    Beside,
    Marking(Box<Planner>),
    /// The output of a plan that is appended.
    Ordered(Box<Output>),
    Moving(Box<Mover>),
}

/// What came of something beside the task.
pub(super) enum Progress {
    /// Whether there is something to mark.
    Loaded(Result<(Planner, bool), StorageError>),
    Planned(Result<Option<Output>, StorageError>),
    CarriedOut(Result<Output, StorageError>),
    /// Whether there is something to move.
    Followed(Result<(Mover, bool), StorageError>),
}

impl Compacting {
    pub(super) fn new(now: Instant) -> Compacting {
        Compacting { stage: Stage::Idle, attempt: 0, rest_until: now, finished: 0 }
    }

    /// Compactions that are over.
    pub(super) fn finished(&self) -> u64 {
        self.finished
    }

    pub(super) fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }
}

impl Driver {
    /// Whether the end of the next turn has something to do that waits for nothing else.
    pub(super) fn has_compaction_step(&self) -> bool {
        match &self.compacting.stage {
            Stage::Marking(_) => true,
            Stage::Moving(_) => self.store().is_some_and(|store| !store.is_settling()),
            Stage::Idle | Stage::Beside | Stage::Ordered(_) => false,
        }
    }

    /// Takes a step.
    pub(super) async fn go_on_compacting(&mut self) {
        if self.log.is_none() {
            return;
        }
        match self.stage() {
            Stage::Idle => self.begin_compaction().await,
            Stage::Beside => self.compacting.stage = Stage::Beside,
            Stage::Marking(planner) => self.mark(planner),
            Stage::Ordered(output) => self.switch_once_committed(output).await,
            Stage::Moving(mover) => self.move_on(mover),
        }
    }

    /// What was going on; nothing is from now on.
    fn stage(&mut self) -> Stage {
        std::mem::replace(&mut self.compacting.stage, Stage::Idle)
    }

    /// Whatever goes on is of no use any more.
    pub(super) fn give_up_compaction(&mut self) {
        self.compacting.attempt += 1;
        if let Stage::Ordered(output) = self.stage() {
            self.context.env.spawn("discard", output.discard());
        }
    }

    pub(super) async fn compaction_went_on(&mut self, attempt: u64, progress: Progress) {
        if attempt != self.compacting.attempt {
            return match progress {
                Progress::Planned(Ok(Some(output))) | Progress::CarriedOut(Ok(output)) => output.discard().await,
                _ => {}
            };
        }
        self.compacting.stage = Stage::Idle;
        match progress {
            Progress::Loaded(Ok((planner, true))) => self.compacting.stage = Stage::Marking(Box::new(planner)),
            Progress::Loaded(Ok((planner, false))) => self.write_planned(planner),
            Progress::Planned(Ok(Some(output))) => self.order(output).await,
            Progress::Planned(Ok(None)) => {}
            Progress::CarriedOut(Ok(output)) => self.switch(output).await,
            Progress::Followed(Ok((mover, true))) => self.compacting.stage = Stage::Moving(Box::new(mover)),
            Progress::Followed(Ok((mover, false))) => self.moved(mover),
            Progress::Loaded(Err(error))
            | Progress::Planned(Err(error))
            | Progress::CarriedOut(Err(error))
            | Progress::Followed(Err(error)) => self.compaction_failed(&error).await,
        }
    }

    fn beside_compaction(&mut self, work: impl Future<Output = Progress> + Send + 'static) {
        let attempt = self.compacting.attempt;
        self.compacting.stage = Stage::Beside;
        self.beside("compact", async move { Event::Compacting { attempt, progress: Box::new(work.await) } });
    }

    async fn compaction_failed(&mut self, error: &StorageError) {
        let alone = self.info.config.in_sync == [self.context.me];
        if error.is_corrupt() && !alone {
            return self.distrust(error).await;
        }
        tracing::warn!(region = %self.region(), %error, "a compaction failed");
        self.rest(if error.is_corrupt() { limits::COMPACT_PAUSE_LONG } else { limits::COMPACT_PAUSE });
    }

    fn rest(&mut self, duration: Duration) {
        self.compacting.rest_until = self.context.now() + duration;
    }

    async fn begin_compaction(&mut self) {
        if self.context.now() < self.compacting.rest_until {
            return;
        }
        let Some(log) = &mut self.log else { return };
        if log.has_retired() {
            return self.clear_away().await;
        }
        match log.compact_job() {
            Ok(Some(job)) => self.carry_out(job),
            Ok(None) => self.look_for_run(),
            Err(error) => self.compaction_failed(&error).await,
        }
    }

    // ---- a primary's plans ----

    fn look_for_run(&mut self) {
        let Some(wall_ms) = self.plans_at() else { return };
        self.rest(limits::COMPACT_PAUSE);
        let dead_share = self.info.spec.dead_share.share();
        let (Some(store), Some(log)) = (self.store(), &self.log) else { return };
        if store.is_doubtful() {
            return self.build_index();
        }
        let Some(choice) = store.choose_run(log, dead_share, wall_ms) else { return };
        let Some(planner) = store.planner(log, choice.first, choice.last, wall_ms) else { return };
        tracing::debug!(region = %self.region(), ?choice, "begins to compact");
        self.load_planner(planner);
    }

    fn load_planner(&mut self, mut planner: Planner) {
        self.beside_compaction(async move {
            let more = planner.load().await;
            Progress::Loaded(more.map(|more| (planner, more)))
        });
    }

    fn mark(&mut self, mut planner: Box<Planner>) {
        let Some(store) = self.store() else { return };
        match store.mark(&mut planner) {
            true => self.load_planner(*planner),
            false => self.compacting.stage = Stage::Marking(planner),
        }
    }

    fn write_planned(&mut self, planner: Planner) {
        let (turns, rate) = (self.context.compactions.clone(), self.rate());
        self.beside_compaction(async move {
            let _turn = turns.acquire_owned().await;
            Progress::Planned(write_planned(planner, rate).await)
        });
    }

    /// Bytes a second; no limit while the log is far beyond what the table allows.
    fn rate(&self) -> Option<u64> {
        let log = self.log.as_ref()?;
        let behind = match self.store() {
            Some(store) => {
                let (space, share) = (store.space(log), self.info.spec.dead_share.share());
                space.dead_bytes() as f64 > space.total_bytes as f64 * (1.0 + share) / 2.0
            }
            None => log.ordered_len() > limits::COMPACTIONS_BEHIND_MAX,
        };
        (!behind).then_some(self.context.compact_bytes_per_second)
    }

    async fn order(&mut self, output: Output) {
        let worth_it = output.is_worth_it();
        if !worth_it {
            self.rest(limits::COMPACT_PAUSE_LONG);
        }
        if !worth_it || self.plans_at().is_none() {
            return output.discard().await;
        }
        let (kind, bytes) = output.plan().encode();
        tracing::debug!(region = %self.region(), ?output, "orders a compaction");
        probe::ordered(self.region(), self.epoch(), output.segment());
        self.compacting.stage = Stage::Ordered(Box::new(output));
        if !self.append(FrameBuilder::of(OwnedRecord::Control { kind, bytes })).await {
            self.rest(limits::COMPACT_PAUSE);
            self.give_up_compaction();
        }
    }

    async fn switch_once_committed(&mut self, output: Box<Output>) {
        match self.log.as_ref().is_some_and(Log::compaction_is_due) {
            true => self.switch(*output).await,
            false => self.compacting.stage = Stage::Ordered(output),
        }
    }

    // ---- what every replica does ----

    fn carry_out(&mut self, job: CompactJob) {
        let (turns, rate) = (self.context.compactions.clone(), self.rate());
        self.beside_compaction(async move {
            let _turn = turns.acquire_owned().await;
            Progress::CarriedOut(job.limited(rate).run().await)
        });
    }

    async fn switch(&mut self, output: Output) {
        let (region, epoch) = (self.region(), self.epoch());
        let (segment, checksum) = (output.segment(), output.checksum());
        let Some(log) = &mut self.log else { return };
        match log.switch(output).await {
            Ok(true) => probe::compacted(region, epoch, segment, checksum),
            Ok(false) => {}
            Err(error) => return self.fail_on_disk(&error).await,
        }
        self.rest(Duration::ZERO);
    }

    /// On a full disk all this waits until there is room.
    async fn fail_on_disk(&mut self, error: &StorageError) {
        match error {
            StorageError::Full { .. } => self.rest(limits::COMPACT_PAUSE),
            _ => self.distrust(error).await,
        }
    }

    async fn clear_away(&mut self) {
        if let Role::Leading(_) = &self.role {
            let Some(store) = self.store() else { return };
            if store.is_doubtful() {
                return self.build_index();
            }
            if let Some(mover) = store.mover() {
                return self.load_mover(mover);
            }
        }
        let Some(log) = &mut self.log else { return };
        match log.remove_retired().await {
            Ok(true) => {
                self.compacting.finished += 1;
                self.rest(Duration::ZERO);
            }
            Ok(false) => {}
            Err(error) => self.fail_on_disk(&error).await,
        }
    }

    // ---- the index ----

    fn load_mover(&mut self, mut mover: Mover) {
        self.beside_compaction(async move {
            let more = mover.load().await;
            Progress::Followed(more.map(|more| (mover, more)))
        });
    }

    /// A step that has to come before the store's next settling begins, or it might never.
    pub(super) fn move_on_if_moving(&mut self) {
        match self.stage() {
            Stage::Moving(mover) => self.move_on(mover),
            other => self.compacting.stage = other,
        }
    }

    fn move_on(&mut self, mut mover: Box<Mover>) {
        let Some(store) = self.store_mut() else { return };
        match store.move_on(&mut mover) {
            true => self.load_mover(*mover),
            false => self.compacting.stage = Stage::Moving(mover),
        }
    }

    fn moved(&mut self, mover: Mover) {
        if let Some(store) = self.store_mut() {
            store.moved(mover);
        }
    }

    fn store(&self) -> Option<&Store> {
        match &self.role {
            Role::Leading(leading) => leading.built_store(),
            Role::Following(_) | Role::Idle => None,
        }
    }
}

async fn write_planned(planner: Planner, rate: Option<u64>) -> Result<Option<Output>, StorageError> {
    match planner.finish().await? {
        Some(job) => job.limited(rate).run().await.map(Some),
        None => Ok(None),
    }
}
