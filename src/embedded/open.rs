//! Opening a folder.
//!
//! ```text
//! identity    which database it is; its id seeds all hashes and checksums
//! lock        locked by the process that has it open; its content is for people
//! log/        the log, see the storage package
//! keys        the ordered keys, left by a clean stop (Index::Radix)
//! ```

use crate::background;
use crate::core::{Core, State};
use crate::engine::Inner;
use crate::error::{Error, Result};
use crate::keys::KeySet;
use crate::options::{Index, Options};
use bytes::Bytes;
use env::{Env, OpenMode};
use std::io::ErrorKind;
use std::sync::Arc;
use storage::small_file::{self, Magic};
use storage::{FileCache, Identity, Log, LogOptions, Mark, RegionId, ScanCursor, Store};

const IDENTITY: &str = "identity";
const IDENTITY_MAGIC: Magic = *b"SFID";
/// Of the folder; the files in `log` have formats of their own.
const FORMAT: u32 = 1;
const LOCK: &str = "lock";
const LOG: &str = "log";
const KEYS: &str = "keys";
const KEYS_MAGIC: Magic = *b"SFKY";
const REGION: RegionId = RegionId(1);
const SCAN_KEYS: usize = 4096;

/// A log with its index.
pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) store: Store,
    pub(crate) keys: Option<KeySet>,
}

/// Opens the database in the folder `dir` of the environment; `""` is all of it.
pub(crate) async fn open(env: Env, dir: &str, options: Options) -> Result<Arc<Inner>> {
    options.check()?;
    let lock = lock(&env, dir, options.read_only).await?;
    let identity = identify(&env, dir, &options).await?;
    let opened = log(&env, dir, identity, &options).await?;
    let state = if options.read_only { State::ReadOnly } else { State::Open };
    let core = Core::new(opened.log, opened.store, opened.keys, state);
    let inner = Inner::new(env, dir.to_owned(), options, core, lock);
    if !inner.options.read_only {
        background::start(&inner);
    }
    Ok(inner)
}

pub(crate) async fn destroy(env: &Env, dir: &str) -> Result<()> {
    let disk = env.disk();
    let _lock = lock(env, dir, false).await?;
    let remove = async |name: &str| match disk.remove(&path(dir, name)).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(&format!("remove {name}"), error)),
        _ => Ok(()),
    };
    // The identity last: a folder with it is a database still, and can be destroyed again.
    storage::destroy(env, &path(dir, LOG)).await?;
    remove(KEYS).await?;
    remove(IDENTITY).await?;
    remove(LOCK).await?;
    disk.sync_dir(dir).await.map_err(|error| Error::io("flush the folder", error))
}

fn path(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

type Lock = Box<dyn std::any::Any + Send + Sync>;

/// Media that cannot be written to need no lock: nobody else writes there either.
async fn lock(env: &Env, dir: &str, read_only: bool) -> Result<Option<Lock>> {
    if !read_only && !dir.is_empty() {
        let made = small_file::create_folder(env.disk(), dir).await;
        made.map_err(|error| Error::io("create the folder", error))?;
    }
    match env.disk().lock(&path(dir, LOCK)).await {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Error::Locked { holder: error.to_string() }),
        Err(_) if read_only => Ok(None),
        Err(error) => Err(Error::io("lock the folder", error)),
    }
}

async fn identify(env: &Env, dir: &str, options: &Options) -> Result<Identity> {
    if let Some(bytes) = read(env, &path(dir, IDENTITY)).await? {
        return decode_identity(&bytes);
    }
    if options.read_only || !options.create_if_missing {
        return Err(Error::Missing { path: if dir.is_empty() { "the folder".into() } else { dir.to_owned() } });
    }
    let cluster = (env.random() as u128) << 64 | env.random() as u128;
    let mut payload = FORMAT.to_le_bytes().to_vec();
    payload.extend_from_slice(&cluster.to_le_bytes());
    let stored = small_file::replace(env.disk(), dir, IDENTITY, IDENTITY_MAGIC, &payload).await;
    stored.map_err(|error| Error::io("write the identity", error))?;
    Ok(Identity { cluster, region: REGION })
}

fn decode_identity(bytes: &[u8]) -> Result<Identity> {
    let corrupt = || Error::Corrupt { file: IDENTITY.into(), offset: 0, what: "not a database's identity".into() };
    let payload = small_file::decode(IDENTITY_MAGIC, bytes).ok_or_else(corrupt)?;
    let (format, rest) = payload.split_at_checked(4).ok_or_else(corrupt)?;
    let found = u32::from_le_bytes(format.try_into().expect("four bytes"));
    if found > FORMAT {
        return Err(Error::NewerFormat { file: IDENTITY.into(), found, known: FORMAT });
    }
    let cluster = u128::from_le_bytes(rest.try_into().map_err(|_| corrupt())?);
    Ok(Identity { cluster, region: REGION })
}

async fn read(env: &Env, path: &str) -> Result<Option<Vec<u8>>> {
    let file = match env.disk().open(path, OpenMode::Read).await {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(&format!("open {path}"), error)),
    };
    let len = file.len().await.map_err(|error| Error::io(&format!("measure {path}"), error))?;
    let (read, mut bytes) = file.read_at(vec![0; len as usize], 0).await;
    bytes.truncate(read.map_err(|error| Error::io(&format!("read {path}"), error))?);
    Ok(Some(bytes))
}

pub(crate) async fn log(env: &Env, dir: &str, identity: Identity, options: &Options) -> Result<Opened> {
    let log_options = LogOptions {
        segment_bytes: options.segment_bytes,
        files: FileCache::new(storage::limits::OPEN_FILES_MAX),
        ..LogOptions::new(identity.cluster)
    };
    let log_options = log_options.with_memory(options.memory_bytes);
    let folder = path(dir, LOG);
    let (mut log, clean) = match options.read_only {
        true => (Log::open_read_only(env, &folder, REGION, log_options).await?, false),
        false => {
            let (log, recovery) = Log::open(env, &folder, REGION, log_options).await?;
            if recovery.read_only {
                tracing::warn!("the device is full: what the log ends with could not be flushed");
            }
            (log, recovery.clean)
        }
    };
    // There is no other replica to ask: what is here, and whole, counts.
    let head = log.head().mark;
    log.set_committed(head.seqno);
    let store = Store::build(&log).await?;
    let keys = match options.index {
        Index::Hash => None,
        Index::Radix => Some(load_keys(env, dir, identity, &store, clean.then_some(head)).await?),
    };
    Ok(Opened { log, store, keys })
}

/// From the file that a clean stop left, or from all records.
async fn load_keys(env: &Env, dir: &str, identity: Identity, store: &Store, head: Option<Mark>) -> Result<KeySet> {
    let stored = match head {
        Some(head) => read(env, &path(dir, KEYS)).await?.and_then(|bytes| decode_keys(&bytes, identity, head)),
        None => None,
    };
    if let Some(keys) = stored.filter(|keys| keys.len() == store.len()) {
        return Ok(keys);
    }
    let mut keys: Vec<Bytes> = Vec::with_capacity(store.len() as usize);
    let mut cursor = Some(ScanCursor::START);
    while let Some(at) = cursor {
        let page = store.scan(at, SCAN_KEYS).await?;
        keys.extend(page.entries.iter().map(|(key, _)| Bytes::copy_from_slice(key)));
        cursor = page.next;
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(KeySet::from_sorted(keys))
}

/// ```text
///  0  4  format      4  16  database      20  8  the log's last seqno      28  8  checksum of its last frame
/// 36  8  number of keys                   44     keys, as in a block of the ordered keys
/// ```
fn encode_keys(keys: &KeySet, identity: Identity, head: Mark) -> Vec<u8> {
    let mut bytes = FORMAT.to_le_bytes().to_vec();
    bytes.extend_from_slice(&identity.cluster.to_le_bytes());
    bytes.extend_from_slice(&head.seqno.0.to_le_bytes());
    bytes.extend_from_slice(&head.checksum.to_le_bytes());
    bytes.extend_from_slice(&keys.len().to_le_bytes());
    keys.encode(&mut bytes);
    bytes
}

/// `None` if the file is not of this end of this log.
fn decode_keys(bytes: &[u8], identity: Identity, head: Mark) -> Option<KeySet> {
    let payload = small_file::decode(KEYS_MAGIC, bytes)?;
    let u64_at = |at: usize| Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().expect("eight bytes")));
    let same = payload.get(..4)? == FORMAT.to_le_bytes()
        && payload.get(4..20)? == identity.cluster.to_le_bytes()
        && u64_at(20)? == head.seqno.0
        && u64_at(28)? == head.checksum;
    let keys = KeySet::decode(payload.get(44..)?);
    (same && keys.len() == u64_at(36)?).then_some(keys)
}

impl Inner {
    /// Leaves the ordered keys for the next start, which does without them if it has to.
    pub(crate) async fn store_keys(&self, head: Mark) {
        let payload = {
            let core = self.core.read();
            let Some(keys) = &core.keys else { return };
            encode_keys(keys, self.identity, head)
        };
        let stored = small_file::replace(self.env.disk(), &self.folder, KEYS, KEYS_MAGIC, &payload).await;
        if let Err(error) = stored {
            tracing::warn!(%error, "could not store the ordered keys");
        }
    }
}
