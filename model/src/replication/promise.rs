//! What must hold at every moment, and what must be possible.

use super::config::NodeId;
use super::state::{Leading, Phase, State};
use super::{Scope, Weakness};

/// A name, and whether it holds in a state.
pub type Promise = (&'static str, fn(&Scope, &State) -> bool);

pub const ONE_READER: &str = "at most one node answers reads";
pub const NO_STALE_READ: &str = "who answers reads holds all that was answered before";
pub const NOTHING_LOST: &str = "every in-sync replica holds all that is committed";
pub const ONE_PREFIX: &str = "committed prefixes agree";
pub const SET_STANDS: &str = "the in-sync set holds its primary, and only a member takes the lead";

pub const ANSWERED: &str = "a write is answered";
pub const ANSWERED_AFTER_FAILOVER: &str = "a write is answered after a failover";
pub const INHERITED: &str = "a later primary answers reads of what an earlier one wrote";
pub const ON_ITS_OWN: &str = "a primary goes on alone";
pub const REJOINED: &str = "a node that was out is in sync, under a primary that serves";

/// Never broken.
pub const ALWAYS: [Promise; 5] = [
    (ONE_READER, |scope, state| scope.node_ids().filter(|&node| scope.answers_reads(state, node)).count() <= 1),
    (NO_STALE_READ, |scope, state| {
        let answered = state.committed.prefix(state.answered);
        let mut readers = scope.node_ids().filter(|&node| scope.answers_reads(state, node));
        readers.all(|node| answered.is_prefix_of(&state.node(node).committed()))
    }),
    (NOTHING_LOST, |_, state| {
        let mut members = state.master.in_sync.iter().map(|node| state.node(node));
        members.all(|node| node.durable >= state.committed.len() && state.committed.is_prefix_of(&node.log))
    }),
    (ONE_PREFIX, |scope, state| {
        !state.diverged && scope.node_ids().all(|node| state.node(node).committed().is_prefix_of(&state.committed))
    }),
    (SET_STANDS, |_, state| {
        let master = &state.master;
        let overlap = master.in_sync.iter().any(|node| master.learners.contains(node));
        master.in_sync.contains(master.primary) && !overlap && !state.usurped
    }),
];

/// Reached by some run: a model in which nothing can go on keeps every promise.
pub const SOMETIMES: [Promise; 5] = [
    (ANSWERED, |_, state| state.answered > 0),
    (ANSWERED_AFTER_FAILOVER, |_, state| {
        let answered = state.committed.prefix(state.answered);
        answered.entries().first() == Some(&1) && answered.entries().last() > Some(&1)
    }),
    (INHERITED, |scope, state| {
        let inherited = state.answered > 0 && state.committed.entries()[0] == 1;
        let later = |node: NodeId| node != 0 && scope.answers_reads(state, node);
        inherited && scope.node_ids().any(later)
    }),
    (ON_ITS_OWN, |scope, state| {
        let alone = |leading: &Leading| leading.phase == Phase::Serving && leading.config.in_sync.len() == 1;
        state.answered > 0 && scope.node_ids().any(|node| state.node(node).leading().is_some_and(alone))
    }),
    (REJOINED, |scope, state| {
        let rejoined = |leading: &Leading| {
            leading.phase == Phase::Serving && leading.config.epoch >= 4 && leading.config.in_sync.len() >= 2
        };
        scope.node_ids().any(|node| state.node(node).leading().is_some_and(rejoined))
    }),
];

impl Scope {
    /// Whether a read that arrives at `node` now is answered.
    pub fn answers_reads(&self, state: &State, node: NodeId) -> bool {
        let Some(leading) = state.node(node).leading() else { return false };
        let serves = match leading.phase {
            Phase::Reconciling { .. } => false,
            Phase::Serving => true,
            Phase::Resigning { .. } => self.is_weak(Weakness::HandOverKeepsLease),
        };
        let granted = |backup: NodeId| leading.followers[backup as usize].lease < self.timing.lease;
        serves && self.commits_with(node, leading).iter().all(granted)
    }
}
