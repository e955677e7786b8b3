//! Which replica answers for which region here, and where the other servers are.

use crate::protocol::pool::Pool;
use crate::protocol::{Error, ErrorCode};
use crate::region::{RegionId, ServerId};
use crate::replication::{PeerMessage, Peers, Replica};
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

/// The replicas of a server, shared by its listener and its agent.
#[derive(Clone, Default)]
pub struct Routes {
    replicas: Arc<RwLock<BTreeMap<RegionId, Replica>>>,
}

impl Routes {
    pub fn get(&self, region: RegionId) -> Option<Replica> {
        self.read().get(&region).cloned()
    }

    /// The replica, or the error that sends a client back to its region map.
    pub fn find(&self, region: RegionId) -> Result<Replica, Error> {
        self.get(region)
            .ok_or_else(|| Error::new(ErrorCode::WrongRegion, format!("no replica of region {region} is here")))
    }

    pub fn all(&self) -> Vec<Replica> {
        self.read().values().cloned().collect()
    }

    pub fn insert(&self, replica: Replica) {
        self.replicas.write().expect("no holder panics").insert(replica.region(), replica);
    }

    pub fn remove(&self, region: RegionId) -> Option<Replica> {
        self.replicas.write().expect("no holder panics").remove(&region)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<RegionId, Replica>> {
        self.replicas.read().expect("no holder panics")
    }
}

/// The way to other servers, by the addresses that the master group knows.
pub struct PeerBook {
    pool: Pool,
    addresses: RwLock<BTreeMap<ServerId, String>>,
}

impl PeerBook {
    pub fn new(pool: Pool) -> PeerBook {
        PeerBook { pool, addresses: RwLock::default() }
    }

    pub fn learn(&self, addresses: Vec<(ServerId, String)>) {
        *self.addresses.write().expect("no holder panics") = addresses.into_iter().collect();
    }
}

impl Peers for PeerBook {
    fn send(&self, to: ServerId, message: PeerMessage) {
        let address = self.addresses.read().expect("no holder panics").get(&to).cloned();
        match address {
            // A message that cannot be sent is lost, and its sender asks again.
            Some(address) => drop(self.pool.peer(&address, &message)),
            None => tracing::debug!(%to, "no address is known for a server"),
        }
    }
}
