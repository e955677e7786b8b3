//! The promises of the traits, as checks that every backend passes.
//!
//! A check is an async function over a [`Context`]; it works in a folder of its own name, listens on a port that the
//! backend picks, and panics with the values that broke a promise. What a crash leaves is not checked here: only a
//! simulated backend can crash, and its own tests do.
//!
//! ```ignore
//! for (name, check) in env::contract::all() {
//!     check(Context { env: env.clone(), host: "127.0.0.1".into() }).await;
//! }
//! ```
//!
//! A check runs inside a task of the node and takes its chances from fixed seeds, so that it does the same each time.

mod clock;
mod dir;
mod file;
mod net;
mod task;

use crate::disk::{File, OpenMode};
use crate::task::BoxFuture;
use crate::{Env, Task};
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

/// Where a check runs.
#[derive(Clone)]
pub struct Context {
    pub env: Env,
    /// The host part of addresses to listen on and to connect to.
    pub host: String,
}

pub type Check = fn(Context) -> BoxFuture<'static, ()>;

/// Every check under its name, files first.
pub fn all() -> Vec<(&'static str, Check)> {
    [file::CHECKS, dir::CHECKS, clock::CHECKS, task::CHECKS, net::CHECKS].concat()
}

/// `checks![open_modes, rename]`: those functions as `(name, check)` pairs.
macro_rules! checks {
    ($($name:ident),+ $(,)?) => {
        &[$((stringify!($name), |context| Box::pin($name(context)))),+]
    };
}
use checks;

impl Context {
    /// Makes `name` an empty folder.
    async fn empty_folder(&self, name: &str) {
        self.env.disk().remove_dir(name).await.expect("remove the folder of an earlier run");
        self.env.disk().create_dir(name).await.expect("create the check's folder");
    }

    async fn open(&self, path: &str, mode: OpenMode) -> Arc<dyn File> {
        match self.env.disk().open(path, mode).await {
            Ok(file) => file,
            Err(error) => panic!("open {path} as {mode:?}: {error}"),
        }
    }

    /// A new file `name/file` in a new folder `name`.
    async fn new_file(&self, name: &str) -> Arc<dyn File> {
        self.empty_folder(name).await;
        self.open(&format!("{name}/file"), OpenMode::CreateNew).await
    }
}

async fn write(file: &Arc<dyn File>, offset: u64, bytes: impl Into<Bytes>) {
    file.write_at(vec![bytes.into()], offset).await.expect("write");
}

/// Up to `len` bytes from `offset`.
async fn read(file: &Arc<dyn File>, offset: u64, len: usize) -> Vec<u8> {
    let (result, mut buffer) = file.read_at(vec![0xEE; len], offset).await;
    let read = result.expect("read");
    assert_eq!(buffer.len(), len, "the buffer comes back with its length");
    assert!(read <= len, "read {read} bytes into a buffer of {len}");
    buffer.truncate(read);
    buffer
}

async fn read_all(file: &Arc<dyn File>) -> Vec<u8> {
    let len = file.len().await.expect("len");
    let bytes = read(file, 0, len as usize + 1).await;
    assert_eq!(bytes.len() as u64, len, "bytes in the file against its length");
    bytes
}

/// The results of `tasks` in their order.
async fn join<T>(tasks: Vec<Task<T>>) -> Vec<T> {
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await.expect("a task of the check ended without a result"));
    }
    results
}

/// Polls `future` once, whatever comes of it, and drops it.
async fn poll_once_and_drop<F: Future>(future: F) {
    let mut future = Box::pin(future);
    std::future::poll_fn(|context| {
        let _ = future.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

/// Chances of a check: the same ones each time (xorshift64*).
struct Chances(u64);

impl Chances {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}
