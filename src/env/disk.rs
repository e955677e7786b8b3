//! Files of one node, and what a crash leaves of them.
//!
//! Two kinds of crash: a **process crash** loses nothing that a call has completed (the kernel keeps it); a **power loss**
//! may lose everything that no completed flush covers. Each method says what a power loss may leave.
//!
//! Paths are relative to the node's data folder, with `/` between names. They never start with `/` nor contain `..`; one
//! that does, or that has an empty name in it, is `InvalidInput` ([`check_path`]).

use crate::BoxFuture;
use bytes::Bytes;
use std::any::Any;
use std::io;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Fails with `NotFound` when absent.
    Read,
    /// Read and write; fails with `NotFound` when absent.
    Write,
    /// Read and write; makes an empty file when absent, keeps what is there.
    Create,
    /// Read and write; fails with `AlreadyExists` when present.
    CreateNew,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
}

/// A node's data folder.
pub trait Disk: Send + Sync + 'static {
    /// After a power loss a created file is there only if its folder's [`Disk::sync_dir`] completed after the creation;
    /// before that it may be there or not.
    fn open(&self, path: &str, mode: OpenMode) -> BoxFuture<'static, io::Result<Arc<dyn File>>>;
    /// Atomically replaces `to`. After a power loss the old or the new state, never neither, until the folder is synced.
    /// The content of `from` is not flushed by this.
    fn rename(&self, from: &str, to: &str) -> BoxFuture<'static, io::Result<()>>;
    /// Removes a file. May be undone by a power loss until the folder is synced. Open handles stay readable.
    fn remove(&self, path: &str) -> BoxFuture<'static, io::Result<()>>;
    /// Makes a folder and its missing parents; no error if present. Durable as for [`Disk::open`].
    fn create_dir(&self, path: &str) -> BoxFuture<'static, io::Result<()>>;
    /// Removes a folder and all in it; no error if absent.
    fn remove_dir(&self, path: &str) -> BoxFuture<'static, io::Result<()>>;
    /// Entries in byte order of their names; `""` is the data folder itself. `NotFound` when absent.
    fn list(&self, path: &str) -> BoxFuture<'static, io::Result<Vec<DirEntry>>>;
    /// Makes creations, renames and removals in this folder (not below it) durable. An error means the same as in
    /// [`File::sync_data`].
    fn sync_dir(&self, path: &str) -> BoxFuture<'static, io::Result<()>>;
    /// Bytes that can still be written here.
    fn free_bytes(&self) -> BoxFuture<'static, io::Result<u64>>;
    /// Differs after each start of the machine: an unchanged value proves that no power loss came between.
    fn boot_id(&self) -> u128;
    /// Takes the folder's lock until the returned value is dropped or the process dies, however it dies.
    /// `WouldBlock` with a message naming the holder when another process has it. The file's content means nothing.
    fn lock(&self, path: &str) -> BoxFuture<'static, io::Result<Box<dyn Any + Send + Sync>>>;
    /// How file I/O is done, for `status`: `io_uring`, `threads`, `simulated`.
    fn backend(&self) -> &'static str;
}

/// An open file. Buffers are owned by the call: the kernel may still use them after the future was dropped, and a dropped
/// future's operation may or may not happen, also later than what is asked for after it.
#[allow(clippy::len_without_is_empty)]
pub trait File: Send + Sync + 'static {
    /// Fills `buffer` from `offset` and gives it back with the number of bytes read, which is less than its length only
    /// at the end of the file.
    fn read_at(&self, buffer: Vec<u8>, offset: u64) -> BoxFuture<'static, (io::Result<usize>, Vec<u8>)>;
    /// Like [`File::read_at`], but answers at once: `None` when that would wait for a device.
    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> Option<io::Result<usize>>;
    /// Writes all of `buffers`, one after the other, from `offset` on, extending the file where needed.
    ///
    /// `StorageFull`: there was no room; part of it may be written, and the same bytes may be written there again.
    ///
    /// After a power loss without a later completed flush each 512-byte sector of it may hold the old bytes, the new
    /// bytes or garbage, whatever order writes were issued in; the file's length may be the old or the new one. After an
    /// error part of it may be written.
    fn write_at(&self, buffers: Vec<Bytes>, offset: u64) -> BoxFuture<'static, io::Result<()>>;
    /// Like [`File::write_at`], but has done it when it returns: `None`, and nothing was done, when that is likely to wait.
    /// After an error part of it may be written.
    fn try_write_at(&self, buffers: &[Bytes], offset: u64) -> Option<io::Result<()>>;
    /// [`File::write_at`] at the end of the file; returns the offset. Appends through one file are not interleaved.
    fn append(&self, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<u64>>;
    /// Makes all writes that completed before this call durable, with the length they need.
    ///
    /// After an error the state of those writes is unknown for good: a later flush that succeeds proves nothing about
    /// them. The caller must stop trusting the file. The error is never `StorageFull`, not even where room is what was
    /// missing: that says of a write that it may be tried again.
    fn sync_data(&self) -> BoxFuture<'static, io::Result<()>>;
    /// [`File::write_at`] and then [`File::sync_data`], as one operation: cheaper than the two, with what both promise. An
    /// error may be of either; the state of the writes is unknown then, unless it is `StorageFull`: that is of the write,
    /// and nothing was flushed.
    fn write_and_sync(&self, buffers: Vec<Bytes>, offset: u64) -> BoxFuture<'static, io::Result<()>>;
    /// Sets the length; new bytes read as zeros. Durable at the next completed flush.
    fn truncate(&self, len: u64) -> BoxFuture<'static, io::Result<()>>;
    /// Reserves space so that later writes below `len` do not fail for want of it. Does not change the length.
    /// Backends without it answer `Unsupported`.
    fn allocate(&self, len: u64) -> BoxFuture<'static, io::Result<()>>;
    fn len(&self) -> BoxFuture<'static, io::Result<u64>>;
}

/// Refuses a path that is not a run of plain names with `/` between.
///
/// `""` is refused too: where it means the data folder ([`Disk::list`], [`Disk::sync_dir`]) a backend does not ask.
pub(crate) fn check_path(path: &str) -> io::Result<()> {
    let plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
    if path.split('/').all(plain) {
        return Ok(());
    }
    let message = format!("path {path:?} does not lead to a place inside the data folder");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}
