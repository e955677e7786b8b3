//! The configuration service: who holds the region, and the only ways in which that may change. One register with
//! compare-and-set on the epoch; that several masters agree on it is openraft's part and taken for granted here.

use super::Weakness;
use std::fmt;

pub type NodeId = u8;

/// Nodes, by one bit each.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Nodes(u8);

impl Nodes {
    pub fn first(count: u8) -> Nodes {
        Nodes((1 << count) - 1)
    }

    pub fn from_bits(bits: u8) -> Nodes {
        Nodes(bits)
    }

    pub fn is_within(self, other: Nodes) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn contains(self, node: NodeId) -> bool {
        self.0 >> node & 1 == 1
    }

    #[must_use]
    pub fn with(self, node: NodeId) -> Nodes {
        Nodes(self.0 | 1 << node)
    }

    #[must_use]
    pub fn without(self, node: NodeId) -> Nodes {
        Nodes(self.0 & !(1 << node))
    }

    pub fn union(self, other: Nodes) -> Nodes {
        Nodes(self.0 | other.0)
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        (0..8).filter(move |&node| self.contains(node))
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The replicas at one epoch. Epoch 0 stands for "no configuration".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Config {
    pub epoch: u8,
    pub primary: NodeId,
    pub in_sync: Nodes,
    pub learners: Nodes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Promote { candidate: NodeId },
    Drop { by: NodeId, backup: NodeId },
    Admit { by: NodeId, learner: NodeId },
    HandOver { by: NodeId, to: NodeId },
    AddLearner { node: NodeId },
}

impl Config {
    pub fn initial(members: u8) -> Config {
        Config { epoch: 1, primary: 0, in_sync: Nodes::first(members), learners: Nodes::default() }
    }

    pub fn members(&self) -> Nodes {
        self.in_sync.union(self.learners)
    }

    /// The configuration after `change`; `None` when it may not be.
    pub fn change(&self, change: Change, weakness: Option<Weakness>) -> Option<Config> {
        let mut next = *self;
        next.epoch += 1;
        match change {
            Change::Promote { candidate } => next.promote(candidate, weakness)?,
            Change::Drop { by, backup }
                if by == self.primary && (by != backup || weakness == Some(Weakness::PrimaryDropsItself)) =>
            {
                next.in_sync = self.in_sync.without(backup);
            }
            Change::Admit { by, learner } if by == self.primary && self.learners.contains(learner) => {
                next.learners = self.learners.without(learner);
                next.in_sync = self.in_sync.with(learner);
            }
            Change::HandOver { by, to } if by == self.primary && by != to && self.in_sync.contains(to) => {
                next.primary = to;
            }
            Change::AddLearner { node } if !self.members().contains(node) => {
                next.learners = self.learners.with(node);
            }
            _ => return None,
        }
        Some(next)
    }

    /// Only a member of the set leads. The primary it replaces leaves the set; one that restarted keeps it.
    fn promote(&mut self, candidate: NodeId, weakness: Option<Weakness>) -> Option<()> {
        let by_membership = !matches!(weakness, Some(Weakness::AnyoneLeads | Weakness::LongestLogLeads));
        if by_membership && !self.in_sync.contains(candidate) {
            return None;
        }
        if self.primary != candidate {
            self.in_sync = self.in_sync.without(self.primary);
        }
        self.primary = candidate;
        self.in_sync = self.in_sync.with(candidate);
        self.learners = self.learners.without(candidate);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_takes_over_expels_the_old_primary_and_one_that_restarted_keeps_the_set() {
        let first = Config::initial(3);
        let over = first.change(Change::Promote { candidate: 1 }, None).unwrap();
        assert_eq!((over.epoch, over.primary, over.in_sync), (2, 1, Nodes::first(3).without(0)));
        assert_eq!(first.change(Change::Promote { candidate: 0 }, None).unwrap().in_sync, Nodes::first(3));
    }

    #[test]
    fn who_is_not_in_sync_does_not_lead() {
        let alone = Config::initial(2).change(Change::Drop { by: 0, backup: 1 }, None).unwrap();
        assert_eq!(alone.change(Change::Promote { candidate: 1 }, None), None);
        let learning = alone.change(Change::AddLearner { node: 1 }, None).unwrap();
        assert_eq!(learning.change(Change::Promote { candidate: 1 }, None), None);
        assert_eq!(learning.change(Change::HandOver { by: 0, to: 1 }, None), None);
        assert!(alone.change(Change::Promote { candidate: 1 }, Some(Weakness::AnyoneLeads)).is_some());
    }

    #[test]
    fn only_the_primary_changes_the_set_it_commits_with() {
        let config = Config::initial(2).change(Change::AddLearner { node: 2 }, None).unwrap();
        assert_eq!(config.change(Change::Drop { by: 1, backup: 0 }, None), None);
        assert_eq!(config.change(Change::Admit { by: 1, learner: 2 }, None), None);
        assert_eq!(config.change(Change::Drop { by: 0, backup: 0 }, None), None);
    }
}
