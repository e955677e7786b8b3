use crate::real::limits::BYTES_PER_CALL_MAX;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use rustix::time::ClockId;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use std::time::Duration;

/// Time since the machine started, suspended time included.
pub(in crate::real) fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What the kernel drew at its start; where that cannot be read, a hash of the second it started in.
pub(in crate::real) fn boot_id() -> io::Result<u128> {
    let drawn = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    if let Some(id) = drawn.ok().and_then(|text| u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()) {
        return Ok(id);
    }
    let stat = std::fs::read_to_string("/proc/stat")?;
    let started = stat.lines().find_map(|line| line.strip_prefix("btime ")).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "/proc/stat does not say when the machine started")
    })?;
    let mut hash = std::hash::BuildHasher::build_hasher(&foldhash::quality::FixedState::default());
    hash.write(started.as_bytes());
    Ok(u128::from(hash.finish()))
}

/// Bytes that this user can still write in the file system of `path`.
pub(in crate::real) fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

pub(in crate::real) fn allocate(file: &File, len: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, len) {
        Err(Errno::OPNOTSUPP) => Err(io::ErrorKind::Unsupported.into()),
        result => Ok(result?),
    }
}

/// Reads what is in the page cache; `None` when that is not all of it.
pub(in crate::real) fn read_cached(file: &File, buffer: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
    let mut done = 0;
    while done < buffer.len() {
        let end = buffer.len().min(done + BYTES_PER_CALL_MAX);
        let rest = &mut [IoSliceMut::new(&mut buffer[done..end])];
        match rustix::io::preadv2(file, rest, offset + done as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return None,
            Err(error) => return Some(Err(error.into())),
        }
    }
    Some(Ok(done))
}

pub(in crate::real) fn write_vectored_at(file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pwritev(file, slices, offset)?)
}
