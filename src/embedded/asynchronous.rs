//! The asynchronous face: the same calls for a program with a runtime, whichever it is.

use crate::batch::{Batch, Packed};
use crate::engine::{Inner, Mode, resolve};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::merge::MergeProgress;
use crate::options::{Durability, Options};
use crate::snapshot::View;
use crate::stats::Stats;
use crate::transaction::Transact;
use crate::walk::{Range, Walk};
use crate::{Db, open};
use bytes::Bytes;
use env::Env;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

/// A database in a folder, as [`Db`], whose calls never block the thread that polls them: what waits for the device does so
/// on threads of the library. A call that was begun and dropped happens, or does not.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let db = embedded::Db::builder().open_async(folder.path()).await?;
/// db.put(b"key", b"value").await?;
/// assert_eq!(db.get(b"key").await?.as_deref(), Some(&b"value"[..]));
/// let mut entries = db.iter().await?;
/// while let Some(entry) = entries.next().await {
///     let (key, value) = entry?;
///     println!("{key:?} {value:?}");
/// }
/// let mut transaction = db.transaction().await?;
/// transaction.put(b"another", b"value")?;
/// transaction.commit().await?;
/// db.close().await
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AsyncDb {
    handle: Arc<Handle>,
    durability: Durability,
}

impl AsyncDb {
    /// As [`Db::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<AsyncDb> {
        Options::new().open_async(path).await
    }

    pub(crate) async fn open_with(path: &Path, options: Options) -> Result<AsyncDb> {
        let (env, keeper) = crate::handle::open_env(path, &options)?;
        let db = AsyncDb::in_env(&env, "", options).await?;
        let AsyncDb { handle, durability } = db;
        Ok(AsyncDb { handle: Handle::new(handle.inner.clone(), Some(keeper)), durability })
    }

    /// Opens the database in a folder of an environment whose tasks somebody else runs: a simulation, for tests.
    #[doc(hidden)]
    pub async fn in_env(env: &Env, dir: &str, options: Options) -> Result<AsyncDb> {
        let durability = options.durability;
        let (world, dir) = (env.clone(), dir.to_owned());
        let opening = env.spawn("open", async move { open::open(world, &dir, options).await });
        let inner = opening.await.unwrap_or(Err(Error::Closed))?;
        Ok(AsyncDb { handle: Handle::new(inner, None), durability })
    }

    pub(crate) fn from_parts(handle: Arc<Handle>, durability: Durability) -> AsyncDb {
        AsyncDb { handle, durability }
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.handle.inner
    }

    /// Runs what must not be dropped half way.
    async fn task<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        self.inner().env.spawn("call", work).await.unwrap_or(Err(Error::Closed))
    }

    /// A handle of the same database whose calls block.
    pub fn to_blocking(&self) -> Db {
        Db::from_parts(self.handle.clone(), self.durability)
    }

    /// As [`Db::with_durability`].
    pub fn with_durability(&self, durability: Durability) -> AsyncDb {
        AsyncDb { handle: self.handle.clone(), durability }
    }

    /// As [`Db::put`].
    pub async fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.inner().change(key.as_ref(), Some(value.as_ref()), self.durability, Mode::Task).await
    }

    /// As [`Db::replace`].
    pub async fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.inner().exchange(key.as_ref(), Some(value.as_ref()), self.durability, Mode::Task).await
    }

    /// As [`Db::delete`].
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.inner().change(key.as_ref(), None, self.durability, Mode::Task).await
    }

    /// As [`Db::take`].
    pub async fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.inner().exchange(key.as_ref(), None, self.durability, Mode::Task).await
    }

    /// As [`Db::get`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let found = self.inner().look_up(key.as_ref())?;
        resolve(found).await
    }

    /// As [`Db::contains`].
    pub async fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key).await?.is_some())
    }

    /// As [`Db::batch`].
    pub fn batch(&self) -> Batch {
        Batch::new()
    }

    /// As [`Db::write`].
    pub async fn write(&self, batch: Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let packed = Packed::new(batch, self.inner())?;
        self.inner().change_all(&packed.as_changes(), self.durability, Mode::Task).await
    }

    /// As [`Db::iter`].
    pub async fn iter(&self) -> Result<AsyncIter> {
        self.snapshot().await?.iter()
    }

    /// As [`Db::range`].
    pub async fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<AsyncIter> {
        self.snapshot().await?.range(range)
    }

    /// As [`Db::prefix`].
    pub async fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<AsyncIter> {
        self.snapshot().await?.prefix(prefix)
    }

    /// As [`Db::snapshot`].
    pub async fn snapshot(&self) -> Result<AsyncSnapshot> {
        let view = self.inner().view().await?;
        Ok(AsyncSnapshot { view, _handle: self.handle.clone() })
    }

    /// As [`Db::transaction`].
    pub async fn transaction(&self) -> Result<AsyncTransaction> {
        let transact = Transact::begin(self.inner(), self.durability).await?;
        Ok(AsyncTransaction { transact, _handle: self.handle.clone() })
    }

    /// As [`Db::merge`]. It goes on when the call is dropped.
    pub async fn merge(&self, progress: impl FnMut(MergeProgress) + Send + 'static) -> Result<MergeProgress> {
        let inner = self.inner().clone();
        self.task(async move { inner.merge(progress).await }).await
    }

    /// As [`Db::stats`].
    pub async fn stats(&self) -> Result<Stats> {
        self.inner().stats().await
    }

    /// As [`Db::sync`].
    pub async fn sync(&self) -> Result<()> {
        self.inner().sync(Mode::Task).await
    }

    /// As [`Db::close`].
    pub async fn close(&self) -> Result<()> {
        let inner = self.inner().clone();
        self.task(async move { inner.close().await }).await
    }
}

/// As [`crate::Snapshot`].
#[derive(Clone)]
pub struct AsyncSnapshot {
    view: Arc<View>,
    _handle: Arc<Handle>,
}

impl AsyncSnapshot {
    /// As [`crate::Snapshot::get`].
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.view.get(key.as_ref()).await
    }

    /// As [`crate::Snapshot::iter`].
    pub fn iter(&self) -> Result<AsyncIter> {
        self.walk(Range::All)
    }

    /// As [`crate::Snapshot::range`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<AsyncIter> {
        self.walk(Range::new(&range))
    }

    /// As [`crate::Snapshot::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<AsyncIter> {
        self.walk(Range::Prefix(Bytes::copy_from_slice(prefix.as_ref())))
    }

    fn walk(&self, range: Range) -> Result<AsyncIter> {
        Ok(AsyncIter { walk: self.view.walk(range)?, _handle: self._handle.clone() })
    }
}

/// Entries of an [`AsyncSnapshot`]. After an error there are none.
pub struct AsyncIter {
    walk: Walk,
    _handle: Arc<Handle>,
}

impl AsyncIter {
    /// The next entry. A call that is dropped before it is done may lose some entries: do not go on with the iterator then.
    pub async fn next(&mut self) -> Option<Result<(Bytes, Bytes)>> {
        self.walk.next(Mode::Task).await
    }
}

/// As [`crate::Transaction`].
pub struct AsyncTransaction {
    transact: Transact,
    _handle: Arc<Handle>,
}

impl AsyncTransaction {
    /// As [`crate::Transaction::get`].
    pub async fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.transact.get(key.as_ref()).await
    }

    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transact.change(key.as_ref(), Some(value.as_ref()))
    }

    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.transact.change(key.as_ref(), None)
    }

    /// As [`crate::Transaction::range`].
    pub async fn range<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<K>) -> Result<Vec<(Bytes, Bytes)>> {
        let range = Range::new(&range);
        self.transact.range(range, Mode::Task).await
    }

    /// As [`crate::Transaction::prefix`].
    pub async fn prefix(&mut self, prefix: impl AsRef<[u8]>) -> Result<Vec<(Bytes, Bytes)>> {
        let range = Range::Prefix(Bytes::copy_from_slice(prefix.as_ref()));
        self.transact.range(range, Mode::Task).await
    }

    /// As [`crate::Transaction::commit`].
    pub async fn commit(self) -> Result<()> {
        self.transact.commit(Mode::Task).await
    }
}
