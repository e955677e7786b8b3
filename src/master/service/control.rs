//! Answers to region servers.

use super::{Inner, Refusal};
use crate::master::placement::discards;
use crate::master::state::{Catalog, Command, Outcome};
use crate::protocol::message::{Assignment, ClusterId, ControlRequest, ControlResponse, Error, ErrorCode, Report};
use crate::region::{Change, Epoch, RegionId, ServerId};

impl Inner {
    pub(super) async fn control(&self, request: ControlRequest) -> Result<ControlResponse, Refusal> {
        match request {
            ControlRequest::Register { id, cluster, incarnation, address } => {
                self.register(id, cluster, incarnation, address).await
            }
            ControlRequest::Report(report) => self.report(report).map(ControlResponse::Assigned),
            ControlRequest::Propose { region, epoch, change } => self.change(region, epoch, change).await,
        }
    }

    async fn register(
        &self,
        id: Option<ServerId>,
        claimed: Option<ClusterId>,
        incarnation: u64,
        address: String,
    ) -> Result<ControlResponse, Refusal> {
        let cluster = self.group.read(Catalog::cluster);
        let cluster = cluster.ok_or_else(|| Error::unavailable("the cluster is not founded yet"))?;
        if let Some(claimed) = claimed.filter(|&claimed| claimed != cluster) {
            let message = format!("the folder belongs to cluster {:032x}, not {:032x}", claimed.0, cluster.0);
            return Err(Error::invalid(message).into());
        }
        match self.propose(Command::Register { id, incarnation, address }).await? {
            Outcome::Registered(id) => {
                let now_ms = self.now_ms();
                if let Some(active) = self.active().as_mut() {
                    active.view.seen(id, now_ms);
                }
                Ok(ControlResponse::Registered { id, cluster })
            }
            other => unreachable!("a registration was answered by {other:?}"),
        }
    }

    /// Answered from the catalog as it is here: servers go by versions and epochs, so an old assignment harms nobody. But a
    /// master that a majority has left must not keep its servers to itself, so it answers only while its lead is confirmed.
    fn report(&self, report: Report) -> Result<Assignment, Refusal> {
        let now_ms = self.now_ms();
        let mut active = self.active();
        let active = active.as_mut().ok_or(Refusal::NotActive { leader: None })?;
        if now_ms.saturating_sub(active.confirmed_ms) > self.timing.liveness_ms {
            return Err(Refusal::NotActive { leader: None });
        }
        self.group.read(|catalog| {
            let (server, known) = (report.server, report.known);
            check_reporter(catalog, &report)?;
            let discard = discards(catalog, server, &report.replicas);
            active.view.reported(report, now_ms);
            Ok(Assignment {
                version: catalog.version(),
                regions: catalog.regions_since(server, known),
                servers: catalog.addresses_since(known),
                discard,
                hand_over: active.hand_overs(catalog, server),
            })
        })
    }

    async fn change(&self, region: RegionId, epoch: Epoch, change: Change) -> Result<ControlResponse, Refusal> {
        if !is_a_servers_to_propose(&change) {
            return Err(Error::invalid(format!("{change:?} is not a server's to propose")).into());
        }
        match self.propose(Command::Change { region, epoch, change }).await? {
            Outcome::Changed(config) => Ok(ControlResponse::Changed(config)),
            Outcome::NotChanged { current, reason } => Ok(ControlResponse::NotChanged { current, reason }),
            other => unreachable!("a change was answered by {other:?}"),
        }
    }
}

/// Only the last process that registered under a number speaks for it.
fn check_reporter(catalog: &Catalog, report: &Report) -> Result<(), Error> {
    let Some(server) = catalog.servers().get(&report.server) else {
        return Err(Error::invalid(format!("server {} is not known to this cluster", report.server)));
    };
    if server.incarnation != report.incarnation {
        let message = format!("another process has registered as server {}", report.server);
        return Err(Error::new(ErrorCode::Fenced, message));
    }
    Ok(())
}

/// Learners come and go by placement, and losses are an operator's to accept.
fn is_a_servers_to_propose(change: &Change) -> bool {
    match change {
        Change::Promote { .. }
        | Change::Drop { .. }
        | Change::Admit { .. }
        | Change::HandOver { .. }
        | Change::Leave { .. } => true,
        Change::AddLearner { .. } | Change::RemoveLearner { .. } | Change::AcceptLoss { .. } => false,
    }
}
