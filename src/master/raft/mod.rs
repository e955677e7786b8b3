//! The master group's Raft. The only module that names openraft.
//!
//! A command's life: [`Group::propose`] hands it to Raft on the active master; [`log_store`] writes it and [`network`] sends
//! it to the others, which write it too; once a majority has it on disk [`machine`] applies it on each, and the active
//! master's answer goes back to the caller.
//!
//! Reads are by read index: the active master asks a majority whether it still leads before it looks ([`Group::confirm`]).
//! It never trusts a lease, so no clock can make it answer from the past.
//!
//! The members are a fixed list, given to each at start. Missing on purpose: changing that list, and handing the lead over
//! before a stop. A master whose folder is lost cannot come back under its number: it could vote twice in one term.

mod log_store;
mod machine;
mod network;
mod runtime;
mod types;

pub use network::RaftTransport;

use crate::master::limits::{
    ENTRIES_PER_APPEND_MAX, LOG_BYTES_MAX, LOG_ENTRIES_KEPT, LOG_ENTRIES_PER_SNAPSHOT, MASTERS_MAX,
};
use crate::master::state::{Applied, Catalog, Command};
use bytes::Bytes;
use env::{Elapsed, Env};
use log_store::LogStore;
use machine::Machine;
use network::Peers;
use openraft::alias::WatchReceiverOf;
use openraft::error::{ClientWriteError, InitializeError, RaftError};
use openraft::{BasicNode, ReadPolicy, SnapshotPolicy};
use openraft_rt::WatchReceiver;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use types::{Raft, Types};

/// Raft's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaftTiming {
    /// Also how long a heartbeat and a vote may travel.
    pub heartbeat_ms: u64,
    /// A follower that hears nothing for a time drawn between these stands for election.
    pub election_min_ms: u64,
    pub election_max_ms: u64,
    /// How long an append or a snapshot may travel.
    pub data_ms: u64,
}

pub struct GroupOptions {
    pub id: u64,
    /// All masters, this one too, and their addresses: the same list on each.
    pub masters: BTreeMap<u64, String>,
    pub folder: String,
    pub timing: RaftTiming,
    pub transport: Arc<dyn RaftTransport>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("masters {0:?} do not make a group: 1, 3 or 5 of them, this one among them")]
    BadMembers(Vec<u64>),
    #[error("bad timing: {0}")]
    BadTiming(String),
    /// The folder is damaged or cannot be used. If it is `InvalidData`, what this master promised is not there any more.
    #[error("open the master's log: {0}")]
    Log(#[source] io::Error),
    #[error("start raft: {0}")]
    Raft(String),
}

/// Why a command has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Another master leads, or none. The command was not proposed.
    #[error("not the active master")]
    NotActive { leader: Option<u64> },
    /// The command may take place, or have taken place.
    #[error("no majority of masters has answered")]
    Unknown,
    /// This master's Raft has stopped.
    #[error("the master has stopped: {0}")]
    Stopped(String),
}

/// What this master's Raft is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub term: u64,
    pub leader: Option<u64>,
    /// Why Raft has stopped, if it has.
    pub stopped: Option<String>,
}

/// One member of the group.
pub struct Group {
    raft: Raft,
    log: LogStore,
    machine: Machine,
}

impl Group {
    pub async fn start(env: &Env, options: GroupOptions) -> Result<Group, StartError> {
        let GroupOptions { id, masters, folder, timing, transport } = options;
        let count = masters.len();
        if count % 2 == 0 || count > MASTERS_MAX || !masters.contains_key(&id) {
            return Err(StartError::BadMembers(masters.into_keys().collect()));
        }
        let config = config(timing)?;
        let log = LogStore::open(env, &folder).await.map_err(StartError::Log)?;
        let machine = Machine::open(env, &folder).await.map_err(StartError::Log)?;
        let data_deadline = Duration::from_millis(timing.data_ms);
        let peers = Peers { transport, masters: masters.clone(), data_deadline };
        let raft = Raft::new(id, config, peers, log.clone(), machine.clone()).await;
        let raft = raft.map_err(|fatal| StartError::Raft(fatal.to_string()))?;
        let group = Group { raft, log, machine };
        group.found(masters).await?;
        Ok(group)
    }

    /// Writes the list of members as the first entry of an empty log. Each may do so: the lists are the same.
    async fn found(&self, masters: BTreeMap<u64, String>) -> Result<(), StartError> {
        let nodes: BTreeMap<u64, BasicNode> =
            masters.into_iter().map(|(id, address)| (id, BasicNode::new(address))).collect();
        match self.raft.initialize(nodes).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(StartError::Raft(error.to_string())),
        }
    }

    /// Has the group agree on `command` and answers what came of it.
    pub async fn propose(&self, env: &Env, command: Command, limit: Duration) -> Result<Applied, NoAnswer> {
        match env.timeout(limit, self.raft.client_write(command)).await {
            Ok(Ok(written)) => Ok(written.data),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to)))) => {
                Err(NoAnswer::NotActive { leader: to.leader_id })
            }
            Ok(Err(RaftError::APIError(_))) | Err(Elapsed) => Err(NoAnswer::Unknown),
            Ok(Err(RaftError::Fatal(fatal))) => Err(NoAnswer::Stopped(fatal.to_string())),
        }
    }

    /// Makes sure that this master is the active one and has applied all that was committed before the call.
    pub async fn confirm(&self, env: &Env, limit: Duration) -> Result<(), NoAnswer> {
        match env.timeout(limit, self.raft.ensure_linearizable(ReadPolicy::ReadIndex)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::Fatal(fatal))) => Err(NoAnswer::Stopped(fatal.to_string())),
            Ok(Err(error)) => {
                Err(NoAnswer::NotActive { leader: error.into_forward_to_leader().and_then(|to| to.leader_id) })
            }
            Err(Elapsed) => Err(NoAnswer::NotActive { leader: None }),
        }
    }

    /// Looks at this master's catalog, which may be behind the group's.
    pub fn read<R>(&self, look: impl FnOnce(&Catalog) -> R) -> R {
        self.machine.read(look)
    }

    pub fn standing(&self) -> Standing {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        Standing {
            term: metrics.current_term,
            leader: metrics.current_leader,
            stopped: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }

    pub fn watch(&self) -> Watch {
        Watch(self.raft.metrics())
    }

    /// Cuts the log if it has grown large before it has grown long.
    pub async fn tidy(&self) {
        if self.log.entry_bytes() > LOG_BYTES_MAX {
            // An error means that Raft has stopped, which the standing says.
            let _ = self.raft.trigger().snapshot().await;
        }
    }

    /// Answers another master's call.
    pub async fn answer(&self, body: Bytes) -> io::Result<Bytes> {
        let call = postcard::from_bytes(&body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let answer = network::answer(&self.raft, call).await;
        postcard::to_stdvec(&answer).map(Bytes::from).map_err(io::Error::other)
    }

    /// Ends this member. Its folder is free once every handle to it is gone.
    pub async fn stop(&self) {
        // An error says that it had ended already.
        let _ = self.raft.shutdown().await;
    }
}

/// Tells when [`Group::standing`] may have changed.
pub struct Watch(WatchReceiverOf<Types, openraft::RaftMetrics<Types>>);

impl Watch {
    pub async fn changed(&mut self) {
        // The sender is gone only when Raft is. The standing says so, and nothing changes any more.
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

fn config(timing: RaftTiming) -> Result<Arc<openraft::Config>, StartError> {
    let config = openraft::Config {
        cluster_name: "masters".to_owned(),
        heartbeat_interval: timing.heartbeat_ms,
        election_timeout_min: timing.election_min_ms,
        election_timeout_max: timing.election_max_ms,
        install_snapshot_timeout: timing.data_ms,
        max_payload_entries: ENTRIES_PER_APPEND_MAX,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(LOG_ENTRIES_PER_SNAPSHOT),
        max_in_snapshot_log_to_keep: LOG_ENTRIES_KEPT,
        // Purging is a flushed write: not one for each entry.
        purge_batch_size: LOG_ENTRIES_KEPT,
        enable_pre_vote: Some(true),
        // A leader that sends but cannot hear would keep the others from electing one that can.
        quorum_loss_probe_interval: Some(2 * timing.election_max_ms),
        ..openraft::Config::default()
    };
    config.validate().map(Arc::new).map_err(|error| StartError::BadTiming(error.to_string()))
}
