//! Going through the keys of a snapshot, each once, a page at a time.
//!
//! **Ordered**: the keys that there are now and those that changed since the snapshot together contain all that there were
//! then. Each is looked up as of the snapshot.
//!
//! **By hash**: keys are not in memory, so that the index is scanned and the records are read. A scan meets keys in the order
//! of their places ([`storage::Store::place`]), however the index grows and shrinks meanwhile. Only keys that have not changed
//! since the snapshot are given by it; those that have are noted in the versions, and follow at the end: all whose change
//! came before their page was finished, as the scan has given the others.

use crate::core::{Core, Found};
use crate::engine::{Goal, Mode, resolve};
use crate::error::{Error, Result};
use crate::limits::PAGE_KEYS;
use crate::snapshot::View;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use storage::{ScanCursor, Seqno};

/// Which keys.
#[derive(Clone, Debug)]
pub(crate) enum Range {
    All,
    Between(Bound<Bytes>, Bound<Bytes>),
    Prefix(Bytes),
}

impl Range {
    pub(crate) fn new<K: AsRef<[u8]>>(bounds: &impl RangeBounds<K>) -> Range {
        let own = |bound: Bound<&K>| bound.map(|key| Bytes::copy_from_slice(key.as_ref()));
        Range::Between(own(bounds.start_bound()), own(bounds.end_bound()))
    }

    pub(crate) fn start(&self) -> Bound<&[u8]> {
        match self {
            Range::All => Bound::Unbounded,
            Range::Between(start, _) => start.as_ref().map(|key| &key[..]),
            Range::Prefix(prefix) => Bound::Included(prefix),
        }
    }

    /// Whether a key that is not before the start belongs to it.
    fn is_before_end(&self, key: &[u8]) -> bool {
        match self {
            Range::All => true,
            Range::Between(_, Bound::Included(end)) => key <= &end[..],
            Range::Between(_, Bound::Excluded(end)) => key < &end[..],
            Range::Between(_, Bound::Unbounded) => true,
            Range::Prefix(prefix) => key.starts_with(prefix),
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let after_start = match self.start() {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        };
        after_start && self.is_before_end(key)
    }
}

type Entry = (Bytes, Bytes);

/// See the module.
pub(crate) struct Walk {
    view: Arc<View>,
    range: Range,
    place: Place,
    page: VecDeque<Entry>,
}

enum Place {
    /// Frames up to the snapshot may not be in the index yet.
    Start,
    /// After this key.
    Ordered(Bound<Bytes>),
    Hashed {
        cursor: ScanCursor,
        pages: Vec<Page>,
    },
    /// Of the keys that changed, after this one.
    Changed {
        after: Bound<Bytes>,
        pages: Vec<Page>,
    },
    End,
}

/// A page of the scan: the place it ends before, and what was in the index when it was finished.
#[derive(Clone, Copy)]
struct Page {
    end: u64,
    applied: Seqno,
}

impl Walk {
    pub(crate) fn new(view: Arc<View>, range: Range) -> Result<Walk> {
        let is_ordered = {
            let core = view.inner.core.read();
            core.check_readable()?;
            core.keys.is_some()
        };
        if !is_ordered && !matches!(range, Range::All) {
            let what = "keys have no order here: open the database with `Index::Radix` for ranges and prefixes";
            return Err(Error::invalid(what));
        }
        Ok(Walk { view, range, place: Place::Start, page: VecDeque::new() })
    }

    pub(crate) async fn next(&mut self, mode: Mode) -> Option<Result<Entry>> {
        loop {
            if let Some(entry) = self.page.pop_front() {
                return Some(Ok(entry));
            }
            if matches!(self.place, Place::End) {
                return None;
            }
            if let Err(error) = self.load(mode).await {
                self.place = Place::End;
                return Some(Err(error));
            }
        }
    }

    /// The next key or value that is in memory already; `None` if a page has to be loaded.
    pub(crate) fn next_loaded(&mut self) -> Option<Entry> {
        self.page.pop_front()
    }

    async fn load(&mut self, mode: Mode) -> Result<()> {
        let inner = self.view.inner.clone();
        match std::mem::replace(&mut self.place, Place::End) {
            Place::Start => {
                inner.reach(self.view.seqno, Goal::Applied, mode).await?;
                self.place = match inner.core.read().keys {
                    Some(_) => Place::Ordered(self.range.start().map(Bytes::copy_from_slice)),
                    None => Place::Hashed { cursor: ScanCursor::Index(Default::default()), pages: Vec::new() },
                };
                Ok(())
            }
            Place::Ordered(from) => self.load_ordered(from).await,
            Place::Hashed { cursor, pages } => self.load_hashed(cursor, pages).await,
            Place::Changed { after, pages } => self.load_changed(after, pages).await,
            Place::End => Ok(()),
        }
    }

    async fn load_ordered(&mut self, from: Bound<Bytes>) -> Result<()> {
        let mut found = Vec::with_capacity(PAGE_KEYS);
        {
            let core = self.view.inner.core.read();
            let keys = self.ordered_keys(&core, from.as_ref().map(|key| &key[..]));
            let last = keys.last().cloned();
            let is_end = keys.len() < PAGE_KEYS || last.as_ref().is_none_or(|last| !self.range.is_before_end(last));
            for key in keys.into_iter().filter(|key| self.range.is_before_end(key)) {
                let value = core.find_before(&key, self.view.inner.hash(&key), self.view.seqno)?;
                found.push((key, value));
            }
            if let (false, Some(last)) = (is_end, last) {
                self.place = Place::Ordered(Bound::Excluded(last));
            }
        }
        self.read_all(found).await
    }

    /// Keys that are there, or that were at the snapshot, in order; fewer than a page only at the end.
    fn ordered_keys(&self, core: &Core, from: Bound<&[u8]>) -> Vec<Bytes> {
        let mut keys = Vec::with_capacity(PAGE_KEYS * 2);
        core.keys.as_ref().expect("it is ordered").from(from, PAGE_KEYS, &mut keys);
        let changed = core.versions.changed_since(self.view.seqno, from);
        keys.extend(changed.take(PAGE_KEYS).map(|(key, _)| key.clone()));
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(PAGE_KEYS);
        keys
    }

    async fn read_all(&mut self, found: Vec<(Bytes, Found)>) -> Result<()> {
        for (key, value) in found {
            if let Some(value) = resolve(value).await? {
                self.page.push_back((key, value));
            }
        }
        Ok(())
    }

    async fn load_hashed(&mut self, cursor: ScanCursor, mut pages: Vec<Page>) -> Result<()> {
        let inner = self.view.inner.clone();
        let start = cursor.place();
        let job = inner.core.read().store.scan_job(cursor, PAGE_KEYS);
        let scanned = job.run().await?;
        let core = inner.core.read();
        core.check_readable()?;
        let page = core.store.finish_scan(scanned)?;
        for (key, entry) in page.entries {
            // An index that has shrunk gives again what it gave before.
            let again = core.store.place(inner.hash(&key)) < start;
            if !again && core.versions.before(&key, self.view.seqno).is_none() {
                self.page.push_back((key, entry.value));
            }
        }
        let end = page.next.map_or(u64::MAX, |next| next.place());
        pages.push(Page { end, applied: core.applied });
        self.place = match page.next {
            Some(cursor) => Place::Hashed { cursor, pages },
            None => Place::Changed { after: Bound::Unbounded, pages },
        };
        Ok(())
    }

    async fn load_changed(&mut self, after: Bound<Bytes>, pages: Vec<Page>) -> Result<()> {
        let mut found = Vec::new();
        {
            let inner = &self.view.inner;
            let core = inner.core.read();
            let from = after.as_ref().map(|key| &key[..]);
            let mut changed = core.versions.changed_since(self.view.seqno, from);
            let mut last = None;
            for (key, seqno) in changed.by_ref().take(PAGE_KEYS) {
                last = Some(key.clone());
                let key_hash = inner.hash(key);
                let place = core.store.place(key_hash);
                // The last page has no end: all places are before it.
                let page = pages.partition_point(|page| page.end <= place).min(pages.len() - 1);
                if seqno <= pages[page].applied {
                    found.push((key.clone(), core.find_before(key, key_hash, self.view.seqno)?));
                }
            }
            if let Some(last) = last {
                self.place = Place::Changed { after: Bound::Excluded(last), pages };
            }
        }
        self.read_all(found).await
    }
}
