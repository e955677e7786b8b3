//! A replica's driver while it follows: taking frames, acknowledging them, cutting what the primary does not have.

use crate::region::{Epoch, RegionConfig, ServerId};
use crate::replication::backup::{Action, Backup};
use crate::replication::message::PeerBody;
use crate::replication::probe;
use crate::replication::replica::{Driver, Role};
use bytes::Bytes;
use storage::{Mark, Piece, Position, Reject, Seqno, StorageError, Taken};

/// What a follower holds beside its log.
pub(super) struct Following {
    backup: Backup,
    /// A piece of a compacted segment that cannot be taken yet.
    waiting: Option<WaitingPiece>,
}

struct WaitingPiece {
    stream: u64,
    piece: Piece,
    bytes: Bytes,
    committed: Seqno,
}

impl Following {
    pub(super) fn new(config: RegionConfig) -> Following {
        Following { backup: Backup::new(config), waiting: None }
    }

    pub(super) fn config(&self) -> &RegionConfig {
        self.backup.config()
    }

    pub(super) fn adopted(&mut self, config: RegionConfig) {
        if config.epoch > self.backup.config().epoch {
            self.backup.adopted(config);
        }
    }
}

impl Driver {
    fn backup(&mut self) -> &mut Backup {
        match &mut self.role {
            Role::Following(following) => &mut following.backup,
            Role::Leading(_) | Role::Idle => unreachable!("called only while following"),
        }
    }

    pub(super) async fn peer_of_follower(&mut self, from: ServerId, epoch: Epoch, body: PeerBody) {
        let Some(action) = self.backup().received(from, epoch, body) else { return };
        match action {
            Action::Adopt { config } => self.follow(from, config).await,
            Action::Stand { to } => self.stand(to),
            Action::Cut { from: mark } => self.cut(from, mark).await,
            Action::Take { bytes, committed } => self.take(from, bytes, committed),
            Action::TakePiece { stream, piece, bytes, committed } => {
                if let Role::Following(following) = &mut self.role {
                    following.waiting = Some(WaitingPiece { stream, piece, bytes, committed });
                }
            }
            Action::Refuse { to } => self.send(to, PeerBody::Stale),
            Action::Released { by } => {
                let (region, epoch) = (self.region(), self.epoch());
                self.context.leases().released(region, epoch, by);
            }
        }
    }

    /// A primary tells of its epoch before the master group does.
    async fn follow(&mut self, primary: ServerId, config: RegionConfig) {
        self.adopt(config.clone()).await;
        let following = matches!(&self.role, Role::Following(following) if following.config().epoch == config.epoch);
        if following && config.is_primary(primary) {
            self.stand(primary);
        }
    }

    /// Says where the log stands and opens a stream for what follows.
    fn stand(&mut self, to: ServerId) {
        let stream = self.context.env.random() | 1;
        let Some(log) = &self.log else { return };
        let tail = log.standing();
        self.backup().open_stream(stream);
        self.send(to, PeerBody::Standing { stream, tail });
    }

    /// Cuts the log after `mark`, and says what is durable of the rest.
    async fn cut(&mut self, primary: ServerId, mark: Mark) {
        self.quiesce().await;
        match self.cut_log(mark).await {
            Ok(true) => {
                if let Some(durable) = self.acknowledgeable() {
                    // It may have been flushed by a run that was killed before it could say so.
                    probe::durable(self.region(), self.epoch(), durable);
                    self.acknowledge(durable);
                }
            }
            Ok(false) => self.lose_stream(primary),
            Err(error) => self.distrust(&error).await,
        }
    }

    /// False when this log has no frame that ends at `mark`.
    async fn cut_log(&mut self, mark: Mark) -> Result<bool, StorageError> {
        let (region, epoch) = (self.region(), self.epoch());
        let in_sync = self.info.config.is_in_sync(self.context.me);
        let Some(log) = &mut self.log else { return Ok(false) };
        let Some(position) = log.find(mark).await? else { return Ok(false) };
        if mark.seqno < log.committed() && !in_sync {
            return self.rewind(position).await.map(|()| true);
        }
        probe::cut(region, epoch, mark);
        match mark {
            _ if log.head().mark == mark => {}
            Mark::ZERO => log.reset().await?,
            _ => log.truncate(position).await?,
        }
        Ok(true)
    }

    /// Forgets what comes again in another form. Only a learner does: nobody counts on what it holds.
    async fn rewind(&mut self, to: Position) -> Result<(), StorageError> {
        let (region, epoch) = (self.region(), self.epoch());
        self.give_up_compaction();
        let Some(log) = &mut self.log else { return Ok(()) };
        probe::rewound(region, epoch, to.mark);
        log.rewind(to).await
    }

    /// Appends frames of the stream; the writer flushes and acknowledges them.
    fn take(&mut self, primary: ServerId, bytes: Bytes, committed: Seqno) {
        if !self.take_frames(bytes) {
            return self.lose_stream(primary);
        }
        let (region, epoch) = (self.region(), self.epoch());
        let Some(log) = &mut self.log else { return };
        let committed = committed.min(log.head().mark.seqno);
        if committed > log.committed() {
            log.set_committed(committed);
            probe::committed(region, epoch, committed);
        }
        if env::mutants::active("M01") {
            let head = log.head().mark;
            self.acknowledge(head);
        }
    }

    /// Takes the piece that waits, if its time has come.
    pub(super) async fn take_waiting_piece(&mut self) {
        let Role::Following(following) = &mut self.role else { return };
        let Some(waiting) = following.waiting.take() else { return };
        let (stream, primary) = (following.backup.stream(), following.backup.config().primary);
        let (true, Some(primary)) = (stream == Some(waiting.stream), primary) else { return };
        match self.take_piece(&waiting).await {
            Ok(Some(Taken::Part)) => self.send(primary, PeerBody::Taken { stream: waiting.stream }),
            Ok(Some(Taken::Segment)) => {
                self.send(primary, PeerBody::Taken { stream: waiting.stream });
                if let Some(durable) = self.acknowledgeable() {
                    self.acknowledge(durable);
                }
            }
            Ok(Some(Taken::Differs(to))) => match self.rewind(to).await {
                Ok(()) => self.lose_stream(primary),
                Err(error) => self.distrust(&error).await,
            },
            Ok(None) => {
                if let Role::Following(following) = &mut self.role {
                    following.waiting = Some(waiting);
                }
            }
            Err(error @ StorageError::Invalid { .. }) => {
                tracing::debug!(region = %self.region(), %error, "follower cannot take a piece of a segment");
                self.lose_stream(primary);
            }
            Err(error) => self.distrust(&error).await,
        }
    }

    /// `None`: not yet.
    async fn take_piece(&mut self, waiting: &WaitingPiece) -> Result<Option<Taken>, StorageError> {
        if self.info.config.is_in_sync(self.context.me) {
            let what = "a member of the in-sync set holds all that was compacted".to_owned();
            return Err(StorageError::Invalid { what });
        }
        self.flush_everything().await;
        let (region, epoch) = (self.region(), self.epoch());
        let Some(log) = &mut self.log else { return Ok(None) };
        let committed = waiting.committed.min(log.head().mark.seqno);
        if committed > log.committed() {
            log.set_committed(committed);
            probe::committed(region, epoch, committed);
        }
        if log.has_ordered() || log.has_retired() {
            return Ok(None);
        }
        let taken = log.take_piece(waiting.piece.clone(), waiting.bytes.clone()).await?;
        probe::piece(region, epoch);
        if taken == Taken::Segment {
            probe::durable(region, epoch, log.durable());
        }
        Ok(Some(taken))
    }

    /// Says that it is still there while a piece waits.
    pub(super) fn tick_waiting_piece(&mut self) {
        let waits = matches!(&self.role, Role::Following(following) if following.waiting.is_some());
        if let (true, Some(durable)) = (waits, self.acknowledgeable()) {
            self.acknowledge(durable);
        }
    }

    /// False when one of the frames does not extend the log.
    fn take_frames(&mut self, bytes: Bytes) -> bool {
        let region = self.region();
        let Some(log) = &mut self.log else { return false };
        for frame in storage::split_frames(bytes) {
            let Ok(frame) = frame else { return false };
            match log.accept(frame) {
                Ok(_) | Err(Reject::Duplicate { .. }) => {}
                Err(reject) => {
                    tracing::debug!(%region, %reject, "follower lost the stream");
                    return false;
                }
            }
        }
        true
    }

    fn lose_stream(&mut self, primary: ServerId) {
        if let Some(stream) = self.backup().stream() {
            self.backup().close_stream();
            self.send(primary, PeerBody::Lost { stream });
        }
    }

    /// Tells the primary how far the log is durable.
    pub(super) fn acknowledge(&mut self, durable: Mark) {
        let backup = self.backup();
        if let (Some(stream), Some(primary)) = (backup.stream(), backup.config().primary) {
            self.send(primary, PeerBody::Ack { stream, durable });
        }
    }
}
