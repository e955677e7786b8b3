//! What the active master knows beside the catalog. Volatile: it begins with the lead and ends with it.

use crate::master::limits::{HAND_OVER_MS, HAND_OVERS_MAX};
use crate::master::placement::{self, Memory, Patience, Step, View};
use crate::master::state::Catalog;
use crate::protocol::message::Error;
use crate::region::{Epoch, RegionId, ServerId};
use std::collections::BTreeMap;

pub struct Active {
    pub term: u64,
    /// A majority has confirmed the lead since then.
    pub confirmed_ms: u64,
    pub view: View,
    memory: Memory,
    hand_overs: BTreeMap<RegionId, HandOver>,
}

/// An operator's wish that `to` lead, told to the present primary until it is so or too old.
struct HandOver {
    to: ServerId,
    since_ms: u64,
}

impl Active {
    pub fn new(term: u64, now_ms: u64, liveness_ms: u64) -> Active {
        let view = View::new(now_ms, liveness_ms);
        Active { term, confirmed_ms: now_ms, view, memory: Memory::default(), hand_overs: BTreeMap::new() }
    }

    pub fn plan(&mut self, catalog: &Catalog, patience: &Patience, now_ms: u64) -> Vec<Step> {
        self.hand_overs.retain(|id, wish| {
            let is_open = catalog.regions().get(id).is_some_and(|region| !region.config.is_primary(wish.to));
            is_open && now_ms.saturating_sub(wish.since_ms) < HAND_OVER_MS
        });
        placement::plan(catalog, &self.view, patience, &mut self.memory, now_ms)
    }

    pub fn wish(&mut self, region: RegionId, to: ServerId, now_ms: u64) -> Result<(), Error> {
        if self.hand_overs.len() >= HAND_OVERS_MAX && !self.hand_overs.contains_key(&region) {
            return Err(Error::unavailable(format!("{HAND_OVERS_MAX} hand-overs are under way")));
        }
        self.hand_overs.insert(region, HandOver { to, since_ms: now_ms });
        Ok(())
    }

    /// Regions that `server` leads and is to hand over, at their epochs, and to whom.
    pub fn hand_overs(&self, catalog: &Catalog, server: ServerId) -> Vec<(RegionId, Epoch, ServerId)> {
        let due = |(&id, wish): (&RegionId, &HandOver)| {
            let config = &catalog.regions().get(&id)?.config;
            let is_due = config.is_primary(server) && wish.to != server && config.is_in_sync(wish.to);
            is_due.then_some((id, config.epoch, wish.to))
        };
        self.hand_overs.iter().filter_map(due).collect()
    }
}
