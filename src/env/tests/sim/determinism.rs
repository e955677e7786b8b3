//! Same seed, same trace.

use env::sim::{CrashKind, Digest, DiskState, Failing, NodeState, Single, Trace, World, WorldOptions, stream};
use env::{Env, OpenMode};
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const NODES: u64 = 4;

/// Nodes that log what others send them and answer, and send things themselves, under every fault there is.
fn chaos(seed: u64, span: Duration) -> Trace {
    let mut world = World::new(WorldOptions { link_fail_rate: 0.001, ..WorldOptions::new(seed) });
    for i in 0..NODES {
        world.add_node(&name(i), &format!("10.0.0.{}", i + 1), |env| Box::pin(node(env)));
        world.disk(&name(i)).faults(|faults| {
            faults.write = Failing::ppm(2_000);
            faults.sync = Failing::ppm(5_000);
        });
    }
    let mut dice = stream(seed, "chaos");
    while world.now() < span {
        let (a, b) = (name(dice.below(NODES)), name(dice.below(NODES)));
        match dice.below(10) {
            0 => world.crash(&a, CrashKind::Process),
            1 => world.crash(&a, CrashKind::Power),
            2 if a != b => world.partition(&a, &b),
            3 if a != b => world.partition_oneway(&a, &b),
            4 => world.repair_all(),
            5 => world.pause(&a),
            6 => world.clock(&a).set_rate_ppm(dice.below(1_000) as i64 - 500),
            _ => (0..NODES).map(name).for_each(|node| revive(&mut world, &node)),
        }
        world.run_for(Duration::from_millis(dice.between(1, 300))).expect("no task panics");
    }
    world.trace().clone()
}

fn name(i: u64) -> String {
    format!("node-{i}")
}

fn revive(world: &mut World, node: &str) {
    match world.state(node) {
        NodeState::Paused => world.resume(node),
        NodeState::Crashed(_) | NodeState::Exited(_) => world.restart(node),
        NodeState::Up => {}
    }
}

/// Ends, as a process should, when its disk fails.
async fn node(env: Env) -> io::Result<()> {
    let log = env.disk().open("log", OpenMode::Create).await?;
    env.disk().sync_dir("").await?;
    let mut listener = env.net().listen("0.0.0.0:7000").await?;
    let sending = env.clone();
    env.spawn("send", async move {
        loop {
            let peer = name(sending.random_below(NODES));
            let _ = sending.timeout(Duration::from_millis(500), send(&sending, &peer)).await;
            sending.sleep(Duration::from_millis(sending.random_below(40))).await;
        }
    });
    let (failed, mut failure) = tokio::sync::mpsc::channel(1);
    loop {
        let accepted = tokio::select! {
            biased;
            error = failure.recv() => return Err(error.expect("a sender is kept here")),
            accepted = listener.accept() => accepted,
        };
        let (Ok((mut stream, _)), log, failed) = (accepted, log.clone(), failed.clone()) else { continue };
        env.spawn("serve", async move {
            while let Ok(byte) = stream.read_u8().await {
                let logged = async {
                    log.append(vec![vec![byte; 300].into()]).await?;
                    log.sync_data().await
                };
                if let Err(error) = logged.await {
                    return drop(failed.send(error).await);
                }
                if stream.write_u8(byte).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn send(env: &Env, peer: &str) -> io::Result<()> {
    let mut stream = env.net().connect(&format!("{peer}:7000")).await?;
    for _ in 0..env.random_below(5) {
        stream.write_u8(env.random() as u8).await?;
        stream.flush().await?;
        stream.read_u8().await?;
    }
    Ok(())
}

const SPAN: Duration = Duration::from_secs(8);

#[test]
fn a_seed_gives_one_trace_in_one_process_and_in_other_threads() {
    for seed in 0..3 {
        let first = chaos(seed, SPAN);
        assert!(first.digest().polls > 1_000, "seed {seed} did something: {}", first.digest());
        assert_eq!(first.first_difference(&chaos(seed, SPAN)), None, "seed {seed}");
        #[allow(clippy::disallowed_methods)]
        let threads: Vec<_> = (0..2).map(|_| std::thread::spawn(move || chaos(seed, SPAN))).collect();
        for thread in threads {
            let other = thread.join().expect("no panic");
            assert_eq!(first.first_difference(&other), None, "seed {seed}, another thread");
            assert_eq!(first.digest(), other.digest());
        }
    }
}

#[test]
fn seeds_differ() {
    let digests: Vec<Digest> = (10..14).map(|seed| chaos(seed, Duration::from_secs(3)).digest()).collect();
    for (i, digest) in digests.iter().enumerate() {
        assert!(!digests[..i].contains(digest), "{digests:?}");
    }
}

#[test]
fn the_first_second_that_differs_is_named() {
    let run = |note: bool| {
        let mut world = World::new(WorldOptions::new(1));
        world.add_node("node", "10.0.0.1", |env| {
            Box::pin(async move {
                loop {
                    env.sleep(Duration::from_millis(10)).await;
                }
            })
        });
        world.run_for(Duration::from_millis(3_500)).expect("healthy");
        if note {
            world.trace().note(world.now(), "fault", 1);
        }
        world.run_for(Duration::from_millis(3_500)).expect("healthy");
        world.trace().clone()
    };
    assert_eq!(run(false).first_difference(&run(true)), Some(3));
    assert_eq!(run(true).first_difference(&run(true)), None);
}

#[test]
fn a_single_node_gives_one_trace_too() {
    let run = |seed| {
        let single = Single::new(DiskState::new(seed, "single"), seed);
        single.run(|env| async move {
            let tasks: Vec<_> = (0..50)
                .map(|i| {
                    let inner = env.clone();
                    env.spawn("work", async move {
                        for _ in 0..20 {
                            inner.sleep(Duration::from_millis(inner.random_below(5) + i % 3)).await;
                            let file = inner.disk().open(&format!("{i}"), OpenMode::Create).await.expect("healthy");
                            file.append(vec!["x".into()]).await.expect("healthy");
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("ends");
            }
        });
        single.trace().digest()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

struct Falling(usize, Arc<Mutex<Vec<usize>>>);

impl Drop for Falling {
    fn drop(&mut self) {
        self.1.lock().expect("one thread").push(self.0);
    }
}

#[test]
fn a_crash_drops_tasks_in_the_order_of_their_spawning() {
    let fallen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut world = World::new(WorldOptions::new(5));
    let out = fallen.clone();
    world.add_node("node", "10.0.0.1", move |env| {
        let out = out.clone();
        Box::pin(async move {
            for i in 0..100 {
                let (falling, env) = (Falling(i, out.clone()), env.clone());
                env.clone().spawn("falls", async move {
                    env.sleep(Duration::from_millis(env.random_below(20))).await;
                    let _falling = falling;
                    pending::<()>().await;
                });
            }
            pending().await
        })
    });
    world.run_for(Duration::from_millis(10)).expect("healthy");
    world.crash("node", CrashKind::Process);
    assert_eq!(*fallen.lock().expect("one thread"), (0..100).collect::<Vec<_>>());
}
