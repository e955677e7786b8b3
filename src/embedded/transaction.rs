//! Transactions: read at a snapshot, gather changes, commit them if nobody changed what was read.

use crate::batch::{Batch, Packed};
use crate::engine::{Inner, Mode, check_key, check_value};
use crate::error::{Error, Result};
use crate::options::Durability;
use crate::snapshot::View;
use crate::walk::Range;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What both kinds of transaction are.
pub(crate) struct Transact {
    pub(crate) view: Arc<View>,
    durability: Durability,
    read: BTreeSet<Bytes>,
    ranges: Vec<Range>,
    pub(crate) changes: BTreeMap<Bytes, Option<Bytes>>,
}

impl Transact {
    pub(crate) async fn begin(inner: &Arc<Inner>, durability: Durability) -> Result<Transact> {
        inner.core.read().check_writable()?;
        let view = inner.view().await?;
        let (read, ranges, changes) = Default::default();
        Ok(Transact { view, durability, read, ranges, changes })
    }

    pub(crate) async fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        check_key(key)?;
        if let Some(own) = self.changes.get(key) {
            return Ok(own.clone());
        }
        let value = self.view.get(key).await?;
        if !self.read.contains(key) {
            self.read.insert(Bytes::copy_from_slice(key));
        }
        Ok(value)
    }

    pub(crate) fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_key(key)?;
        value.map_or(Ok(()), check_value)?;
        self.changes.insert(Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
        Ok(())
    }

    /// All of the range: what the snapshot holds, and over it the transaction's own changes.
    pub(crate) async fn range(&mut self, range: Range, mode: Mode) -> Result<Vec<(Bytes, Bytes)>> {
        let mut walk = self.view.walk(range.clone())?;
        let mut entries = BTreeMap::new();
        while let Some(entry) = walk.next(mode).await {
            let (key, value) = entry?;
            entries.insert(key, value);
        }
        for (key, value) in self.changes.iter().filter(|(key, _)| range.contains(key)) {
            match value {
                Some(value) => drop(entries.insert(key.clone(), value.clone())),
                None => drop(entries.remove(key)),
            }
        }
        self.ranges.push(range);
        Ok(entries.into_iter().collect())
    }

    pub(crate) async fn commit(self, mode: Mode) -> Result<()> {
        let Transact { view, durability, read, ranges, changes } = self;
        let inner = view.inner.clone();
        let packed = Packed::new(Batch::from_changes(changes.into_iter().collect()), &inner)?;
        let changes = packed.as_changes();
        loop {
            let progress = inner.progress.notified();
            let appended = {
                let mut core = inner.core.write();
                core.check_writable()?;
                let changed = |key: &Bytes| core.is_changed_since(key, inner.hash(key), view.seqno);
                let any =
                    |range: &Range| core.is_any_changed_since(view.seqno, range.start(), |key| range.contains(key));
                if read.iter().any(changed) || ranges.iter().any(any) {
                    return Err(Error::Conflict);
                }
                if changes.is_empty() {
                    return Ok(());
                }
                inner.append_locked(&mut core, &changes)?
            };
            match appended {
                Some((seqno, waiting)) => return inner.follow(seqno, waiting, durability, mode).await,
                None => progress.await,
            }
        }
    }
}
