//! Small files that are replaced as a whole: who a folder belongs to, a vote, a log that was cut, a snapshot.
//!
//! ```text
//!   0   4  magic, different for each kind of file
//!   4   4  0
//!   8   8  length of the payload
//!  16   8  xxh3 of bytes 0..16 and the payload
//!  24   n  payload
//! ```
//!
//! A file is written beside the old one, flushed and renamed over it, so that a crash leaves the old or the new one whole.
//! One that does not check is therefore damage, never an accident of a crash.

use env::{Disk, OpenMode};
use std::io;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Default;

pub type Magic = [u8; 4];

pub const HEADER_BYTES: usize = 24;

/// Data on disk is not what was written.
pub fn corrupt(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("corrupt: {what}"))
}

pub fn encode(magic: Magic, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
    bytes.extend_from_slice(&magic);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    let checksum = checksum(&bytes, payload);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The payload, if `bytes` begin with a whole file of this kind. What follows it is ignored.
pub fn decode(magic: Magic, bytes: &[u8]) -> Option<&[u8]> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let len = u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"));
    let payload = rest.get(..usize::try_from(len).ok()?)?;
    let good = header[..4] == magic && header[16..] == checksum(&header[..16], payload).to_le_bytes();
    good.then_some(payload)
}

pub fn checksum(header: &[u8], payload: &[u8]) -> u64 {
    let mut hasher = Xxh3Default::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.digest()
}

/// Makes a folder, durably: a file that is durable in a folder that is not would be gone with it.
pub async fn create_folder(disk: &Arc<dyn Disk>, folder: &str) -> io::Result<()> {
    disk.create_dir(folder).await?;
    for (at, _) in folder.rmatch_indices('/') {
        disk.sync_dir(&folder[..at]).await?;
    }
    disk.sync_dir("").await
}

/// Makes `payload` the content of `folder/name`, durably. Writers of one name take turns.
pub async fn replace(disk: &Arc<dyn Disk>, folder: &str, name: &str, magic: Magic, payload: &[u8]) -> io::Result<()> {
    replace_with(disk, folder, name, encode(magic, payload)).await
}

/// [`replace`] with bytes that need no envelope.
pub async fn replace_with(disk: &Arc<dyn Disk>, folder: &str, name: &str, bytes: Vec<u8>) -> io::Result<()> {
    let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    let temporary = format!("{path}.new");
    let file = disk.open(&temporary, OpenMode::Create).await?;
    file.truncate(0).await?;
    file.write_at(vec![bytes.into()], 0).await?;
    file.sync_data().await?;
    disk.rename(&temporary, &path).await?;
    disk.sync_dir(folder).await
}

/// The payload of `path`; `None` if there is no such file.
pub async fn read(disk: &Arc<dyn Disk>, path: &str, magic: Magic) -> io::Result<Option<Vec<u8>>> {
    let Some(bytes) = read_all(disk, path).await? else { return Ok(None) };
    match decode(magic, &bytes) {
        Some(payload) if HEADER_BYTES + payload.len() == bytes.len() => Ok(Some(payload.to_vec())),
        _ => Err(corrupt(format_args!("{path} does not check"))),
    }
}

/// All bytes of `path`; `None` if there is no such file.
pub async fn read_all(disk: &Arc<dyn Disk>, path: &str) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(path, OpenMode::Read).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let len = usize::try_from(file.len().await?).map_err(io::Error::other)?;
    let (read, bytes) = file.read_at(vec![0; len], 0).await;
    if read? != len {
        return Err(corrupt(format_args!("{path} ends before its length, {len}")));
    }
    Ok(Some(bytes))
}
