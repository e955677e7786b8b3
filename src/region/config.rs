//! Who holds a region, and the only ways in which that may change.
//!
//! The rules that keep acknowledged writes safe are written here, once, as [`RegionConfig::change`]; the master applies
//! it in its state machine, and the model and the simulator check against it:
//!
//! - each change adds exactly one to the epoch;
//! - the in-sync set never becomes empty;
//! - only a member of the last in-sync set may lead, unless an operator accepts the loss;
//! - only the primary shrinks or grows the set it commits with.

use serde::{Deserialize, Serialize};
use storage::{Epoch, RegionId};

/// A region server's identity, given by the master group at its first registration and kept in its data folder. A server
/// that lost its folder is another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId(pub u64);

impl std::fmt::Display for ServerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The replicas of a region at one epoch. Lists are in the order in which members came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionConfig {
    pub region: RegionId,
    pub epoch: Epoch,
    /// `None` when the last primary left and nobody has asked to follow it.
    pub primary: Option<ServerId>,
    /// Every one of them holds every committed record. Contains the primary.
    pub in_sync: Vec<ServerId>,
    /// They copy the log and count for nothing yet.
    pub learners: Vec<ServerId>,
    /// When an operator last accepted a loss; 0 if never. It is what a last replica in doubt waits for.
    pub loss_accepted: Epoch,
}

/// One step from a configuration to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// `candidate`, a member of the in-sync set, leads from now on. The primary it replaces leaves the set; a primary
    /// that restarted and asks for itself keeps the set as it is.
    Promote { candidate: ServerId },
    /// The primary goes on without these backups.
    Drop { by: ServerId, backups: Vec<ServerId> },
    /// The primary takes a learner that holds all it holds into the in-sync set.
    Admit { by: ServerId, learner: ServerId },
    /// The primary, which no longer serves, gives the lead to a backup. The set stays.
    HandOver { by: ServerId, to: ServerId },
    /// A member whose store can no longer be trusted leaves. Refused to the last member.
    Leave { server: ServerId },
    /// Placement: a server begins to copy the region.
    AddLearner { server: ServerId },
    /// Placement: a learner is given up.
    RemoveLearner { server: ServerId },
    /// An operator accepts the loss of what the in-sync set holds and `survivor` does not.
    AcceptLoss { survivor: ServerId },
}

/// Why a change was refused. The configuration is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Illegal {
    #[error("server {0} is not in the in-sync set")]
    NotInSync(ServerId),
    #[error("server {0} is not the primary")]
    NotPrimary(ServerId),
    #[error("server {0} is not a learner")]
    NotLearner(ServerId),
    #[error("server {0} already holds the region")]
    AlreadyMember(ServerId),
    #[error("server {0} is the last in-sync replica")]
    LastReplica(ServerId),
    #[error("the change names nobody, or the primary itself")]
    Empty,
}

impl RegionConfig {
    /// A new region: all of `members` start with the same, empty log.
    pub fn initial(region: RegionId, members: Vec<ServerId>) -> RegionConfig {
        RegionConfig {
            region,
            epoch: Epoch(1),
            primary: members.first().copied(),
            in_sync: members,
            learners: Vec::new(),
            loss_accepted: Epoch(0),
        }
    }

    pub fn is_primary(&self, server: ServerId) -> bool {
        self.primary == Some(server)
    }

    pub fn is_in_sync(&self, server: ServerId) -> bool {
        self.in_sync.contains(&server)
    }

    pub fn is_learner(&self, server: ServerId) -> bool {
        self.learners.contains(&server)
    }

    pub fn is_member(&self, server: ServerId) -> bool {
        self.is_in_sync(server) || self.is_learner(server)
    }

    /// Every replica but `server`.
    pub fn others(&self, server: ServerId) -> impl Iterator<Item = ServerId> + '_ {
        self.in_sync.iter().chain(&self.learners).copied().filter(move |&other| other != server)
    }

    /// The configuration after `change`, or why it may not be.
    pub fn change(&self, change: &Change) -> Result<RegionConfig, Illegal> {
        let mut next = self.clone();
        next.epoch = self.epoch.next();
        match change {
            Change::Promote { candidate } => next.promote(*candidate)?,
            Change::Drop { by, backups } => next.drop_backups(*by, backups)?,
            Change::Admit { by, learner } => next.admit(*by, *learner)?,
            Change::HandOver { by, to } => next.hand_over(*by, *to)?,
            Change::Leave { server } => next.leave(*server)?,
            Change::AddLearner { server } => next.add_learner(*server)?,
            Change::RemoveLearner { server } => next.remove_learner(*server)?,
            Change::AcceptLoss { survivor } => next.accept_loss(*survivor),
        }
        assert!(!next.in_sync.is_empty(), "{change:?} emptied the in-sync set of {self:?}");
        Ok(next)
    }

    fn promote(&mut self, candidate: ServerId) -> Result<(), Illegal> {
        self.require_in_sync(candidate)?;
        if let Some(old) = self.primary.filter(|&old| old != candidate) {
            self.in_sync.retain(|&member| member != old);
        }
        self.primary = Some(candidate);
        Ok(())
    }

    fn drop_backups(&mut self, by: ServerId, backups: &[ServerId]) -> Result<(), Illegal> {
        self.require_primary(by)?;
        if backups.is_empty() || backups.contains(&by) {
            return Err(Illegal::Empty);
        }
        backups.iter().try_for_each(|&backup| self.require_in_sync(backup))?;
        self.in_sync.retain(|member| !backups.contains(member));
        Ok(())
    }

    fn admit(&mut self, by: ServerId, learner: ServerId) -> Result<(), Illegal> {
        self.require_primary(by)?;
        self.remove_learner(learner)?;
        self.in_sync.push(learner);
        Ok(())
    }

    fn hand_over(&mut self, by: ServerId, to: ServerId) -> Result<(), Illegal> {
        self.require_primary(by)?;
        self.require_in_sync(to)?;
        if to == by {
            return Err(Illegal::Empty);
        }
        self.primary = Some(to);
        Ok(())
    }

    fn leave(&mut self, server: ServerId) -> Result<(), Illegal> {
        if self.is_learner(server) {
            return self.remove_learner(server);
        }
        self.require_in_sync(server)?;
        if self.in_sync.len() == 1 {
            return Err(Illegal::LastReplica(server));
        }
        self.in_sync.retain(|&member| member != server);
        self.primary = self.primary.filter(|&primary| primary != server);
        Ok(())
    }

    fn add_learner(&mut self, server: ServerId) -> Result<(), Illegal> {
        if self.is_member(server) {
            return Err(Illegal::AlreadyMember(server));
        }
        self.learners.push(server);
        Ok(())
    }

    fn remove_learner(&mut self, server: ServerId) -> Result<(), Illegal> {
        if !self.is_learner(server) {
            return Err(Illegal::NotLearner(server));
        }
        self.learners.retain(|&learner| learner != server);
        Ok(())
    }

    fn accept_loss(&mut self, survivor: ServerId) {
        self.learners.retain(|&learner| learner != survivor);
        self.in_sync = vec![survivor];
        self.primary = Some(survivor);
        self.loss_accepted = self.epoch;
    }

    fn require_in_sync(&self, server: ServerId) -> Result<(), Illegal> {
        if self.is_in_sync(server) { Ok(()) } else { Err(Illegal::NotInSync(server)) }
    }

    fn require_primary(&self, server: ServerId) -> Result<(), Illegal> {
        if self.is_primary(server) { Ok(()) } else { Err(Illegal::NotPrimary(server)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ServerId = ServerId(1);
    const B: ServerId = ServerId(2);
    const C: ServerId = ServerId(3);

    fn abc() -> RegionConfig {
        RegionConfig::initial(RegionId(7), vec![A, B, C])
    }

    #[test]
    fn a_backup_that_takes_over_expels_the_old_primary() {
        let next = abc().change(&Change::Promote { candidate: B }).unwrap();
        assert_eq!((next.epoch, next.primary, next.in_sync), (Epoch(2), Some(B), vec![B, C]));
    }

    #[test]
    fn a_primary_that_restarted_keeps_its_backups() {
        let next = abc().change(&Change::Promote { candidate: A }).unwrap();
        assert_eq!((next.primary, next.in_sync), (Some(A), vec![A, B, C]));
    }

    #[test]
    fn only_a_member_of_the_last_set_may_lead() {
        let without_c = abc().change(&Change::Drop { by: A, backups: vec![C] }).unwrap();
        assert_eq!(without_c.change(&Change::Promote { candidate: C }), Err(Illegal::NotInSync(C)));
        let learning = without_c.change(&Change::AddLearner { server: C }).unwrap();
        assert_eq!(learning.change(&Change::Promote { candidate: C }), Err(Illegal::NotInSync(C)));
        assert_eq!(learning.change(&Change::HandOver { by: A, to: C }), Err(Illegal::NotInSync(C)));
        let back = learning.change(&Change::Admit { by: A, learner: C }).unwrap();
        assert!(back.change(&Change::Promote { candidate: C }).is_ok());
    }

    #[test]
    fn the_set_never_becomes_empty() {
        let alone = abc().change(&Change::Drop { by: A, backups: vec![B, C] }).unwrap();
        assert_eq!(alone.change(&Change::Leave { server: A }), Err(Illegal::LastReplica(A)));
        assert_eq!(alone.change(&Change::Drop { by: A, backups: vec![A] }), Err(Illegal::Empty));
    }

    #[test]
    fn only_the_primary_changes_the_set_it_commits_with() {
        assert_eq!(abc().change(&Change::Drop { by: B, backups: vec![C] }), Err(Illegal::NotPrimary(B)));
        let learning = abc().change(&Change::AddLearner { server: ServerId(4) }).unwrap();
        let admit = Change::Admit { by: C, learner: ServerId(4) };
        assert_eq!(learning.change(&admit), Err(Illegal::NotPrimary(C)));
    }

    #[test]
    fn a_primary_that_leaves_names_no_successor() {
        let next = abc().change(&Change::Leave { server: A }).unwrap();
        assert_eq!((next.primary, next.in_sync), (None, vec![B, C]));
    }
}
