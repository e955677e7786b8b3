//! Answers to operators and clients.

use super::{Inner, Refusal};
use crate::master::limits::HAND_OVER_MS;
use crate::master::placement::{Share, View, choose_members, shares};
use crate::master::state::{Catalog, Command, Outcome, Region, Table};
use crate::protocol::ReplicaState;
use crate::protocol::message::{
    AdminRequest, AdminResponse, ClusterStatus, Error, ErrorCode, MasterStatus, RegionPlace, ServerStatus, TableMap,
    TableStatus,
};
use crate::region::{Change, RegionId, ServerId, TableName, TableSpec};
use bytes::Bytes;
use std::time::Duration;

impl Inner {
    pub(super) async fn admin(&self, request: AdminRequest) -> Result<AdminResponse, Refusal> {
        match request {
            AdminRequest::CreateTable { name, spec, splits } => self.create_table(name, spec, splits).await,
            AdminRequest::DropTable { name } => {
                self.propose(Command::DropTable { name }).await?;
                Ok(AdminResponse::Done)
            }
            AdminRequest::ListTables => {
                self.confirm().await?;
                Ok(AdminResponse::Tables(self.group.read(|catalog| catalog.tables().keys().cloned().collect())))
            }
            AdminRequest::DescribeTable { name } => {
                self.confirm().await?;
                Ok(AdminResponse::Table(self.group.read(|catalog| describe(catalog, name))?))
            }
            AdminRequest::Status => {
                self.confirm().await?;
                Ok(AdminResponse::Status(self.status()?))
            }
            AdminRequest::HandOver { region, to } => self.hand_over(region, to).await,
            AdminRequest::RecoverAcceptLoss { region, survivor } => self.accept_loss(region, survivor).await,
        }
    }

    async fn create_table(
        &self,
        name: TableName,
        spec: TableSpec,
        splits: Vec<Bytes>,
    ) -> Result<AdminResponse, Refusal> {
        self.confirm().await?;
        let chosen = self.with_view(|catalog, view, now_ms| {
            if let Some(answer) = catalog.already_created(&name, &spec) {
                return answer.map(|_| None);
            }
            catalog.check_table(&spec, &splits)?;
            choose_members(catalog, view, &spec, splits.len() + 1, now_ms).map(Some)
        })??;
        if let Some(members) = chosen {
            self.propose(Command::CreateTable { name, spec, splits, members }).await?;
        }
        Ok(AdminResponse::Done)
    }

    /// Asks the primary to hand over, and waits until it has.
    async fn hand_over(&self, region: RegionId, to: ServerId) -> Result<AdminResponse, Refusal> {
        self.confirm().await?;
        let current = || self.group.read(|catalog| find(catalog, region).map(|found| found.config.clone()));
        let asked = current()?;
        if asked.is_primary(to) {
            return Ok(AdminResponse::Done);
        }
        if !asked.is_in_sync(to) {
            return Err(Error::invalid(format!("server {to} is not in the in-sync set of region {region}")).into());
        }
        let now_ms = self.now_ms();
        self.active().as_mut().ok_or(Refusal::NotActive { leader: None })?.wish(region, to, now_ms)?;
        let limit_ms = self.timing.request_ms.min(HAND_OVER_MS);
        while self.now_ms().saturating_sub(now_ms) < limit_ms {
            self.env.sleep(Duration::from_millis(self.timing.tick_ms)).await;
            if current()?.is_primary(to) {
                return Ok(AdminResponse::Done);
            }
        }
        Err(Error::new(ErrorCode::Unknown, format!("region {region} has not been handed over yet")).into())
    }

    /// Refused while the region is served, and to a survivor that does not say that it holds the region.
    async fn accept_loss(&self, region: RegionId, survivor: ServerId) -> Result<AdminResponse, Refusal> {
        self.confirm().await?;
        let epoch = self.with_view(|catalog, view, now_ms| {
            let found = find(catalog, region)?;
            let waits = view.replica(survivor, region).is_some_and(|replica| replica.state == ReplicaState::Doubtful);
            if found.config.is_primary(survivor) && found.config.in_sync == [survivor] && !waits {
                return Ok(None);
            }
            if view.is_served(found, now_ms) {
                return Err(Error::invalid(format!("region {region} is served; there is nothing to recover")));
            }
            if !view.is_alive(survivor, now_ms) || view.replica(survivor, region).is_none() {
                let message = format!("server {survivor} does not report a replica of region {region}");
                return Err(Error::invalid(message));
            }
            Ok(Some(found.config.epoch))
        })??;
        let Some(epoch) = epoch else { return Ok(AdminResponse::Done) };
        match self.propose(Command::Change { region, epoch, change: Change::AcceptLoss { survivor } }).await? {
            Outcome::NotChanged { reason, .. } => Err(Error::unavailable(reason).into()),
            _ => Ok(AdminResponse::Done),
        }
    }

    /// Decides by the catalog and by what servers report.
    fn with_view<R>(&self, decide: impl FnOnce(&Catalog, &View, u64) -> R) -> Result<R, Refusal> {
        let now_ms = self.now_ms();
        let active = self.active();
        let active = active.as_ref().ok_or(Refusal::NotActive { leader: None })?;
        Ok(self.group.read(|catalog| decide(catalog, &active.view, now_ms)))
    }

    fn status(&self) -> Result<ClusterStatus, Refusal> {
        let masters = self.masters.iter().map(|(&id, address)| {
            let address = address.clone();
            MasterStatus { id, address, active: id == self.id }
        });
        let masters = masters.collect();
        self.with_view(|catalog, view, now_ms| {
            let cluster = catalog.cluster().ok_or_else(|| Error::unavailable("the cluster is not founded yet"))?;
            let shares = shares(catalog);
            let servers = shares.iter().map(|(&id, share)| server_status(catalog, view, id, share, now_ms)).collect();
            let tables = catalog.tables().iter().map(|(name, table)| table_status(catalog, view, name, table, now_ms));
            Ok(ClusterStatus { cluster, masters, servers, tables: tables.collect() })
        })?
    }
}

fn find(catalog: &Catalog, region: RegionId) -> Result<&Region, Error> {
    let missing = || Error::new(ErrorCode::NotFound, format!("there is no region {region}"));
    catalog.regions().get(&region).ok_or_else(missing)
}

fn describe(catalog: &Catalog, name: TableName) -> Result<TableMap, Error> {
    let missing = || Error::new(ErrorCode::NotFound, format!("there is no table {name}"));
    let table = catalog.tables().get(&name).ok_or_else(missing)?;
    let place = |region: &Region| {
        let address = region.config.primary.and_then(|primary| catalog.address(primary)).map(str::to_owned);
        RegionPlace { range: region.range.clone(), config: region.config.clone(), address }
    };
    let regions = regions_of(catalog, table).map(place).collect();
    Ok(TableMap { spec: table.spec.clone(), regions, name })
}

fn regions_of<'a>(catalog: &'a Catalog, table: &'a Table) -> impl Iterator<Item = &'a Region> {
    table.regions.iter().map(|id| catalog.regions().get(id).expect("a table's regions exist"))
}

fn server_status(catalog: &Catalog, view: &View, id: ServerId, share: &Share, now_ms: u64) -> ServerStatus {
    ServerStatus {
        id,
        address: catalog.address(id).unwrap_or_default().to_owned(),
        alive: view.is_alive(id, now_ms),
        primaries: share.primaries as u64,
        replicas: share.replicas as u64,
        load: view.load(id).cloned().unwrap_or_default(),
    }
}

fn table_status(catalog: &Catalog, view: &View, name: &TableName, table: &Table, now_ms: u64) -> TableStatus {
    let factor = usize::from(table.spec.factor);
    let count = |is: &dyn Fn(&Region) -> bool| regions_of(catalog, table).filter(|region| is(region)).count() as u64;
    let space = |region: &Region| {
        let id = region.config.region;
        let report = view.replica(region.config.primary?, id)?;
        Some((id, report.space)).filter(|_| view.is_served(region, now_ms))
    };
    TableStatus {
        name: name.clone(),
        spec: table.spec.clone(),
        regions: table.regions.len() as u64,
        under_replicated: count(&|region| region.config.in_sync.len() < factor),
        unavailable: count(&|region| !view.is_served(region, now_ms)),
        spaces: regions_of(catalog, table).filter_map(space).collect(),
    }
}
