//! The data folder.

use super::error::{at, context, flush_failed};
use super::file::RealFile;
use super::operation::{Engine, OpenFile};
use super::pace::Pace;
use super::sys;
use crate::BoxFuture;
use crate::disk::{DirEntry, Disk, File, OpenMode, check_path};
use std::any::Any;
use std::fs::{self, OpenOptions, TryLockError};
use std::future::ready;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;

pub(super) struct RealDisk {
    root: PathBuf,
    engine: Arc<dyn Engine>,
    pace: Arc<Pace>,
    runtime: Handle,
    boot_id: u128,
}

impl RealDisk {
    pub(super) fn open(root: PathBuf, engine: Arc<dyn Engine>, runtime: Handle) -> io::Result<RealDisk> {
        make_dir(&root)?;
        // Errors name the whole path, and a later change of the working directory moves nothing.
        let root = root.canonicalize().map_err(at("find", &root))?;
        let boot_id = sys::boot_id().map_err(|error| context("tell this start of the machine".into(), error))?;
        Ok(RealDisk { root, engine, pace: Arc::default(), runtime, boot_id })
    }

    /// Runs `work` on the place that `path` leads to, where it may block.
    fn at<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce(PathBuf) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        match check_path(path) {
            Ok(()) => {
                let place = self.root.join(path);
                blocking(&self.runtime, move || work(place))
            }
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    /// As [`RealDisk::at`], where `""` is the data folder.
    fn at_or_root<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce(PathBuf) -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        if path.is_empty() {
            let root = self.root.clone();
            return blocking(&self.runtime, move || work(root));
        }
        self.at(path, work)
    }
}

/// Runs `work` on a thread where it may block: this one, if it waits anyway. It runs to its end even if the future is dropped.
pub(super) fn blocking<T: Send + 'static>(
    runtime: &Handle,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> BoxFuture<'static, io::Result<T>> {
    if super::own::waits() {
        return Box::pin(ready(work()));
    }
    let working = runtime.spawn_blocking(work);
    Box::pin(async { working.await.unwrap_or_else(|gone| Err(io::Error::other(gone))) })
}

impl Disk for RealDisk {
    fn open(&self, path: &str, mode: OpenMode) -> BoxFuture<'static, io::Result<Arc<dyn File>>> {
        let (engine, pace, runtime) = (self.engine.clone(), self.pace.clone(), self.runtime.clone());
        self.at(path, move |place| {
            let file = open_file(&place, mode).map_err(at("open", &place))?;
            Ok(Arc::new(RealFile::new(OpenFile::new(file, place), engine, pace, runtime)) as Arc<dyn File>)
        })
    }

    fn rename(&self, from: &str, to: &str) -> BoxFuture<'static, io::Result<()>> {
        if let Err(error) = check_path(to) {
            return Box::pin(ready(Err(error)));
        }
        let to = self.root.join(to);
        self.at(from, move |from| {
            let what = || format!("rename {} to {}", from.display(), to.display());
            fs::rename(&from, &to).map_err(|error| context(what(), error))
        })
    }

    fn remove(&self, path: &str) -> BoxFuture<'static, io::Result<()>> {
        self.at(path, |place| fs::remove_file(&place).map_err(at("remove", &place)))
    }

    fn create_dir(&self, path: &str) -> BoxFuture<'static, io::Result<()>> {
        self.at(path, |place| make_dir(&place))
    }

    fn remove_dir(&self, path: &str) -> BoxFuture<'static, io::Result<()>> {
        self.at(path, |place| match fs::remove_dir_all(&place) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result.map_err(at("remove folder", &place)),
        })
    }

    fn list(&self, path: &str) -> BoxFuture<'static, io::Result<Vec<DirEntry>>> {
        self.at_or_root(path, |place| list(&place).map_err(at("list", &place)))
    }

    fn sync_dir(&self, path: &str) -> BoxFuture<'static, io::Result<()>> {
        self.at_or_root(path, |place| sync_dir(&place).map_err(at("flush folder", &place)))
    }

    fn free_bytes(&self) -> BoxFuture<'static, io::Result<u64>> {
        self.at_or_root("", |root| sys::free_bytes(&root).map_err(at("ask for free space in", &root)))
    }

    fn boot_id(&self) -> u128 {
        self.boot_id
    }

    fn lock(&self, path: &str) -> BoxFuture<'static, io::Result<Box<dyn Any + Send + Sync>>> {
        self.at(path, |place| Ok(Box::new(lock(&place)?) as Box<dyn Any + Send + Sync>))
    }

    fn backend(&self) -> &'static str {
        self.engine.name()
    }
}

fn make_dir(place: &Path) -> io::Result<()> {
    fs::create_dir_all(place).map_err(at("create folder", place))
}

fn open_file(place: &Path, mode: OpenMode) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).write(mode != OpenMode::Read);
    options.create(mode == OpenMode::Create).create_new(mode == OpenMode::CreateNew);
    let file = options.open(place)?;
    // The kernel refuses to open a folder for writing, but not for reading.
    if file.metadata()?.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    Ok(file)
}

fn list(place: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = fs::read_dir(place)?.map(|entry| to_entry(&entry?)).collect::<io::Result<Vec<_>>>()?;
    entries.sort_unstable();
    Ok(entries)
}

fn to_entry(entry: &fs::DirEntry) -> io::Result<DirEntry> {
    let kind = entry.file_type()?;
    // An operator may have put a folder on another device.
    let is_dir = kind.is_dir() || kind.is_symlink() && entry.path().is_dir();
    // A name that is no UTF-8 is none of ours; it is listed all the same, for whoever looks.
    Ok(DirEntry { name: entry.file_name().to_string_lossy().into_owned(), is_dir })
}

fn sync_dir(place: &Path) -> io::Result<()> {
    let folder = fs::File::open(place)?;
    if !folder.metadata()?.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    folder.sync_all().map_err(flush_failed)
}

/// The lock goes with the open file; the process's id is in it for people only.
fn lock(place: &Path) -> io::Result<fs::File> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).to_owned();
    let mut file = options.open(place).map_err(at("open lock", place))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(held(file, place)),
        Err(TryLockError::Error(error)) => return Err(at("lock", place)(error)),
    }
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(at("write to lock", place))?;
    Ok(file)
}

fn held(mut file: fs::File, place: &Path) -> io::Error {
    let mut holder = String::new();
    // The holder may be about to write it.
    let known = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
    let holder = if known { format!("process {}", holder.trim()) } else { "another process".to_owned() };
    let folder = place.parent().unwrap_or(place);
    let message = format!("{} is in use by {holder} (lock file {})", folder.display(), place.display());
    io::Error::new(ErrorKind::WouldBlock, message)
}
