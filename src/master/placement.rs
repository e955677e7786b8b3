//! Placement: which server begins to copy which region, and which gives up.
//!
//! It is level-triggered: each round compares what the catalog says with what servers report, and names at most one step
//! for a region. A step that is lost, refused or overtaken costs nothing: the next round sees the world as it is then.
//! There is no state of "being moved" to get stuck in.
//!
//! Placement adds and removes learners, which count for nothing until the primary admits them. It never touches primaries
//! and in-sync sets: only servers know who holds what.
//!
//! [`plan`] and the functions beside it are pure. What the active master has seen ([`View`]) and what placement remembers
//! of its own rounds ([`Memory`]) are volatile: a new active master begins with neither and waits a little.
//!
//! Missing on purpose: balance of regions among servers that are all well. A server that joins takes its share of new
//! tables and of what others lose.

use super::limits::{LEARNERS_PER_SERVER_MAX, STEPS_PER_ROUND_MAX};
use super::state::{Catalog, Region};
use crate::protocol::message::{Error, ReplicaReport, ReplicaState, Report, ServerLoad};
use crate::region::{Change, Epoch, RegionId, ServerId, TableSpec};
use std::collections::BTreeMap;

/// What the active master has heard from servers since it became active. Times are its own monotonic milliseconds.
#[derive(Clone, Debug, Default)]
pub struct View {
    servers: BTreeMap<ServerId, Seen>,
    /// When this master became active.
    pub active_since_ms: u64,
    /// A server is alive if it was heard from within this time.
    pub liveness_ms: u64,
}

/// The last that was heard from a server.
#[derive(Clone, Debug, Default)]
struct Seen {
    at_ms: u64,
    replicas: BTreeMap<RegionId, ReplicaReport>,
    load: ServerLoad,
}

/// How patient placement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A region is short of replicas for so long before a server that never held it copies it: most servers come back.
    pub missing_ms: u64,
    /// A dead learner is given up after this, if another server is free.
    pub learner_ms: u64,
    /// Between two steps of one region.
    pub step_ms: u64,
}

/// What placement remembers from round to round.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Since when a region has been short of replicas.
    short_since: BTreeMap<RegionId, u64>,
    /// When a step of the region was last proposed.
    stepped: BTreeMap<RegionId, u64>,
}

/// A proposal of placement's: [`Change::AddLearner`] or [`Change::RemoveLearner`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub region: RegionId,
    pub epoch: Epoch,
    pub change: Change,
}

impl View {
    pub fn new(active_since_ms: u64, liveness_ms: u64) -> View {
        View { servers: BTreeMap::new(), active_since_ms, liveness_ms }
    }

    /// A sign of life that says nothing of replicas: a registration.
    pub fn seen(&mut self, server: ServerId, now_ms: u64) {
        self.servers.entry(server).or_default().at_ms = now_ms;
    }

    pub fn reported(&mut self, report: Report, now_ms: u64) {
        let replicas = report.replicas.into_iter().map(|replica| (replica.region, replica)).collect();
        self.servers.insert(report.server, Seen { at_ms: now_ms, replicas, load: report.load });
    }

    pub fn is_alive(&self, server: ServerId, now_ms: u64) -> bool {
        self.servers.get(&server).is_some_and(|seen| now_ms.saturating_sub(seen.at_ms) <= self.liveness_ms)
    }

    /// How long nothing was heard from `server`; at most since this master became active.
    fn silent_ms(&self, server: ServerId, now_ms: u64) -> u64 {
        let at_ms = self.servers.get(&server).map_or(0, |seen| seen.at_ms);
        now_ms.saturating_sub(at_ms.max(self.active_since_ms))
    }

    /// Whether every server has had the time to report.
    pub fn is_settled(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.active_since_ms) > self.liveness_ms
    }

    /// What `server` last said of its replica of `region`.
    pub fn replica(&self, server: ServerId, region: RegionId) -> Option<&ReplicaReport> {
        self.servers.get(&server)?.replicas.get(&region)
    }

    pub fn load(&self, server: ServerId) -> Option<&ServerLoad> {
        Some(&self.servers.get(&server)?.load)
    }

    /// Whether the region's primary is alive and answers.
    pub fn is_served(&self, region: &Region, now_ms: u64) -> bool {
        let serves = |primary| {
            let report = self.replica(primary, region.config.region);
            self.is_alive(primary, now_ms) && report.is_some_and(|report| report.state == ReplicaState::Serving)
        };
        region.config.primary.is_some_and(serves)
    }
}

/// Replicas on each server, kept up while a round hands out more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub primaries: usize,
    /// All members, learners included.
    pub replicas: usize,
    pub learners: usize,
}

/// Every registered server's share.
pub fn shares(catalog: &Catalog) -> BTreeMap<ServerId, Share> {
    let mut shares: BTreeMap<_, _> = catalog.servers().keys().map(|&server| (server, Share::default())).collect();
    let mut count = |server: &ServerId, add: fn(&mut Share)| {
        let share = shares.get_mut(server).expect("members are registered");
        share.replicas += 1;
        add(share);
    };
    for region in catalog.regions().values() {
        let config = &region.config;
        config.in_sync.iter().filter(|&&member| config.is_primary(member)).for_each(|s| count(s, |s| s.primaries += 1));
        config.in_sync.iter().filter(|&&member| !config.is_primary(member)).for_each(|s| count(s, |_| ()));
        config.learners.iter().for_each(|s| count(s, |s| s.learners += 1));
    }
    shares
}

/// Members for the regions of a new table, the primary first: servers that are alive, those with the least first.
///
/// With fewer than `factor` of them alive the regions begin smaller and grow by learners; with fewer than `min_in_sync`
/// the table could not be written, and there is no point in making it.
pub fn choose_members(
    catalog: &Catalog,
    view: &View,
    spec: &TableSpec,
    regions: usize,
    now_ms: u64,
) -> Result<Vec<Vec<ServerId>>, Error> {
    let mut shares = shares(catalog);
    shares.retain(|&server, _| catalog.address(server).is_some() && view.is_alive(server, now_ms));
    let wanted = usize::from(spec.factor).min(shares.len());
    if wanted < usize::from(spec.min_in_sync) || wanted < usize::from(spec.factor) && !view.is_settled(now_ms) {
        let message = format!("{} servers are alive; factor {} needs more", shares.len(), spec.factor);
        return Err(Error::unavailable(message));
    }
    Ok((0..regions).map(|_| choose_region(&mut shares, wanted)).collect())
}

fn choose_region(shares: &mut BTreeMap<ServerId, Share>, wanted: usize) -> Vec<ServerId> {
    let mut members = Vec::with_capacity(wanted);
    let primary = *shares.iter().min_by_key(|(id, s)| (s.primaries, s.replicas, **id)).expect("some are alive").0;
    shares.get_mut(&primary).expect("chosen from it").primaries += 1;
    members.push(primary);
    while members.len() < wanted {
        let others = shares.iter().filter(|(id, _)| !members.contains(id));
        members.push(*others.min_by_key(|(id, s)| (s.replicas, **id)).expect("as many as wanted are alive").0);
    }
    for member in &members {
        shares.get_mut(member).expect("chosen from it").replicas += 1;
    }
    members
}

/// The steps of one round.
pub fn plan(catalog: &Catalog, view: &View, patience: &Patience, memory: &mut Memory, now_ms: u64) -> Vec<Step> {
    memory.observe(catalog, now_ms);
    let mut round = Round { catalog, view, patience, shares: shares(catalog), now_ms };
    let mut steps = Vec::new();
    if !view.is_settled(now_ms) {
        return steps;
    }
    for (&id, region) in catalog.regions() {
        if steps.len() == STEPS_PER_ROUND_MAX {
            break;
        }
        if memory.is_cool(id, patience.step_ms, now_ms)
            && let Some(change) = round.step(region, memory.short_ms(id, now_ms))
        {
            memory.stepped.insert(id, now_ms);
            steps.push(Step { region: id, epoch: region.config.epoch, change });
        }
    }
    steps
}

impl Memory {
    fn observe(&mut self, catalog: &Catalog, now_ms: u64) {
        let regions = catalog.regions();
        self.stepped.retain(|id, _| regions.contains_key(id));
        self.short_since.retain(|id, _| regions.get(id).is_some_and(|region| is_short(catalog, region)));
        for (&id, _) in regions.iter().filter(|(_, region)| is_short(catalog, region)) {
            self.short_since.entry(id).or_insert(now_ms);
        }
    }

    fn is_cool(&self, region: RegionId, step_ms: u64, now_ms: u64) -> bool {
        self.stepped.get(&region).is_none_or(|&at_ms| now_ms.saturating_sub(at_ms) >= step_ms)
    }

    fn short_ms(&self, region: RegionId, now_ms: u64) -> u64 {
        self.short_since.get(&region).map_or(0, |&since_ms| now_ms.saturating_sub(since_ms))
    }
}

/// Whether a region has fewer members than its table asks for, those that still copy included.
fn is_short(catalog: &Catalog, region: &Region) -> bool {
    region.config.in_sync.len() + region.config.learners.len() < usize::from(catalog.table_of(region).spec.factor)
}

struct Round<'a> {
    catalog: &'a Catalog,
    view: &'a View,
    patience: &'a Patience,
    shares: BTreeMap<ServerId, Share>,
    now_ms: u64,
}

impl Round<'_> {
    fn step(&mut self, region: &Region, short_ms: u64) -> Option<Change> {
        if let Some(server) = self.learner_to_give_up(region) {
            return Some(Change::RemoveLearner { server });
        }
        if !is_short(self.catalog, region) || region.config.primary.is_none() {
            return None;
        }
        let server = self.learner_to_add(region, short_ms)?;
        let share = self.shares.get_mut(&server).expect("chosen from it");
        share.learners += 1;
        share.replicas += 1;
        Some(Change::AddLearner { server })
    }

    /// One too many, or one that has been silent for long while another could take its place.
    fn learner_to_give_up(&self, region: &Region) -> Option<ServerId> {
        let config = &region.config;
        let factor = usize::from(self.catalog.table_of(region).spec.factor);
        if config.in_sync.len() + config.learners.len() > factor {
            return config.learners.last().copied();
        }
        let patience_ms = self.patience.learner_ms;
        let dead = |learner: &&ServerId| self.view.silent_ms(**learner, self.now_ms) > patience_ms;
        let learner = config.learners.iter().find(dead)?;
        self.candidates(region).next().map(|_| *learner)
    }

    /// A former holder is taken at once: it lacks only what was written since. Anyone else copies all of it, so the
    /// missing replica gets time to come back first.
    fn learner_to_add(&self, region: &Region, short_ms: u64) -> Option<ServerId> {
        let id = region.config.region;
        let former = self.candidates(region).filter(|(server, _)| {
            self.view.replica(*server, id).is_some_and(|replica| replica.state == ReplicaState::Former)
        });
        let durable = |server| self.view.replica(server, id).map(|replica| replica.durable);
        if let Some((server, _)) = former.max_by_key(|&(server, _)| (durable(server), std::cmp::Reverse(server))) {
            return Some(server);
        }
        if short_ms < self.patience.missing_ms {
            return None;
        }
        self.candidates(region).min_by_key(|(server, share)| (share.replicas, *server)).map(|(server, _)| server)
    }

    /// Live servers outside the region that have room for one more copy.
    fn candidates<'a>(&'a self, region: &'a Region) -> impl Iterator<Item = (ServerId, Share)> + 'a {
        let shares = self.shares.iter().map(|(&server, &share)| (server, share));
        shares.filter(|(server, share)| {
            !region.config.is_member(*server)
                && self.view.is_alive(*server, self.now_ms)
                && self.catalog.address(*server).is_some()
                && share.learners < LEARNERS_PER_SERVER_MAX
        })
    }
}

/// Of the regions that `server` reports, those whose data it may delete: the region was dropped, or it is at its full
/// factor without this server. The server checks against its own newest assignment before it does.
pub fn discards(catalog: &Catalog, server: ServerId, reported: &[ReplicaReport]) -> Vec<RegionId> {
    let may_go = |id: &RegionId| match catalog.regions().get(id) {
        None => catalog.is_dropped(*id),
        Some(region) => {
            let factor = usize::from(catalog.table_of(region).spec.factor);
            !region.config.is_member(server) && region.config.in_sync.len() >= factor
        }
    };
    reported.iter().map(|replica| replica.region).filter(may_go).collect()
}

#[cfg(test)]
mod tests;
