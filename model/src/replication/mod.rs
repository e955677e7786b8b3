//! Leases, reconfiguration and reconciliation in small, for a checker that tries every order of events.
//!
//! A few nodes hold one region and write a few entries; a configuration service says who leads. [`Scope::steps`] lists what
//! may happen next in a [`State`], [`Scope::after`] says what follows, [`promise`] says what must hold in all of them.
//! The rules are those of the product (`src/region/config.rs` and `src/replication/`), written down a second time and without
//! looking: a change there that this model does not follow should fail here or be argued for.
//!
//! What may happen, at any time and in any order:
//!
//! - **Messages** are lost, late, doubled and overtaken: what one node could tell another is told at any later time, or never.
//!   Entries, acknowledgements, grants, questions to the master and its decisions each have their own delay, and an
//!   acknowledgement, a question and a decision outlive the stream or the node that they came from.
//! - **Clocks** tick for all nodes at once in true time; at each tick any node's clock goes on by [`Timing::slow`] or
//!   [`Timing::fast`], so that rates change and differ as far as ρ allows.
//! - **Crashes** lose what was not durable, any tail of it, and all that was only in memory. A node stays down as long as it
//!   likes.
//!
//! ```text
//! Match ─ Append ─ Flush ───────────────┐             Beacon ─ Granted: reads, for a lease from Beacon on
//!            └──── Take ─ Flush ─ Ack ──┴ committed   grace after Beacon: Stand ─ Decide ─ Learn
//! ```
//!
//! A rule that is bent ([`Weakness`]) must break a promise, or the model is blind to it: `tests/replication.rs` tries each.
//!
//! What is one step here and several there, and why nothing is lost by it: the handshake that opens a stream (its number makes
//! late parts void); a beacon and its arrival (one that arrives late is like another one whose grant is lost); frames of a
//! primary that is gone (they could have arrived before). Left out: damage to a disk and replicas in doubt (the
//! simulator's part), `min_in_sync` (it only refuses writes), questions at an epoch that is over (they only make the asker hold
//! back), what a follower knows of the commit point (nothing is decided by it).

pub mod config;
pub mod log;
pub mod promise;
pub mod state;
pub mod step;

pub use state::State;
pub use step::Step;

use config::Config;
use log::Log;
use state::{Age, EPOCHS_MAX, Follower, Leading, NODES_MAX, Node, Phase, Promise, Role};

/// What is tried: how many nodes, how much may happen, and which rule is broken on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub nodes: u8,
    /// The first of the nodes; the others hold nothing at the start.
    pub members: u8,
    pub epochs: u8,
    pub writes: u8,
    pub crashes: u8,
    /// Whether a primary may give the lead away.
    pub hands_over: bool,
    pub timing: Timing,
    pub weakness: Option<Weakness>,
}

/// In units so small that the slowest clock counts one of them in a tick of true time.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub lease: Age,
    pub grace: Age,
    pub slow: Age,
    pub fast: Age,
}

/// A rule left out or bent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakness {
    /// The grace period is as long as a lease, although clocks drift.
    GraceIsLease,
    /// A lease counts from the receipt of the grant.
    LeaseFromReceipt,
    /// A candidate goes on granting until it hears that it leads, and forgets that when it does.
    CandidateGrants,
    /// A primary that hands over goes on answering reads.
    HandOverKeepsLease,
    /// The master lets anybody lead who asks.
    AnyoneLeads,
    /// The master goes by the length of the log instead of by membership.
    LongestLogLeads,
    /// A learner is asked for before it holds what is committed.
    LearnerJoinsEarly,
    /// Nothing waits for a learner until it has joined.
    LearnerNotWaitedFor,
    /// A write counts when a majority of the in-sync set has it.
    MajorityCommits,
    /// A backup acknowledges what it has not flushed.
    AckBeforeFlush,
    /// A backup takes frames of primaries that are none any more.
    BackupIgnoresEpoch,
    /// A new primary serves before the others hold what it holds.
    ServesUnreconciled,
    /// A new primary drops what it does not know to be committed.
    DropsUncommitted,
    /// A primary may drop itself from the set.
    PrimaryDropsItself,
    /// A primary that waits in vain for a backup goes on without asking the master.
    CommitsWithoutAsking,
}

impl Timing {
    /// ρ = 1/3: clocks run at 1 and 2 where 3/2 is right. `grace = lease·(1+ρ)/(1−ρ)`, and ε = 0, as these timers have no
    /// granularity of their own.
    pub const DRIFTING: Timing = Timing { lease: 2, grace: 4, slow: 1, fast: 2 };
    /// Clocks that all run alike.
    pub const STEADY: Timing = Timing { lease: 2, grace: 2, slow: 1, fast: 1 };
}

impl Scope {
    pub fn is_weak(&self, weakness: Weakness) -> bool {
        self.weakness == Some(weakness)
    }

    pub fn grace(&self) -> Age {
        if self.is_weak(Weakness::GraceIsLease) { self.timing.lease } else { self.timing.grace }
    }

    fn node_ids(&self) -> impl Iterator<Item = config::NodeId> + use<> {
        0..self.nodes
    }

    /// All members hold the same empty log and follow or lead at epoch 1; nothing was ever granted.
    pub fn initial(&self) -> State {
        assert!(self.members <= self.nodes && usize::from(self.nodes) <= NODES_MAX);
        assert!(usize::from(self.epochs) <= EPOCHS_MAX);
        let master = Config::initial(self.members);
        let role = |node| match node {
            0 => Role::Leading(self.new_leading(master, Phase::Reconciling { until: 0 })),
            _ if node < self.members => Role::Following { config: master, streaming: false },
            _ => Role::Idle,
        };
        let node = |at: usize| {
            let node = at as u8;
            Node {
                epoch: u8::from(node < self.members),
                log: Log::default(),
                durable: 0,
                promise: Promise {
                    passive: node > 0 && node < self.members,
                    heard: 0,
                    granted: false,
                    horizon: self.grace(),
                },
                role: if node < self.nodes { role(node) } else { Role::Down },
            }
        };
        let mut decided = [Config::default(); EPOCHS_MAX + 1];
        decided[1] = master;
        let mut state = State {
            master,
            decided,
            nodes: std::array::from_fn(node),
            asks: [None; NODES_MAX],
            late_acks: [None; NODES_MAX],
            released: None,
            committed: Log::default(),
            answered: 0,
            diverged: false,
            usurped: false,
            writes: 0,
            crashes: 0,
        };
        self.forget(&mut state);
        state
    }

    fn new_leading(&self, config: Config, phase: Phase) -> Leading {
        Leading { config, phase, committed: 0, asked: None, followers: [self.new_follower(); NODES_MAX] }
    }

    fn new_follower(&self) -> Follower {
        Follower { streaming: false, acked: 0, lease: self.timing.lease, grant: None }
    }
}
