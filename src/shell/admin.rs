//! Commands on tables and on the cluster.

use crate::client::Client;
use crate::protocol::{ClusterStatus, RegionPlace, ServerLoad, Space, TableMap, TableStatus};
use crate::region::{Compression, DeadShare, Durability, RegionId, Salt, ServerId, TableName, TableSpec, even_splits};
use crate::shell::args::*;
use crate::shell::cluster;
use crate::shell::data::readable;
use crate::shell::failure::Failure;
use crate::shell::limits::{TABLE_SERVED_PAUSE, TABLE_SERVED_TIME_MAX};
use crate::shell::output::{self, count, print, print_json, size};
use bytes::Bytes;
use env::Env;
use serde_json::{Value, json};

pub async fn table(env: &Env, command: &Table) -> Result<(), Failure> {
    match command {
        Table::Create(command) => create(env, command).await,
        Table::List(command) => list(env, command).await,
        Table::Describe(command) => describe(env, command).await,
        Table::Drop(command) => drop_table(env, command).await,
    }
}

async fn create(env: &Env, command: &TableCreate) -> Result<(), Failure> {
    let spec = TableSpec {
        factor: command.factor,
        min_in_sync: command.min_in_sync.unwrap_or(TableSpec::default_min_in_sync(command.factor)),
        durability: command.durability.into(),
        salt: command.salt.map(Salt::from),
        compression: command.compression.into(),
        dead_share: command.dead_share,
    };
    if spec.min_in_sync > spec.factor {
        return Err(Failure::usage("--min-in-sync is more than --factor: no write would ever be taken"));
    }
    let splits = splits(command)?;
    let regions = splits.len() as u64 + 1;
    let client = cluster::connect(env, &command.connection).await?;
    client.create_table(command.name.clone(), spec, splits).await?;
    until_served(env, &client, &command.name).await?;
    if command.output.json {
        return describe_to(&client, &command.name, true).await;
    }
    Ok(print(format_args!("created {}: {}, factor {}\n", command.name, count(regions, "region"), command.factor))?)
}

/// Waits until every region of a new table is served by as many replicas as there are servers for: whoever reads "created" may
/// go on. A cluster that is not well does not make the table any less created.
async fn until_served(env: &Env, client: &Client, name: &TableName) -> Result<(), Failure> {
    let deadline = env.now() + TABLE_SERVED_TIME_MAX;
    loop {
        let status = client.status().await?;
        let alive = status.servers.iter().filter(|server| server.alive).count();
        let Some(table) = status.tables.iter().find(|table| table.name == *name) else { return Ok(()) };
        let is_full = table.under_replicated == 0 || alive < usize::from(table.spec.factor);
        if table.unavailable == 0 && is_full {
            return Ok(());
        }
        if env.now() >= deadline {
            let (unavailable, short) = (table.unavailable, table.under_replicated);
            eprintln!(
                "{name} is created, but {unavailable} of its regions are not served yet, {short} not by all replicas"
            );
            return Ok(());
        }
        env.sleep(TABLE_SERVED_PAUSE).await;
    }
}

/// Where the table is cut, sorted.
fn splits(command: &TableCreate) -> Result<Vec<Bytes>, Failure> {
    if command.split.is_empty() {
        return Ok(even_splits(command.regions.unwrap_or(1)));
    }
    let mut splits = command.split.iter().map(|key| command.form.key(key)).collect::<Result<Vec<_>, _>>()?;
    splits.sort();
    match splits.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(Failure::Usage(format!("--split {} is given twice", readable(&twice[0])))),
        None => Ok(splits),
    }
}

async fn list(env: &Env, command: &TableList) -> Result<(), Failure> {
    let names = cluster::connect(env, &command.connection).await?.list_tables().await?;
    let names: Vec<String> = names.iter().map(TableName::to_string).collect();
    if command.output.json {
        return Ok(print_json(&names)?);
    }
    let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
    Ok(print(lines)?)
}

async fn describe(env: &Env, command: &TableDescribe) -> Result<(), Failure> {
    let client = cluster::connect(env, &command.connection).await?;
    describe_to(&client, &command.name, command.output.json).await
}

async fn describe_to(client: &Client, name: &TableName, json: bool) -> Result<(), Failure> {
    let map = client.describe_table(name.clone()).await?;
    if json { Ok(print_json(&table_json(&map))?) } else { Ok(print(table_text(&map))?) }
}

async fn drop_table(env: &Env, command: &TableDrop) -> Result<(), Failure> {
    cluster::connect(env, &command.connection).await?.drop_table(command.name.clone()).await?;
    Ok(print(format_args!("dropped {}\n", command.name))?)
}

pub async fn status(env: &Env, command: &Status) -> Result<(), Failure> {
    let status = cluster::connect(env, &command.connection).await?.status().await?;
    if command.output.json { Ok(print_json(&status_json(&status))?) } else { Ok(print(status_text(&status))?) }
}

pub async fn hand_over(env: &Env, command: &HandOver) -> Result<(), Failure> {
    let client = cluster::connect(env, &command.connection).await?;
    client.hand_over(RegionId(command.region), ServerId(command.server)).await?;
    Ok(print(format_args!("region {} is handed over to server {}\n", command.region, command.server))?)
}

pub async fn recover(env: &Env, command: &Recover) -> Result<(), Failure> {
    assert!(command.accept_loss, "the flag is required");
    let client = cluster::connect(env, &command.connection).await?;
    client.recover_accept_loss(RegionId(command.region), ServerId(command.survivor)).await?;
    Ok(print(format_args!("region {} goes on with what server {} holds\n", command.region, command.survivor))?)
}

fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "synced",
        Durability::Buffered => "buffered",
    }
}

fn salt(salt: Option<Salt>) -> Option<&'static str> {
    salt.map(|salt| match salt {
        Salt::Xxh32 => "xxh32",
    })
}

fn compression(compression: Compression) -> Option<&'static str> {
    match compression {
        Compression::None => None,
        Compression::Lz4 => Some("lz4"),
    }
}

fn servers(servers: &[ServerId]) -> String {
    servers.iter().map(ServerId::to_string).collect::<Vec<_>>().join(",")
}

fn spec_text(spec: &TableSpec) -> String {
    let salt = salt(spec.salt).map(|salt| format!(", salt {salt}")).unwrap_or_default();
    let compression = compression(spec.compression).map(|name| format!(", compression {name}")).unwrap_or_default();
    let durability = durability(spec.durability);
    let dead_share =
        if spec.dead_share == DeadShare::DEFAULT { String::new() } else { format!(", dead share {}", spec.dead_share) };
    format!("factor {}, min in sync {}, {durability}{salt}{compression}{dead_share}", spec.factor, spec.min_in_sync)
}

fn spec_json(spec: &TableSpec) -> Value {
    json!({
        "factor": spec.factor,
        "min_in_sync": spec.min_in_sync,
        "durability": durability(spec.durability),
        "salt": salt(spec.salt),
        "compression": compression(spec.compression),
        "dead_share": spec.dead_share.share(),
    })
}

fn table_text(map: &TableMap) -> String {
    let mut rows = output::Table::new(&["region", "from", "epoch", "primary", "address", "in sync", "learners"]);
    for place in &map.regions {
        let config = &place.config;
        rows.row(vec![
            config.region.0.to_string(),
            if place.range.start.is_empty() { "-".into() } else { readable(&place.range.start) },
            config.epoch.0.to_string(),
            config.primary.map_or("none".into(), |primary| primary.to_string()),
            place.address.clone().unwrap_or("-".into()),
            servers(&config.in_sync),
            servers(&config.learners),
        ]);
    }
    format!("{}: {}, {}\n{rows}", map.name, count(map.regions.len() as u64, "region"), spec_text(&map.spec))
}

fn table_json(map: &TableMap) -> Value {
    let ids = |servers: &[ServerId]| servers.iter().map(|server| server.0).collect::<Vec<_>>();
    let hex = |bytes: &Bytes| String::from_utf8_lossy(&Encoding::Hex.encode(bytes)).into_owned();
    let region = |place: &RegionPlace| {
        json!({
            "region": place.config.region.0,
            "start_hex": hex(&place.range.start),
            "end_hex": place.range.end.as_ref().map(hex),
            "epoch": place.config.epoch.0,
            "primary": place.config.primary.map(|primary| primary.0),
            "address": place.address,
            "in_sync": ids(&place.config.in_sync),
            "learners": ids(&place.config.learners),
        })
    };
    json!({
        "name": map.name.to_string(),
        "spec": spec_json(&map.spec),
        "regions": map.regions.iter().map(region).collect::<Vec<_>>(),
    })
}

fn status_text(status: &ClusterStatus) -> String {
    let mut masters = output::Table::new(&["master", "address", "state"]);
    for master in &status.masters {
        let state = if master.active { "active" } else { "standing by" };
        masters.row(vec![master.id.to_string(), master.address.clone(), state.into()]);
    }
    let head = [
        "server",
        "address",
        "state",
        "leads",
        "holds",
        "keys",
        "log",
        "index",
        "cache",
        "hits",
        "free",
        "compactions",
        "file i/o",
    ];
    let mut servers = output::Table::new(&head);
    for server in &status.servers {
        servers.row(vec![
            server.id.to_string(),
            server.address.clone(),
            if server.alive { "alive" } else { "SILENT" }.into(),
            server.primaries.to_string(),
            server.replicas.to_string(),
            server.load.keys.to_string(),
            size(server.load.log_bytes),
            size(server.load.index_bytes),
            size(server.load.cache_bytes),
            hits_text(&server.load),
            size(server.load.free_bytes),
            compactions_text(server.load.compactions, server.load.compacting),
            server.load.io_backend.clone(),
        ]);
    }
    let head = ["table", "regions", "under-replicated", "unavailable", "live", "dead", "compactions", "settings"];
    let mut tables = output::Table::new(&head);
    for table in &status.tables {
        let sums = Sums::of(table);
        tables.row(vec![
            table.name.to_string(),
            table.regions.to_string(),
            table.under_replicated.to_string(),
            table.unavailable.to_string(),
            size(sums.live_bytes),
            size(sums.dead_bytes),
            compactions_text(sums.compactions, sums.compacting),
            spec_text(&table.spec),
        ]);
    }
    let tables = if status.tables.is_empty() { "no tables\n".to_owned() } else { tables.to_string() };
    format!("cluster {:032x}\n\n{masters}\n{servers}\n{tables}", status.cluster.0)
}

/// Of a table's regions, one replica of each.
#[derive(Default)]
struct Sums {
    log_bytes: u64,
    live_bytes: u64,
    dead_bytes: u64,
    compactions: u64,
    compacting: u64,
}

impl Sums {
    fn of(table: &TableStatus) -> Sums {
        let mut sums = Sums::default();
        for (_, space) in &table.spaces {
            sums.log_bytes += space.log_bytes;
            sums.live_bytes += space.live_bytes.unwrap_or(0);
            sums.dead_bytes += space.dead_bytes();
            sums.compactions += space.compactions;
            sums.compacting += space.compacting as u64;
        }
        sums
    }
}

/// How many of a hundred reads of records the cache answered.
fn hits_text(load: &ServerLoad) -> String {
    match load.cache_hits + load.cache_misses {
        0 => "-".to_owned(),
        all => format!("{} %", load.cache_hits * 100 / all),
    }
}

fn compactions_text(done: u64, running: u64) -> String {
    if running > 0 { format!("{done}, {running} running") } else { done.to_string() }
}

fn space_json(region: RegionId, space: &Space) -> Value {
    json!({
        "region": region.0,
        "log_bytes": space.log_bytes,
        "live_bytes": space.live_bytes,
        "dead_bytes": space.dead_bytes(),
        "compactions": space.compactions,
        "compacting": space.compacting,
    })
}

fn status_json(status: &ClusterStatus) -> Value {
    let masters = status
        .masters
        .iter()
        .map(|master| json!({ "id": master.id, "address": master.address, "active": master.active }));
    let servers = status.servers.iter().map(|server| {
        json!({
            "id": server.id.0,
            "address": server.address,
            "alive": server.alive,
            "primaries": server.primaries,
            "replicas": server.replicas,
            "keys": server.load.keys,
            "log_bytes": server.load.log_bytes,
            "index_bytes": server.load.index_bytes,
            "cache_bytes": server.load.cache_bytes,
            "cache_hits": server.load.cache_hits,
            "cache_misses": server.load.cache_misses,
            "false_reads": server.load.false_reads,
            "free_bytes": server.load.free_bytes,
            "io_backend": server.load.io_backend,
            "compactions": server.load.compactions,
            "compacting": server.load.compacting,
        })
    });
    let tables = status.tables.iter().map(|table| {
        let sums = Sums::of(table);
        json!({
            "name": table.name.to_string(),
            "spec": spec_json(&table.spec),
            "regions": table.regions,
            "under_replicated": table.under_replicated,
            "unavailable": table.unavailable,
            "log_bytes": sums.log_bytes,
            "live_bytes": sums.live_bytes,
            "dead_bytes": sums.dead_bytes,
            "compactions": sums.compactions,
            "compacting": sums.compacting,
            "by_region": table.spaces.iter().map(|(region, space)| space_json(*region, space)).collect::<Vec<_>>(),
        })
    });
    json!({
        "cluster": format!("{:032x}", status.cluster.0),
        "masters": masters.collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
        "tables": tables.collect::<Vec<_>>(),
    })
}
