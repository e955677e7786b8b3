//! What snapshots need of the past: of each key that changed since, where it was before.
//!
//! While there is a snapshot, each change that the index takes up leaves a note here. A snapshot of seqno S looks for a
//! key's first change after S: before it the key was where the note says, or absent. Without such a note the index is right.
//! Notes that no snapshot would find are not made, and dropped with the snapshots that did.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use storage::{Applied, Location, Seqno};

#[derive(Default)]
pub(crate) struct Versions {
    /// How many snapshots there are of each seqno.
    snapshots: BTreeMap<Seqno, usize>,
    /// Changes of each key, oldest first.
    changes: BTreeMap<Bytes, Vec<Change>>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    seqno: Seqno,
    /// Where the key was before; `None`: absent.
    before: Option<Location>,
}

impl Versions {
    pub(crate) fn open(&mut self, seqno: Seqno) {
        *self.snapshots.entry(seqno).or_default() += 1;
    }

    pub(crate) fn close(&mut self, seqno: Seqno) {
        let count = self.snapshots.get_mut(&seqno).expect("it was opened");
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.snapshots.remove(&seqno);
        let snapshots = &self.snapshots;
        if snapshots.is_empty() {
            return self.changes.clear();
        }
        self.changes.retain(|_, changes| {
            let mut before = Seqno(0);
            changes.retain(|change| {
                let needed = is_between(snapshots, before, change.seqno);
                before = change.seqno;
                needed
            });
            !changes.is_empty()
        });
    }

    /// The index took up a change.
    pub(crate) fn changed(&mut self, applied: &Applied<'_>) {
        if self.snapshots.is_empty() {
            return;
        }
        let last = self.changes.get(applied.key).and_then(|changes| changes.last());
        if is_between(&self.snapshots, last.map_or(Seqno(0), |last| last.seqno), applied.seqno) {
            let change = Change { seqno: applied.seqno, before: applied.old };
            self.changes.entry(Bytes::copy_from_slice(applied.key)).or_default().push(change);
        }
    }

    /// Where the key was at the snapshot `seqno`; `None` if the index knows.
    pub(crate) fn before(&self, key: &[u8], seqno: Seqno) -> Option<Option<Location>> {
        let changes = self.changes.get(key)?;
        changes.iter().find(|change| change.seqno > seqno).map(|change| change.before)
    }

    /// Keys from `from` on that changed after the snapshot, with the first change's seqno.
    pub(crate) fn changed_since<'a>(
        &'a self,
        seqno: Seqno,
        from: Bound<&'a [u8]>,
    ) -> impl Iterator<Item = (&'a Bytes, Seqno)> + 'a {
        let range = self.changes.range::<[u8], _>((from, Bound::Unbounded));
        range.filter_map(move |(key, changes)| {
            let first = changes.iter().find(|change| change.seqno > seqno)?;
            Some((key, first.seqno))
        })
    }

    pub(crate) fn snapshots(&self) -> usize {
        self.snapshots.values().sum()
    }

    /// Notes held.
    pub(crate) fn len(&self) -> usize {
        self.changes.values().map(Vec::len).sum()
    }
}

/// Whether there is a snapshot from `first` on and before `end`.
fn is_between(snapshots: &BTreeMap<Seqno, usize>, first: Seqno, end: Seqno) -> bool {
    first < end && snapshots.range(first..end).next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::SegmentId;

    fn at(offset: u64) -> Option<Location> {
        Some(Location { segment: SegmentId(1), offset, len: 20 })
    }

    fn change(versions: &mut Versions, seqno: u64, old: Option<Location>) {
        versions.changed(&Applied { key: b"k", seqno: Seqno(seqno), old, new: at(seqno * 100) });
    }

    #[test]
    fn each_snapshot_finds_what_was_there_and_nothing_else_is_kept() {
        let mut versions = Versions::default();
        change(&mut versions, 3, None);
        assert_eq!(versions.len(), 0, "nobody asks");
        versions.open(Seqno(5));
        change(&mut versions, 7, at(300));
        change(&mut versions, 8, at(700));
        versions.open(Seqno(8));
        versions.open(Seqno(8));
        change(&mut versions, 9, at(800));
        assert_eq!(versions.len(), 2, "nobody sees what was between 7 and 8");
        assert_eq!(versions.before(b"k", Seqno(5)), Some(at(300)));
        assert_eq!(versions.before(b"k", Seqno(8)), Some(at(800)));
        assert_eq!(versions.before(b"other", Seqno(5)), None);
        versions.close(Seqno(8));
        assert_eq!(versions.before(b"k", Seqno(8)), Some(at(800)), "one is still there");
        versions.close(Seqno(5));
        assert_eq!((versions.len(), versions.before(b"k", Seqno(8))), (1, Some(at(800))));
        versions.close(Seqno(8));
        assert_eq!((versions.len(), versions.snapshots()), (0, 0));
    }
}
