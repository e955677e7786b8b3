//! Crashes, partitions and failures of runs.

use env::sim::{CrashKind, Failure, NodeState, World, WorldOptions};
use env::{Env, OpenMode};
use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECOND: Duration = Duration::from_secs(1);

/// What a node notes for the test.
type Notes<T> = Arc<Mutex<Vec<T>>>;

fn note<T>(notes: &Notes<T>, value: T) {
    notes.lock().expect("one thread").push(value);
}

fn noted<T: Clone>(notes: &Notes<T>) -> Vec<T> {
    notes.lock().expect("one thread").clone()
}

/// Answers every byte with itself.
async fn echo(env: Env) -> io::Result<()> {
    let mut listener = env.net().listen("0.0.0.0:7000").await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        env.spawn("echo", async move {
            while let Ok(byte) = stream.read_u8().await {
                let _ = stream.write_u8(byte).await;
                let _ = stream.flush().await;
            }
        });
    }
}

/// Asks `server` every 100 ms, over a new connection each time, and notes whether it answered in time.
async fn asking(env: Env, answers: Notes<bool>) -> io::Result<()> {
    loop {
        let asked = env.timeout(Duration::from_millis(50), async {
            let mut stream = env.net().connect("server:7000").await?;
            stream.write_u8(7).await?;
            stream.flush().await?;
            stream.read_u8().await
        });
        note(&answers, matches!(asked.await, Ok(Ok(7))));
        env.sleep(Duration::from_millis(100)).await;
    }
}

fn server_and_client(seed: u64) -> (World, Notes<bool>) {
    let mut world = World::new(WorldOptions::new(seed));
    let answers: Notes<bool> = Arc::default();
    let out = answers.clone();
    world.add_node("server", "10.0.0.1", |env| Box::pin(echo(env)));
    world.add_node("client", "10.0.0.2", move |env| Box::pin(asking(env, out.clone())));
    (world, answers)
}

/// Whether questions are answered in the coming second: all, none, or some.
fn answered(world: &mut World, answers: &Notes<bool>) -> Option<bool> {
    world.run_for(Duration::from_millis(200)).expect("healthy");
    answers.lock().expect("one thread").clear();
    world.run_for(SECOND).expect("healthy");
    let seen = noted(answers);
    assert!(seen.len() > 4, "the client asks");
    seen.iter().all(|answer| *answer == seen[0]).then_some(seen[0])
}

#[test]
fn partitions_cut_what_they_say_and_repair_mends_it() {
    let (mut world, answers) = server_and_client(1);
    assert_eq!(answered(&mut world, &answers), Some(true));
    world.partition("client", "server");
    assert_eq!(answered(&mut world, &answers), Some(false));
    world.repair_oneway("client", "server");
    assert_eq!(answered(&mut world, &answers), Some(false), "answers are still cut");
    world.repair("client", "server");
    assert_eq!(answered(&mut world, &answers), Some(true));
    world.partition_oneway("server", "client");
    assert_eq!(answered(&mut world, &answers), Some(false));
    world.repair_all();
    assert_eq!(answered(&mut world, &answers), Some(true));
    world.hold("client", "server");
    assert_eq!(answered(&mut world, &answers), Some(false));
    world.release("client", "server");
    assert_eq!(answered(&mut world, &answers), Some(true));
}

#[test]
fn a_clogged_link_gives_all_in_order_once_it_is_over_even_beside_a_partition() {
    let mut world = World::new(WorldOptions::new(4));
    let seen: Notes<u8> = Arc::default();
    let out = seen.clone();
    world.add_node("server", "10.0.0.1", move |env| {
        let out = out.clone();
        Box::pin(async move {
            let mut listener = env.net().listen("0.0.0.0:7000").await?;
            let (mut stream, _) = listener.accept().await?;
            while let Ok(byte) = stream.read_u8().await {
                note(&out, byte);
            }
            pending().await
        })
    });
    world.add_node("client", "10.0.0.2", |env| {
        Box::pin(async move {
            let mut stream = env.net().connect("server:7000").await?;
            for byte in 0..20 {
                stream.write_u8(byte).await?;
                stream.flush().await?;
                env.sleep(Duration::from_millis(50)).await;
            }
            pending().await
        })
    });
    world.run_for(Duration::from_millis(300)).expect("healthy");
    let before = noted(&seen).len();
    assert!(before > 0, "nothing is clogged yet");
    world.clog("client", "server", Duration::from_secs(3));
    world.run_for(Duration::from_millis(300)).expect("healthy");
    world.partition("client", "server");
    world.run_for(SECOND).expect("healthy");
    assert_eq!(noted(&seen).len(), before, "nothing arrives");
    world.run_for(2 * SECOND).expect("healthy");
    let after: Vec<u8> = noted(&seen);
    assert!(after.len() > before + 3, "what came before the cut arrives: {after:?}");
    assert!(after.iter().copied().eq(0..after.len() as u8), "in order: {after:?}");
}

#[test]
fn a_crashed_or_paused_server_does_not_answer_until_it_is_back() {
    let (mut world, answers) = server_and_client(2);
    for kind in [CrashKind::Process, CrashKind::Power] {
        assert_eq!(answered(&mut world, &answers), Some(true));
        world.crash("server", kind);
        assert_eq!(world.state("server"), NodeState::Crashed(kind));
        assert_eq!(answered(&mut world, &answers), Some(false));
        world.restart("server");
    }
    assert_eq!(answered(&mut world, &answers), Some(true));
    world.pause("server");
    assert_eq!(answered(&mut world, &answers), Some(false));
    world.resume("server");
    assert_eq!(answered(&mut world, &answers), Some(true));
}

#[test]
fn a_power_loss_does_not_mend_a_partition() {
    let (mut world, answers) = server_and_client(3);
    world.partition("client", "server");
    world.crash("server", CrashKind::Power);
    world.restart("server");
    assert_eq!(answered(&mut world, &answers), Some(false));
    world.repair("client", "server");
    assert_eq!(answered(&mut world, &answers), Some(true));
}

/// The kernel of a killed process closes its connections; a machine without power says nothing.
#[test]
fn peers_see_the_end_of_a_killed_process_and_nothing_of_a_power_loss() {
    for (kind, expected) in [(CrashKind::Process, "end"), (CrashKind::Power, "silence")] {
        let mut world = World::new(WorldOptions::new(4));
        let seen: Notes<&str> = Arc::default();
        let out = seen.clone();
        world.add_node("server", "10.0.0.1", |env| Box::pin(echo(env)));
        world.add_node("client", "10.0.0.2", move |env| {
            let out = out.clone();
            Box::pin(async move {
                let mut stream = env.net().connect("10.0.0.1:7000").await?;
                stream.write_u8(7).await?;
                stream.flush().await?;
                assert_eq!(stream.read_u8().await?, 7);
                note(&out, "connected");
                let end = env.timeout(10 * SECOND, stream.read_u8()).await;
                note(&out, if end.is_ok() { "end" } else { "silence" });
                Ok(())
            })
        });
        let connected = |seen: &Notes<&str>| !noted(seen).is_empty();
        assert_eq!(world.run_until(SECOND, |_| connected(&seen)), Ok(true));
        world.crash("server", kind);
        world.run_for(11 * SECOND).expect("healthy");
        assert_eq!(noted(&seen), ["connected", expected]);
    }
}

/// The disk outlives the process; what it holds depends on how the process ended.
#[test]
fn a_restarted_node_finds_what_the_crash_left() {
    let found = |kind| {
        let mut world = World::new(WorldOptions::new(9));
        let found: Notes<(Vec<u8>, u128)> = Arc::default();
        let out = found.clone();
        world.add_node("node", "10.0.0.1", move |env| {
            let out = out.clone();
            Box::pin(async move {
                let _lock = env.disk().lock("LOCK").await.expect("a dead process holds no lock");
                let file = env.disk().open("a", OpenMode::Create).await?;
                let (read, bytes) = file.read_at(vec![0; 6], 0).await;
                note(&out, (bytes[..read?].to_vec(), env.disk().boot_id()));
                file.write_at(vec!["synced".into()], 0).await?;
                file.sync_data().await?;
                env.disk().sync_dir("").await?;
                file.write_at(vec!["SYNCED".into()], 0).await?;
                pending().await
            })
        });
        world.run_for(SECOND).expect("healthy");
        assert!(world.disk("node").is_durable("a", 6..6));
        assert!(!world.disk("node").is_durable("a", 0..6));
        world.crash("node", kind);
        world.run_for(SECOND).expect("healthy");
        world.restart("node");
        world.run_for(SECOND).expect("healthy");
        let found = noted(&found);
        assert_eq!((found.len(), &found[0].0[..]), (2, &b""[..]));
        (found[1].0.clone(), found[0].1 == found[1].1)
    };
    assert_eq!(found(CrashKind::Process), (b"SYNCED".to_vec(), true));
    let (bytes, same_boot) = found(CrashKind::Power);
    assert!(bytes == b"synced" || bytes == b"SYNCED" || bytes.len() == 6, "{bytes:?}");
    assert!(!same_boot);
}

#[test]
fn a_panic_in_any_task_fails_the_run_and_is_named() {
    let mut world = World::new(WorldOptions::new(1));
    world.add_node("node", "10.0.0.1", |env| {
        Box::pin(async move {
            let inner = env.clone();
            env.spawn("careless", async move {
                inner.sleep(SECOND).await;
                panic!("out of {}", "luck");
            });
            pending().await
        })
    });
    assert_eq!(world.run_for(Duration::from_millis(500)), Ok(()));
    let failure = world.run_for(SECOND).expect_err("panicked");
    let (node, task, message) = ("node".to_owned(), "careless".to_owned(), "out of luck".to_owned());
    assert_eq!(failure, Failure::Panic { node, task, message });
}

#[test]
#[should_panic(expected = "out of luck")]
fn a_panic_in_a_task_of_a_single_node_comes_out() {
    env::sim::single(1, |env| async move {
        env.spawn("careless", async { panic!("out of luck") });
        pending::<()>().await
    });
}

#[test]
#[should_panic(expected = "every task waits for ever")]
fn a_single_node_that_waits_for_ever_is_found() {
    env::sim::single(1, |_| pending::<()>());
}

#[test]
#[should_panic(expected = "a loop")]
fn a_task_that_never_waits_for_time_is_found() {
    env::sim::single(1, |env| async move {
        env.spawn("spins", async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        env.sleep(SECOND).await;
    });
}

#[test]
fn the_end_of_the_main_task_is_told_and_ends_the_others() {
    let polls: Notes<()> = Arc::default();
    let mut world = World::new(WorldOptions::new(1));
    let out = polls.clone();
    world.add_node("node", "10.0.0.1", move |env| {
        let (out, inner) = (out.clone(), env.clone());
        env.spawn("goes on", async move {
            loop {
                note(&out, ());
                inner.sleep(Duration::from_millis(1)).await;
            }
        });
        Box::pin(async move {
            env.sleep(SECOND).await;
            Err(io::Error::other("no more"))
        })
    });
    world.run_for(2 * SECOND).expect("an exit is no failure of the run");
    assert_eq!(world.state("node"), NodeState::Exited(Err("no more".to_owned())));
    let before = noted(&polls).len();
    world.run_for(SECOND).expect("healthy");
    assert_eq!(noted(&polls).len(), before);
    assert_eq!(world.step(), Ok(false), "nobody is up");
}

#[test]
fn a_run_has_an_end() {
    let mut world = World::new(WorldOptions { duration_max: SECOND, ..WorldOptions::new(1) });
    world.add_node("node", "10.0.0.1", |_| Box::pin(pending()));
    assert_eq!(world.run_for(2 * SECOND), Err(Failure::OutOfTime(SECOND)));
}
