//! How much disk a table takes: a real cluster on simulated machines, overwritten at random.

use bytes::Bytes;
use env::sim::{Dice, World, WorldOptions, stream};
use env::{BoxFuture, Env};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use steadfast::client::{Client, Options, Table};
use steadfast::node::{MasterNode, MasterNodeOptions, Server, ServerOptions};
use steadfast::protocol::Secret;
use steadfast::region::{TableName, TableSpec};

const MASTER: &str = "10.0.0.1:7400";
const SEGMENT_BYTES: u64 = 64 << 10;
const SHARE: f64 = 0.5;
const KEYS: u64 = 300;
const VALUE_BYTES: usize = 500;

fn secret() -> Secret {
    Secret::new(b"what all nodes of the test know").expect("long enough")
}

fn server_address(i: u64) -> String {
    format!("10.0.1.{i}:7400")
}

fn run_master(env: Env) -> BoxFuture<'static, io::Result<()>> {
    Box::pin(async move {
        let mut options = MasterNodeOptions::new(1, [(1, MASTER.to_owned())].into());
        options.secret = Some(secret());
        let master = MasterNode::start(env, options).await.map_err(io::Error::other)?;
        Err(io::Error::other(master.stopped().await))
    })
}

fn run_server(env: Env, i: u64) -> BoxFuture<'static, io::Result<()>> {
    Box::pin(async move {
        let mut options = ServerOptions::new(server_address(i), vec![MASTER.to_owned()]);
        (options.segment_bytes, options.reserve_bytes, options.secret) = (SEGMENT_BYTES, 0, Some(secret()));
        let _server = Server::start(env, options).await.map_err(io::Error::other)?;
        std::future::pending().await
    })
}

/// Puts every key, then overwrites and deletes at random, and says when it is done.
async fn overwrite(env: Env, done: Arc<AtomicBool>) -> io::Result<()> {
    let options = Options { secret: Some(secret()), ..Options::default() };
    let client = Client::connect(env.clone(), vec![server_address(1)], options);
    let name: TableName = "test:space".parse().map_err(io::Error::other)?;
    while client.create_table(name.clone(), TableSpec::new(3), Vec::new()).await.is_err() {
        env.sleep(Duration::from_millis(200)).await;
    }
    let table = client.table(name);
    let mut dice = stream(1, "space");
    put(&table, 0..KEYS, &mut dice).await;
    for _ in 0..400 {
        let from = dice.below(KEYS - 20);
        put(&table, from..from + 20, &mut dice).await;
        let key = format!("key{}", dice.below(KEYS));
        table.delete(key.into_bytes()).await.expect("deletes");
        env.sleep(Duration::from_millis(20)).await;
    }
    put(&table, 0..KEYS, &mut dice).await;
    done.store(true, Ordering::Relaxed);
    std::future::pending().await
}

async fn put(table: &Table, keys: std::ops::Range<u64>, dice: &mut Dice) {
    let record = |key: u64, dice: &mut Dice| {
        let mut value = vec![0; VALUE_BYTES];
        dice.fill(&mut value);
        (Bytes::from(format!("key{key}")), Bytes::from(value))
    };
    let records = keys.map(|key| record(key, dice)).collect();
    assert!(table.batch_put(records).await.iter().all(Result::is_ok));
}

/// All files of each server's regions.
fn folders(world: &World) -> [u64; 3] {
    [1, 2, 3].map(|i| {
        let files = world.disk(&format!("server-{i}")).files();
        files.iter().filter(|(path, _)| path.starts_with("regions/")).map(|(_, len)| len).sum()
    })
}

#[test]
fn a_table_that_is_overwritten_again_and_again_stays_within_its_bounds() {
    let mut world = World::new(WorldOptions::new(1));
    world.add_node("master-1", "10.0.0.1", run_master);
    for i in 1..=3 {
        world.add_node(&format!("server-{i}"), &format!("10.0.1.{i}"), move |env| run_server(env, i));
    }
    let done = Arc::new(AtomicBool::new(false));
    let flag = done.clone();
    world.add_node("client", "10.0.2.1", move |env| Box::pin(overwrite(env, flag.clone())));

    let live = (KEYS as usize * (VALUE_BYTES + "key000".len())) as f64;
    let bound = (live / (1.0 - SHARE)) as u64 + 2 * SEGMENT_BYTES;
    let mut peak = 0;
    while !done.load(Ordering::Relaxed) {
        assert!(world.now() < Duration::from_secs(120), "the client does not come to its end");
        world.step().expect("runs");
        peak = peak.max(folders(&world).into_iter().max().expect("three"));
    }
    let written = 400 * 20 * VALUE_BYTES as u64;
    assert!(written > 6 * bound, "it means something: {written} bytes were written, {bound} are allowed");
    // What comes between two looks, and a run with what it becomes.
    assert!(peak < 3 * bound, "{peak} bytes at most, {bound} are allowed at rest");
    let rest = world.now() + Duration::from_secs(10);
    while world.now() < rest {
        world.step().expect("runs");
    }
    let folders = folders(&world);
    assert!(folders.iter().all(|&bytes| bytes <= bound), "{folders:?} bytes, {bound} are allowed; {peak} at most");
    assert!(folders.iter().all(|&bytes| bytes as f64 > live), "nothing is lost: {folders:?}");
}
