//! A replica's driver while it leads: client requests, the store over the log, and what the pure [`Primary`] decides.

use crate::protocol::{
    Error, ErrorCode, KeyForm, ReadRequest, RequestId, Response, ScanRequest, Scanned, WriteOperation, WriteOutcome,
    WriteRequest,
};
use crate::region::{Change, Epoch, RegionConfig, Salt, Seqno, ServerId};
use crate::replication::following::Following;
use crate::replication::message::PeerBody;
use crate::replication::operate::{self, Effect};
use crate::replication::primary::{Action, LogState, Phase, Primary, Sent};
use crate::replication::replica::{Driver, Event, Reply, Role};
use crate::replication::{limits, probe};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use storage::index::IndexCursor;
use storage::{
    Compression, Entry, Frame, Log, Lookup, Mark, OwnedRecord, Record, ScanCursor, Scanned as StoreScanned, Seen,
    Settled, StorageError, Store, View,
};

/// What a primary holds beside its log.
pub(super) struct Leading {
    primary: Primary,
    /// `None` until its index is built, which goes on while the replicas are brought to one log.
    store: Option<Store>,
    /// Answers that wait for the commit of a record.
    waiting: BTreeMap<Seqno, Vec<(Reply, Response)>>,
    waiting_count: usize,
    /// A frame that is written, which is all that its commit takes, and that the store has not got yet.
    fresh: Option<Frame>,
    /// Writes of this turn, to become one frame.
    gathered: Vec<(WriteRequest, Reply)>,
    gathered_bytes: usize,
    /// The latest wall time that anything here was judged by: an expired record never comes back.
    region_time_ms: u64,
    /// Of the store, or of the one that is being built: what concerns an earlier one is of no use.
    store_number: u64,
}

impl Leading {
    pub(super) fn config(&self) -> &RegionConfig {
        self.primary.config()
    }

    pub(super) fn serves(&self) -> bool {
        self.primary.phase() == Phase::Serving && self.store.is_some()
    }

    /// The records by key, of a primary that serves.
    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("nothing is read or written before the index is built")
    }

    /// The store, if its index is built.
    pub(super) fn built_store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Bytes of the records that are needed, once that is known.
    pub(super) fn live_bytes(&self, log: &Log) -> Option<u64> {
        self.store.as_ref().map(|store| store.space(log).live_bytes)
    }

    pub(super) fn gathered_bytes(&self) -> usize {
        self.gathered_bytes
    }

    /// Keys in the index, and the index's bytes.
    pub(super) fn size(&self) -> (u64, u64) {
        let store = self.store.as_ref();
        store.map_or((0, 0), |store| (store.len() + store.pending_len() as u64, store.memory_bytes() as u64))
    }

    /// Nothing is under way that a tick would move on.
    pub(super) fn is_quiet(&self) -> bool {
        self.serves() && self.waiting.is_empty() && self.primary.is_settled()
    }

    fn hold(&mut self, until: Seqno, reply: Reply, response: Response) {
        self.waiting_count += 1;
        self.waiting.entry(until).or_default().push((reply, response));
    }

    fn answer(&mut self, committed: Seqno) {
        let still_waiting = self.waiting.split_off(&committed.next());
        for (reply, response) in std::mem::replace(&mut self.waiting, still_waiting).into_values().flatten() {
            self.waiting_count -= 1;
            let _ = reply.send(response);
        }
    }
}

impl Driver {
    fn leading(&mut self) -> &mut Leading {
        match &mut self.role {
            Role::Leading(leading) => leading,
            Role::Following(_) | Role::Idle => unreachable!("called only while leading"),
        }
    }

    // ---- taking and leaving the lead ----

    pub(super) async fn take_lead(&mut self, config: RegionConfig) {
        self.write_everything().await;
        if env::mutants::active("M08") {
            self.drop_uncommitted().await;
        }
        if self.log.is_none() {
            return;
        }
        let now = self.context.now();
        let not_before = self.context.leases().free_from(config.region);
        let durable = self.acknowledgeable().expect("the log is open");
        let log = self.log.as_mut().expect("checked above");
        let state = LogState { head: log.head(), durable, committed: log.committed() };
        let (me, min_in_sync) = (self.context.me, self.info.spec.min_in_sync);
        let primary = Primary::new(me, config, min_in_sync, self.context.timing, state, not_before, now);
        self.role = Role::Leading(Box::new(Leading {
            primary,
            store: None,
            waiting: BTreeMap::new(),
            waiting_count: 0,
            fresh: None,
            gathered: Vec::new(),
            gathered_bytes: 0,
            region_time_ms: 0,
            store_number: 0,
        }));
        self.build_index();
        self.claim();
        self.tick_primary().await;
    }

    /// Makes the store of the log as it is now, beside this task. Until it is there nothing is read or written.
    pub(super) fn build_index(&mut self) {
        self.stores_begun += 1;
        let number = self.stores_begun;
        let (Role::Leading(leading), Some(log)) = (&mut self.role, &self.log) else { return };
        (leading.store, leading.store_number) = (None, number);
        let (building, turns) = (Store::build(log), self.context.index_builds.clone());
        self.beside("build-index", async move {
            let _turn = turns.acquire_owned().await;
            Event::Built { number, store: Box::new(building.await) }
        });
    }

    pub(super) async fn built(&mut self, number: u64, store: Result<Store, StorageError>) {
        let (Role::Leading(leading), Some(log)) = (&mut self.role, &self.log) else { return };
        if leading.store_number != number {
            return;
        }
        match store {
            Ok(mut store) => {
                store.committed(log.committed());
                leading.store = Some(store);
                self.settle();
            }
            Err(error) => self.distrust(&error).await,
        }
    }

    /// A planted bug: what a new primary holds may have been acknowledged, whether or not it was told so.
    async fn drop_uncommitted(&mut self) {
        let Some(log) = &mut self.log else { return };
        if let Some(&committed) = log.standing().first()
            && let Ok(Some(position)) = log.find(committed).await
        {
            let _ = log.truncate(position).await;
        }
    }

    pub(super) async fn keep_lead(&mut self, config: RegionConfig) {
        let now = self.context.now();
        let mut actions = Vec::new();
        self.leading().primary.configured(config, now, &mut actions);
        self.claim();
        self.act(actions).await;
    }

    pub(super) fn give_up_lead(&mut self, config: RegionConfig) {
        self.context.leases().disclaim(config.region);
        self.give_up_compaction();
        if let (Some(heir), true) = (config.primary, config.epoch == self.epoch()) {
            // After a hand-over it may not know yet; otherwise it does.
            self.send(heir, PeerBody::Probe { config: config.clone() });
        }
        let Role::Leading(leading) = std::mem::replace(&mut self.role, Role::Following(Following::new(config))) else {
            return;
        };
        for (reply, _) in leading.waiting.into_values().flatten() {
            let _ = reply.send(unknown("another replica leads now; the write may have been taken over"));
        }
        for (_, reply) in leading.gathered {
            let _ = reply.send(fenced());
        }
    }

    /// Tells the lease book from whom a lease is needed.
    fn claim(&mut self) {
        let (me, now) = (self.context.me, self.context.now());
        let primary = &self.leading().primary;
        let (config, joining) = (primary.config().clone(), primary.joining());
        let backups = config.in_sync.iter().copied().filter(|&member| member != me);
        self.context.leases().claim(config.region, config.epoch, backups, joining, now);
    }

    pub(super) async fn hand_over(&mut self, epoch: Epoch, to: ServerId) {
        if epoch != self.epoch() || !matches!(self.role, Role::Leading(_)) {
            return;
        }
        let now = self.context.now();
        self.append_gathered().await;
        let mut actions = Vec::new();
        self.leading().primary.hand_over(to, now, &mut actions);
        self.act(actions).await;
    }

    /// Gives the lead to the backup that is furthest.
    pub(super) async fn resign(&mut self) {
        if let Role::Leading(leading) = &self.role
            && let Some(to) = leading.primary.furthest_backup()
        {
            self.hand_over(self.epoch(), to).await;
        }
    }

    // ---- what the pure machine decides ----

    pub(super) async fn peer_of_primary(&mut self, from: ServerId, epoch: Epoch, body: PeerBody) {
        if epoch < self.epoch() {
            return self.send(from, PeerBody::Stale);
        }
        if epoch > self.epoch() {
            if let PeerBody::Probe { config } = body {
                self.adopt(config).await;
            }
            return;
        }
        let now = self.context.now();
        let mut actions = Vec::new();
        self.leading().primary.received(from, body, now, &mut actions);
        self.act(actions).await;
    }

    pub(super) async fn primary_is_durable(&mut self, durable: Mark) {
        let now = self.context.now();
        let mut actions = Vec::new();
        self.leading().primary.durable(durable, now, &mut actions);
        self.act(actions).await;
    }

    pub(super) async fn tick_primary(&mut self) {
        let now = self.context.now();
        let (region, suspect) = (self.region(), self.context.timing.suspect);
        let since = self.leading().primary.since();
        let silent = self.context.leases().silent(region, since, suspect, now);
        let mut actions = Vec::new();
        self.leading().primary.tick(&silent, now, &mut actions);
        self.act(actions).await;
    }

    pub(super) fn refused(&mut self, change: &Change) {
        if let Role::Leading(leading) = &mut self.role {
            leading.primary.refused(change);
            self.claim();
        }
    }

    async fn act(&mut self, actions: Vec<Action>) {
        let mut queue = VecDeque::from(actions);
        while let Some(action) = queue.pop_front() {
            if !matches!(self.role, Role::Leading(_)) {
                return;
            }
            let mut more = Vec::new();
            self.act_on(action, &mut more).await;
            queue.extend(more);
        }
    }

    async fn act_on(&mut self, action: Action, more: &mut Vec<Action>) {
        match action {
            Action::Send { to, body } => self.send(to, body),
            Action::Match { from, stream, tail } => self.find_common(from, stream, &tail, more).await,
            Action::Stream { to } => self.stream(to, more).await,
            Action::Ask(change) => {
                self.claim();
                self.ask(change);
            }
            Action::Committed(seqno) => self.committed(seqno).await,
            Action::Serve => {
                let (region, epoch) = (self.region(), self.epoch());
                let committed = self.leading().primary.committed();
                tracing::info!(%region, %epoch, %committed, "serves as primary");
                probe::serves(region, epoch, committed);
            }
            Action::Released { to } => {
                let region = self.region();
                self.context.leases().disclaim(region);
                self.send(to, PeerBody::Released);
            }
        }
    }

    /// The last of a follower's marks that this log holds.
    async fn find_common(&mut self, from: ServerId, stream: u64, tail: &[Mark], more: &mut Vec<Action>) {
        let Some(log) = &self.log else { return };
        let common = match log.find_common(tail).await {
            Ok(common) => common,
            Err(error) => return Box::pin(self.distrust(&error)).await,
        };
        let now = self.context.now();
        self.leading().primary.matched(from, stream, common, now, more);
    }

    /// Sends a follower the next frames it lacks, and the commit point.
    async fn stream(&mut self, to: ServerId, more: &mut Vec<Action>) {
        let Some((stream, next)) = self.leading().primary.next_for(to) else { return };
        let Some(log) = &self.log else { return };
        let committed = log.committed();
        match log.read_chunk(next, limits::CHUNK_BYTES_MAX).await {
            Ok(chunk) => {
                let (bytes, is_piece) = (chunk.bytes, chunk.piece.is_some());
                self.send(
                    to,
                    match chunk.piece {
                        Some(piece) => PeerBody::Piece { stream, piece, bytes, committed },
                        None => PeerBody::Frames { stream, bytes, committed },
                    },
                );
                let (now, sent) = (self.context.now(), Sent { end: chunk.end, committed, is_piece });
                self.leading().primary.streamed(to, stream, sent, now, more);
            }
            Err(error) if error.is_corrupt() => Box::pin(self.distrust(&error)).await,
            Err(error) => {
                tracing::warn!(region = %self.region(), %error, "cannot read the log for a follower");
                let now = self.context.now();
                self.leading().primary.stream_failed(to, now, more);
            }
        }
    }

    /// Everything up to `seqno` is durable on every replica we commit with.
    async fn committed(&mut self, seqno: Seqno) {
        let (region, epoch) = (self.region(), self.epoch());
        let Some(log) = &mut self.log else { return };
        log.set_committed(seqno);
        let leading = self.leading();
        let fresh = leading.fresh.take_if(|frame| frame.mark().seqno <= seqno);
        if let Some(store) = &mut leading.store {
            fresh.iter().for_each(|frame| store.append_committed(frame));
            store.committed(seqno);
        }
        probe::committed(region, epoch, seqno);
        if leading.waiting.first_key_value().is_some_and(|(&first, _)| first <= seqno) {
            probe::acknowledged(region, epoch, seqno);
        }
        leading.answer(seqno);
        self.settle();
    }

    /// Moves committed records into the index, beside this task where that waits for the disk.
    fn settle(&mut self) {
        while let Some(job) = self.leading().store.as_mut().and_then(Store::settle_job) {
            match job.try_now() {
                Ok(settled) => self.leading().store().finish_settle(settled),
                Err(job) => {
                    let number = self.leading().store_number;
                    return self.beside("settle", async move { Event::Settled { number, settled: job.run().await } });
                }
            }
        }
    }

    pub(super) fn settled(&mut self, number: u64, settled: Settled) {
        // A store made since knows nothing of it.
        if let Role::Leading(leading) = &mut self.role
            && leading.store_number == number
        {
            leading.store().finish_settle(settled);
            self.move_on_if_moving();
            self.settle();
        }
    }

    // ---- compaction ----

    /// By which wall time to plan a compaction; `None` while nothing of the kind is to be appended.
    pub(super) fn plans_at(&mut self) -> Option<u64> {
        let Role::Leading(leading) = &self.role else { return None };
        let ready = leading.serves() && leading.primary.may_write();
        ready.then(|| self.region_time())
    }

    pub(super) fn store_mut(&mut self) -> Option<&mut Store> {
        match &mut self.role {
            Role::Leading(leading) => leading.store.as_mut(),
            Role::Following(_) | Role::Idle => None,
        }
    }

    // ---- reads ----

    /// Why this replica may not answer for the region at this instant.
    fn may_serve(&self) -> Result<(), Error> {
        let Role::Leading(leading) = &self.role else { return Err(not_primary()) };
        match leading.primary.phase() {
            Phase::Serving => {}
            Phase::Reconciling { .. } => return Err(Error::unavailable("the new primary is not ready yet")),
            Phase::Resigning { .. } => return Err(Error::unavailable("the lead is being handed over")),
        }
        if leading.store.is_none() {
            return Err(Error::unavailable("the new primary is building its index"));
        }
        let config = leading.primary.config();
        if self.context.leases().holds(config.region, config.epoch, self.context.now()) {
            Ok(())
        } else {
            Err(Error::unavailable("the primary holds no lease"))
        }
    }

    pub(super) fn read(&mut self, request: ReadRequest, reply: Reply) {
        let salted = self.salted(request.form, request.keys.iter());
        let keys = match &salted {
            Some(salted) => parts(salted, &request.keys),
            None => request.keys.iter().map(AsRef::as_ref).collect(),
        };
        let checked = self.may_serve().and_then(|()| request.keys.iter().try_for_each(check_key));
        if let Err(error) = checked.and_then(|()| keys.iter().try_for_each(|key| self.check_stored(key))) {
            return drop(reply.send(Response::Error(error)));
        }
        probe::read(self.region(), self.epoch());
        let wall_ms = self.region_time();
        let store = self.leading().store();
        let mut values = vec![None; keys.len()];
        let mut jobs = Vec::new();
        let found = match keys.as_slice() {
            [key] => vec![store.get(key, View::Committed)],
            keys => store.get_many(keys, View::Committed),
        };
        for (at, lookup) in found.into_iter().enumerate() {
            match lookup {
                Lookup::Ready(entry) => values[at] = live(entry, wall_ms),
                Lookup::Read(mut job) => match job.try_now() {
                    Some(Ok(entry)) => values[at] = live(entry, wall_ms),
                    Some(Err(error)) => return drop(reply.send(Response::Error(storage_error(&error)))),
                    None => jobs.push((at, job)),
                },
            }
        }
        if jobs.is_empty() {
            return drop(reply.send(Response::Read(values)));
        }
        self.context.env.spawn("read", async move {
            let _ = reply.send(finish_reads(values, jobs, wall_ms).await);
        });
    }

    fn region_time(&mut self) -> u64 {
        let wall_ms = self.context.env.clock().wall_ms();
        let leading = self.leading();
        leading.region_time_ms = leading.region_time_ms.max(wall_ms);
        leading.region_time_ms
    }

    /// The keys as they are stored, one after the other, where that is behind a salt.
    fn salted<'a>(&self, form: KeyForm, keys: impl Iterator<Item = &'a Bytes> + Clone) -> Option<Vec<u8>> {
        let salt = self.info.spec.salt.filter(|_| form == KeyForm::User)?;
        let mut salted = Vec::with_capacity(keys.clone().map(|key| Salt::BYTES + key.len()).sum());
        for key in keys {
            salted.extend_from_slice(&salt.prefix(key));
            salted.extend_from_slice(key);
        }
        Some(salted)
    }

    fn check_stored(&self, key: &[u8]) -> Result<(), Error> {
        if self.info.range.contains(key) {
            return Ok(());
        }
        Err(Error::new(ErrorCode::WrongRegion, format!("the key is not in region {}", self.region())))
    }

    pub(super) fn scan(&mut self, request: ScanRequest, reply: Reply) {
        if let Err(error) = self.may_serve() {
            return drop(reply.send(Response::Error(error)));
        }
        probe::read(self.region(), self.epoch());
        let wall_ms = self.region_time();
        let Some(cursor) = decode_cursor(&request.cursor, self.epoch()) else {
            return drop(reply.send(Response::Error(Error::invalid("the cursor is not one that a scan gave"))));
        };
        let number = self.leading().store_number;
        let job = self.leading().store().scan_job(cursor, (request.limit as usize).clamp(1, limits::SCAN_RECORDS_MAX));
        self.beside("scan", async move { Event::Scanned { number, wall_ms, scanned: job.run().await, reply } });
    }

    /// Puts what changed while a page was read in its place, and answers.
    pub(super) fn scanned(
        &mut self,
        number: u64,
        wall_ms: u64,
        scanned: Result<StoreScanned, StorageError>,
        reply: Reply,
    ) {
        let (salt, epoch) = (self.info.spec.salt, self.epoch());
        let Role::Leading(leading) = &mut self.role else { return drop(reply.send(fenced())) };
        if leading.store_number != number {
            return drop(reply.send(fenced()));
        }
        let response = match scanned.and_then(|scanned| leading.store().finish_scan(scanned)) {
            Ok(page) => {
                let user = |key: Bytes| match salt {
                    Some(salt) => salt.user_key(&key).map_or(key.clone(), |user| key.slice_ref(user)),
                    None => key,
                };
                let live = page.entries.into_iter().filter(|(_, entry)| !entry.expired(wall_ms));
                let records = live.map(|(key, entry)| (user(key), entry.value)).collect();
                Response::Scanned(Scanned { records, cursor: page.next.map(|next| encode_cursor(next, epoch)) })
            }
            Err(error) => Response::Error(storage_error(&error)),
        };
        let _ = reply.send(response);
    }

    // ---- writes ----

    /// Keeps a write for the end of the turn, or refuses it at once.
    pub(super) fn gather(&mut self, request: WriteRequest, reply: Reply) {
        if let Err(error) = self.may_take_writes() {
            return drop(reply.send(Response::Error(error)));
        }
        let leading = self.leading();
        leading.gathered_bytes += request.operations.iter().map(operation_bytes).sum::<usize>();
        leading.gathered.push((request, reply));
    }

    fn may_take_writes(&self) -> Result<(), Error> {
        self.may_serve()?;
        let Role::Leading(leading) = &self.role else { return Err(not_primary()) };
        if !leading.primary.may_write() {
            let (have, want) = (leading.primary.config().in_sync.len(), self.info.spec.min_in_sync);
            return Err(Error::unavailable(format!("{have} replicas are in sync, writes need {want}")));
        }
        if self.context.disk_is_full() || self.log.as_ref().is_some_and(Log::is_out_of_space) {
            return Err(Error::new(ErrorCode::Full, "the primary's disk is full"));
        }
        if leading.waiting_count >= limits::WAITING_WRITES_MAX {
            return Err(Error::unavailable("too many writes wait for the replicas"));
        }
        Ok(())
    }

    /// Appends the turn's writes as frames.
    pub(super) async fn append_gathered(&mut self) {
        let compression = self.info.spec.compression;
        let leading = self.leading();
        leading.gathered_bytes = 0;
        let gathered = std::mem::take(&mut leading.gathered);
        let mut frame = FrameBuilder::new(compression);
        for (request, reply) in gathered {
            if frame.bytes >= limits::FRAME_GATHER_BYTES_MAX || frame.records.len() >= FRAME_RECORDS_SOFT_MAX {
                self.append(std::mem::replace(&mut frame, FrameBuilder::new(compression))).await;
            }
            if !matches!(self.role, Role::Leading(_)) {
                drop(reply.send(fenced()));
                continue;
            }
            self.evaluate(request, reply, &mut frame).await;
        }
        if matches!(self.role, Role::Leading(_)) {
            self.append(frame).await;
        }
    }

    /// Decides what a write does, after all that came before it, and adds it to the frame.
    async fn evaluate(&mut self, request: WriteRequest, reply: Reply, frame: &mut FrameBuilder) {
        if let Some(id) = request.id
            && let Some((until, response)) = self.seen_before(id, frame)
        {
            return match until {
                Some(until) if until > self.leading().primary.committed() => {
                    self.leading().hold(until, reply, response);
                }
                Some(_) => drop(reply.send(response)),
                None => frame.answers.push((reply, response)),
            };
        }
        let (id, before) = (request.id, frame.records.len());
        match self.evaluate_all(request, frame).await {
            Ok(outcomes) => {
                if let Some(id) = id {
                    frame.remember(id, &outcomes);
                }
                frame.answers.push((reply, Response::Written(outcomes)));
            }
            Err(error) => {
                frame.cut(before);
                drop(reply.send(Response::Error(error)));
            }
        }
    }

    /// The first answer to a repeated request, and the record whose commit it waits for (`None`: it is in this frame).
    fn seen_before(&mut self, id: RequestId, frame: &FrameBuilder) -> Option<(Option<Seqno>, Response)> {
        if env::mutants::active("M15") {
            return None;
        }
        if let Some(outcomes) = frame.sessions.get(&(id.session, id.number)) {
            return Some((None, decode_outcomes(outcomes)));
        }
        match self.leading().store().sessions().check(id.session, id.number) {
            Seen::New => None,
            // What it came to may not be committed yet.
            Seen::Done(outcome) => Some((Some(self.leading().waiting_for()), decode_outcomes(&outcome))),
            Seen::Forgotten => {
                Some((Some(Seqno(0)), unknown("the request is older than what the region remembers of its session")))
            }
        }
    }

    /// Adds what the request does to the frame, some of it perhaps before an error.
    async fn evaluate_all(
        &mut self,
        request: WriteRequest,
        frame: &mut FrameBuilder,
    ) -> Result<Vec<WriteOutcome>, Error> {
        let keys = || request.operations.iter().map(WriteOperation::key);
        keys().try_for_each(check_key)?;
        let mut salted = self.salted(request.form, keys()).map(Bytes::from);
        let mut outcomes = Vec::with_capacity(request.operations.len());
        for operation in &request.operations {
            let key = match &mut salted {
                Some(salted) => salted.split_to(Salt::BYTES + operation.key().len()),
                None => operation.key().clone(),
            };
            self.check_stored(&key)?;
            check_value(operation)?;
            let current = if !operate::needs_current(operation) {
                None
            } else if let Some(value) = frame.newest(&key) {
                value
            } else {
                self.newest(&key).await?
            };
            let (effect, outcome) = operate::apply(operation, current.as_ref());
            frame.take(key, effect);
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    /// The newest value of a key, committed or not.
    async fn newest(&mut self, key: &Bytes) -> Result<Option<Bytes>, Error> {
        let wall_ms = self.region_time();
        match self.leading().store().get(key, View::Latest) {
            Lookup::Ready(entry) => Ok(live(entry, wall_ms)),
            Lookup::Read(job) => match job.run().await {
                Ok(entry) => Ok(live(entry, wall_ms)),
                Err(error) => Err(storage_error(&error)),
            },
        }
    }

    /// False when the log does not take the frame.
    pub(super) async fn append(&mut self, frame: FrameBuilder) -> bool {
        let wall_ms = self.region_time();
        let epoch = self.epoch();
        let last = self.leading().waiting_for();
        if frame.records.is_empty() {
            self.hold_answers(last, frame.answers);
            return true;
        }
        let records: Vec<Record<'_>> = frame.records.iter().map(OwnedRecord::as_record).collect();
        let Some(log) = &mut self.log else { return false };
        match log.append(epoch, wall_ms, &records) {
            Ok(appended) => {
                self.send_off(appended, frame.answers).await;
                true
            }
            Err(error) => {
                let response = Response::Error(storage_error(&error));
                for (reply, _) in frame.answers {
                    let _ = reply.send(response.clone());
                }
                false
            }
        }
    }

    /// Sees a frame that was appended on its way to where it has to be for its answers.
    async fn send_off(&mut self, frame: Frame, answers: Vec<(Reply, Response)>) {
        let end = frame.end;
        let is_alone = self.leading().primary.commits_with().is_empty();
        let written = is_alone && self.write_at_once();
        let leading = self.leading();
        match written {
            true => leading.fresh = Some(frame),
            false => leading.store().appended(&frame),
        }
        self.hold_answers(end.mark.seqno, answers);
        let (now, mut actions) = (self.context.now(), Vec::new());
        self.leading().primary.appended(end, now, &mut actions);
        if written {
            let durable = self.acknowledgeable().expect("the log is open");
            probe::durable(self.region(), self.epoch(), durable);
            self.leading().primary.durable(durable, now, &mut actions);
        } else if self.acknowledges_flushed() {
            self.start_write();
        }
        self.act(actions).await;
        if let Role::Leading(leading) = &mut self.role
            && let Some(frame) = leading.fresh.take()
        {
            leading.store().appended(&frame);
        }
    }

    /// Answers once everything up to `until` is committed.
    fn hold_answers(&mut self, until: Seqno, answers: Vec<(Reply, Response)>) {
        let leading = self.leading();
        if !answers.is_empty() {
            leading.waiting_count += answers.len();
            leading.waiting.entry(until).or_default().extend(answers);
        }
        let committed = leading.primary.committed();
        leading.answer(committed);
    }
}

impl Leading {
    /// The last record appended: what a write without effect was judged by, so that it waits for its commit.
    fn waiting_for(&self) -> Seqno {
        self.primary.head()
    }
}

/// Records of one frame are at most this many before the next frame begins (a single request may exceed it).
const FRAME_RECORDS_SOFT_MAX: usize = 16_384;

/// The writes of one frame.
#[derive(Default)]
pub(super) struct FrameBuilder {
    compression: Compression,
    records: Vec<OwnedRecord>,
    bytes: usize,
    /// Each key's newest record, from when it was first asked for one.
    newest: Option<env::HashMap<Bytes, usize>>,
    /// Outcomes, as they are kept.
    sessions: BTreeMap<(u64, u64), Bytes>,
    answers: Vec<(Reply, Response)>,
}

impl FrameBuilder {
    fn new(compression: Compression) -> FrameBuilder {
        FrameBuilder { compression, ..FrameBuilder::default() }
    }

    /// A frame with that one record, which nobody waits for.
    pub(super) fn of(record: OwnedRecord) -> FrameBuilder {
        let mut frame = FrameBuilder::default();
        frame.push(record);
        frame
    }

    fn take(&mut self, key: Bytes, effect: Effect) {
        match effect {
            Effect::Put { value, expiry_ms } => {
                let (value, compression) = self.compression.pack(value);
                self.push(OwnedRecord::Put { key, value, compression, expiry_ms });
            }
            Effect::Delete => self.push(OwnedRecord::Tombstone { key }),
            Effect::Nothing => {}
        }
    }

    /// The value that the frame leaves a key with; `None` if it does not touch it.
    fn newest(&mut self, key: &Bytes) -> Option<Option<Bytes>> {
        let records = &self.records;
        let newest = self.newest.get_or_insert_with(|| {
            let numbered = records.iter().enumerate();
            numbered.filter_map(|(at, record)| Some((record_key(record)?.clone(), at))).collect()
        });
        let newest = &records[*newest.get(key)?];
        Some(match newest {
            OwnedRecord::Put { value, compression, .. } => {
                Some(compression.unpack(value.clone()).expect("packed for this frame"))
            }
            _ => None,
        })
    }

    fn remember(&mut self, id: RequestId, outcomes: &Vec<WriteOutcome>) {
        let outcome = encode_outcomes(outcomes);
        self.sessions.insert((id.session, id.number), outcome.clone());
        self.push(OwnedRecord::Session { session: id.session, number: id.number, floor: id.floor, outcome });
    }

    fn push(&mut self, record: OwnedRecord) {
        if let (Some(newest), Some(key)) = (&mut self.newest, record_key(&record)) {
            newest.insert(key.clone(), self.records.len());
        }
        self.bytes += record.as_record().encoded_len();
        self.records.push(record);
    }

    /// Forgets all but the first so many records.
    fn cut(&mut self, records: usize) {
        for record in self.records.drain(records..) {
            self.bytes -= record.as_record().encoded_len();
            self.newest = None;
        }
    }
}

fn record_key(record: &OwnedRecord) -> Option<&Bytes> {
    match record {
        OwnedRecord::Put { key, .. } | OwnedRecord::Tombstone { key } => Some(key),
        OwnedRecord::Session { .. } | OwnedRecord::Control { .. } => None,
    }
}

async fn finish_reads(
    mut values: Vec<Option<Bytes>>,
    jobs: Vec<(usize, Box<storage::ReadJob>)>,
    wall_ms: u64,
) -> Response {
    let (places, jobs): (Vec<usize>, Vec<_>) = jobs.into_iter().unzip();
    for (at, read) in places.into_iter().zip(storage::read_all(jobs).await) {
        match read {
            Ok(entry) => values[at] = live(entry, wall_ms),
            Err(error) => return Response::Error(storage_error(&error)),
        }
    }
    Response::Read(values)
}

/// The value of an entry that has not expired.
fn live(entry: Option<Entry>, wall_ms: u64) -> Option<Bytes> {
    entry.filter(|entry| !entry.expired(wall_ms)).map(|entry| entry.value)
}

fn operation_bytes(operation: &WriteOperation) -> usize {
    let value = match operation {
        WriteOperation::Put { value, .. } => value.len(),
        WriteOperation::Append { suffix, .. } => suffix.len(),
        WriteOperation::CompareAndSet { new, .. } => new.as_ref().map_or(0, Bytes::len),
        WriteOperation::Delete { .. } | WriteOperation::Increment { .. } => 0,
    };
    operation.key().len() + value + 32
}

/// The parts of `joined`, one for each key that was put there behind a salt.
fn parts<'a>(mut joined: &'a [u8], keys: &[Bytes]) -> Vec<&'a [u8]> {
    let part = |key: &Bytes| joined.split_off(..Salt::BYTES + key.len()).expect("each key is there");
    keys.iter().map(part).collect()
}

fn check_key(key: &Bytes) -> Result<(), Error> {
    const LEN_MAX: usize = storage::limits::KEY_BYTES_MAX - Salt::BYTES;
    if (1..=LEN_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(Error::invalid(format!("a key has 1 to {LEN_MAX} bytes, not {}", key.len())))
}

fn check_value(operation: &WriteOperation) -> Result<(), Error> {
    let len = match operation {
        WriteOperation::Put { value, .. } => value.len(),
        WriteOperation::CompareAndSet { new: Some(value), .. } => value.len(),
        _ => 0,
    };
    if len > storage::limits::VALUE_BYTES_MAX {
        let most = storage::limits::VALUE_BYTES_MAX;
        return Err(Error::invalid(format!("a value has at most {most} bytes, not {len}")));
    }
    Ok(())
}

/// Outcomes as kept in a session record: postcard.
fn encode_outcomes(outcomes: &Vec<WriteOutcome>) -> Bytes {
    postcard::to_stdvec(outcomes).expect("outcomes have no unserialisable parts").into()
}

fn decode_outcomes(bytes: &[u8]) -> Response {
    match postcard::from_bytes(bytes) {
        Ok(outcomes) => Response::Written(outcomes),
        Err(error) => Response::Error(Error::new(ErrorCode::Corrupt, format!("decode a kept outcome: {error}"))),
    }
}

/// A cursor as clients carry it: the epoch (8), where (1), and how far (8). It means something to the store of that epoch
/// alone; with another the scan begins anew.
fn encode_cursor(cursor: ScanCursor, epoch: Epoch) -> Bytes {
    let (place, at) = match cursor {
        ScanCursor::Pending(after) => (0, after.0),
        ScanCursor::Index(cursor) => (1, cursor.0),
    };
    [&epoch.0.to_le_bytes()[..], &[place], &at.to_le_bytes()].concat().into()
}

fn decode_cursor(bytes: &[u8], epoch: Epoch) -> Option<ScanCursor> {
    if bytes.is_empty() {
        return Some(ScanCursor::START);
    }
    let bytes: &[u8; 17] = bytes.try_into().ok()?;
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    match bytes[8] {
        _ if number(0) != epoch.0 => Some(ScanCursor::START),
        0 => Some(ScanCursor::Pending(Seqno(number(9)))),
        1 => Some(ScanCursor::Index(IndexCursor(number(9)))),
        _ => None,
    }
}

fn storage_error(error: &StorageError) -> Error {
    let code = match error {
        StorageError::Corrupt { .. } => ErrorCode::Corrupt,
        StorageError::Full { .. } => ErrorCode::Full,
        StorageError::Invalid { .. } => ErrorCode::Invalid,
        StorageError::Busy | StorageError::Fenced => ErrorCode::Unavailable,
        _ => ErrorCode::Io,
    };
    Error::new(code, error.to_string())
}

fn not_primary() -> Error {
    Error::new(ErrorCode::Fenced, "this replica is not the region's primary")
}

fn fenced() -> Response {
    Response::Error(not_primary())
}

fn unknown(message: &str) -> Response {
    Response::Error(Error::new(ErrorCode::Unknown, message))
}
