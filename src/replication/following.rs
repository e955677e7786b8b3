//! A replica's driver while it follows: taking frames, acknowledging them, cutting what the primary does not have.

use crate::region::{Epoch, RegionConfig, ServerId};
use crate::replication::backup::{Action, Backup};
use crate::replication::message::PeerBody;
use crate::replication::probe;
use crate::replication::replica::{Driver, Role};
use bytes::Bytes;
use storage::{Mark, Reject, Seqno, StorageError};

/// What a follower holds beside its log.
pub(super) struct Following {
    backup: Backup,
}

impl Following {
    pub(super) fn new(config: RegionConfig) -> Following {
        Following { backup: Backup::new(config) }
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
        let Some(log) = &mut self.log else { return Ok(false) };
        let Some(position) = log.find(mark).await? else { return Ok(false) };
        probe::cut(region, epoch, mark);
        match mark {
            _ if log.head().mark == mark => {}
            Mark::ZERO => log.reset().await?,
            _ => log.truncate(position).await?,
        }
        Ok(true)
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
