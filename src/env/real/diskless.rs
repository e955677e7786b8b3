//! The disk of a client that has no data folder.

use crate::BoxFuture;
use crate::disk::{DirEntry, Disk, File, OpenMode};
use std::any::Any;
use std::future::ready;
use std::io;
use std::sync::Arc;

/// Refuses everything.
pub(super) struct Diskless;

fn refused<T: Send + 'static>() -> BoxFuture<'static, io::Result<T>> {
    let error = io::Error::new(io::ErrorKind::Unsupported, "this node was opened without a data folder");
    Box::pin(ready(Err(error)))
}

impl Disk for Diskless {
    fn open(&self, _path: &str, _mode: OpenMode) -> BoxFuture<'static, io::Result<Arc<dyn File>>> {
        refused()
    }

    fn rename(&self, _from: &str, _to: &str) -> BoxFuture<'static, io::Result<()>> {
        refused()
    }

    fn remove(&self, _path: &str) -> BoxFuture<'static, io::Result<()>> {
        refused()
    }

    fn create_dir(&self, _path: &str) -> BoxFuture<'static, io::Result<()>> {
        refused()
    }

    fn remove_dir(&self, _path: &str) -> BoxFuture<'static, io::Result<()>> {
        refused()
    }

    fn list(&self, _path: &str) -> BoxFuture<'static, io::Result<Vec<DirEntry>>> {
        refused()
    }

    fn sync_dir(&self, _path: &str) -> BoxFuture<'static, io::Result<()>> {
        refused()
    }

    fn free_bytes(&self) -> BoxFuture<'static, io::Result<u64>> {
        refused()
    }

    fn boot_id(&self) -> u128 {
        0
    }

    fn lock(&self, _path: &str) -> BoxFuture<'static, io::Result<Box<dyn Any + Send + Sync>>> {
        refused()
    }

    fn backend(&self) -> &'static str {
        "none"
    }
}
