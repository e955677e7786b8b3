//! Requests, responses and errors of the native protocol.

use crate::region::{Change, Epoch, KeyRange, RegionConfig, RegionId, RegionInfo, ServerId, TableName, TableSpec};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The protocol's version. A node answers another version with `Invalid`, naming its own, and closes.
pub const VERSION: u16 = 1;

/// The first message of a connection, answered by [`Welcome`] or an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u16,
    pub purpose: Purpose,
    /// The cluster that the caller believes in; `None` where it knows none yet (clients).
    pub cluster: Option<ClusterId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// [`Request`]s and [`Response`]s.
    Client,
    /// [`crate::protocol::peer::PeerMessage`]s from this server, one way.
    Peer(ServerId),
    /// Raft calls between masters.
    Raft,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub cluster: Option<ClusterId>,
    pub role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    Master,
    Server,
}

/// Made once, when a master group first starts; every folder of the cluster carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u128);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Read(ReadRequest),
    Write(WriteRequest),
    Scan(ScanRequest),
    /// To any node; a region server passes it on to the active master.
    Admin(AdminRequest),
    /// From a region server to a master.
    Control(ControlRequest),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// One value for each key of the request, in its order.
    Read(Vec<Option<Bytes>>),
    /// One outcome for each operation of the request, in its order.
    Written(Vec<WriteOutcome>),
    Scanned(Scanned),
    Admin(AdminResponse),
    Control(ControlResponse),
    Error(Error),
}

/// Reads of keys of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub region: RegionId,
    /// `Stored`: the keys are given as stored, salt included.
    pub form: KeyForm,
    pub keys: Vec<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyForm {
    /// As the user says them; the server adds the table's salt.
    User,
    Stored,
}

/// Writes to keys of one region: all of them happen, or none, also across a crash. Each sees those before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    pub region: RegionId,
    pub form: KeyForm,
    /// With it a repeated request gets the first answer instead of happening twice.
    pub id: Option<RequestId>,
    pub operations: Vec<WriteOperation>,
}

/// Names one write request of one client to one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestId {
    /// Drawn at random by the client.
    pub session: u64,
    /// Counts up from 1 in the session.
    pub number: u64,
    /// The client will never again ask for numbers below this one.
    pub floor: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOperation {
    Put {
        key: Bytes,
        value: Bytes,
        expiry_ms: Option<u64>,
    },
    Delete {
        key: Bytes,
    },
    /// Sets `new` (`None` deletes) if the value is `expected` (`None`: absent).
    CompareAndSet {
        key: Bytes,
        expected: Option<Bytes>,
        new: Option<Bytes>,
    },
    /// The value is a decimal i64; absent counts as 0.
    Increment {
        key: Bytes,
        delta: i64,
    },
    /// Absent counts as empty.
    Append {
        key: Bytes,
        suffix: Bytes,
    },
}

impl WriteOperation {
    pub fn key(&self) -> &Bytes {
        match self {
            WriteOperation::Put { key, .. }
            | WriteOperation::Delete { key }
            | WriteOperation::CompareAndSet { key, .. }
            | WriteOperation::Increment { key, .. }
            | WriteOperation::Append { key, .. } => key,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteOutcome {
    /// Put.
    Done,
    /// Delete: whether there was something to delete.
    Deleted { existed: bool },
    /// CompareAndSet: whether it set; if not, what the value is.
    Compared { set: bool, actual: Option<Bytes> },
    /// Increment: the new value.
    Incremented(i64),
    /// Append: the new length.
    Appended { len: u64 },
    /// This operation had no effect; the others of its request did.
    Refused(Error),
}

/// Some live records of a region, in an order of the server's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRequest {
    pub region: RegionId,
    /// Empty to begin, then what the last answer gave.
    pub cursor: Bytes,
    pub limit: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scanned {
    /// User's key and value. Each record that was there from the first to the last call is given at least once.
    pub records: Vec<(Bytes, Bytes)>,
    /// `None` at the end.
    pub cursor: Option<Bytes>,
}

/// What a person or a client asks of the master group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminRequest {
    CreateTable {
        name: TableName,
        spec: TableSpec,
        splits: Vec<Bytes>,
    },
    DropTable {
        name: TableName,
    },
    ListTables,
    /// The table and its region map.
    DescribeTable {
        name: TableName,
    },
    Status,
    /// A planned hand-over of a region's lead.
    HandOver {
        region: RegionId,
        to: ServerId,
    },
    /// Gives up what `survivor` does not hold.
    RecoverAcceptLoss {
        region: RegionId,
        survivor: ServerId,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminResponse {
    Done,
    Tables(Vec<TableName>),
    Table(TableMap),
    Status(ClusterStatus),
}

/// A table as clients route by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableMap {
    pub name: TableName,
    pub spec: TableSpec,
    /// In the order of their ranges.
    pub regions: Vec<RegionPlace>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionPlace {
    pub range: KeyRange,
    pub config: RegionConfig,
    /// Where the primary listens; `None` without one.
    pub address: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    pub cluster: ClusterId,
    pub masters: Vec<MasterStatus>,
    pub servers: Vec<ServerStatus>,
    pub tables: Vec<TableStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterStatus {
    pub id: u64,
    pub address: String,
    pub active: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    pub id: ServerId,
    pub address: String,
    /// Heard from within the last few seconds.
    pub alive: bool,
    pub primaries: u64,
    pub replicas: u64,
    pub load: ServerLoad,
}

/// What a server says of itself in each report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLoad {
    /// `io_uring`, `threads` or `simulated`.
    pub io_backend: String,
    pub keys: u64,
    pub log_bytes: u64,
    pub index_bytes: u64,
    /// Of cached records.
    pub cache_bytes: u64,
    /// Reads of records that the cache answered since the server started, and those that it did not.
    pub cache_hits: u64,
    pub cache_misses: u64,
    /// Reads of segments in vain: they found another key's record.
    pub false_reads: u64,
    pub free_bytes: u64,
    /// Carried out since the server started.
    pub compactions: u64,
    /// Regions that are being compacted here.
    pub compacting: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableStatus {
    pub name: TableName,
    pub spec: TableSpec,
    pub regions: u64,
    /// Regions with fewer than `factor` replicas in sync.
    pub under_replicated: u64,
    /// Regions without a primary that reports to serve.
    pub unavailable: u64,
    /// As their primaries say; the others are not here.
    pub spaces: Vec<(RegionId, Space)>,
}

/// What a region takes on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    pub log_bytes: u64,
    /// Of the records that are needed. Known to a primary that serves.
    pub live_bytes: Option<u64>,
    /// Carried out since the replica started.
    pub compactions: u64,
    /// One is under way.
    pub compacting: bool,
}

impl Space {
    /// What compaction may free.
    pub fn dead_bytes(&self) -> u64 {
        self.live_bytes.map_or(0, |live| self.log_bytes.saturating_sub(live))
    }
}

/// What a region server asks of the master group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlRequest {
    /// `id` is `None` from a folder that has never been registered.
    Register { id: Option<ServerId>, cluster: Option<ClusterId>, incarnation: u64, address: String },
    /// Sent a few times a second.
    Report(Report),
    /// Asks for one step of a region's configuration from the epoch the server knows.
    Propose { region: RegionId, epoch: Epoch, change: Change },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub server: ServerId,
    pub incarnation: u64,
    /// The catalog version whose assignment the server has.
    pub known: u64,
    pub replicas: Vec<ReplicaReport>,
    pub load: ServerLoad,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    pub region: RegionId,
    pub epoch: Epoch,
    pub state: ReplicaState,
    /// The last record that it has durably.
    pub durable: crate::region::Seqno,
    pub space: Space,
}

impl ReplicaReport {
    /// Of a replica that nothing is known of.
    pub fn idle(region: RegionId) -> ReplicaReport {
        let (state, space) = (ReplicaState::Former, Space::default());
        ReplicaReport { region, epoch: Epoch(0), state, durable: crate::region::Seqno(0), space }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaState {
    /// Leads and answers.
    Serving,
    /// Leads and brings the others to its log.
    Reconciling,
    Backup,
    Learner,
    /// Holds data of a region that it is no member of.
    Former,
    /// May have lost records that it acknowledged (power loss without a flush, a damaged or missing folder).
    Doubtful,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlResponse {
    Registered {
        id: ServerId,
        cluster: ClusterId,
    },
    Assigned(Assignment),
    /// The region's configuration after the change.
    Changed(RegionConfig),
    /// The change was not made: the region has moved on to this configuration, or (with the same epoch) it is not allowed.
    NotChanged {
        current: RegionConfig,
        reason: String,
    },
}

/// The answer to a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The catalog version this is of.
    pub version: u64,
    /// Every region of which the server is a member; `None` when it knows this version.
    pub regions: Option<Vec<RegionInfo>>,
    /// Every server's address; `None` likewise.
    pub servers: Option<Vec<(ServerId, String)>>,
    /// Regions whose data the server may delete: dropped, or at full factor without it.
    pub discard: Vec<RegionId>,
    /// Leads to give up: region, its epoch and the new primary.
    pub hand_over: Vec<(RegionId, Epoch, ServerId)>,
}

/// A request that was not (or perhaps not) carried out, and what its caller does next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Error {
    pub code: ErrorCode,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorCode {
    /// Retry the transaction.
    Conflict,
    /// Refresh the region map: the key or the region is elsewhere.
    WrongRegion,
    /// Refresh the region map: this replica does not lead, or no longer.
    Fenced,
    /// Back off and try again.
    Unavailable,
    /// May have happened or may yet happen. Ask, do not guess.
    Unknown,
    /// The caller's fault; trying again does not help.
    Invalid,
    /// No space. Reads and deletes go on.
    Full,
    /// The data is damaged here and could not be repaired.
    Corrupt,
    Io,
    /// There is no such table.
    NotFound,
    /// There is such a table already, of another kind.
    Exists,
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ErrorCode::Conflict => "conflict",
            ErrorCode::WrongRegion => "wrong region",
            ErrorCode::Fenced => "not the primary",
            ErrorCode::Unavailable => "unavailable",
            ErrorCode::Unknown => "outcome unknown",
            ErrorCode::Invalid => "invalid",
            ErrorCode::Full => "out of space",
            ErrorCode::Corrupt => "corrupt",
            ErrorCode::Io => "input/output error",
            ErrorCode::NotFound => "not found",
            ErrorCode::Exists => "exists",
        })
    }
}

impl Error {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Error {
        Error { code, message: message.into() }
    }

    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::Invalid, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::Unavailable, message)
    }
}
