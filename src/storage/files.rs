//! Open segment files, bounded in number for all the regions of a node.
//!
//! A [`SegmentHandle`] names a segment and keeps its file open while it is used; a [`FileCache`] closes the ones idle for
//! longest once too many are open. Whoever reads holds the file itself, so that a read outlives the closing, and even the
//! removal, of what it reads.

use crate::error::StorageError;
use crate::ids::SegmentId;
use crate::seed::{Identity, Seeds};
use crate::segment::segment_path;
use env::{Disk, File, OpenMode};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// How many segment files are open at once. Shared by the regions of a node.
pub struct FileCache {
    open_max: usize,
    clock: AtomicU64,
    open: Mutex<Vec<Weak<SegmentHandle>>>,
}

impl FileCache {
    pub fn new(open_max: usize) -> Arc<FileCache> {
        Arc::new(FileCache { open_max: open_max.max(1), clock: AtomicU64::new(0), open: Mutex::new(Vec::new()) })
    }

    pub fn open_files(&self) -> usize {
        self.open.lock().len()
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn opened(&self, handle: &Arc<SegmentHandle>) {
        let mut open = self.open.lock();
        open.retain(|other| other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), Arc::as_ptr(handle)));
        while open.len() >= self.open_max {
            let idle = (0..open.len())
                .min_by_key(|&at| open[at].upgrade().map_or(0, |handle| handle.used.load(Ordering::Relaxed)))
                .expect("not empty");
            if let Some(handle) = open.swap_remove(idle).upgrade() {
                *handle.file.lock() = None;
            }
        }
        open.push(Arc::downgrade(handle));
    }
}

/// A segment of a log, opened when somebody reads it.
pub(crate) struct SegmentHandle {
    pub(crate) seeds: Seeds,
    pub(crate) path: String,
    disk: Arc<dyn Disk>,
    cache: Arc<FileCache>,
    used: AtomicU64,
    file: Mutex<Option<Arc<dyn File>>>,
}

impl SegmentHandle {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        cache: Arc<FileCache>,
        dir: &str,
        identity: &Identity,
        segment: SegmentId,
    ) -> Arc<SegmentHandle> {
        Arc::new(SegmentHandle {
            seeds: identity.seeds(segment),
            path: segment_path(dir, segment),
            disk,
            cache,
            used: AtomicU64::new(0),
            file: Mutex::new(None),
        })
    }

    /// The file, if it is open.
    pub(crate) fn try_file(&self) -> Option<Arc<dyn File>> {
        let file = self.file.lock().clone()?;
        self.used.store(self.cache.tick(), Ordering::Relaxed);
        Some(file)
    }

    pub(crate) async fn file(self: &Arc<Self>) -> Result<Arc<dyn File>, StorageError> {
        if let Some(file) = self.try_file() {
            return Ok(file);
        }
        // For writing as well, so that the log's writer uses the same file.
        let mut opened = self.disk.open(&self.path, OpenMode::Write).await;
        let refused = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
        };
        if opened.as_ref().is_err_and(refused) {
            opened = self.disk.open(&self.path, OpenMode::Read).await;
        }
        let file = opened.map_err(|error| StorageError::io("open", &self.path, error))?;
        *self.file.lock() = Some(file.clone());
        self.used.store(self.cache.tick(), Ordering::Relaxed);
        self.cache.opened(self);
        Ok(file)
    }
}
