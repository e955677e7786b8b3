//! Changes that happen together or not at all.

use crate::core::Change;
use crate::engine::{Inner, check_key, check_value};
use crate::error::{Error, Result};
use crate::limits::{FRAME_BYTES_MAX, FRAME_RECORDS_MAX};
use bytes::Bytes;
use storage::{Compression, FRAME_HEADER_LEN, Record};

/// Puts and deletes that are applied as one: [`crate::Db::batch`], [`crate::Db::write`]. Of several changes of a key the last
/// one counts. At most 65,536 changes and 32 MiB.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let db = embedded::Db::open(folder.path())?;
/// let mut batch = db.batch();
/// batch.put(b"from", b"90").put(b"to", b"110").delete(b"pending");
/// db.write(batch)?;
/// assert_eq!(db.get(b"to")?.as_deref(), Some(&b"110"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<(Bytes, Option<Bytes>)>,
}

impl Batch {
    pub fn new() -> Batch {
        Batch::default()
    }

    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Batch {
        let value = Bytes::copy_from_slice(value.as_ref());
        self.changes.push((Bytes::copy_from_slice(key.as_ref()), Some(value)));
        self
    }

    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Batch {
        self.changes.push((Bytes::copy_from_slice(key.as_ref()), None));
        self
    }

    pub fn len(&self) -> usize {
        self.changes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn from_changes(changes: Vec<(Bytes, Option<Bytes>)>) -> Batch {
        Batch { changes }
    }
}

/// A batch as it is to be appended.
pub(crate) struct Packed {
    changes: Vec<(Bytes, u128, Option<(Bytes, Compression)>)>,
}

impl Packed {
    pub(crate) fn new(batch: Batch, inner: &Inner) -> Result<Packed> {
        let mut changes = Vec::with_capacity(batch.changes.len());
        for (key, value) in batch.changes {
            check_key(&key)?;
            value.as_ref().map_or(Ok(()), |value| check_value(value))?;
            let key_hash = inner.hash(&key);
            changes.push((key, key_hash, value.map(|value| inner.pack(value))));
        }
        let packed = Packed { changes };
        let len: usize = packed.as_changes().iter().map(|change| change.record.encoded_len()).sum();
        if packed.changes.len() > FRAME_RECORDS_MAX || len + FRAME_HEADER_LEN > FRAME_BYTES_MAX {
            let count = packed.changes.len();
            let what = format!(
                "a batch of {count} changes and {len} bytes: {FRAME_RECORDS_MAX} and {FRAME_BYTES_MAX} are possible"
            );
            return Err(Error::Invalid { what });
        }
        Ok(packed)
    }

    pub(crate) fn as_changes(&self) -> Vec<Change<'_>> {
        self.changes.iter().map(as_change).collect()
    }
}

fn as_change((key, key_hash, value): &(Bytes, u128, Option<(Bytes, Compression)>)) -> Change<'_> {
    let record = match value {
        Some((value, compression)) => Record::Put { key, value, compression: *compression, expiry_ms: None },
        None => Record::Tombstone { key },
    };
    Change { record, key_hash: *key_hash }
}
