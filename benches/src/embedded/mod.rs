//! The library beside others of its kind: one row for each engine and phase.
//!
//! A row names what of its writes survives what. Processor time is that of the whole process, so that what an engine does on
//! threads of its own counts. Peers are features of this package, off unless asked for: `--features fjall,rocksdb`.

// Real folders and threads, as the programs have them that use such an engine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod growth;
mod peers;

use crate::Arguments;
use embedded::{Db, Durability};
use env::real::{process_cpu_time, resident_bytes, stopwatch};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What is measured of every engine.
pub trait Engine: Send + Sync {
    fn name(&self) -> &'static str;
    /// What an unsynced put survives.
    fn unsynced(&self) -> &'static str;
    fn put(&self, key: &[u8], value: &[u8]);
    fn put_synced(&self, key: &[u8], value: &[u8]);
    /// Length of the value.
    fn get(&self, key: &[u8]) -> Option<usize>;
    /// Whatever is gathered is put where it would lie at rest.
    fn settle(&self) {}
}

struct Ours {
    relaxed: Db,
    synced: Db,
}

impl Engine for Ours {
    fn name(&self) -> &'static str {
        "steadfast"
    }

    fn unsynced(&self) -> &'static str {
        "relaxed"
    }

    fn put(&self, key: &[u8], value: &[u8]) {
        self.relaxed.put(key, value).expect("puts");
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) {
        self.synced.put(key, value).expect("puts");
    }

    fn get(&self, key: &[u8]) -> Option<usize> {
        self.relaxed.get(key).expect("gets").map(|value| value.len())
    }

    fn settle(&self) {
        self.relaxed.sync().expect("flushes");
    }
}

/// Memory for all the records, and some: what a get costs that finds its record there.
const MEMORY_BYTES: usize = 2 << 30;

fn ours(folder: &Path) -> Outcome<Arc<dyn Engine>> {
    let relaxed = Db::builder().durability(Durability::Relaxed).memory_bytes(MEMORY_BYTES).open(folder)?;
    let synced = relaxed.with_durability(Durability::Synced);
    Ok(Arc::new(Ours { relaxed, synced }))
}

/// Key `number` of 16 bytes, in no order.
pub fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed(number).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// Zipfian numbers below `count`, of the usual skew, by rejection-free inversion of its continuous kin.
fn zipfian(at: u64, count: u64) -> u64 {
    const EXPONENT: f64 = 0.01;
    let uniform = (mixed(at) >> 11) as f64 / (1u64 << 53) as f64;
    // The continuous density x^-0.99 on [1, count + 1).
    let top = ((count + 1) as f64).powf(EXPONENT);
    let rank = (uniform * (top - 1.0) + 1.0).powf(1.0 / EXPONENT) as u64 - 1;
    // Ranks are spread over the keys.
    mixed(rank.min(count - 1)) % count
}

#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    put_us: f64,
    get_us: f64,
    overwrite_us: f64,
}

pub fn run(arguments: &Arguments, keys: u64, peers: &[String]) -> Outcome<()> {
    let own = measure(arguments, "steadfast", keys, ours)?;
    let mut line = format!("put_us={:.3} get_us={:.3} overwrite_us={:.3}", own.put_us, own.get_us, own.overwrite_us);
    for name in peers {
        let open = peers::by_name(name).ok_or_else(|| format!("{name}: build with --features {name}"))?;
        let peer = measure(arguments, name, keys, open)?;
        let (put, get) = (peer.put_us / own.put_us, peer.get_us / own.get_us);
        line += &format!(" put_ratio_{name}={put:.1} get_ratio_{name}={get:.1}");
    }
    println!("{line}");
    Ok(())
}

type Open = fn(&Path) -> Outcome<Arc<dyn Engine>>;

fn measure(arguments: &Arguments, name: &str, keys: u64, open: Open) -> Outcome<Measured> {
    let folder = fresh(arguments, name)?;
    let value = [0x76u8; 84];
    let resident = resident_bytes();
    let engine = open(&folder)?;
    let unsynced = engine.unsynced();
    let put_us = phase(&*engine, "load", unsynced, keys, |number| {
        engine.put(&key(number), &value);
    });
    let user_bytes = keys * (16 + value.len() as u64);
    engine.settle();
    row(
        &*engine,
        "memory",
        "-",
        &format!("bytes_per_key={:.1}", resident_bytes().saturating_sub(resident) as f64 / keys as f64),
    );
    row(&*engine, "disk", "-", &format!("disk_per_user_byte={:.2}", bytes_of(&folder)? as f64 / user_bytes as f64));
    let reads = keys.min(2_000_000);
    let uniform = |at: u64| key(mixed(at) % keys);
    // Once before, so that what can be cached is.
    (0..reads).for_each(|at| assert!(engine.get(&uniform(at)).is_some()));
    let get_us = phase(&*engine, "get uniform", "-", reads, |at| {
        assert_eq!(engine.get(&uniform(at)), Some(value.len()));
    });
    phase(&*engine, "get zipfian", "-", reads, |at| {
        assert_eq!(engine.get(&key(zipfian(at, keys))), Some(value.len()));
    });
    let overwrite_us = phase(&*engine, "overwrite", unsynced, reads, |at| {
        engine.put(&key(mixed(at ^ 0x5555) % keys), &value);
    });
    drop(engine);
    // Anew, so that no compaction of what was overwritten takes part.
    let engine = open(&fresh(arguments, name)?)?;
    let one = synced(&engine, 1, 3000, &value);
    let many = synced(&engine, 64, 1000, &value);
    println!("engine={:<10} phase=\"{:<24}\" times_one={:.1}", engine.name(), "64 writers to one", many / one);
    drop(engine);
    std::fs::remove_dir_all(&folder)?;
    Ok(Measured { put_us, get_us, overwrite_us })
}

fn fresh(arguments: &Arguments, name: &str) -> Outcome<PathBuf> {
    let folder = arguments.folder.join(format!("embedded-{name}"));
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn bytes_of(folder: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_of(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

/// Runs `call` so often, and returns the processor time of each in µs.
fn phase(engine: &dyn Engine, name: &str, durability: &str, calls: u64, mut call: impl FnMut(u64)) -> f64 {
    let (cpu, time) = (process_cpu_time(), stopwatch());
    (0..calls).for_each(&mut call);
    let cpu_us = (process_cpu_time() - cpu).as_secs_f64() * 1e6 / calls as f64;
    let wall_us = time.elapsed().as_secs_f64() * 1e6 / calls as f64;
    row(engine, name, durability, &format!("cpu_us={cpu_us:.3} wall_us={wall_us:.3}"));
    cpu_us
}

/// Calls per second of so many threads, each put flushed before it returns.
fn synced(engine: &Arc<dyn Engine>, threads: u64, calls: u64, value: &[u8]) -> f64 {
    let (cpu, time) = (process_cpu_time(), stopwatch());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let engine = engine.clone();
            scope.spawn(move || {
                (0..calls).for_each(|call| engine.put_synced(&key(1 << 40 | thread << 32 | call), value));
            });
        }
    });
    let calls = (threads * calls) as f64;
    let (seconds, cpu) = (time.elapsed().as_secs_f64(), process_cpu_time() - cpu);
    let rest = format!("per_second={:.0} cpu_us={:.1}", calls / seconds, cpu.as_secs_f64() * 1e6 / calls);
    row(&**engine, &format!("put synced, {threads} threads"), "synced", &rest);
    calls / seconds
}

fn row(engine: &dyn Engine, phase: &str, durability: &str, rest: &str) {
    println!("engine={:<10} phase=\"{phase:<24}\" durability={durability:<10} {rest}", engine.name());
}

/// The shapes of Bytecask's own measurement: 10,000 values of 128 bytes and of 64 KiB.
pub fn bytecask(arguments: &Arguments) -> Outcome<()> {
    const CALLS: u64 = 10_000;
    for bytes in [128, 64 << 10] {
        let folder = fresh(arguments, "bytecask")?;
        let db = Db::builder().durability(Durability::Buffered).open(&folder)?;
        let value = vec![0x76; bytes];
        let report = |name: &str, threads: u64, call: &(dyn Fn(u64) + Sync)| {
            let (cpu, time) = (process_cpu_time(), stopwatch());
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    scope.spawn(move || (thread * CALLS / threads..(thread + 1) * CALLS / threads).for_each(call));
                }
            });
            let (seconds, cpu) = (time.elapsed().as_secs_f64(), process_cpu_time() - cpu);
            println!(
                "bytecask shape=\"{name:<16}\" bytes={bytes} threads={threads} durability=buffered per_second={:.0} cpu_us={:.2} mib_per_second={:.1}",
                CALLS as f64 / seconds,
                cpu.as_secs_f64() * 1e6 / CALLS as f64,
                CALLS as f64 * bytes as f64 / seconds / (1 << 20) as f64,
            );
        };
        let get = |number: u64| assert_eq!(db.get(key(number)).expect("gets").map(|value| value.len()), Some(bytes));
        report("put", 1, &|number| db.put(key(number), &value).expect("puts"));
        report("get in order", 1, &get);
        report("get at random", 1, &|at| get(mixed(at) % CALLS));
        report("get one item", 1, &|_| get(7));
        report("put concurrent", 4, &|number| db.put(key(CALLS + number), &value).expect("puts"));
        report("get concurrent", 4, &get);
        db.close()?;
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}
