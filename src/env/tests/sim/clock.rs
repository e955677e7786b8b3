//! Clocks that drift, step and stand still.

use env::sim::{CrashKind, NodeState, World, WorldOptions};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A world with one node that sleeps for `local` and then ends.
fn sleeper(local: Duration) -> World {
    let mut world = World::new(WorldOptions::new(1));
    world.add_node("node", "10.0.0.1", move |env| {
        Box::pin(async move {
            let before = env.now();
            env.sleep(local).await;
            let slept = env.now().since(before);
            assert!(slept >= local, "slept {slept:?} of {local:?}");
            Ok(())
        })
    });
    world
}

/// True time at which the node ended, with the tick it took to notice.
fn ends_at(world: &mut World) -> Duration {
    let ended = world.run_until(100 * SECOND, |world| world.state("node") == NodeState::Exited(Ok(())));
    assert_eq!(ended, Ok(true), "the sleeper wakes");
    world.now()
}

fn assert_about(time: Duration, expected: Duration) {
    let (low, high) = (expected, expected + Duration::from_millis(3));
    assert!((low..=high).contains(&time), "{time:?} instead of {expected:?}");
}

#[test]
fn a_fast_clock_wakes_early_in_true_time_and_a_slow_one_late() {
    for (ppm, expected) in [(0, 11 * SECOND), (100_000, 10 * SECOND), (-500_000, 22 * SECOND)] {
        let mut world = sleeper(11 * SECOND);
        world.clock("node").set_rate_ppm(ppm);
        assert_about(ends_at(&mut world), expected);
    }
}

#[test]
fn a_sleep_follows_changes_of_the_rate() {
    let mut world = sleeper(10 * SECOND);
    world.run_for(5 * SECOND).expect("healthy");
    world.clock("node").set_rate_ppm(1_000_000);
    world.run_for(SECOND).expect("healthy");
    // 7 of 10 seconds are over.
    world.clock("node").set_rate_ppm(-1_000_000);
    world.run_for(50 * SECOND).expect("healthy");
    assert_eq!(world.state("node"), NodeState::Up, "time stands still for it");
    world.clock("node").set_rate_ppm(0);
    let end = ends_at(&mut world);
    assert!(end >= 59 * SECOND && end <= 59 * SECOND + Duration::from_millis(3), "{end:?}");
}

#[test]
fn monotonic_time_never_steps_back() {
    let mut world = World::new(WorldOptions::new(7));
    let clock = world_with_idle_node(&mut world);
    let mut last = clock(&world);
    for ppm in [300, -300, 1_000_000, -1_000_000, -999_999, 0, 7] {
        world.clock("node").set_rate_ppm(ppm);
        for _ in 0..50 {
            world.step().expect("healthy");
            let now = clock(&world);
            assert!(now >= last, "{now:?} after {last:?} at {ppm} ppm");
            last = now;
        }
    }
}

fn world_with_idle_node(world: &mut World) -> fn(&World) -> env::Instant {
    world.add_node("node", "10.0.0.1", |_| Box::pin(std::future::pending()));
    |world| world.clock("node").local()
}

#[test]
fn the_wall_clock_steps_and_stands_still_and_moves_nothing_else() {
    let mut world = World::new(WorldOptions::new(1));
    let local = world_with_idle_node(&mut world);
    let start = (world.clock("node").wall_ms(), local(&world));
    world.clock("node").step_wall_ms(-60_000);
    assert_eq!(world.clock("node").wall_ms(), start.0 - 60_000);
    world.run_for(SECOND).expect("healthy");
    assert_eq!(world.clock("node").wall_ms(), start.0 - 59_000);
    world.clock("node").freeze_wall();
    world.run_for(SECOND).expect("healthy");
    assert_eq!(world.clock("node").wall_ms(), start.0 - 59_000, "frozen");
    world.clock("node").thaw_wall();
    world.run_for(SECOND).expect("healthy");
    assert_eq!(world.clock("node").wall_ms(), start.0 - 58_000, "goes on from where it stood");
    assert_eq!(local(&world).since(start.1), 3 * SECOND);
}

#[test]
fn monotonic_time_goes_on_over_a_process_crash_and_starts_anew_with_the_machine() {
    let mut world = World::new(WorldOptions::new(3));
    let local = world_with_idle_node(&mut world);
    let before = local(&world);
    world.crash("node", CrashKind::Process);
    world.run_for(10 * SECOND).expect("healthy");
    world.restart("node");
    assert_eq!(local(&world).since(before), 10 * SECOND);
    let wall = world.clock("node").wall_ms();
    world.crash("node", CrashKind::Power);
    assert_ne!(local(&world), before + 10 * SECOND, "a machine that starts counts anew");
    assert!(world.clock("node").wall_ms().abs_diff(wall) <= 1, "the wall clock has a battery");
}

/// A paused process sees the time it missed when it goes on.
#[test]
fn time_passes_for_a_paused_process() {
    let seen: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let mut world = World::new(WorldOptions::new(1));
    let out = seen.clone();
    world.add_node("node", "10.0.0.1", move |env| {
        let out = out.clone();
        Box::pin(async move {
            let mut last = env.now();
            loop {
                env.sleep(Duration::from_millis(100)).await;
                out.lock().expect("one thread").push(env.now().since(last));
                last = env.now();
            }
        })
    });
    world.run_for(SECOND).expect("healthy");
    world.pause("node");
    let before = seen.lock().expect("one thread").len();
    world.run_for(30 * SECOND).expect("healthy");
    assert_eq!(world.state("node"), NodeState::Paused);
    assert_eq!(seen.lock().expect("one thread").len(), before, "polled while paused");
    world.resume("node");
    world.run_for(SECOND).expect("healthy");
    let gaps = seen.lock().expect("one thread").clone();
    assert!(gaps.iter().any(|gap| *gap >= 30 * SECOND), "{gaps:?}");
}
