//! The contract of the traits on the simulated backends.

use env::contract::{self, Context};
use env::sim::{Latency, NodeState, World, WorldOptions, single, single_with};
use std::time::Duration;

const SEEDS: std::ops::Range<u64> = 0..3;

#[test]
fn single_nodes_keep_the_contract() {
    for seed in SEEDS {
        for (name, check) in contract::all() {
            println!("{name}, seed {seed}");
            single(seed, |env| check(Context { env, host: "127.0.0.1".into() }));
        }
    }
}

/// Operations overlap, wait and complete out of order.
#[test]
fn single_nodes_with_a_slow_disk_keep_the_contract() {
    for seed in SEEDS {
        for (name, check) in contract::all() {
            println!("{name}, seed {seed}");
            let disk = env::sim::DiskState::new(seed, "slow");
            disk.faults(|faults| faults.latency = Latency { instant_percent: 20, ms_min: 1, ms_max: 20 });
            single_with(disk, seed, |env| check(Context { env, host: "127.0.0.1".into() }));
        }
    }
}

#[test]
fn nodes_of_a_world_keep_the_contract() {
    for (name, check) in contract::all() {
        println!("{name}");
        let mut world = World::new(WorldOptions::new(1));
        world.add_node("node", "10.0.0.1", move |env| {
            let check = check(Context { env, host: "10.0.0.1".into() });
            Box::pin(async move {
                check.await;
                Ok(())
            })
        });
        let ended = world.run_until(Duration::from_secs(600), |world| world.state("node") == NodeState::Exited(Ok(())));
        assert_eq!(ended, Ok(true), "{name}");
    }
}
