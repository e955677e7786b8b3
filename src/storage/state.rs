//! The small files beside a region's segments.
//!
//! `state`, replaced as a whole (temp, flush, rename, flush the folder):
//! ```text
//!      0    8  "STEADREG"          48   16  boot id of the start that wrote it
//!      8    4  format, 1           64    8  compactions ordered up to this seqno are over
//!     12    4  zero                72    8  checksum of bytes 0..72
//!     16   16  cluster
//!     32    8  region
//!     40    8  epoch
//! ```
//! `clean`, written like it by a clean stop and removed by the next start (removing needs no space): the log ended exactly
//! here, all of it durable.
//!
//! `durable`, two slots written in turn after each flush and not flushed themselves: the log was durable at least up to
//! here. It is evidence, never a promise: what tells damage to durable frames from the torn end that a power loss leaves,
//! and a log that was cut or rolled back from one that never was longer. A slot lost costs some of that evidence.
//! ```text
//!      0    8  "STEADEND"          24    8  checksum of that frame
//!      8    8  turn                32    8  segment
//!     16    8  last seqno          40    8  offset
//!                                  48    8  checksum of bytes 0..48
//! ```
//! `clean` has the layout of a slot.
//!
//! `fenced`, empty, made when a write or a flush failed and not flushed itself: until the machine starts anew, files and
//! names may look durable and never become so.

use crate::error::StorageError;
use crate::frame::Position;
use crate::ids::{Epoch, Mark, SegmentId, Seqno};
use crate::record::{u32_at, u64_at, u128_at};
use crate::seed::Identity;
use crate::segment::check_owner;
use bytes::Bytes;
use env::{BoxFuture, Disk, File, OpenMode};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

pub(crate) const STATE_FORMAT: u32 = 1;
const STATE_MAGIC: &[u8; 8] = b"STEADREG";
const STATE_LEN: usize = 80;
const END_MAGIC: &[u8; 8] = b"STEADEND";
const END_LEN: usize = 56;
/// Slots lie in sectors of their own, so that a torn write harms one only.
const SLOT_STRIDE: u64 = 4096;
pub(crate) const TEMP_SUFFIX: &str = ".tmp";

/// What a replica remembers of its region besides the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) epoch: Epoch,
    pub(crate) boot_id: u128,
    /// Compactions that records up to here order are over, with nothing left behind of what they replaced.
    pub(crate) carried_out: Seqno,
}

impl State {
    fn encode(&self, identity: &Identity) -> Bytes {
        let mut bytes = vec![0; STATE_LEN];
        bytes[..8].copy_from_slice(STATE_MAGIC);
        bytes[8..12].copy_from_slice(&STATE_FORMAT.to_le_bytes());
        bytes[16..32].copy_from_slice(&identity.cluster.to_le_bytes());
        bytes[32..40].copy_from_slice(&identity.region.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.boot_id.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.carried_out.0.to_le_bytes());
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[..72]);
        bytes[72..].copy_from_slice(&checksum.to_le_bytes());
        bytes.into()
    }

    /// Whose state it is, and the state.
    pub(crate) fn decode(bytes: &[u8], path: &str) -> Result<(u32, Identity, State), StorageError> {
        if bytes.len() != STATE_LEN || &bytes[..8] != STATE_MAGIC {
            return Err(StorageError::corrupt(path, 0, "not a region's state"));
        }
        if xxhash_rust::xxh3::xxh3_64(&bytes[..72]) != u64_at(bytes, 72) {
            return Err(StorageError::corrupt(path, 0, "state's checksum is wrong"));
        }
        let identity = Identity { cluster: u128_at(bytes, 16), region: crate::ids::RegionId(u64_at(bytes, 32)) };
        let (epoch, carried_out) = (Epoch(u64_at(bytes, 40)), Seqno(u64_at(bytes, 64)));
        let state = State { epoch, boot_id: u128_at(bytes, 48), carried_out };
        Ok((u32_at(bytes, 8), identity, state))
    }

    /// `None` when there is no such file.
    pub(crate) async fn load(disk: &dyn Disk, dir: &str, identity: &Identity) -> Result<Option<State>, StorageError> {
        let path = state_path(dir);
        let Some(bytes) = read_whole(disk, &path).await? else { return Ok(None) };
        let (format, found, state) = State::decode(&bytes, &path)?;
        check_owner(&path, identity, STATE_FORMAT, format, found.cluster, found.region.0)?;
        Ok(Some(state))
    }

    pub(crate) async fn store(&self, disk: &dyn Disk, dir: &str, identity: &Identity) -> Result<(), StorageError> {
        replace(disk, dir, &state_path(dir), self.encode(identity)).await
    }
}

pub(crate) fn state_path(dir: &str) -> String {
    format!("{dir}/state")
}

fn clean_path(dir: &str) -> String {
    format!("{dir}/clean")
}

fn durable_path(dir: &str) -> String {
    format!("{dir}/durable")
}

fn encode_end(identity: &Identity, turn: u64, end: Position) -> Bytes {
    let mut bytes = vec![0; END_LEN];
    bytes[..8].copy_from_slice(END_MAGIC);
    bytes[8..16].copy_from_slice(&turn.to_le_bytes());
    bytes[16..24].copy_from_slice(&end.mark.seqno.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&end.mark.checksum.to_le_bytes());
    bytes[32..40].copy_from_slice(&end.segment.0.to_le_bytes());
    bytes[40..48].copy_from_slice(&end.offset.to_le_bytes());
    let checksum = identity.checksum(&bytes[..48]);
    bytes[48..].copy_from_slice(&checksum.to_le_bytes());
    bytes.into()
}

fn decode_end(identity: &Identity, bytes: &[u8]) -> Option<(u64, Position)> {
    if bytes.len() < END_LEN || &bytes[..8] != END_MAGIC || identity.checksum(&bytes[..48]) != u64_at(bytes, 48) {
        return None;
    }
    let mark = Mark { seqno: Seqno(u64_at(bytes, 16)), checksum: u64_at(bytes, 24) };
    let end = Position { mark, segment: SegmentId(u64_at(bytes, 32)), offset: u64_at(bytes, 40) };
    Some((u64_at(bytes, 8), end))
}

/// Where the log ended when it was closed, if it was. A damaged mark counts as none.
pub(crate) async fn load_clean(
    disk: &dyn Disk,
    dir: &str,
    identity: &Identity,
) -> Result<Option<Position>, StorageError> {
    let bytes = read_whole(disk, &clean_path(dir)).await?;
    Ok(bytes.and_then(|bytes| decode_end(identity, &bytes)).map(|(_, end)| end))
}

pub(crate) async fn store_clean(
    disk: &dyn Disk,
    dir: &str,
    identity: &Identity,
    end: Position,
) -> Result<(), StorageError> {
    replace(disk, dir, &clean_path(dir), encode_end(identity, 0, end)).await
}

/// Durable before return: a start that writes must not be taken for a clean stop.
pub(crate) async fn remove_clean(disk: &dyn Disk, dir: &str) -> Result<(), StorageError> {
    if remove_if_present(disk, &clean_path(dir)).await? {
        sync_dir(disk, dir).await?;
    }
    Ok(())
}

fn fenced_path(dir: &str) -> String {
    format!("{dir}/fenced")
}

/// The start after this one sees it if the kernel still runs; after a power loss it is not needed.
pub(crate) async fn mark_fenced(disk: &dyn Disk, dir: &str) {
    if let Err(error) = disk.open(&fenced_path(dir), OpenMode::Create).await {
        tracing::warn!(dir, %error, "could not leave word that the log is fenced");
    }
}

pub(crate) async fn is_fenced(disk: &dyn Disk, dir: &str) -> Result<bool, StorageError> {
    Ok(read_whole(disk, &fenced_path(dir)).await?.is_some())
}

pub(crate) async fn remove_fenced(disk: &dyn Disk, dir: &str) -> Result<(), StorageError> {
    remove_if_present(disk, &fenced_path(dir)).await.map(drop)
}

/// The note of how far the log is durable.
pub(crate) struct DurableNote {
    identity: Identity,
    path: String,
    file: Option<Arc<dyn File>>,
    turn: u64,
    /// The last advance, perhaps still on its way. Never locked: the mutex makes the note shareable.
    advancing: Mutex<Option<BoxFuture<'static, io::Result<()>>>>,
}

impl DurableNote {
    /// The note, and the furthest end it holds.
    pub(crate) async fn load(
        disk: &dyn Disk,
        dir: &str,
        identity: Identity,
    ) -> Result<(DurableNote, Option<Position>), StorageError> {
        let path = durable_path(dir);
        let mut note = DurableNote { identity, path, file: None, turn: 0, advancing: Mutex::default() };
        let mut newest = None;
        if let Some(bytes) = read_whole(disk, &note.path).await? {
            let slots = [bytes.get(..END_LEN), bytes.get(SLOT_STRIDE as usize..)];
            newest = slots.into_iter().flatten().filter_map(|slot| decode_end(&identity, slot)).max_by_key(|end| end.0);
            note.turn = newest.map_or(0, |(turn, _)| turn);
        }
        Ok((note, newest.map(|(_, end)| end)))
    }

    async fn file(&mut self, disk: &dyn Disk) -> io::Result<Arc<dyn File>> {
        if self.file.is_none() {
            self.file = Some(disk.open(&self.path, OpenMode::Create).await?);
        }
        Ok(self.file.clone().expect("opened above"))
    }

    /// Notes that the log is durable up to `end`, as far as the disk lets it: an error costs evidence, nothing else. Returns when
    /// the write is on its way, so that no commit waits for it; writes of a note follow each other.
    pub(crate) async fn advance(&mut self, disk: &dyn Disk, end: Position) {
        self.settle().await;
        self.turn += 1;
        let slot = encode_end(&self.identity, self.turn, end);
        match self.file(disk).await {
            Ok(file) => *self.advancing.get_mut() = Some(file.write_at(vec![slot], (self.turn % 2) * SLOT_STRIDE)),
            Err(error) => self.missed(&error),
        }
    }

    /// Waits for what is on its way.
    pub(crate) async fn settle(&mut self) {
        if let Some(advancing) = self.advancing.get_mut().take()
            && let Err(error) = advancing.await
        {
            self.missed(&error);
        }
    }

    fn missed(&self, error: &io::Error) {
        tracing::debug!(path = self.path, %error, "could not note how far the log is durable");
    }

    /// Takes the note back to `end` before the log is cut there, durably: the cut must not look like a loss.
    pub(crate) async fn lower(&mut self, disk: &dyn Disk, end: Position) -> Result<(), StorageError> {
        self.settle().await;
        let file = self.file(disk).await.map_err(|error| StorageError::io("open", &self.path, error))?;
        for _ in 0..2 {
            self.turn += 1;
            let slot = encode_end(&self.identity, self.turn, end);
            let written = file.write_at(vec![slot], (self.turn % 2) * SLOT_STRIDE).await;
            written.map_err(|error| StorageError::io("write", &self.path, error))?;
        }
        file.sync_data().await.map_err(|error| StorageError::io("flush", &self.path, error))
    }
}

/// `None` when there is no such file.
pub(crate) async fn read_whole(disk: &dyn Disk, path: &str) -> Result<Option<Vec<u8>>, StorageError> {
    let file = match disk.open(path, OpenMode::Read).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::io("open", path, error)),
    };
    let len = file.len().await.map_err(|error| StorageError::io("read length of", path, error))?;
    let (read, mut bytes) = file.read_at(vec![0; len as usize], 0).await;
    bytes.truncate(read.map_err(|error| StorageError::io("read", path, error))?);
    Ok(Some(bytes))
}

/// Makes `path` hold exactly `bytes`, or what it held before, whatever crash comes between. On a full disk it is what it
/// held before.
pub(crate) async fn replace(disk: &dyn Disk, dir: &str, path: &str, bytes: Bytes) -> Result<(), StorageError> {
    let temp = format!("{path}{TEMP_SUFFIX}");
    write(disk, &temp, bytes).await?;
    disk.rename(&temp, path).await.map_err(|error| StorageError::io("rename", path, error))?;
    sync_dir(disk, dir).await
}

/// Makes `path` a file with those bytes, flushed; its name may be lost.
pub(crate) async fn write(disk: &dyn Disk, path: &str, bytes: Bytes) -> Result<(), StorageError> {
    let written = async {
        let file = disk.open(path, OpenMode::Create).await?;
        file.truncate(0).await?;
        file.write_at(vec![bytes], 0).await?;
        file.sync_data().await
    };
    written.await.map_err(|error| StorageError::io("write", path, error))
}

pub(crate) async fn sync_dir(disk: &dyn Disk, dir: &str) -> Result<(), StorageError> {
    if env::mutants::active("M11") {
        return Ok(());
    }
    disk.sync_dir(dir).await.map_err(|error| StorageError::io("flush folder", dir, error))
}

/// Whether there was something to remove.
pub(crate) async fn remove_if_present(disk: &dyn Disk, path: &str) -> Result<bool, StorageError> {
    match disk.remove(path).await {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StorageError::io("remove", path, error)),
    }
}
