//! Everything that is true at one moment: the configuration service, the nodes, and what is on its way between them.

use super::config::{Change, Config, NodeId};
use super::log::Log;

pub const NODES_MAX: usize = 3;
pub const EPOCHS_MAX: usize = 7;

/// Time since an event, on one node's clock. It stops at the length of the timer that it is for: longer ago is all the same.
pub type Age = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub master: Config,
    /// What was decided at each epoch, while a node may still hear of it.
    pub decided: [Config; EPOCHS_MAX + 1],
    pub nodes: [Node; NODES_MAX],
    /// Of each node, the question at the master's epoch that is on its way. It outlives its asker.
    pub asks: [Option<Change>; NODES_MAX],
    /// Of each follower, what it had acknowledged on a stream that it has left.
    pub late_acks: [Option<Ack>; NODES_MAX],
    pub released: Option<Released>,
    /// The longest prefix that any primary committed.
    pub committed: Log,
    /// How much of it a client has been told, or may have read.
    pub answered: u8,
    /// A primary committed something else than was committed before.
    pub diverged: bool,
    /// Somebody took the lead who was not in the in-sync set before.
    pub usurped: bool,
    pub writes: u8,
    pub crashes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// On disk: the epoch, and the log up to `durable`.
    pub epoch: u8,
    pub log: Log,
    pub durable: u8,
    pub promise: Promise,
    pub role: Role,
}

/// What a node granted to primaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promise {
    /// Grants what the primary of its epoch claims.
    pub passive: bool,
    /// Since the last grant of this epoch, or since the epoch was learned.
    pub heard: Age,
    pub granted: bool,
    /// Since the last grant of any earlier epoch, or since the start.
    pub horizon: Age,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Down,
    /// Restarted, and not told yet what it is.
    Idle,
    Following {
        config: Config,
        /// It was brought to the primary's log, and takes what comes next on the stream.
        streaming: bool,
    },
    Leading(Leading),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leading {
    pub config: Config,
    pub phase: Phase,
    pub committed: u8,
    /// The question to the master that is not answered yet.
    pub asked: Option<Change>,
    pub followers: [Follower; NODES_MAX],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Reconciling { until: u8 },
    Serving,
    Resigning { to: NodeId },
}

/// What a primary knows of another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Follower {
    pub streaming: bool,
    pub acked: u8,
    /// Since the sending of the last beacon that it granted.
    pub lease: Age,
    /// The newest grant on its way; since the sending of its beacon.
    pub grant: Option<Age>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ack {
    pub epoch: u8,
    pub durable: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Released {
    pub epoch: u8,
    pub by: NodeId,
    pub to: NodeId,
}

impl Node {
    pub fn leading(&self) -> Option<&Leading> {
        match &self.role {
            Role::Leading(leading) => Some(leading),
            _ => None,
        }
    }

    /// What a primary has committed; of other nodes nothing.
    pub fn committed(&self) -> Log {
        self.leading().map_or_else(Log::default, |leading| self.log.prefix(leading.committed))
    }

    pub fn leading_mut(&mut self) -> Option<&mut Leading> {
        match &mut self.role {
            Role::Leading(leading) => Some(leading),
            _ => None,
        }
    }

    /// The configuration of a follower.
    pub fn following(&self) -> Option<&Config> {
        match &self.role {
            Role::Following { config, .. } => Some(config),
            _ => None,
        }
    }

    pub fn is_streaming(&self) -> bool {
        matches!(self.role, Role::Following { streaming: true, .. })
    }

    pub fn set_streaming(&mut self, now: bool) {
        if let Role::Following { streaming, .. } = &mut self.role {
            *streaming = now;
        }
    }

    /// The next entry of a primary's log, if it extends this one; otherwise the stream is lost.
    pub fn take(&mut self, log: &Log) {
        match log.entries().get(self.log.len() as usize) {
            Some(&epoch) if self.log.is_prefix_of(log) => self.log.push(epoch),
            _ => self.set_streaming(false),
        }
    }

    /// Whether this node follows `primary` at `epoch`.
    pub fn follows(&self, primary: NodeId, epoch: u8) -> bool {
        self.following().is_some_and(|config| config.epoch == epoch && config.primary == primary)
    }
}

impl Leading {
    /// The learner that the master was asked to admit.
    pub fn joining(&self) -> Option<NodeId> {
        match self.asked {
            Some(Change::Admit { learner, .. }) => Some(learner),
            _ => None,
        }
    }
}

impl State {
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node as usize]
    }

    pub fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node as usize]
    }
}
