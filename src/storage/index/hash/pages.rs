//! Page numbers: short names for the places of a region's log.
//!
//! A slot has room for some 27 bits of location, and must name a place in any of the segments that are there now, however
//! long each is. So the numbers are handed out as memory is to processes: in *extents* of 512 pages, to a segment as it
//! grows, and taken back when the segment is removed.
//! ```text
//! page number   ┌──── extent ────┬─ 9 bits ─┐         extents   0    1    2    3    4    5
//!               └────────────────┴──────────┘         segment   1    1    2    –    2    5
//!                                                     its part  0    1    0    –    1    0
//! ```
//! A page is a granule long, 512 bytes unless the options say otherwise. With 27 bits that is 64 GiB of log. To have no
//! end there, segments that come when half of the numbers are taken get pages of twice the length, when half of the rest
//! is taken of four times the length, and so on: precision is lost, which costs bytes read, instead of records.

use crate::ids::SegmentId;
use std::collections::{BTreeMap, BTreeSet};

const EXTENT_PAGE_BITS: u32 = 9;

pub(super) struct PageTable {
    /// Of the shortest pages.
    granule_bits: u32,
    extents_max: u32,
    extents: Vec<Extent>,
    free: BTreeSet<u32>,
    segments: BTreeMap<SegmentId, SegmentExtents>,
}

/// 512 pages of a segment, or none.
#[derive(Clone, Copy)]
struct Extent {
    segment: SegmentId,
    part: u32,
    granule_bits: u32,
    /// That name one of its pages.
    slots: u32,
}

struct SegmentExtents {
    granule_bits: u32,
    /// The segment is removed; its numbers are taken back with the last slot that names one.
    gone: bool,
    /// By part.
    extents: Vec<Option<u32>>,
}

/// A page's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) segment: SegmentId,
    pub(super) offset: u64,
    pub(super) granule_bits: u32,
}

impl PageTable {
    /// For page numbers of `page_bits` bits.
    pub(super) fn new(granule_bits: u32, page_bits: u32) -> PageTable {
        let extents_max = 1 << (page_bits - EXTENT_PAGE_BITS);
        PageTable { granule_bits, extents_max, extents: Vec::new(), free: BTreeSet::new(), segments: BTreeMap::new() }
    }

    #[inline]
    pub(super) fn page(&self, number: u64) -> Page {
        let Extent { segment, part, granule_bits, .. } = self.extents[(number >> EXTENT_PAGE_BITS) as usize];
        let in_segment = (part as u64) << EXTENT_PAGE_BITS | number & ((1 << EXTENT_PAGE_BITS) - 1);
        Page { segment, offset: in_segment << granule_bits, granule_bits }
    }

    /// The number of the page that holds the offset, if the segment has one there.
    pub(super) fn find(&self, segment: SegmentId, offset: u64) -> Option<u64> {
        let SegmentExtents { granule_bits, extents, .. } = self.segments.get(&segment)?;
        let page = offset >> granule_bits;
        let extent = (*extents.get((page >> EXTENT_PAGE_BITS) as usize)?)?;
        Some((extent as u64) << EXTENT_PAGE_BITS | page & ((1 << EXTENT_PAGE_BITS) - 1))
    }

    /// [`PageTable::find`], which takes an extent for the segment if need be; `None` if no number is left.
    pub(super) fn find_or_take(&mut self, segment: SegmentId, offset: u64) -> Option<u64> {
        if let Some(number) = self.find(segment, offset) {
            return Some(number);
        }
        let granule_bits =
            self.segments.get(&segment).map_or_else(|| self.next_granule_bits(), |held| held.granule_bits);
        let page = offset >> granule_bits;
        let part = (page >> EXTENT_PAGE_BITS) as u32;
        let extent = self.take(Extent { segment, part, granule_bits, slots: 0 })?;
        let held =
            self.segments.entry(segment).or_insert(SegmentExtents { granule_bits, gone: false, extents: Vec::new() });
        if held.extents.len() <= part as usize {
            held.extents.resize(part as usize + 1, None);
        }
        held.extents[part as usize] = Some(extent);
        self.find(segment, offset)
    }

    /// How long the pages of a new segment are.
    fn next_granule_bits(&self) -> u32 {
        let left = self.extents_max - (self.extents.len() - self.free.len()) as u32;
        self.granule_bits + (self.extents_max / left.max(1)).ilog2()
    }

    fn take(&mut self, extent: Extent) -> Option<u32> {
        if let Some(number) = self.free.pop_first() {
            self.extents[number as usize] = extent;
            return Some(number);
        }
        if self.extents.len() as u32 == self.extents_max {
            return None;
        }
        self.extents.push(extent);
        Some(self.extents.len() as u32 - 1)
    }

    /// A slot more names the page.
    #[inline]
    pub(super) fn hold(&mut self, number: u64) {
        self.extents[(number >> EXTENT_PAGE_BITS) as usize].slots += 1;
    }

    /// A slot less names it.
    #[inline]
    pub(super) fn release(&mut self, number: u64) {
        let extent = &mut self.extents[(number >> EXTENT_PAGE_BITS) as usize];
        extent.slots -= 1;
        let segment = extent.segment;
        if extent.slots == 0 && self.segments.get(&segment).is_some_and(|held| held.gone) {
            self.remove(segment);
        }
    }

    /// Nothing is held yet, as far as slots go.
    pub(super) fn forget_slots(&mut self) {
        self.extents.iter_mut().for_each(|extent| extent.slots = 0);
    }

    /// Takes back the numbers of a segment, now or when no slot names one of them any more.
    pub(super) fn remove(&mut self, segment: SegmentId) {
        let Some(held) = self.segments.get_mut(&segment) else { return };
        held.gone = true;
        if held.extents.iter().flatten().any(|&extent| self.extents[extent as usize].slots > 0) {
            return;
        }
        let held = self.segments.remove(&segment);
        self.free.extend(held.into_iter().flat_map(|held| held.extents).flatten());
        while self.free.last().is_some_and(|&last| last as usize + 1 == self.extents.len()) {
            self.free.pop_last();
            self.extents.pop();
        }
        if self.extents.capacity() > 4 * self.extents.len() {
            self.extents.shrink_to(2 * self.extents.len());
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let parts: usize = self.segments.values().map(|held| held.extents.capacity() * 8 + 48).sum();
        self.extents.capacity() * size_of::<Extent>() + self.free.len() * 12 + parts
    }
}

impl Clone for PageTable {
    fn clone(&self) -> PageTable {
        let copy = |held: &SegmentExtents| SegmentExtents { extents: held.extents.clone(), ..*held };
        PageTable {
            extents: self.extents.clone(),
            free: self.free.clone(),
            segments: self.segments.iter().map(|(&id, held)| (id, copy(held))).collect(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_number_leads_back_to_its_place() {
        let mut table = PageTable::new(9, 27);
        let segments = [(3, 300 << 20), (1, 1 << 10), (2, 5 << 20), (70_000, 1 << 30)];
        let mut numbers = BTreeMap::new();
        for (segment, len) in segments {
            for offset in (0..len).step_by(99_991) {
                let segment = SegmentId(segment);
                let number = table.find_or_take(segment, offset).expect("there is room");
                let page = table.page(number);
                assert_eq!((page.segment, page.offset, page.granule_bits), (segment, offset & !511, 9));
                assert!(
                    numbers
                        .insert(number, (segment, offset & !511))
                        .is_none_or(|other| other == (segment, offset & !511))
                );
            }
        }
        table.remove(SegmentId(3));
        assert_eq!(table.find(SegmentId(3), 0), None);
        let most = *numbers.keys().max().expect("some");
        let reused = table.find_or_take(SegmentId(9), 0).expect("there is room");
        assert!(reused < most, "numbers are used again");
        assert_eq!(table.page(table.find(SegmentId(2), 513).expect("it stayed")).offset, 512);
    }

    #[test]
    fn pages_grow_longer_when_their_numbers_run_out() {
        let (page_bits, segment_bytes) = (13, 1 << 20);
        let mut table = PageTable::new(9, page_bits);
        let mut granules = Vec::new();
        for segment in (1..).map(SegmentId) {
            let Some(last) = table.find_or_take(segment, segment_bytes - 1) else { break };
            (0..segment_bytes).step_by(4096).all(|offset| table.find_or_take(segment, offset).is_some());
            granules.push(table.page(last).granule_bits);
        }
        assert!(granules.is_sorted());
        assert!(granules.len() > 6 && *granules.last().expect("some") > 11, "{granules:?}");
    }
}
