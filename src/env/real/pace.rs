//! Whether the caller of a small write may do it himself.
//!
//! A write of some kilobytes into the page cache takes microseconds, and to hand it to an engine and hear of its end takes
//! several times that. But now and then the kernel makes a writer wait: for a journal, or because too much is dirty; and
//! buffered writes of ext4 cannot be asked not to. So it is tried, and timed: after one that took long, none is tried for so
//! much longer that waiting stays a small part of the time of the threads that run tasks.

use super::operation::{OpenFile, Source};
use super::sys;
use bytes::Bytes;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Of one disk.
#[derive(Default)]
pub(super) struct Pace {
    /// Nothing is tried before this time since the machine started.
    not_before_us: AtomicU64,
}

/// Longer writes are the engine's: copying them takes too long as well.
const BYTES_AT_ONCE_MAX: usize = 1 << 20;
/// A write that took this long has waited.
const WAIT_MIN: Duration = Duration::from_millis(2);
/// For each moment waited, so many without a try.
const PAUSE_PER_WAIT: u32 = 50;

impl Pace {
    /// Writes all of `buffers`, if that is likely to take no time.
    pub(super) fn try_write(&self, open: &OpenFile, buffers: &[Bytes], offset: u64) -> Option<io::Result<()>> {
        let begun = sys::since_boot();
        let len: usize = buffers.iter().map(Bytes::len).sum();
        if len > BYTES_AT_ONCE_MAX || (begun.as_micros() as u64) < self.not_before_us.load(Ordering::Relaxed) {
            return None;
        }
        let written = write_all(open, buffers, offset);
        self.took(begun, sys::since_boot() - begun);
        Some(written)
    }

    fn took(&self, begun: Duration, took: Duration) {
        if took >= WAIT_MIN {
            let not_before = begun + took + took * PAUSE_PER_WAIT;
            self.not_before_us.fetch_max(not_before.as_micros() as u64, Ordering::Relaxed);
        }
    }
}

fn write_all(open: &OpenFile, buffers: &[Bytes], offset: u64) -> io::Result<()> {
    let mut source = Source::new(buffers.to_vec());
    while !source.is_empty() {
        match sys::write_vectored_at(&open.file, &source.slices(), offset + source.taken()) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => source.take(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn file() -> (tempfile::TempDir, OpenFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        (folder, OpenFile::new(file, path))
    }

    #[test]
    fn what_is_short_is_written_at_once() {
        let (_folder, open) = file();
        let pace = Pace::default();
        assert!(pace.try_write(&open, &["ab".into(), "".into(), "cd".into()], 3).expect("short").is_ok());
        let mut read = [0; 4];
        open.file.read_exact_at(&mut read, 3).expect("it is there");
        assert_eq!(&read, b"abcd");
        assert!(pace.try_write(&open, &[vec![0; BYTES_AT_ONCE_MAX + 1].into()], 0).is_none());
    }

    #[test]
    fn after_a_wait_nothing_is_tried_for_long() {
        let (_folder, open) = file();
        let pace = Pace::default();
        let now = sys::since_boot();
        pace.took(now, WAIT_MIN / 2);
        assert!(pace.try_write(&open, &["x".into()], 0).is_some());
        pace.took(now, Duration::from_secs(1));
        assert!(pace.try_write(&open, &["x".into()], 0).is_none());
        let not_before = now + Duration::from_secs(51);
        assert_eq!(pace.not_before_us.load(Ordering::Relaxed), not_before.as_micros() as u64);
    }
}
