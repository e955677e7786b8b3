//! The catalog: what the master group agrees on.
//!
//! A plain value and a function, [`Catalog::apply`], which gives the same result on every master. It knows no clock, no
//! network and no randomness; whatever a command needs of those (which servers are alive, a drawn number) its proposer put
//! into it. A refused command changes nothing.
//!
//! One command's life: the active master checks it against its own copy to answer early, proposes it, and each master
//! applies it in the order of the Raft log. The answer of the active master's `apply` is the answer to the caller. Every
//! command may be repeated: a caller that lost the answer asks again and gets the same one.
//!
//! Missing on purpose: namespaces, users and settings as objects of their own. A namespace is a prefix of table names.

use super::limits::{
    ADDRESS_BYTES_MAX, FACTOR_MAX, REGIONS_PER_TABLE_MAX, SERVERS_MAX, SPLIT_BYTES_MAX, SPLITS_BYTES_MAX, TABLES_MAX,
};
use crate::protocol::message::{ClusterId, Error, ErrorCode};
use crate::region::{
    Change, Epoch, KeyRange, RegionConfig, RegionId, RegionInfo, ServerId, TableId, TableName, TableSpec,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Tables, regions and servers, after some number of commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    cluster: Option<ClusterId>,
    /// Grows with every change that some server's assignment shows.
    version: u64,
    /// The version at which a server came or an address changed last.
    addresses_changed: u64,
    servers: BTreeMap<ServerId, Server>,
    tables: BTreeMap<TableName, Table>,
    regions: BTreeMap<RegionId, Region>,
    dropped: Dropped,
    last_server: u64,
    last_table: u64,
    last_region: RegionId,
}

/// A region server, dead or alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Drawn by each process of it; the last one to register is the one that counts.
    pub incarnation: u64,
    /// `None` once another server has taken the address over.
    pub address: Option<String>,
    /// The version at which a region of this server changed last.
    changed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    pub id: TableId,
    pub spec: TableSpec,
    /// In the order of their ranges, which cover every key once.
    pub regions: Vec<RegionId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    pub table: TableName,
    pub range: KeyRange,
    pub config: RegionConfig,
    /// The change that led to `config`; `None` for a region as created. A proposal that repeats it is a retry.
    last: Option<Change>,
}

/// One step of the catalog. See [`Outcome`] for what each answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The first command of a cluster. Later ones of the kind change nothing.
    Found {
        cluster: ClusterId,
    },
    /// A server has started. `id` is `None` from a folder that was never registered.
    Register {
        id: Option<ServerId>,
        incarnation: u64,
        address: String,
    },
    /// `members` are each region's replicas, the primary first, as chosen by the proposer.
    CreateTable {
        name: TableName,
        spec: TableSpec,
        splits: Vec<Bytes>,
        members: Vec<Vec<ServerId>>,
    },
    DropTable {
        name: TableName,
    },
    /// Takes place only if the region's epoch is `epoch`.
    Change {
        region: RegionId,
        epoch: Epoch,
        change: Change,
    },
}

/// The answer to a command that was not refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Create, drop: it is so now, maybe since before.
    Done,
    Founded(ClusterId),
    Registered(ServerId),
    /// The region's configuration after the change.
    Changed(RegionConfig),
    /// The region has moved on, or the change is not allowed in `current`.
    NotChanged {
        current: RegionConfig,
        reason: String,
    },
}

/// One line, for logs.
impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Command::Found { cluster } => write!(f, "found cluster {:032x}", cluster.0),
            Command::Register { id, address, .. } => write!(f, "register server {id:?} at {address}"),
            Command::CreateTable { name, members, .. } => write!(f, "create table {name}, {} regions", members.len()),
            Command::DropTable { name } => write!(f, "drop table {name}"),
            Command::Change { region, epoch, change } => {
                write!(f, "change region {region} from epoch {epoch}: {change:?}")
            }
        }
    }
}

pub type Applied = Result<Outcome, Error>;

impl Catalog {
    pub fn apply(&mut self, command: &Command) -> Applied {
        match command {
            Command::Found { cluster } => Ok(Outcome::Founded(*self.cluster.get_or_insert(*cluster))),
            Command::Register { id, incarnation, address } => self.register(*id, *incarnation, address),
            Command::CreateTable { name, spec, splits, members } => self.create_table(name, spec, splits, members),
            Command::DropTable { name } => self.drop_table(name),
            Command::Change { region, epoch, change } => self.change(*region, *epoch, change),
        }
    }

    // Servers.

    fn register(&mut self, id: Option<ServerId>, incarnation: u64, address: &str) -> Applied {
        check_address(address)?;
        if self.cluster.is_none() {
            return Err(Error::unavailable("the cluster is not founded yet"));
        }
        let id = match id {
            Some(id) if self.servers.contains_key(&id) => id,
            Some(id) => return Err(Error::invalid(format!("server {id} is not known to this cluster"))),
            None => self.registered_as(incarnation, address).map_or_else(|| self.new_server(), Ok)?,
        };
        self.take_address(id, address);
        self.servers.get_mut(&id).expect("found or made above").incarnation = incarnation;
        Ok(Outcome::Registered(id))
    }

    /// The id that a first registration got before, if its answer was lost.
    fn registered_as(&self, incarnation: u64, address: &str) -> Option<ServerId> {
        let same = |server: &Server| server.incarnation == incarnation && server.address.as_deref() == Some(address);
        self.servers.iter().find(|(_, server)| same(server)).map(|(&id, _)| id)
    }

    fn new_server(&mut self) -> Result<ServerId, Error> {
        if self.servers.len() >= SERVERS_MAX {
            return Err(Error::invalid(format!("the cluster has {SERVERS_MAX} servers already, dead ones included")));
        }
        self.last_server += 1;
        let id = ServerId(self.last_server);
        self.servers.insert(id, Server { incarnation: 0, address: None, changed: self.version });
        Ok(id)
    }

    /// An address leads to one server: whoever had it before is reachable nowhere until it registers again.
    fn take_address(&mut self, id: ServerId, address: &str) {
        if self.servers[&id].address.as_deref() == Some(address) {
            return;
        }
        for server in self.servers.values_mut().filter(|server| server.address.as_deref() == Some(address)) {
            server.address = None;
        }
        self.servers.get_mut(&id).expect("checked by the caller").address = Some(address.to_owned());
        self.version += 1;
        self.addresses_changed = self.version;
    }

    // Tables.

    fn create_table(
        &mut self,
        name: &TableName,
        spec: &TableSpec,
        splits: &[Bytes],
        members: &[Vec<ServerId>],
    ) -> Applied {
        if let Some(done) = self.already_created(name, spec) {
            return done;
        }
        self.check_table(spec, splits)?;
        self.check_members(spec, splits.len() + 1, members)?;
        self.last_table += 1;
        self.version += 1;
        let mut regions = Vec::with_capacity(members.len());
        for (range, members) in KeyRange::between(splits).into_iter().zip(members) {
            regions.push(self.new_region(name, range, members.clone()));
        }
        self.tables.insert(name.clone(), Table { id: TableId(self.last_table), spec: spec.clone(), regions });
        Ok(Outcome::Done)
    }

    /// The answer to a request for a table whose name is taken: done before if it is the same kind of table.
    pub fn already_created(&self, name: &TableName, spec: &TableSpec) -> Option<Applied> {
        let table = self.tables.get(name)?;
        if table.spec == *spec {
            return Some(Ok(Outcome::Done));
        }
        let message = format!("table {name} exists with other properties: {:?}", table.spec);
        Some(Err(Error::new(ErrorCode::Exists, message)))
    }

    /// What can be said of a new table before its regions have members.
    pub fn check_table(&self, spec: &TableSpec, splits: &[Bytes]) -> Result<(), Error> {
        check_spec(spec)?;
        check_splits(splits)?;
        if self.tables.len() >= TABLES_MAX {
            return Err(Error::invalid(format!("the cluster has {TABLES_MAX} tables already")));
        }
        let servers = self.servers.values().filter(|server| server.address.is_some()).count();
        if servers < usize::from(spec.factor) {
            let factor = spec.factor;
            return Err(Error::invalid(format!("factor {factor} needs {factor} servers; the cluster has {servers}")));
        }
        Ok(())
    }

    fn check_members(&self, spec: &TableSpec, regions: usize, members: &[Vec<ServerId>]) -> Result<(), Error> {
        if members.len() != regions {
            return Err(Error::invalid(format!("{regions} regions but {} lists of members", members.len())));
        }
        for list in members {
            let distinct: BTreeSet<_> = list.iter().collect();
            let sizes = usize::from(spec.min_in_sync)..=usize::from(spec.factor);
            if !sizes.contains(&list.len()) || distinct.len() != list.len() {
                return Err(Error::invalid(format!("a region cannot have the members {list:?}")));
            }
            if let Some(unknown) = list.iter().find(|server| !self.servers.contains_key(server)) {
                return Err(Error::invalid(format!("server {unknown} is not known to this cluster")));
            }
        }
        Ok(())
    }

    fn new_region(&mut self, table: &TableName, range: KeyRange, members: Vec<ServerId>) -> RegionId {
        self.last_region = self.last_region.next();
        let config = RegionConfig::initial(self.last_region, members);
        self.tell(&config);
        let region = Region { table: table.clone(), range, config, last: None };
        self.regions.insert(self.last_region, region);
        self.last_region
    }

    fn drop_table(&mut self, name: &TableName) -> Applied {
        let Some(table) = self.tables.remove(name) else { return Ok(Outcome::Done) };
        self.version += 1;
        for id in table.regions {
            let region = self.regions.remove(&id).expect("a table's regions exist");
            self.mark_changed(&region.config);
            self.dropped.insert(id);
        }
        Ok(Outcome::Done)
    }

    // Regions.

    fn change(&mut self, id: RegionId, epoch: Epoch, change: &Change) -> Applied {
        let Some(region) = self.regions.get(&id) else {
            return Err(Error::new(ErrorCode::NotFound, format!("there is no region {id}")));
        };
        let current = region.config.clone();
        if epoch.next() == current.epoch && region.last.as_ref() == Some(change) {
            return Ok(Outcome::Changed(current));
        }
        if epoch != current.epoch {
            let reason = format!("the region is at epoch {}, not {epoch}", current.epoch);
            return Ok(Outcome::NotChanged { current, reason });
        }
        if let Some(unknown) = newcomer(change).filter(|server| !self.servers.contains_key(server)) {
            let reason = format!("server {unknown} is not known to this cluster");
            return Ok(Outcome::NotChanged { current, reason });
        }
        match current.change(change) {
            Ok(next) => Ok(self.changed(id, &current, next, change)),
            Err(illegal) => Ok(Outcome::NotChanged { current, reason: illegal.to_string() }),
        }
    }

    fn changed(&mut self, id: RegionId, before: &RegionConfig, after: RegionConfig, change: &Change) -> Outcome {
        assert_eq!(after.epoch, before.epoch.next(), "region {id}: {change:?}");
        self.version += 1;
        self.mark_changed(before);
        self.tell(&after);
        let region = self.regions.get_mut(&id).expect("checked by the caller");
        region.config = after.clone();
        region.last = Some(change.clone());
        Outcome::Changed(after)
    }

    /// A new configuration: its members hear of it, and so do the simulator's checks.
    fn tell(&mut self, config: &RegionConfig) {
        let in_sync = config.in_sync.iter().map(ServerId::to_string).collect::<Vec<_>>().join(",");
        let (region, epoch, primary) = (config.region.0, config.epoch.0, config.primary.map_or(0, |primary| primary.0));
        tracing::trace!(target: "probe", name = "config", region, epoch, primary, in_sync);
        self.mark_changed(config);
    }

    fn mark_changed(&mut self, config: &RegionConfig) {
        for member in config.in_sync.iter().chain(&config.learners) {
            self.servers.get_mut(member).expect("members are registered").changed = self.version;
        }
    }

    // Reading.

    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn servers(&self) -> &BTreeMap<ServerId, Server> {
        &self.servers
    }

    pub fn tables(&self) -> &BTreeMap<TableName, Table> {
        &self.tables
    }

    pub fn regions(&self) -> &BTreeMap<RegionId, Region> {
        &self.regions
    }

    /// The table of a region.
    pub fn table_of(&self, region: &Region) -> &Table {
        self.tables.get(&region.table).expect("a region's table exists")
    }

    pub fn is_dropped(&self, region: RegionId) -> bool {
        self.dropped.contains(region)
    }

    /// Where `server` can be reached.
    pub fn address(&self, server: ServerId) -> Option<&str> {
        self.servers.get(&server)?.address.as_deref()
    }

    /// Every region of which `server` is a member, unless none of them has changed since version `known`.
    pub fn regions_since(&self, server: ServerId, known: u64) -> Option<Vec<RegionInfo>> {
        if self.is_news(known, self.servers.get(&server)?.changed) {
            let mine = self.regions.values().filter(|region| region.config.is_member(server));
            return Some(mine.map(|region| self.info(region)).collect());
        }
        None
    }

    /// Every server's address, unless none has changed since version `known`.
    pub fn addresses_since(&self, known: u64) -> Option<Vec<(ServerId, String)>> {
        let address = |(&id, server): (&ServerId, &Server)| Some((id, server.address.clone()?));
        self.is_news(known, self.addresses_changed).then(|| self.servers.iter().filter_map(address).collect())
    }

    /// A version that this catalog has not reached is not of its history, and 0 knows nothing.
    fn is_news(&self, known: u64, changed: u64) -> bool {
        known == 0 || changed > known || known > self.version
    }

    fn info(&self, region: &Region) -> RegionInfo {
        let table = self.table_of(region);
        let (spec, range, config) = (table.spec.clone(), region.range.clone(), region.config.clone());
        RegionInfo { table: table.id, spec, range, config }
    }

    /// What holds after every command, or what does not. A snapshot is believed only if it passes.
    pub fn check(&self) -> Result<(), String> {
        let mut seen = 0;
        for (name, table) in &self.tables {
            self.check_cover(name, table)?;
            seen += table.regions.len();
        }
        if seen != self.regions.len() {
            return Err(format!("{} regions, but {seen} in tables", self.regions.len()));
        }
        self.regions.iter().try_for_each(|(&id, region)| self.check_region(id, region))
    }

    fn check_cover(&self, name: &TableName, table: &Table) -> Result<(), String> {
        let mut end = Some(Bytes::new());
        for id in &table.regions {
            let region = self.regions.get(id).ok_or_else(|| format!("{name}: region {id} is missing"))?;
            if region.table != *name || end.as_ref() != Some(&region.range.start) {
                return Err(format!("{name}: region {id} of {} does not begin at {end:?}", region.table));
            }
            end = region.range.end.clone();
        }
        if end.is_none() { Ok(()) } else { Err(format!("{name}: no region holds the last key")) }
    }

    fn check_region(&self, id: RegionId, region: &Region) -> Result<(), String> {
        let config = &region.config;
        let members: Vec<_> = config.in_sync.iter().chain(&config.learners).collect();
        let distinct: BTreeSet<_> = members.iter().collect();
        let sound = config.region == id
            && id <= self.last_region
            && !self.dropped.contains(id)
            && !config.in_sync.is_empty()
            && config.epoch >= Epoch(1)
            && config.primary.is_none_or(|primary| config.is_in_sync(primary))
            && distinct.len() == members.len()
            && members.iter().all(|member| self.servers.contains_key(member));
        if sound { Ok(()) } else { Err(format!("region {id} cannot be {config:?}")) }
    }
}

/// A server that a change brings in; members that it names were checked when they came.
fn newcomer(change: &Change) -> Option<ServerId> {
    match change {
        Change::AddLearner { server } => Some(*server),
        Change::AcceptLoss { survivor } => Some(*survivor),
        _ => None,
    }
}

fn check_address(address: &str) -> Result<(), Error> {
    if address.is_empty() || address.len() > ADDRESS_BYTES_MAX {
        return Err(Error::invalid(format!("{address:?} is not an address: write HOST:PORT")));
    }
    Ok(())
}

fn check_spec(spec: &TableSpec) -> Result<(), Error> {
    if !(1..=FACTOR_MAX).contains(&spec.factor) {
        return Err(Error::invalid(format!("factor {} is not 1 to {FACTOR_MAX}", spec.factor)));
    }
    if !(1..=spec.factor).contains(&spec.min_in_sync) {
        let message = format!("min_in_sync {} is not 1 to the factor, {}", spec.min_in_sync, spec.factor);
        return Err(Error::invalid(message));
    }
    if !spec.dead_share.is_valid() {
        return Err(Error::invalid(format!("dead_share {} is not 0.05 to 0.95", spec.dead_share)));
    }
    Ok(())
}

fn check_splits(splits: &[Bytes]) -> Result<(), Error> {
    if splits.len() >= REGIONS_PER_TABLE_MAX {
        let message = format!("{} regions are more than {REGIONS_PER_TABLE_MAX}", splits.len() + 1);
        return Err(Error::invalid(message));
    }
    if let Some(bad) = splits.iter().find(|split| split.is_empty() || split.len() > SPLIT_BYTES_MAX) {
        let message = format!("a split point of {} bytes is not 1 to {SPLIT_BYTES_MAX} bytes long", bad.len());
        return Err(Error::invalid(message));
    }
    if splits.iter().map(Bytes::len).sum::<usize>() > SPLITS_BYTES_MAX {
        return Err(Error::invalid(format!("the split points are longer than {SPLITS_BYTES_MAX} bytes together")));
    }
    if let Some(pair) = splits.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(Error::invalid(format!("split points {:?} and {:?} are not in rising order", pair[0], pair[1])));
    }
    Ok(())
}

/// Regions that were, whose data may be deleted wherever it turns up. Runs of numbers, as a table's regions are numbered in
/// a row: first to last, no two runs touching.
///
/// An absent region is not enough: a catalog that lost one must not make the servers delete it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Dropped {
    runs: BTreeMap<RegionId, RegionId>,
}

impl Dropped {
    fn contains(&self, id: RegionId) -> bool {
        self.runs.range(..=id).next_back().is_some_and(|(_, &last)| id <= last)
    }

    fn insert(&mut self, id: RegionId) {
        assert!(!self.contains(id), "region {id} is dropped twice");
        let before = self.runs.range(..id).next_back().filter(|(_, last)| last.next() == id);
        let first = before.map_or(id, |(&first, _)| first);
        let last = self.runs.remove(&id.next()).unwrap_or(id);
        self.runs.insert(first, last);
    }
}

#[cfg(test)]
mod tests;
