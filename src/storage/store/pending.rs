//! Records that are not in the index yet: not committed, or committed and not settled.
//!
//! Values are slices of the frames they came in; nothing is copied.

use crate::error::StorageError;
use crate::frame::Frame;
use crate::ids::Seqno;
use crate::log::Shared;
use crate::record::{Location, Record};
use crate::store::{Entry, Stored};
use bytes::Bytes;
use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct Pending {
    versions: env::HashMap<Bytes, Vec<Version>>,
    /// Every version, in log order.
    order: VecDeque<(Seqno, Bytes)>,
    bytes: usize,
}

/// One change of a key; oldest first in a key's list.
pub(crate) struct Version {
    pub(crate) seqno: Seqno,
    pub(crate) location: Location,
    /// `None` is a tombstone.
    pub(crate) stored: Option<Stored>,
}

impl Version {
    pub(crate) fn entry(&self, shared: &Shared) -> Result<Option<Entry>, StorageError> {
        self.stored.as_ref().map(|stored| stored.entry(shared, self.location)).transpose()
    }
}

impl Pending {
    /// Adds a put or a tombstone; the other kinds change no key.
    pub(crate) fn add(&mut self, frame: &Frame, seqno: Seqno, location: Location, record: Record<'_>) {
        let Some(key) = record.key() else { return };
        let stored = Stored::of(&record, |part| frame.share(part));
        let key = frame.share(key);
        self.order.push_back((seqno, key.clone()));
        self.bytes += location.len as usize;
        self.versions.entry(key).or_default().push(Version { seqno, location, stored });
    }

    /// The key's newest version up to `limit`.
    pub(crate) fn newest(&self, key: &[u8], limit: Seqno) -> Option<&Version> {
        self.versions.get(key)?.iter().rfind(|version| version.seqno <= limit)
    }

    /// The versions up to `limit` of a key in [`Pending::oldest`], oldest first.
    pub(crate) fn versions(&self, key: &[u8], limit: Seqno) -> &[Version] {
        let versions = self.versions.get(key).expect("a key in order has versions");
        &versions[..versions.partition_point(|version| version.seqno <= limit)]
    }

    /// The oldest versions up to `limit`, in log order.
    pub(crate) fn oldest(&self, limit: Seqno, count: usize) -> impl Iterator<Item = &(Seqno, Bytes)> {
        self.order.iter().take(count).take_while(move |(seqno, _)| *seqno <= limit)
    }

    /// Versions after `seqno`, in log order.
    pub(crate) fn after(&self, seqno: Seqno) -> impl Iterator<Item = &(Seqno, Bytes)> {
        let from = self.order.partition_point(|entry| entry.0 <= seqno);
        self.order.range(from..)
    }

    /// Drops the versions up to `seqno`: they are in the index. `newest` is given the last one of each key among them.
    pub(crate) fn settled(&mut self, seqno: Seqno, mut newest: impl FnMut(&Bytes, &Version)) {
        while let Some((_, key)) = self.order.pop_front_if(|entry| entry.0 <= seqno) {
            let versions = self.versions.get_mut(&key).expect("a key in order has versions");
            let version = versions.remove(0);
            self.bytes -= version.location.len as usize;
            if versions.first().is_none_or(|next| next.seqno > seqno) {
                newest(&key, &version);
            }
            if versions.is_empty() {
                self.versions.remove(&key);
            }
        }
    }

    /// The oldest version of all.
    pub(crate) fn first(&self) -> Option<Seqno> {
        self.order.front().map(|entry| entry.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Of the records, as they lie in the log.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
