//! One replica of one region: the handle that a node holds, and the task that does the work.
//!
//! A replica is one task with one inbox. A turn of the task takes what waits in the inbox, lets the pure machines decide
//! ([`Primary`], [`Backup`]), appends what clients want written as **one frame**, starts at most one write of the log, and
//! sends what is to be sent. The life of a write at the primary:
//!
//! ```text
//! inbox -> evaluated against the newest value, committed or not -> one frame with the turn's other writes
//!       -> log file (own flush) and followers (their flushes), at the same time
//!       -> durable everywhere: committed -> visible to reads -> answered
//! ```
//!
//! Reads are answered from committed state, under a lease that is checked after the read arrived; one that needs the disk
//! goes on beside the task.

use crate::protocol::{
    ClusterId, ControlResponse, Error, ErrorCode, ReadRequest, ReplicaReport, ReplicaState, Response, ScanRequest,
    Space, WriteRequest,
};
use crate::region::{Change, Epoch, RegionConfig, RegionId, RegionInfo, Seqno, ServerId};
use crate::replication::compacting::{Compacting, Progress};
use crate::replication::following::Following;
use crate::replication::leading::Leading;
use crate::replication::message::{PeerBody, PeerMessage};
use crate::replication::{LeaseBook, Timing, limits, probe};
use env::{BoxFuture, Env, Instant, Sleep, Task};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use storage::{Log, LogOptions, Mark, Scanned, Sealed, Settled, StorageError, Store, Written};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// What all replicas of a server share.
pub struct Context {
    pub env: Env,
    pub me: ServerId,
    pub cluster: ClusterId,
    pub timing: Timing,
    pub log: LogOptions,
    pub leases: Mutex<LeaseBook>,
    pub peers: Arc<dyn Peers>,
    pub masters: Arc<dyn Masters>,
    /// Little space is left: no write is taken.
    pub disk_full: AtomicBool,
    /// Turns to build an index, so that a server that takes over many regions at once keeps its memory and processors.
    pub index_builds: Arc<Semaphore>,
    /// Turns to write the output of a compaction, and the rate at which one may use the disk.
    pub compactions: Arc<Semaphore>,
    pub compact_bytes_per_second: u64,
}

/// The way to other servers: a message may be lost.
pub trait Peers: Send + Sync + 'static {
    fn send(&self, to: ServerId, message: PeerMessage);
}

/// The way to the master group.
pub trait Masters: Send + Sync + 'static {
    fn propose(
        &self,
        region: RegionId,
        epoch: Epoch,
        change: Change,
    ) -> BoxFuture<'static, Result<ControlResponse, Error>>;
}

impl Context {
    pub fn leases(&self) -> std::sync::MutexGuard<'_, LeaseBook> {
        self.leases.lock().expect("no holder of the lease book panics")
    }

    pub fn now(&self) -> Instant {
        self.env.now()
    }

    pub fn disk_is_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    pub fn set_disk_full(&self, full: bool) {
        self.disk_full.store(full, Ordering::Relaxed);
    }
}

/// A node's handle on a replica. Dropping it does not stop the replica: [`Replica::close`] does.
#[derive(Clone)]
pub struct Replica {
    region: RegionId,
    inbox: mpsc::Sender<Event>,
    shared: Arc<Shared>,
}

/// What others may see of a replica at any time.
struct Shared {
    seen: Mutex<Seen>,
}

#[derive(Clone)]
struct Seen {
    report: ReplicaReport,
    size: Size,
    could_resign: bool,
}

/// For status and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub keys: u64,
    pub index_bytes: u64,
}

pub(super) enum Event {
    Peer { from: ServerId, epoch: Epoch, body: PeerBody },
    Assigned(Box<RegionInfo>),
    Read { request: ReadRequest, reply: Reply },
    Write { request: WriteRequest, reply: Reply },
    Scan { request: ScanRequest, reply: Reply },
    HandOver { epoch: Epoch, to: ServerId },
    Resign,
    Answered { change: Change, answer: Result<ControlResponse, Error> },
    Built { number: u64, store: Box<Result<Store, StorageError>> },
    Settled { number: u64, settled: Settled },
    Scanned { number: u64, wall_ms: u64, scanned: Result<Scanned, StorageError>, reply: Reply },
    Compacting { attempt: u64, progress: Box<Progress> },
    Sealed(Result<Sealed, StorageError>),
    Opened { done: oneshot::Sender<()> },
    Close { destroy: bool, done: oneshot::Sender<()> },
}

pub(super) type Reply = oneshot::Sender<Response>;

impl Replica {
    /// Opens (or makes) the replica's log and starts its task. `expected`: this server has had the replica before, so that
    /// a missing folder is a loss and not a beginning.
    pub fn start(context: Arc<Context>, info: RegionInfo, expected: bool) -> Replica {
        let region = info.config.region;
        let (sender, inbox) = mpsc::channel(limits::INBOX_EVENTS_MAX);
        let shared = Arc::new(Shared {
            seen: Mutex::new(Seen { report: ReplicaReport::idle(region), size: Size::default(), could_resign: false }),
        });
        let replica = Replica { region, inbox: sender.clone(), shared: shared.clone() };
        let env = context.env.clone();
        let outbox = sender.downgrade();
        env.spawn(
            "replica",
            async move { Driver::open(context, info, expected, inbox, outbox, shared).await.run().await },
        );
        replica
    }

    pub fn region(&self) -> RegionId {
        self.region
    }

    pub fn report(&self) -> ReplicaReport {
        self.seen().report.clone()
    }

    pub fn size(&self) -> Size {
        self.seen().size
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.shared.seen.lock().expect("no holder panics")
    }

    /// A message of another server; lost when the replica is behind.
    pub fn peer(&self, from: ServerId, epoch: Epoch, body: PeerBody) {
        let _ = self.inbox.try_send(Event::Peer { from, epoch, body });
    }

    /// What the master group says of the region. False: tell it again.
    pub fn assigned(&self, info: RegionInfo) -> bool {
        self.inbox.try_send(Event::Assigned(Box::new(info))).is_ok()
    }

    /// Waits until its log is open, or was found not to open.
    pub async fn opened(&self) {
        let (done, opened) = oneshot::channel();
        if self.inbox.send(Event::Opened { done }).await.is_ok() {
            let _ = opened.await;
        }
    }

    /// Gives the lead to some backup, if it leads and has one.
    pub fn resign(&self) {
        let _ = self.inbox.try_send(Event::Resign);
    }

    /// It leads and has a backup that could.
    pub fn could_resign(&self) -> bool {
        self.seen().could_resign
    }

    pub fn hand_over(&self, epoch: Epoch, to: ServerId) {
        let _ = self.inbox.try_send(Event::HandOver { epoch, to });
    }

    pub async fn read(&self, request: ReadRequest) -> Response {
        self.ask(|reply| Event::Read { request, reply }).await
    }

    pub async fn write(&self, request: WriteRequest) -> Response {
        self.ask(|reply| Event::Write { request, reply }).await
    }

    pub async fn scan(&self, request: ScanRequest) -> Response {
        self.ask(|reply| Event::Scan { request, reply }).await
    }

    async fn ask(&self, event: impl FnOnce(Reply) -> Event) -> Response {
        let (reply, answer) = oneshot::channel();
        if self.inbox.send(event(reply)).await.is_err() {
            return Response::Error(Error::new(ErrorCode::Fenced, "the region is closed here"));
        }
        answer.await.unwrap_or_else(|_| Response::Error(Error::new(ErrorCode::Unknown, "the region closed meanwhile")))
    }

    /// Stops the replica: its log is flushed and marked as cleanly closed, or with `destroy` its data are deleted.
    pub async fn close(&self, destroy: bool) {
        let (done, closed) = oneshot::channel();
        if self.inbox.send(Event::Close { destroy, done }).await.is_ok() {
            let _ = closed.await;
        }
    }
}

/// The folder of a region's log.
pub fn folder(region: RegionId) -> String {
    format!("regions/{:016x}", region.0)
}

/// Deletes all that a server holds of a region.
pub async fn destroy(env: &Env, region: RegionId) -> Result<(), StorageError> {
    probe::destroyed(region);
    storage::destroy(env, &folder(region)).await
}

pub(super) struct Driver {
    pub(super) context: Arc<Context>,
    pub(super) info: RegionInfo,
    pub(super) role: Role,
    /// `None` while what the folder holds cannot be trusted.
    pub(super) log: Option<Log>,
    /// This replica may lack records that it acknowledged: it must not count as in sync.
    pub(super) doubtful: bool,
    /// The epoch that it had taken up when the doubt arose.
    doubted_at: Epoch,
    /// The newest configuration that it knew of then.
    doubted_in: Epoch,
    inbox: mpsc::Receiver<Event>,
    outbox: mpsc::WeakSender<Event>,
    shared: Arc<Shared>,
    writing: Option<Task<Result<Written, StorageError>>>,
    sealing: bool,
    pub(super) compacting: Compacting,
    /// Indexes that were begun to be built.
    pub(super) stores_begun: u64,
    next_tick: Instant,
    /// What wakes the task for the next tick. It may ring before that.
    alarm: Option<(Instant, Sleep)>,
    published_at: Instant,
    flushed_at: Instant,
    asked_at: Option<Instant>,
    /// The disk is so full that the newest epoch could not be noted; to be tried again.
    epoch_waits: bool,
    closing: Option<(bool, oneshot::Sender<()>)>,
}

pub(super) enum Role {
    /// Has seen no configuration yet in this run.
    Idle,
    Following(Following),
    Leading(Box<Leading>),
}

enum Next {
    Event(Event),
    Written(Result<Written, StorageError>),
    Tick,
    /// The turn's end is all there is to do.
    Step,
    Closed,
}

/// Completes when all other tasks had a turn, if there is a step to be done.
async fn step(wanted: bool) {
    if !wanted {
        return std::future::pending().await;
    }
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

impl Driver {
    async fn open(
        context: Arc<Context>,
        info: RegionInfo,
        expected: bool,
        inbox: mpsc::Receiver<Event>,
        outbox: mpsc::WeakSender<Event>,
        shared: Arc<Shared>,
    ) -> Driver {
        let now = context.now();
        let mut driver = Driver {
            context,
            role: Role::Idle,
            log: None,
            doubtful: false,
            doubted_at: Epoch(0),
            doubted_in: Epoch(0),
            inbox,
            outbox,
            shared,
            writing: None,
            sealing: false,
            compacting: Compacting::new(now),
            stores_begun: 0,
            next_tick: now,
            alarm: None,
            published_at: now,
            flushed_at: now,
            asked_at: None,
            epoch_waits: false,
            closing: None,
            info,
        };
        driver.open_log(expected).await;
        let info = driver.info.clone();
        driver.assigned(info).await;
        driver
    }

    async fn open_log(&mut self, expected: bool) {
        let region = self.region();
        match Log::open(&self.context.env, &folder(region), region, self.context.log.clone()).await {
            Ok((log, recovery)) => {
                let lost_folder = expected && log.epoch() == Epoch(0);
                let lost_tail = recovery.power_loss_suspected && !self.acknowledges_flushed();
                if lost_folder || lost_tail {
                    tracing::warn!(%region, lost_folder, lost_tail, "replica may lack acknowledged records");
                    self.doubt();
                    self.doubted_at = log.epoch();
                }
                probe::opened(region, log.epoch(), log.head().mark);
                self.log = Some(log);
            }
            Err(error) => {
                tracing::warn!(%region, %error, "replica cannot be opened; it will be copied anew from the primary");
                self.doubt();
            }
        }
    }

    fn doubt(&mut self) {
        self.doubtful = true;
        self.doubted_in = self.info.config.epoch;
    }

    pub(super) fn region(&self) -> RegionId {
        self.info.config.region
    }

    /// What this table acknowledges has been flushed (and not just written).
    pub(super) fn acknowledges_flushed(&self) -> bool {
        self.info.spec.durability == crate::region::Durability::Synced
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.log.as_ref().map_or(Epoch(0), Log::epoch)
    }

    async fn run(mut self) {
        loop {
            match self.next().await {
                Next::Event(event) => {
                    if matches!(event, Event::Write { .. }) {
                        // Whoever is about to write shares the frame.
                        step(true).await;
                    }
                    self.turn(event).await
                }
                Next::Written(result) => self.written(result).await,
                Next::Tick | Next::Step => {}
                Next::Closed => return self.closed().await,
            }
            // However much there is to do, time passes too.
            if self.context.now() >= self.next_tick {
                self.tick().await;
                self.next_tick = self.context.now() + self.tick_interval();
            }
            self.finish_turn().await;
            if self.closing.is_some() {
                return self.closed().await;
            }
        }
    }

    async fn next(&mut self) -> Next {
        let now = self.context.now();
        self.next_tick = self.next_tick.min(now + self.tick_interval());
        // One that rings too early is cheaper than a new one for each turn.
        if self.alarm.as_ref().is_none_or(|(at, _)| *at > self.next_tick) {
            self.alarm = Some((self.next_tick, self.context.env.sleep(self.next_tick.since(now))));
        }
        // What is to be done in steps goes on, but others come first.
        let step = step(self.has_compaction_step());
        let (_, alarm) = self.alarm.as_mut().expect("set above");
        let writing = async {
            match &mut self.writing {
                Some(task) => task.await.unwrap_or(Err(StorageError::Fenced)),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            result = writing => { self.writing = None; Next::Written(result) }
            event = self.inbox.recv() => event.map_or(Next::Closed, Next::Event),
            () = alarm => { self.alarm = None; Next::Tick }
            () = step => Next::Step,
        }
    }

    /// A replica with nothing to wait for is woken seldom.
    fn tick_interval(&self) -> Duration {
        match &self.role {
            Role::Leading(leading) if leading.is_quiet() && !self.owes_flush() => self.context.timing.suspect / 2,
            Role::Leading(_) => self.context.timing.flush.min(self.context.timing.probe_retry),
            Role::Following(_) | Role::Idle => self.context.timing.probe_retry,
        }
    }

    /// Handles `first` and what else waits.
    async fn turn(&mut self, first: Event) {
        let mut next = Some(first);
        for _ in 0..limits::TURN_EVENTS_MAX {
            let Some(event) = next else { return };
            self.handle(event).await;
            if self.closing.is_some() || self.turn_is_full() {
                return;
            }
            next = self.inbox.try_recv().ok();
        }
        if let Some(event) = next {
            self.handle(event).await;
        }
    }

    fn turn_is_full(&self) -> bool {
        matches!(&self.role, Role::Leading(leading) if leading.gathered_bytes() >= limits::FRAME_GATHER_BYTES_MAX)
    }

    async fn handle(&mut self, event: Event) {
        match event {
            Event::Peer { from, epoch, body } => self.peer(from, epoch, body).await,
            Event::Assigned(info) => self.assigned(*info).await,
            Event::Read { request, reply } => self.read(request, reply),
            Event::Write { request, reply } => self.gather(request, reply),
            Event::Scan { request, reply } => self.scan(request, reply),
            Event::HandOver { epoch, to } => self.hand_over(epoch, to).await,
            Event::Resign => self.resign().await,
            Event::Answered { change, answer } => self.answered(change, answer).await,
            Event::Built { number, store } => self.built(number, *store).await,
            Event::Settled { number, settled } => self.settled(number, settled),
            Event::Scanned { number, wall_ms, scanned, reply } => self.scanned(number, wall_ms, scanned, reply),
            Event::Compacting { attempt, progress } => self.compaction_went_on(attempt, *progress).await,
            Event::Sealed(sealed) => self.sealed(sealed),
            Event::Opened { done } => drop(done.send(())),
            Event::Close { destroy, done } => self.closing = Some((destroy, done)),
        }
    }

    async fn peer(&mut self, from: ServerId, epoch: Epoch, body: PeerBody) {
        if let (PeerBody::Stale, true) = (&body, epoch > self.epoch()) {
            // The master group's next assignment says more; until then nothing can be committed here anyway.
            return;
        }
        match &self.role {
            Role::Leading(_) => self.peer_of_primary(from, epoch, body).await,
            Role::Following(_) => self.peer_of_follower(from, epoch, body).await,
            Role::Idle => {}
        }
    }

    // ---- configurations ----

    /// The master group's word on the region. May be old news.
    async fn assigned(&mut self, info: RegionInfo) {
        let config = info.config.clone();
        if config.epoch >= self.info.config.epoch {
            self.info = info;
        }
        self.adopt(config).await;
    }

    /// Takes up a configuration: persists its epoch, then acts in it.
    pub(super) async fn adopt(&mut self, config: RegionConfig) {
        let me = self.context.me;
        if config.epoch < self.epoch() || (config.epoch == self.epoch() && !matches!(self.role, Role::Idle)) {
            return;
        }
        if config.epoch > self.info.config.epoch {
            self.info.config = config.clone();
        }
        if !self.repair_if_free(&config).await {
            return self.publish();
        }
        let Some(log) = &mut self.log else { return };
        let newer = config.epoch > log.epoch();
        if newer {
            let persisted = log.persist_epoch(config.epoch).await;
            self.epoch_waits = matches!(persisted, Err(StorageError::Full { .. }));
            match persisted {
                Ok(()) => {}
                Err(_) if self.epoch_waits => return,
                Err(error) => return self.distrust(&error).await,
            }
            probe::adopted(config.region, config.epoch);
        }
        let leads = config.is_primary(me);
        let passive = config.is_in_sync(me) && !leads && !self.doubtful;
        let now = self.context.now();
        self.context.leases().promise(config.region, config.epoch, config.primary, passive, now);
        match (&mut self.role, leads && newer && !self.doubtful) {
            (Role::Leading(_), true) => self.keep_lead(config).await,
            (_, true) => self.take_lead(config).await,
            (Role::Leading(_), false) => self.give_up_lead(config),
            (Role::Following(following), false) => following.adopted(config),
            (Role::Idle, false) => self.role = Role::Following(Following::new(config)),
        }
        self.publish();
    }

    /// A replica in doubt may start anew once nobody counts on what it held: when it is out of the in-sync set and, as the
    /// primary may be about to admit a learner for what that acknowledged, an epoch after the one in which the doubt arose. It
    /// is trusted again when an operator said that what it holds is all there is.
    async fn repair_if_free(&mut self, config: &RegionConfig) -> bool {
        let me = self.context.me;
        if !self.doubtful {
            return true;
        }
        if config.is_learner(me) {
            if config.epoch > self.doubted_in {
                if self.log.is_none() {
                    self.begin_anew().await;
                }
                self.doubtful = self.log.is_none();
            }
        } else if !config.is_in_sync(me) {
            self.doubtful = self.log.is_none();
        } else if config.in_sync == [me] && self.log.is_some() && config.loss_accepted > self.doubted_at {
            tracing::warn!(region = %config.region, "an operator accepted the loss of what this replica does not hold");
            self.doubtful = false;
        }
        self.log.is_some()
    }

    /// The last replica's log failed, and nobody has another: whatever was not known to be flushed is read back, checked,
    /// written to new places and flushed there by the recovery. Damage keeps it closed.
    async fn open_again(&mut self) {
        self.asked_at = Some(self.context.now());
        self.doubtful = false;
        self.open_log(true).await;
        if self.log.is_some() && !self.doubtful {
            tracing::warn!(region = %self.region(), "the last replica of the region was opened again");
            // The log may have failed over this very epoch, of which nobody will tell again.
            self.adopt(self.info.config.clone()).await;
        }
        self.publish();
    }

    /// Deletes what the folder holds and opens an empty log.
    async fn begin_anew(&mut self) {
        let region = self.region();
        self.give_up_compaction();
        self.quiesce().await;
        self.log = None;
        if let Err(error) = destroy(&self.context.env, region).await {
            tracing::warn!(%region, %error, "replica's folder cannot be deleted");
            return;
        }
        match Log::open(&self.context.env, &folder(region), region, self.context.log.clone()).await {
            Ok((log, _)) => self.log = Some(log),
            Err(error) => tracing::warn!(%region, %error, "replica cannot begin anew"),
        }
    }

    /// The log failed: nothing it says is acknowledged from now on, and this replica leaves the in-sync set.
    pub(super) async fn distrust(&mut self, error: &StorageError) {
        tracing::warn!(region = %self.region(), %error, "replica fences its log and leaves the configuration");
        self.doubt();
        self.give_up_compaction();
        if let Some(log) = self.log.take() {
            log.give_up();
        }
        self.writing = None;
        let config = self.info.config.clone();
        self.context.leases().disclaim(config.region);
        self.context.leases().stand(config.region, config.epoch);
        if matches!(self.role, Role::Leading(_)) {
            self.give_up_lead(config);
        }
        self.publish();
        self.ask_to_leave();
    }

    // ---- the master group ----

    /// Asks the master group for a change from the epoch this replica is at.
    pub(super) fn ask(&mut self, change: Change) {
        let (region, epoch) = (self.region(), self.info.config.epoch);
        self.asked_at = Some(self.context.now());
        let answer = self.context.masters.propose(region, epoch, change.clone());
        self.beside("ask-master", async move { Event::Answered { change, answer: answer.await } });
    }

    /// Does something beside this task, which hears of its end.
    pub(super) fn beside(&self, name: &'static str, work: impl Future<Output = Event> + Send + 'static) {
        let outbox = self.outbox.clone();
        self.context.env.spawn(name, async move {
            let event = work.await;
            if let Some(outbox) = outbox.upgrade() {
                let _ = outbox.send(event).await;
            }
        });
    }

    async fn answered(&mut self, change: Change, answer: Result<ControlResponse, Error>) {
        match answer {
            Ok(ControlResponse::Changed(config)) => self.adopt(config).await,
            Ok(ControlResponse::NotChanged { current, reason }) => {
                // While the disk has no room for a newer epoch, what was asked may have come true in it.
                let noted = if env::mutants::active("M20") { self.info.config.epoch } else { self.epoch() };
                if current.epoch > noted {
                    self.adopt(current).await;
                } else if current.epoch == self.info.config.epoch {
                    tracing::debug!(region = %self.region(), ?change, reason, "the master group refused a change");
                    self.refused(&change);
                }
            }
            Ok(other) => tracing::error!(?other, "a master answered a proposal with something else"),
            Err(error) => tracing::debug!(region = %self.region(), %error, "the master group did not answer"),
        }
    }

    fn ask_to_leave(&mut self) {
        let me = self.context.me;
        if self.info.config.is_member(me) && self.info.config.in_sync != [me] {
            self.ask(Change::Leave { server: me });
        }
    }

    fn may_ask(&self) -> bool {
        self.asked_at.is_none_or(|asked| self.context.now().since(asked) >= self.context.timing.ask_retry)
    }

    /// A follower that may have to lead, or to leave.
    async fn tick_unled(&mut self) {
        let (me, config, now) = (self.context.me, self.info.config.clone(), self.context.now());
        if !self.may_ask() {
            return;
        }
        if self.doubtful && config.in_sync == [me] && self.log.is_none() {
            return self.open_again().await;
        }
        if self.doubtful {
            return self.ask_to_leave();
        }
        if !config.is_in_sync(me) {
            return;
        }
        let restarted = config.is_primary(me);
        let expired = self.context.leases().expired(config.region, config.epoch, now);
        if config.epoch == self.epoch() && (restarted || expired) {
            self.context.leases().stand(config.region, config.epoch);
            self.ask(Change::Promote { candidate: me });
        }
    }

    // ---- the log's writer ----

    /// Writes what was appended, unless a write is under way; beside this task where that waits.
    async fn write_log(&mut self) {
        if self.write_at_once() {
            return self.log_is_durable().await;
        }
        self.start_write();
    }

    /// Writes what was appended if it need not be flushed and nothing has to be waited for; whether it did.
    pub(super) fn write_at_once(&mut self) -> bool {
        if self.writing.is_some() || self.acknowledges_flushed() || self.flush_is_due() {
            return false;
        }
        let Some((log, job)) = self.log.as_mut().and_then(|log| log.take_unwritten().map(|job| (log, job))) else {
            return false;
        };
        match job.try_now() {
            Ok(written) => {
                log.finish_write(written);
                true
            }
            Err(job) => {
                self.writing = Some(self.context.env.spawn("write-log", job.run(false)));
                false
            }
        }
    }

    /// Starts writing what was appended, unless a write is under way.
    pub(super) fn start_write(&mut self) {
        let flush = self.acknowledges_flushed() || self.flush_is_due();
        let Some(log) = &mut self.log else { return };
        if self.writing.is_some() {
            return;
        }
        let job = log.take_unwritten().or_else(|| if flush { log.take_unflushed() } else { None });
        if let Some(job) = job {
            if flush {
                self.flushed_at = self.context.env.now();
            }
            self.writing = Some(self.context.env.spawn("write-log", job.run(flush)));
        }
    }

    fn flush_is_due(&self) -> bool {
        self.context.now().since(self.flushed_at) >= self.context.timing.flush
    }

    /// What was written has still to be flushed.
    fn owes_flush(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.durable() != log.head().mark)
    }

    async fn written(&mut self, result: Result<Written, StorageError>) {
        let Some(log) = &mut self.log else { return };
        match result {
            Ok(written) => {
                log.finish_write(written);
                self.seal();
                self.log_is_durable().await;
            }
            Err(error) => self.distrust(&error).await,
        }
    }

    /// Writes the hint of a segment that is full, beside this task; one at a time.
    fn seal(&mut self) {
        if self.sealing {
            return;
        }
        if let Some(job) = self.log.as_ref().and_then(Log::take_seal) {
            self.sealing = true;
            self.beside("seal", async move { Event::Sealed(job.run().await) });
        }
    }

    fn sealed(&mut self, sealed: Result<Sealed, StorageError>) {
        self.sealing = false;
        match (sealed, &mut self.log) {
            (Ok(sealed), Some(log)) => {
                log.finish_seal(sealed);
                self.seal();
            }
            (Ok(_), None) => {}
            // Without a hint the segment is read when an index is made; nothing is lost.
            (Err(error), _) => tracing::warn!(region = %self.region(), %error, "cannot write a hint"),
        }
    }

    /// Waits until no write is under way.
    pub(super) async fn quiesce(&mut self) {
        if let Some(task) = self.writing.take() {
            let result = self.write_ends(task).await;
            Box::pin(self.written(result)).await;
        }
    }

    /// A write that waits for room is given up: this task has something to do that cannot wait for it.
    async fn write_ends(&mut self, mut task: Task<Result<Written, StorageError>>) -> Result<Written, StorageError> {
        loop {
            tokio::select! {
                biased;
                result = &mut task => return result.unwrap_or(Err(StorageError::Fenced)),
                () = self.context.env.sleep(storage::limits::FULL_DISK_RETRY) => {
                    if let Some(log) = self.log.as_ref().filter(|log| log.is_out_of_space()) {
                        log.give_up();
                    }
                }
            }
        }
    }

    /// Waits until all that was appended is written.
    pub(super) async fn write_everything(&mut self) {
        self.quiesce().await;
        while self.log.as_ref().is_some_and(|log| log.written() != log.head().mark) {
            self.write_log().await;
            self.quiesce().await;
        }
    }

    /// Waits until all that was appended is flushed, if it can be.
    pub(super) async fn flush_everything(&mut self) {
        self.write_everything().await;
        let job = self.log.as_mut().filter(|log| log.durable() != log.head().mark).and_then(Log::take_unflushed);
        if let Some(job) = job {
            self.writing = Some(self.context.env.spawn("write-log", job.run(true)));
            self.quiesce().await;
        }
    }

    /// The end of what this replica may acknowledge.
    pub(super) fn acknowledgeable(&self) -> Option<Mark> {
        let log = self.log.as_ref()?;
        Some(if self.acknowledges_flushed() { log.durable() } else { log.written() })
    }

    async fn log_is_durable(&mut self) {
        let Some(durable) = self.acknowledgeable() else { return };
        probe::durable(self.region(), self.epoch(), durable);
        match &self.role {
            Role::Leading(_) => self.primary_is_durable(durable).await,
            Role::Following(_) => self.acknowledge(durable),
            Role::Idle => {}
        }
    }

    // ---- turns ----

    async fn tick(&mut self) {
        if std::mem::take(&mut self.epoch_waits) {
            self.adopt(self.info.config.clone()).await;
        }
        match &self.role {
            Role::Leading(_) => self.tick_primary().await,
            Role::Following(_) | Role::Idle => {
                self.tick_waiting_piece();
                self.tick_unled().await;
            }
        }
    }

    async fn finish_turn(&mut self) {
        if matches!(self.role, Role::Leading(_)) {
            self.append_gathered().await;
        }
        self.take_waiting_piece().await;
        self.go_on_compacting().await;
        self.write_log().await;
        self.publish_now_and_then();
    }

    pub(super) fn send(&self, to: ServerId, body: PeerBody) {
        let (region, epoch) = (self.region(), self.epoch());
        tracing::trace!(%region, %epoch, %to, %body, "send");
        self.context.peers.send(to, PeerMessage::Region { region, epoch, body });
    }

    /// [`Driver::publish`] where that is due: what others see of a busy replica may be a little old, but not its state.
    fn publish_now_and_then(&mut self) {
        let due = self.published_at + limits::PUBLISH_EVERY;
        let (state, epoch) = (self.state(), self.epoch());
        let is_news = {
            let seen = self.seen();
            seen.report.state != state || seen.report.epoch != epoch
        };
        if is_news || self.context.now() >= due {
            self.publish();
        } else {
            self.next_tick = self.next_tick.min(due);
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.shared.seen.lock().expect("no holder panics")
    }

    fn state(&self) -> ReplicaState {
        let me = self.context.me;
        match &self.role {
            _ if self.doubtful => ReplicaState::Doubtful,
            Role::Leading(leading) if leading.serves() => ReplicaState::Serving,
            Role::Leading(_) => ReplicaState::Reconciling,
            Role::Following(following) if following.config().is_in_sync(me) => ReplicaState::Backup,
            Role::Following(following) if following.config().is_learner(me) => ReplicaState::Learner,
            Role::Following(_) | Role::Idle => ReplicaState::Former,
        }
    }

    /// Makes what others see of this replica current.
    fn publish(&mut self) {
        self.published_at = self.context.now();
        let state = self.state();
        let durable = self.log.as_ref().map_or(Seqno(0), |log| log.durable().seqno);
        let (keys, index_bytes) = match &self.role {
            Role::Leading(leading) => leading.size(),
            _ => (0, 0),
        };
        let space = self.space();
        let epoch = self.epoch();
        let mut seen = self.seen();
        seen.report.epoch = epoch;
        seen.report.state = state;
        seen.report.durable = durable;
        seen.report.space = space;
        seen.could_resign = matches!(&self.role, Role::Leading(leading) if leading.config().in_sync.len() > 1);
        seen.size = Size { keys, index_bytes };
    }

    fn space(&self) -> Space {
        let Some(log) = &self.log else { return Space::default() };
        let live_bytes = match &self.role {
            Role::Leading(leading) => leading.live_bytes(log),
            Role::Following(_) | Role::Idle => None,
        };
        Space {
            log_bytes: log.stats().bytes,
            live_bytes,
            compactions: self.compacting.finished(),
            compacting: self.compacting.is_under_way(),
        }
    }

    async fn closed(mut self) {
        let region = self.region();
        self.give_up_compaction();
        self.context.leases().forget(region);
        self.quiesce().await;
        let (for_good, done) = match self.closing.take() {
            Some((destroy, done)) => (destroy, Some(done)),
            None => (false, None),
        };
        self.role = Role::Idle;
        let result = match self.log.take() {
            _ if for_good => destroy(&self.context.env, region).await,
            Some(log) => log.close().await,
            None => Ok(()),
        };
        if let Err(error) = result {
            tracing::warn!(%region, %error, "replica did not close cleanly");
        }
        if let Some(done) = done {
            let _ = done.send(());
        }
    }
}
