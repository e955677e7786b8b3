//! What region servers say to each other. Messages are one-way and may be lost, repeated by a resend, or late; a reply is
//! a message of its own. Every message about a region carries the sender's epoch.

use crate::region::{Epoch, RegionConfig, RegionId, ServerId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use storage::{Mark, Piece, Seqno};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage {
    Beacon(Beacon),
    BeaconAck(BeaconAck),
    Region { region: RegionId, epoch: Epoch, body: PeerBody },
}

/// "I lead these regions": asks the receiver, a backup of each, to stay passive for a grace period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beacon {
    pub number: u64,
    pub claims: Vec<(RegionId, Epoch)>,
}

/// Grants all claims of a beacon but the refused ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeaconAck {
    pub number: u64,
    pub refused: Vec<RegionId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerBody {
    /// Primary: take up this configuration and say where your log stands.
    Probe { config: RegionConfig },
    /// Follower: the ends of my frames from my commit point on. What follows must carry `stream`; older streams are dead.
    Standing { stream: u64, tail: Vec<Mark> },
    /// Primary: cut your log after `from` (one of the tail you sent, or [`Mark::ZERO`] to begin anew); frames follow.
    Resume { stream: u64, from: Mark },
    /// Primary: frames that extend the stream, maybe none, and how far all is committed.
    Frames { stream: u64, bytes: Bytes, committed: Seqno },
    /// Follower: my log is durable, as the table understands it, up to here.
    Ack { stream: u64, durable: Mark },
    /// The sender of an older epoch is told of a newer one.
    Stale,
    /// Primary: I have stopped serving at this epoch, so that you need not wait for what you granted me.
    Released,
    /// Follower: a frame did not extend my log, or I lost the stream: probe me again.
    Lost { stream: u64 },
    /// Primary: instead of frames that were compacted, a piece of the segment in their place; the next comes once this one
    /// is taken.
    Piece { stream: u64, piece: Piece, bytes: Bytes, committed: Seqno },
    /// Follower: I have the last piece.
    Taken { stream: u64 },
}

/// For logs: bytes are counted, not shown.
impl std::fmt::Display for PeerBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PeerBody::Probe { config } => write!(f, "probe at epoch {}", config.epoch),
            PeerBody::Standing { stream, tail } => match tail.last() {
                Some(last) => write!(f, "standing at {last}, {} marks, stream {stream:x}", tail.len()),
                None => write!(f, "standing nowhere, stream {stream:x}"),
            },
            PeerBody::Resume { stream, from } => write!(f, "resume from {from}, stream {stream:x}"),
            PeerBody::Frames { stream, bytes, committed } => {
                write!(f, "frames of {} bytes, committed {committed}, stream {stream:x}", bytes.len())
            }
            PeerBody::Ack { stream, durable } => write!(f, "durable to {durable}, stream {stream:x}"),
            PeerBody::Stale => write!(f, "stale"),
            PeerBody::Released => write!(f, "released"),
            PeerBody::Lost { stream } => write!(f, "lost stream {stream:x}"),
            PeerBody::Piece { stream, piece, bytes, committed } => {
                let (Piece { segment, offset, len, .. }, bytes) = (piece, bytes.len());
                write!(f, "{bytes} bytes from {offset} on of {len} of segment {segment}, ")?;
                write!(f, "committed {committed}, stream {stream:x}")
            }
            PeerBody::Taken { stream } => write!(f, "taken, stream {stream:x}"),
        }
    }
}

/// `(from, message)` as it arrives.
pub type Received = (ServerId, PeerMessage);
