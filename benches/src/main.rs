//! Measurements of the parts, on the real backend. Each row names what was flushed; compare rows of one run only.

mod embedded;
mod index;
mod native;
mod rebuild;
mod store;

use clap::{Parser, Subcommand};
use env::Env;
use env::real::{IoChoice, Options, Stopwatch, process_cpu_time, stopwatch};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use storage::{Epoch, Log, LogOptions, Record, RegionId, StorageError};

/// Measures parts of Steadfast.
#[derive(Parser)]
#[command(name = "benches", version, about, after_help = "Example: benches store --keys 1000000")]
struct Arguments {
    /// Where to write; a folder of its own below it is made and deleted.
    #[arg(long, default_value = "target/benches", global = true)]
    folder: PathBuf,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Appends frames to a region's log, each flushed before the next, through io_uring and through threads.
    #[command(after_help = "Example: benches log --frames 2000 --bytes 4096")]
    Log {
        #[arg(long, default_value_t = 2000)]
        frames: u64,
        #[arg(long, default_value_t = 100)]
        bytes: usize,
    },
    /// Loads a region's store in frames of 1,000 records, unflushed, reads every key back in another order, and overwrites
    /// all: without a cache, then with one.
    #[command(after_help = "Example: benches store --keys 1000000 --bytes 100")]
    Store {
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
        #[arg(long, default_value_t = 100)]
        bytes: usize,
        /// Bytes for the cache and the index together.
        #[arg(long, default_value_t = 1 << 30)]
        memory: usize,
    },
    /// Memory, reads and speed of the hash index while a region grows from half of the keys to all of them.
    #[command(after_help = "Example: benches index-memory --keys 10000000")]
    IndexMemory {
        #[arg(long, default_value_t = 10_000_000)]
        keys: u64,
    },
    /// Processor time of one server for each record, asked by 50 connections through the native protocol, unflushed.
    #[command(after_help = "Example: benches native --keys 1000000 --seconds 5")]
    Native {
        #[arg(long, default_value_t = 1_000_000)]
        keys: u64,
        /// Of each phase.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
    /// The server that `native` asks; it starts this itself.
    #[command(name = native::SERVER, hide = true)]
    NativeServer,
    /// The embedded library: load, gets, overwrites, synced puts; beside others if they are built in.
    #[command(after_help = "Example: benches embedded --keys 5000000 --peers fjall")]
    Embedded {
        #[arg(long, default_value_t = 5_000_000)]
        keys: u64,
        /// Of fjall and rocksdb, those that were built in.
        #[arg(long, value_delimiter = ',')]
        peers: Vec<String>,
    },
    /// Puts in each second while a database of the embedded library grows from nothing, unflushed.
    #[command(after_help = "Example: benches growth --keys 50000000")]
    Growth {
        #[arg(long, default_value_t = 50_000_000)]
        keys: u64,
    },
    /// The shapes that Bytecask measures: 10,000 values of 128 bytes and of 64 KiB.
    Bytecask,
    /// Makes an index anew: from hashes and locations at once, and from the hint files of a log.
    #[command(after_help = "Example: benches rebuild --keys 10000000")]
    Rebuild {
        #[arg(long, default_value_t = 10_000_000)]
        keys: u64,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Bench::NativeServer = arguments.bench {
        return native::serve(&arguments.folder);
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("benches: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = env::real::runtime()?;
    match arguments.bench {
        Bench::Embedded { keys, ref peers } => embedded::run(arguments, keys, peers)?,
        Bench::Growth { keys } => embedded::growth::run(arguments, keys)?,
        Bench::Bytecask => embedded::bytecask(arguments)?,
        Bench::Log { frames, bytes } => {
            for (name, io) in [("io_uring", IoChoice::IoUring), ("threads", IoChoice::Threads)] {
                let env = runtime.block_on(async { open(arguments, io) })?;
                let seconds = runtime.block_on(append_flushed(&env, frames, bytes))?;
                println!(
                    "log io={name} flushed=each frames={frames} bytes={bytes} frames_per_second={:.0} us_per_frame={:.1}",
                    frames as f64 / seconds,
                    seconds * 1e6 / frames as f64
                );
                runtime.block_on(storage::destroy(&env, FOLDER))?;
            }
        }
        Bench::Store { keys, bytes, memory } => {
            let env = runtime.block_on(async { open(arguments, IoChoice::Auto) })?;
            for memory in [0, memory] {
                runtime.block_on(store::measure(&env, keys, bytes, memory))?;
                runtime.block_on(storage::destroy(&env, FOLDER))?;
            }
        }
        Bench::Native { keys, seconds } => {
            println!("{}", runtime.block_on(native::run(&arguments.folder, keys, seconds))?);
        }
        Bench::NativeServer => unreachable!("served by main"),
        Bench::IndexMemory { keys } => println!("{}", index::memory(keys)),
        Bench::Rebuild { keys } => {
            let env = runtime.block_on(async { open(arguments, IoChoice::Auto) })?;
            println!("{}", runtime.block_on(rebuild::run(&env, keys))?);
        }
    }
    Ok(())
}

const FOLDER: &str = "regions/bench";
const REGION: RegionId = RegionId(1);
/// Keys in a frame and in a batch.
const BATCH: u64 = 1000;

fn open(arguments: &Arguments, io: IoChoice) -> std::io::Result<Env> {
    env::real::open(Options { data_dir: arguments.folder.clone(), node: "bench".to_owned(), io })
}

async fn open_log(env: &Env) -> Result<Log, StorageError> {
    storage::destroy(env, FOLDER).await?;
    Ok(Log::open(env, FOLDER, REGION, LogOptions::new(1)).await?.0)
}

/// The seconds that it took.
async fn append_flushed(env: &Env, frames: u64, bytes: usize) -> Result<f64, StorageError> {
    let mut log = open_log(env).await?;
    let value = vec![b'v'; bytes];
    let started = stopwatch();
    for number in 0..frames {
        let key = number.to_be_bytes();
        log.append(Epoch(1), 0, &[Record::put(&key, &value)])?;
        let job = log.take_unwritten().expect("just appended");
        let written = job.run(true).await?;
        log.finish_write(written);
    }
    let seconds = started.elapsed().as_secs_f64();
    log.close().await?;
    Ok(seconds)
}

/// Numbers in no order.
fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Processor time of the whole process, and time.
struct Meter {
    wall: Stopwatch,
    cpu: Duration,
}

impl Meter {
    fn start() -> Meter {
        Meter { wall: stopwatch(), cpu: process_cpu_time() }
    }

    fn cpu_us(&self) -> f64 {
        (process_cpu_time() - self.cpu).as_secs_f64() * 1e6
    }

    fn wall_us(&self) -> f64 {
        self.wall.elapsed().as_secs_f64() * 1e6
    }
}
