//! The production backend: tokio for the network, the clock and tasks; io_uring or a thread pool for files.
//!
//! It promises what the traits promise on a Linux machine (elsewhere it runs with less: no io_uring, no reads that answer
//! at once, no reserved space). The life of one read: [`file`] makes an [`operation::Operation`] that owns the buffer and
//! the open file, and hands it to the [`operation::Engine`]. The engine ([`ring`], or [`threads`] where there is no
//! io_uring) carries it out step by step, a short read or an interrupted one continued, and
//! answers over a one-shot channel that the returned future waits on. Nobody but the engine owns the buffer meanwhile, so
//! the future may be dropped at any time.
//!
//! ```ignore
//! let runtime = env::real::runtime()?;
//! runtime.block_on(async {
//!     let env = env::real::open(Options { data_dir, node, io: IoChoice::Auto })?;
//!     env.enter(serve(env.clone())).await
//! })
//! ```
//!
//! Missing on purpose: direct I/O (the page cache serves reads that the user-space cache misses), and waiting in a drop
//! for operations whose futures were dropped: who wants a file quiet awaits its operations first.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod clock;
mod disk;
mod diskless;
mod error;
mod file;
mod harness;
mod limits;
mod memory;
#[cfg(feature = "net")]
mod net;
#[cfg(not(feature = "net"))]
mod netless;
mod operation;
mod own;
mod pace;
mod processor;
mod random;
#[cfg(target_os = "linux")]
mod ring;
mod sys;
mod task;
mod threads;
mod user;

pub use harness::{
    Stopwatch, machine_memory_bytes, on_thread, process_cpu_time, random_u64, resident_bytes, stopwatch,
    thread_cpu_time,
};
pub use memory::Pages;
pub use own::{Keeper, is_panicking, open_own, wait};
pub use processor::{prefetch, select};
#[cfg(feature = "net")]
pub use user::shutdown_signal;
pub use user::{
    folder_exists, read_user_file, remove_empty_folder, user_input, user_input_len, user_output, write_user_file,
};

use crate::{Disk, Env, Parts, Rng};
#[cfg(feature = "net")]
use net::RealNet as Network;
#[cfg(not(feature = "net"))]
use netless::Netless as Network;
use operation::Engine;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;

#[derive(Clone, Debug)]
pub struct Options {
    /// Made if missing, with its parents.
    pub data_dir: PathBuf,
    /// The node's name, for logs.
    pub node: String,
    pub io: IoChoice,
}

/// How file I/O is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring where the kernel has it and allows it, threads where not.
    #[default]
    Auto,
    /// io_uring, or [`open`] fails.
    IoUring,
    Threads,
}

/// The environment of a node whose files are under `options.data_dir`. Its tasks run on the runtime this is called on.
///
/// # Panics
/// Outside a [`runtime`].
pub fn open(options: Options) -> io::Result<Env> {
    let runtime = Handle::current();
    let engine = start_engine(options.io)?;
    let disk = disk::RealDisk::open(options.data_dir, engine, runtime.clone())?;
    Ok(assemble(options.node, Arc::new(disk), runtime))
}

/// The environment of a client, which keeps nothing: every call on its disk is `Unsupported`.
///
/// # Panics
/// Outside a [`runtime`].
pub fn open_diskless(node: String) -> Env {
    assemble(node, Arc::new(diskless::Diskless), Handle::current())
}

fn assemble(node: String, disk: Arc<dyn Disk>, runtime: Handle) -> Env {
    Env::new(Parts {
        node,
        disk,
        net: Arc::new(Network),
        clock: Arc::new(clock::RealClock::new(runtime.clone())),
        rng: Arc::new(Kernel),
        spawner: Arc::new(task::RealSpawner::new(runtime)),
    })
}

/// A runtime with a thread per core, to block a process's main thread on.
#[cfg(feature = "net")]
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("worker").build()
}

fn start_engine(choice: IoChoice) -> io::Result<Arc<dyn Engine>> {
    match choice {
        IoChoice::Threads => Ok(Arc::new(threads::Threads::new())),
        IoChoice::IoUring => start_ring(),
        IoChoice::Auto => Ok(start_ring().unwrap_or_else(|error| {
            tracing::info!(%error, "file I/O on threads");
            Arc::new(threads::Threads::new())
        })),
    }
}

#[cfg(target_os = "linux")]
fn start_ring() -> io::Result<Arc<dyn Engine>> {
    Ok(Arc::new(ring::Ring::start()?))
}

#[cfg(not(target_os = "linux"))]
fn start_ring() -> io::Result<Arc<dyn Engine>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring needs Linux"))
}

/// The kernel's own numbers, fetched some at a time for each thread.
struct Kernel;

impl Rng for Kernel {
    fn next_u64(&self) -> u64 {
        random::next_u64()
    }
}
