//! The blocking face.

use crate::batch::{Batch, Packed};
use crate::core::Found;
use crate::engine::{Inner, Mode};
use crate::error::Result;
use crate::handle::Handle;
use crate::merge::MergeProgress;
use crate::options::{Durability, Options};
use crate::snapshot::View;
use crate::stats::Stats;
use crate::transaction::Transact;
use crate::walk::{Range, Walk};
use crate::{AsyncDb, open};
use bytes::Bytes;
use env::real::wait;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

/// A database in a folder. Cloning gives another handle of the same; all may be used from any thread at any time.
///
/// Every call blocks until it is done; [`Db::to_async`] gives a handle that does not. Dropping the last handle closes the
/// database as [`Db::close`] does, but cannot say what went wrong; dropped by a panic it leaves the database as a crash
/// would, and the next start recovers.
#[derive(Clone)]
pub struct Db {
    handle: Arc<Handle>,
    durability: Durability,
}

impl Db {
    /// Opens the database in the folder, or makes an empty one there, with the default [`Options`].
    ///
    /// ```
    /// let folder = tempfile::tempdir()?;
    /// let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"value")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Locked`] if it is open already, here or in another process; [`crate::Error::Corrupt`] if what was durable once is
    /// not there any more. A log that a crash left unfinished is no error: what was never acknowledged is dropped.
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::new().open(path)
    }

    /// The default options, to be changed.
    pub fn builder() -> Options {
        Options::new()
    }

    pub(crate) fn open_with(path: &Path, options: Options) -> Result<Db> {
        let durability = options.durability;
        let (env, keeper) = crate::handle::open_env(path, &options)?;
        let inner = wait(open::open(env, "", options))?;
        Ok(Db { handle: Handle::new(inner, Some(keeper)), durability })
    }

    pub(crate) fn from_parts(handle: Arc<Handle>, durability: Durability) -> Db {
        Db { handle, durability }
    }

    /// Removes the database in the folder, and the folder if nothing else is in it.
    ///
    /// ```
    /// # use embedded::{Db, Error};
    /// # let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("scratch");
    /// Db::open(&path)?.put(b"key", b"value")?;
    /// Db::destroy(&path)?;
    /// assert!(matches!(Db::builder().create_if_missing(false).open(&path), Err(Error::Missing { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn destroy(path: impl AsRef<Path>) -> Result<()> {
        crate::handle::destroy(path.as_ref())
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.handle.inner
    }

    /// A handle whose writes have another durability.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// use embedded::Durability;
    ///
    /// let counters = db.with_durability(Durability::Relaxed);
    /// counters.put(b"visits", b"12")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_durability(&self, durability: Durability) -> Db {
        Db { handle: self.handle.clone(), durability }
    }

    /// A handle of the same database whose calls do not block.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let shared = db.to_async();
    /// shared.put(b"key", b"value").await?;
    /// assert_eq!(db.get(b"key")?.as_deref(), Some(&b"value"[..]));
    /// # Ok::<(), embedded::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_async(&self) -> AsyncDb {
        AsyncDb::from_parts(self.handle.clone(), self.durability)
    }

    /// Makes `value` the key's value. Keys have 1 to 65,536 bytes, any; values up to 8 MiB, and may be empty.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"value")?;
    /// db.put("text keys are fine", vec![0, 1, 2])?;
    /// assert!(db.put(b"", b"no empty keys").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.change(key.as_ref(), Some(value.as_ref()))
    }

    /// [`Db::put`] that returns the value before, with no other write between.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// assert_eq!(db.replace(b"key", b"one")?, None);
    /// assert_eq!(db.replace(b"key", b"two")?.as_deref(), Some(&b"one"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        wait(self.inner().exchange(key.as_ref(), Some(value.as_ref()), self.durability, Mode::Here))
    }

    /// Removes the key, if it is there.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"value")?;
    /// db.delete(b"key")?;
    /// assert!(!db.contains(b"key")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.change(key.as_ref(), None)
    }

    /// [`Db::delete`] that returns the value before, with no other write between.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// db.put(b"job", b"17")?;
    /// assert_eq!(db.take(b"job")?.as_deref(), Some(&b"17"[..]));
    /// assert_eq!(db.take(b"job")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        wait(self.inner().exchange(key.as_ref(), None, self.durability, Mode::Here))
    }

    #[inline]
    fn change(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let inner = self.inner();
        match inner.try_change(key, value)? {
            // The rule when nothing is waited for: no future is made.
            Some((_, 0)) if self.durability == Durability::Relaxed => Ok(()),
            Some((seqno, waiting)) => wait(inner.follow(seqno, waiting, self.durability, Mode::Here)),
            None => wait(inner.change(key, value, self.durability, Mode::Here)),
        }
    }

    /// The key's value.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"")?;
    /// assert_eq!(db.get(b"key")?.as_deref(), Some(&b""[..]), "an empty value is a value");
    /// assert_eq!(db.get(b"another")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        match self.inner().look_up(key.as_ref())? {
            Found::Ready(value) => Ok(value),
            Found::Read(mut job) => match job.try_now() {
                Some(entry) => Ok(entry?.map(|entry| entry.value)),
                None => Ok(wait(job.run())?.map(|entry| entry.value)),
            },
        }
    }

    /// Whether the key has a value. Reads it, unless the index knows that it has none.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"value")?;
    /// assert!(db.contains(b"key")? && !db.contains(b"another")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// An empty [`Batch`], for [`Db::write`].
    pub fn batch(&self) -> Batch {
        Batch::new()
    }

    /// Makes the batch's changes, all or none, whatever happens; no reader sees a part of them.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// let mut batch = db.batch();
    /// batch.put(b"a", b"1").put(b"b", b"2");
    /// db.write(batch)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write(&self, batch: Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let packed = Packed::new(batch, self.inner())?;
        wait(self.inner().change_all(&packed.as_changes(), self.durability, Mode::Here))
    }

    /// All keys with their values, as they are now: what is written meanwhile does not show. In the keys' order with
    /// [`crate::Index::Radix`], in none otherwise.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"value")?;
    /// for entry in db.iter()? {
    ///     let (key, value) = entry?;
    ///     assert_eq!((&key[..], &value[..]), (&b"key"[..], &b"value"[..]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> Result<Iter> {
        self.snapshot()?.iter()
    }

    /// The keys of [`Db::iter`].
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"value")?;
    /// assert_eq!(db.keys()?.collect::<Result<Vec<_>, _>>()?, [&b"key"[..]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys(&self) -> Result<impl Iterator<Item = Result<Bytes>> + use<>> {
        Ok(self.iter()?.map(|entry| entry.map(|(key, _)| key)))
    }

    /// The values of [`Db::iter`].
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"value")?;
    /// assert_eq!(db.values()?.collect::<Result<Vec<_>, _>>()?, [&b"value"[..]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn values(&self) -> Result<impl Iterator<Item = Result<Bytes>> + use<>> {
        Ok(self.iter()?.map(|entry| entry.map(|(_, value)| value)))
    }

    /// The entries whose keys lie in the range, in order. Needs [`crate::Index::Radix`].
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// let db = embedded::Db::builder().index(embedded::Index::Radix).open(folder.path())?;
    /// for day in ["2024-01-30", "2024-02-02", "2024-02-11", "2024-03-01"] {
    ///     db.put(day, b"")?;
    /// }
    /// let february: Vec<_> = db.range("2024-02-01".."2024-03-01")?.collect::<Result<_, _>>()?;
    /// assert_eq!(february.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        self.snapshot()?.range(range)
    }

    /// The entries whose keys begin so, in order. Needs [`crate::Index::Radix`].
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// let db = embedded::Db::builder().index(embedded::Index::Radix).open(folder.path())?;
    /// db.put(b"user:7:mail", b"a@b")?;
    /// db.put(b"user:7:name", b"Ann")?;
    /// db.put(b"user:8:name", b"Bob")?;
    /// assert_eq!(db.prefix(b"user:7:")?.count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.snapshot()?.prefix(prefix)
    }

    /// The database as it is now, to be read while it changes.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"before")?;
    /// let snapshot = db.snapshot()?;
    /// db.put(b"key", b"after")?;
    /// assert_eq!(snapshot.get(b"key")?.as_deref(), Some(&b"before"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot> {
        let view = wait(self.inner().view())?;
        Ok(Snapshot { view, _handle: self.handle.clone() })
    }

    /// Begins a [`Transaction`].
    pub fn transaction(&self) -> Result<Transaction> {
        let transact = wait(Transact::begin(self.inner(), self.durability))?;
        Ok(Transaction { transact, _handle: self.handle.clone() })
    }

    /// Compacts now whatever has dead bytes, and says from time to time how far it is. Reads and writes go on. Needs at most
    /// the space of one segment besides what there is.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// for round in 0..10u8 {
    ///     db.put(b"key", [round; 1000])?;
    /// }
    /// let done = db.merge(|progress| println!("{} bytes", progress.bytes_now))?;
    /// assert!(done.bytes_now < done.bytes_before / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn merge(&self, progress: impl FnMut(MergeProgress)) -> Result<MergeProgress> {
        wait(self.inner().merge(progress))
    }

    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"value")?;
    /// let stats = db.stats()?;
    /// assert!(stats.disk_bytes > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Result<Stats> {
        wait(self.inner().stats())
    }

    /// Flushes all that was written before, whatever its durability.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// let db = embedded::Db::builder().durability(embedded::Durability::Relaxed).open(folder.path())?;
    /// db.put(b"key", b"value")?;
    /// db.sync()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        wait(self.inner().sync(Mode::Here))
    }

    /// Flushes everything, writes hints, and releases the folder. All handles of the database are [`crate::Error::Closed`] then.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// let db = embedded::Db::open(folder.path())?;
    /// db.put(b"key", b"value")?;
    /// db.close()?;
    /// assert!(matches!(db.get(b"key"), Err(embedded::Error::Closed)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) -> Result<()> {
        wait(self.inner().close())
    }
}

/// The database as it was at one moment. What it may still read is kept while it lives: of segments that are compacted
/// meanwhile the old files, and for each key that is changed a note in memory.
#[derive(Clone)]
pub struct Snapshot {
    view: Arc<View>,
    _handle: Arc<Handle>,
}

impl Snapshot {
    /// The key's value at that moment.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        wait(self.view.get(key.as_ref()))
    }

    /// As [`Db::iter`], at that moment.
    pub fn iter(&self) -> Result<Iter> {
        self.walk(Range::All)
    }

    /// As [`Db::range`], at that moment.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        self.walk(Range::new(&range))
    }

    /// As [`Db::prefix`], at that moment.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.walk(Range::Prefix(Bytes::copy_from_slice(prefix.as_ref())))
    }

    fn walk(&self, range: Range) -> Result<Iter> {
        Ok(Iter { walk: self.view.walk(range)?, _handle: self._handle.clone() })
    }
}

/// Entries of a [`Snapshot`]. After an error there are none.
pub struct Iter {
    walk: Walk,
    _handle: Arc<Handle>,
}

impl Iterator for Iter {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Result<(Bytes, Bytes)>> {
        match self.walk.next_loaded() {
            Some(entry) => Some(Ok(entry)),
            None => wait(self.walk.next(Mode::Here)),
        }
    }
}

/// Reads at one moment, and changes that are made if nothing that was read has changed since: serializable, without locks.
///
/// ```
/// use embedded::{Db, Error};
///
/// fn add_one(db: &Db, key: &[u8]) -> Result<u64, Error> {
///     loop {
///         let mut transaction = db.transaction()?;
///         let text = transaction.get(key)?.unwrap_or_default();
///         let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(0) + 1;
///         transaction.put(key, number.to_string())?;
///         match transaction.commit() {
///             Err(Error::Conflict) => continue,
///             done => return done.map(|()| number),
///         }
///     }
/// }
/// # let folder = tempfile::tempdir()?;
/// # let db = Db::open(folder.path())?;
/// add_one(&db, b"visits")?;
/// assert_eq!(add_one(&db, b"visits")?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping it takes nothing over.
pub struct Transaction {
    transact: Transact,
    _handle: Arc<Handle>,
}

impl Transaction {
    /// The key's value when the transaction began, or what the transaction made it.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        wait(self.transact.get(key.as_ref()))
    }

    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transact.change(key.as_ref(), Some(value.as_ref()))
    }

    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.transact.change(key.as_ref(), None)
    }

    /// As [`Db::range`], with the transaction's own changes. A key that anybody adds to the range or changes in it before
    /// the commit is a conflict.
    pub fn range<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<K>) -> Result<Vec<(Bytes, Bytes)>> {
        wait(self.transact.range(Range::new(&range), Mode::Here))
    }

    /// As [`Db::prefix`], with the transaction's own changes; conflicts as for [`Transaction::range`].
    pub fn prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<Vec<(Bytes, Bytes)>> {
        wait(self.transact.range(Range::Prefix(Bytes::copy_from_slice(prefix.as_ref())), Mode::Here))
    }

    /// Makes the changes, all or none. [`crate::Error::Conflict`] if something that was read was changed: begin anew.
    pub fn commit(self) -> Result<()> {
        wait(self.transact.commit(Mode::Here))
    }
}
