//! Any other Unix: what the standard library alone gives.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// Counts from the first call. It may stand still while the machine is suspended: leases need Linux to be safe there.
pub(in crate::real) fn since_boot() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// A new one for each process: every start counts as one after a power loss, which is slow and safe.
pub(in crate::real) fn boot_id() -> io::Result<u128> {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_err(io::Error::other)?;
    Ok(now.as_nanos() << 32 | u128::from(std::process::id()))
}

pub(in crate::real) fn free_bytes(_path: &Path) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(in crate::real) fn allocate(_file: &File, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(in crate::real) fn read_cached(_file: &File, _buffer: &mut [u8], _offset: u64) -> Option<io::Result<usize>> {
    None
}

pub(in crate::real) fn write_vectored_at(file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    match slices.iter().find(|slice| !slice.is_empty()) {
        Some(slice) => file.write_at(slice, offset),
        None => Ok(0),
    }
}
