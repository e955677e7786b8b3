//! What a simulated second costs: `cargo run --release -p env --features sim --example sim_speed`.

use env::Env;
use env::sim::{DiskState, World, WorldOptions, single_with};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Real seconds that `work` takes.
fn timed(work: impl FnOnce()) -> f64 {
    #[allow(clippy::disallowed_methods, clippy::disallowed_types)]
    let start = std::time::Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn world(tick_ms: u64) -> World {
    World::new(WorldOptions { tick: Duration::from_millis(tick_ms), ..WorldOptions::new(1) })
}

fn main() {
    worlds();
    single_nodes();
}

fn worlds() {
    for (nodes, tick_ms) in [(8, 1), (8, 5), (10, 5)] {
        for busy in [false, true] {
            let mut world = world(tick_ms);
            for i in 0..nodes {
                world.add_node(&format!("node-{i}"), &format!("10.0.0.{}", i + 1), move |env| {
                    Box::pin(node(env, busy, (i + 1) % nodes))
                });
            }
            let span = 20;
            let seconds = timed(|| world.run_for(Duration::from_secs(span)).expect("healthy"));
            let (polls, kind) = (world.trace().digest().polls / span, if busy { "busy" } else { "idle" });
            println!(
                "{nodes} nodes, tick {tick_ms} ms, {kind}: {:.0} simulated seconds a second, {polls} polls each",
                span as f64 / seconds
            );
        }
    }
}

/// Idle: a beacon a second. Busy: a question every 10 ms, logged and flushed before it is answered.
async fn node(env: Env, busy: bool, peer: u64) -> io::Result<()> {
    let log = env.disk().open("log", env::OpenMode::Create).await?;
    let mut listener = env.net().listen("0.0.0.0:7000").await?;
    let asking = env.clone();
    env.spawn("ask", async move {
        let pause = Duration::from_millis(if busy { 10 } else { 1000 });
        loop {
            asking.sleep(pause).await;
            let Ok(mut stream) = asking.net().connect(&format!("node-{peer}:7000")).await else { continue };
            if !busy {
                continue;
            }
            loop {
                stream.write_all(&[1; 200]).await.expect("healthy");
                stream.flush().await.expect("healthy");
                stream.read_u8().await.expect("healthy");
                asking.sleep(pause).await;
            }
        }
    });
    loop {
        let (mut stream, _) = listener.accept().await?;
        let log = log.clone();
        env.spawn("serve", async move {
            let mut request = [0; 200];
            while stream.read_exact(&mut request).await.is_ok() {
                log.append(vec![request.to_vec().into()]).await.expect("healthy");
                log.sync_data().await.expect("healthy");
                stream.write_u8(1).await.expect("healthy");
                stream.flush().await.expect("healthy");
            }
        });
    }
}

fn single_nodes() {
    let runs = 1000;
    let seconds = timed(|| (0..runs).for_each(|seed| env::sim::single(seed, |_| async {})));
    println!("an empty run: {:.1} µs", seconds / runs as f64 * 1e6);
    let operations = 100_000;
    let disk = DiskState::new(1, "speed");
    let seconds = timed(|| {
        single_with(disk.clone(), 1, |env| async move {
            let file = env.disk().open("a", env::OpenMode::Create).await.expect("healthy");
            for _ in 0..operations {
                file.append(vec![vec![1; 100].into()]).await.expect("healthy");
                file.sync_data().await.expect("healthy");
            }
        })
    });
    println!("append and flush: {:.2} µs", seconds / operations as f64 * 1e6);
    let forks = 20;
    let seconds = timed(|| (0..forks).for_each(|seed| disk.fork(seed).power_loss(seed)));
    println!("fork and power loss of {} MB: {:.1} ms", operations / 10_000, seconds / forks as f64 * 1e3);
}
