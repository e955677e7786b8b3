//! The types that the group's Raft is made of.

use super::machine::Machine;
use super::runtime::EnvRuntime;
use crate::master::state::{Applied, Command};
use openraft::impls::{BoxedErrorSource, InlineBatch, OneshotResponder, leader_id_std};
use openraft::{EntryPayload, OptionalSend, RaftTypeConfig};

/// A cluster's catalog as the state, numbers as masters' names, their addresses as nodes, at most one leader in a term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Types;

impl RaftTypeConfig for Types {
    type D = Command;
    type R = Applied;
    type NodeId = u64;
    type Node = openraft::BasicNode;
    type Term = u64;
    type LeaderId = leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = EntryPayload<Command, u64, openraft::BasicNode>;
    type Entry = openraft::Entry<<Self::LeaderId as openraft::vote::RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = EnvRuntime;
    type Responder<T>
        = OneshotResponder<Self, T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

pub type Raft = openraft::Raft<Types, Machine>;
pub type LogId = openraft::alias::LogIdOf<Types>;
pub type Entry = openraft::alias::EntryOf<Types>;
pub type Vote = openraft::alias::VoteOf<Types>;
pub type Membership = openraft::alias::StoredMembershipOf<Types>;
pub type SnapshotMeta = openraft::alias::SnapshotMetaOf<Types>;
/// The data of a snapshot is the encoded catalog.
pub type Snapshot = openraft::alias::SnapshotOf<Types, bytes::Bytes>;
