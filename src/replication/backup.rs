//! The follower's half of replication, as a pure state machine: what a backup or learner takes from whom.
//!
//! It takes messages of its own persisted epoch from that epoch's primary only. A newer epoch is persisted first. After a
//! [`PeerBody::Standing`] all earlier streams are dead: frames of a broken connection that arrive late change nothing.

use crate::region::{Epoch, RegionConfig, ServerId};
use crate::replication::message::PeerBody;
use bytes::Bytes;
use storage::{Mark, Piece, Seqno};

pub struct Backup {
    config: RegionConfig,
    /// The stream that the last `Standing` opened; 0 before the first.
    stream: u64,
    /// The primary has said where the stream begins.
    resumed: bool,
}

/// What the driver does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Persist this configuration's epoch, tell the lease book, then say so with [`Backup::adopted`].
    Adopt { config: RegionConfig },
    /// Tell the primary where the log stands, with a new stream from [`Backup::open_stream`].
    Stand { to: ServerId },
    /// Cut the log after this mark, which is in the tail that was sent or, for a learner, before all of that.
    Cut { from: Mark },
    /// Append these frames, then take over the commit point.
    Take { bytes: Bytes, committed: Seqno },
    /// Take this piece of a compacted segment, once all before it is flushed and compacted as was ordered.
    TakePiece { stream: u64, piece: Piece, bytes: Bytes, committed: Seqno },
    /// The sender's epoch is over.
    Refuse { to: ServerId },
    /// The primary has given up what it was granted.
    Released { by: ServerId },
}

impl Backup {
    /// A follower at `config`, whose epoch is persisted.
    pub fn new(config: RegionConfig) -> Backup {
        Backup { config, stream: 0, resumed: false }
    }

    pub fn config(&self) -> &RegionConfig {
        &self.config
    }

    /// A message about the region from another server, sent at `epoch`.
    pub fn received(&mut self, from: ServerId, epoch: Epoch, body: PeerBody) -> Option<Action> {
        let stale = epoch < self.config.epoch && !env::mutants::active("M02");
        if stale {
            return Some(Action::Refuse { to: from });
        }
        match body {
            PeerBody::Probe { config } if config.epoch > self.config.epoch => Some(Action::Adopt { config }),
            PeerBody::Probe { .. } if self.leads(from, epoch) => Some(Action::Stand { to: from }),
            PeerBody::Resume { stream, from: mark } if self.leads(from, epoch) && stream == self.stream => {
                let first = !self.resumed;
                self.resumed = true;
                first.then_some(Action::Cut { from: mark })
            }
            PeerBody::Frames { stream, bytes, committed }
                if (self.leads(from, epoch) && stream == self.stream && self.resumed)
                    // Whatever epoch, and so whatever stream: one check hides the lack of the other.
                    || env::mutants::active("M02") =>
            {
                Some(Action::Take { bytes, committed })
            }
            PeerBody::Piece { stream, piece, bytes, committed }
                if self.leads(from, epoch) && self.stream() == Some(stream) =>
            {
                Some(Action::TakePiece { stream, piece, bytes, committed })
            }
            PeerBody::Released if self.leads(from, epoch) => Some(Action::Released { by: from }),
            _ => None,
        }
    }

    /// The epoch of `config` is persisted.
    pub fn adopted(&mut self, config: RegionConfig) {
        assert!(config.epoch > self.config.epoch, "epoch went from {} to {}", self.config.epoch, config.epoch);
        self.config = config;
        self.close_stream();
    }

    /// Begins a stream; `stream` has never been used by this replica in this or any other run.
    pub fn open_stream(&mut self, stream: u64) {
        self.stream = stream;
        self.resumed = false;
    }

    /// Frames of the current stream are no longer taken: one did not fit.
    pub fn close_stream(&mut self) {
        self.resumed = false;
        self.stream = 0;
    }

    /// The stream that acknowledgements carry, while it runs.
    pub fn stream(&self) -> Option<u64> {
        self.resumed.then_some(self.stream)
    }

    fn leads(&self, server: ServerId, epoch: Epoch) -> bool {
        epoch == self.config.epoch && self.config.is_primary(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::RegionId;

    const A: ServerId = ServerId(1);
    const B: ServerId = ServerId(2);
    const C: ServerId = ServerId(3);

    fn backup() -> Backup {
        Backup::new(RegionConfig::initial(RegionId(1), vec![A, B, C]))
    }

    fn frames(stream: u64) -> PeerBody {
        PeerBody::Frames { stream, bytes: Bytes::from_static(b"f"), committed: Seqno(0) }
    }

    #[test]
    fn frames_are_taken_only_on_the_stream_that_was_opened_last() {
        let mut backup = backup();
        assert_eq!(backup.received(A, Epoch(1), frames(0)), None, "no stream was ever opened");
        backup.open_stream(5);
        assert_eq!(backup.received(A, Epoch(1), frames(5)), None, "not resumed yet");
        let resume = PeerBody::Resume { stream: 5, from: Mark::ZERO };
        assert_eq!(backup.received(A, Epoch(1), resume.clone()), Some(Action::Cut { from: Mark::ZERO }));
        assert_eq!(backup.received(A, Epoch(1), resume), None, "a stream is cut once");
        assert!(matches!(backup.received(A, Epoch(1), frames(5)), Some(Action::Take { .. })));
        backup.open_stream(6);
        assert_eq!(backup.received(A, Epoch(1), frames(5)), None, "the old stream is dead");
    }

    #[test]
    fn pieces_are_taken_like_frames() {
        let mut backup = backup();
        let piece = Piece { segment: storage::SegmentId(1), offset: 0, len: 9, before: Vec::new() };
        let message = |stream| PeerBody::Piece {
            stream,
            piece: piece.clone(),
            bytes: Bytes::from_static(b"p"),
            committed: Seqno(0),
        };
        assert_eq!(backup.received(A, Epoch(1), message(0)), None, "no stream was ever opened");
        backup.open_stream(5);
        assert_eq!(backup.received(A, Epoch(1), message(5)), None, "not resumed yet");
        backup.received(A, Epoch(1), PeerBody::Resume { stream: 5, from: Mark::ZERO });
        assert!(matches!(backup.received(A, Epoch(1), message(5)), Some(Action::TakePiece { stream: 5, .. })));
        assert_eq!(backup.received(C, Epoch(1), message(5)), None, "it does not lead");
        assert_eq!(backup.received(A, Epoch(1), message(4)), None, "an old stream");
    }

    #[test]
    fn an_older_epoch_is_refused_and_a_newer_one_is_persisted_first() {
        let mut backup = backup();
        let next = backup.config().change(&crate::region::Change::Promote { candidate: C }).unwrap();
        let probe = PeerBody::Probe { config: next.clone() };
        assert_eq!(backup.received(C, Epoch(2), probe.clone()), Some(Action::Adopt { config: next.clone() }));
        backup.adopted(next);
        assert_eq!(backup.received(C, Epoch(2), probe), Some(Action::Stand { to: C }));
        assert_eq!(backup.received(A, Epoch(1), frames(5)), Some(Action::Refuse { to: A }));
    }

    #[test]
    fn only_the_primary_is_listened_to() {
        let mut backup = backup();
        backup.open_stream(5);
        let resume = PeerBody::Resume { stream: 5, from: Mark::ZERO };
        assert_eq!(backup.received(C, Epoch(1), resume), None);
    }
}
