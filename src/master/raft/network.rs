//! Raft's calls from master to master, as bodies of a request and a response.
//!
//! How bodies travel is the transport's business; it is handed in. Every call has a deadline. openraft gives each call of
//! its own a tight one, the heartbeat interval; an append or a snapshot carries data and may take longer.

use super::types::{Entry, Raft, Snapshot, SnapshotMeta, Types, Vote};
use crate::master::limits::APPEND_BYTES_MAX;
use bytes::Bytes;
use env::BoxFuture;
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{BasicNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Carries a request to another master and its answer back.
///
/// The answer is what that master's service made of the body, by `Master::raft`. An error says nothing about whether the
/// request arrived. A call that has not ended by its deadline ends with an error, and its connection is not used again.
pub trait RaftTransport: Send + Sync + 'static {
    fn call(
        &self,
        master: u64,
        address: &str,
        body: Bytes,
        deadline: Duration,
    ) -> BoxFuture<'static, io::Result<Bytes>>;
}

/// The body of a call.
#[derive(Serialize, Deserialize)]
pub enum Call {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    Snapshot { vote: Vote, meta: SnapshotMeta, catalog: Bytes },
}

/// The body of the answer.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    Append(AppendEntriesResponse<Types>),
    Vote(VoteResponse<Types>),
    Snapshot(SnapshotResponse<Types>),
    /// The other master's Raft has stopped.
    Stopped(String),
}

/// Carries out a call on this master's Raft.
pub async fn answer(raft: &Raft, call: Call) -> Answer {
    let stopped = |error: String| Answer::Stopped(error);
    match call {
        Call::Append(request) => {
            raft.append_entries(request).await.map_or_else(|e| stopped(e.to_string()), Answer::Append)
        }
        Call::Vote(request) => raft.vote(request).await.map_or_else(|e| stopped(e.to_string()), Answer::Vote),
        Call::PreVote(request) => raft.pre_vote(request).await.map_or_else(|e| stopped(e.to_string()), Answer::Vote),
        Call::Snapshot { vote, meta, catalog } => {
            let snapshot = Snapshot { meta, snapshot: catalog };
            let answer = raft.install_full_snapshot(vote, snapshot).await;
            answer.map_or_else(|e| stopped(e.to_string()), Answer::Snapshot)
        }
    }
}

/// Makes a [`Peer`] for each other master.
pub struct Peers {
    pub transport: Arc<dyn RaftTransport>,
    /// Where masters are, by the list given at start: it may have been changed since the first start, which the log keeps.
    pub masters: BTreeMap<u64, String>,
    /// Of calls that carry data.
    pub data_deadline: Duration,
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, master: u64, node: &BasicNode) -> Peer {
        let (transport, data_deadline) = (self.transport.clone(), self.data_deadline);
        let address = self.masters.get(&master).unwrap_or(&node.addr).clone();
        Peer { master, address, transport, data_deadline }
    }
}

pub struct Peer {
    master: u64,
    address: String,
    transport: Arc<dyn RaftTransport>,
    data_deadline: Duration,
}

impl Peer {
    async fn call(&self, call: &Call, deadline: Duration) -> io::Result<Answer> {
        let body = postcard::to_stdvec(call).map_err(io::Error::other)?;
        let answer = self.transport.call(self.master, &self.address, body.into(), deadline).await?;
        match postcard::from_bytes(&answer).map_err(io::Error::other)? {
            Answer::Stopped(reason) => Err(io::Error::other(reason)),
            answer => Ok(answer),
        }
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        mut request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let cut = fitting(&request);
        let is_cut = cut < request.entries.len();
        request.entries.truncate(cut);
        let (last, is_heartbeat) = (request.entries.last().map(|entry| entry.log_id), request.entries.is_empty());
        let deadline = if is_heartbeat { option.soft_ttl() } else { self.data_deadline };
        match self.call(&Call::Append(request), deadline).await.map_err(unreachable)? {
            Answer::Append(AppendEntriesResponse::Success) if is_cut => Ok(AppendEntriesResponse::PartialSuccess(last)),
            Answer::Append(answer) => Ok(answer),
            _ => Err(unreachable(odd())),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.call(&Call::Vote(request), option.soft_ttl()).await.map_err(unreachable)? {
            Answer::Vote(answer) => Ok(answer),
            _ => Err(unreachable(odd())),
        }
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.call(&Call::PreVote(request), option.soft_ttl()).await.map_err(unreachable)? {
            Answer::Vote(answer) => Ok(answer),
            _ => Err(unreachable(odd())),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let call = Call::Snapshot { vote, meta: snapshot.meta, catalog: snapshot.snapshot };
        let answer = self.call(&call, option.soft_ttl().max(self.data_deadline)).await;
        match answer.map_err(|error| StreamingError::Unreachable(Unreachable::new(&error)))? {
            Answer::Snapshot(answer) => Ok(answer),
            _ => Err(StreamingError::Unreachable(Unreachable::new(&odd()))),
        }
    }
}

/// How many of the entries go into one call: at least one, which fits by the limits of commands.
fn fitting(request: &AppendEntriesRequest<Types>) -> usize {
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        bytes += postcard::experimental::serialized_size(entry).unwrap_or(0);
        bytes <= APPEND_BYTES_MAX
    };
    let count = request.entries.iter().take_while(fits).count();
    count.max(request.entries.len().min(1))
}

fn unreachable(error: io::Error) -> RPCError<Types> {
    RPCError::Unreachable(Unreachable::new(&error))
}

fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is of another kind than the call")
}
