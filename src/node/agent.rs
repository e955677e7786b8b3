//! What a server does for the master group: reports what it holds, and brings what it holds to what it is told.
//!
//! Level-triggered: each report says all, each answer says what should be, and a step that failed is taken again at the
//! next answer.

use crate::node::identity::Holdings;
use crate::node::masters::MasterGroup;
use crate::node::routes::{PeerBook, Routes};
use crate::protocol::{Assignment, ControlRequest, ControlResponse, ReplicaReport, Report, ServerLoad};
use crate::region::{RegionId, RegionInfo};
use crate::replication::{Context, Replica};
use std::sync::Arc;
use std::time::Duration;

pub struct Agent {
    pub context: Arc<Context>,
    pub routes: Routes,
    pub peers: Arc<PeerBook>,
    pub masters: MasterGroup,
    pub holdings: Holdings,
    pub incarnation: u64,
    pub report_every: Duration,
    /// Writes are refused when less than this is free.
    pub reserve_bytes: u64,
    /// The catalog version that was acted upon.
    pub known: u64,
}

impl Agent {
    /// Never ends by itself.
    pub async fn run(mut self) {
        loop {
            let report = self.report().await;
            match self.masters.control(ControlRequest::Report(report)).await {
                Ok(ControlResponse::Assigned(assignment)) => self.act(assignment).await,
                Ok(other) => tracing::error!(?other, "a master answered a report with something else"),
                Err(error) => tracing::debug!(%error, "no master took the report"),
            }
            self.context.env.sleep(self.report_every).await;
        }
    }

    async fn report(&self) -> Report {
        let replicas = self.routes.all();
        let mut reports: Vec<ReplicaReport> = replicas.iter().map(Replica::report).collect();
        let idle = self.holdings.iter().filter(|region| self.routes.get(*region).is_none());
        reports.extend(idle.map(ReplicaReport::idle));
        Report {
            server: self.context.me,
            incarnation: self.incarnation,
            known: self.known,
            load: self.load(&replicas, &reports).await,
            replicas: reports,
        }
    }

    async fn load(&self, replicas: &[Replica], reports: &[ReplicaReport]) -> ServerLoad {
        let disk = self.context.env.disk();
        let free_bytes = disk.free_bytes().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot tell how much disk is free");
            0
        });
        self.context.set_disk_full(free_bytes < self.reserve_bytes);
        let reads = self.context.log.cache.stats();
        let mut load = ServerLoad {
            io_backend: disk.backend().to_owned(),
            free_bytes,
            cache_bytes: reads.cache_bytes,
            cache_hits: reads.hits,
            cache_misses: reads.misses,
            false_reads: reads.false_reads,
            ..ServerLoad::default()
        };
        for size in replicas.iter().map(Replica::size) {
            load.keys += size.keys;
            load.index_bytes += size.index_bytes;
        }
        for space in reports.iter().map(|report| report.space) {
            load.log_bytes += space.log_bytes;
            load.compactions += space.compactions;
            load.compacting += space.compacting as u64;
        }
        load
    }

    async fn act(&mut self, assignment: Assignment) {
        if let Some(servers) = assignment.servers {
            self.peers.learn(servers);
        }
        let acted = match assignment.regions {
            Some(regions) => self.assign(regions).await,
            None => true,
        };
        for region in assignment.discard {
            self.discard(region).await;
        }
        for (region, epoch, to) in assignment.hand_over {
            if let Some(replica) = self.routes.get(region) {
                replica.hand_over(epoch, to);
            }
        }
        if acted {
            self.known = assignment.version;
        }
    }

    /// False when it must be told again.
    async fn assign(&mut self, regions: Vec<RegionInfo>) -> bool {
        let mut all_told = true;
        let mut started = Vec::new();
        for info in regions {
            let region = info.config.region;
            match self.routes.get(region) {
                Some(replica) => all_told &= replica.assigned(info),
                None => {
                    let expected = self.holdings.contains(region);
                    self.routes.insert(Replica::start(self.context.clone(), info, expected));
                }
            }
            started.push(region);
        }
        // Noted once its folder is there: a folder that is noted and missing is a loss.
        for region in &started {
            if let Some(replica) = self.routes.get(*region) {
                replica.opened().await;
            }
        }
        match self.holdings.add(&started).await {
            Ok(()) => all_told,
            Err(error) => {
                tracing::warn!(%error, "cannot note new replicas");
                false
            }
        }
    }

    async fn discard(&mut self, region: RegionId) {
        if !self.holdings.contains(region) {
            return;
        }
        tracing::info!(%region, "deletes a replica that is no longer needed");
        match self.routes.remove(region) {
            Some(replica) => replica.close(true).await,
            None => {
                if let Err(error) = crate::replication::replica::destroy(&self.context.env, region).await {
                    tracing::warn!(%region, %error, "cannot delete a replica");
                    return;
                }
            }
        }
        if let Err(error) = self.holdings.remove(region).await {
            tracing::warn!(%error, "cannot note a deleted replica");
        }
    }
}
