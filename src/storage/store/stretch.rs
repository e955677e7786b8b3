//! Finding records in the stretch of the log that an index names.
//!
//! An index knows of a record in which page it begins and about how long it is ([`Candidate`]). Records are not aligned
//! and their neighbours may be anything, values that hold bytes like a record's too. So whatever looks like the record is
//! believed only if its checksum holds, which is seeded with the place, and of several records of a key the last counts.
//!
//! Damage must not pass for absence. A candidate stands for one record that is there; if as many records that fit it are
//! not found as the index holds candidates like it, one of them cannot be read, and it might be the one looked for.

use crate::frame::{FRAME_HEADER_LEN, FrameHeader};
use crate::index::Candidate;
use crate::record::{KIND_PUT, KIND_TOMBSTONE, Location, RECORD_HEADER_LEN, Record, Shape};
use crate::seed::Seeds;
use memchr::memmem::Finder;

/// What was read for a candidate.
pub(crate) struct Stretch<'a> {
    pub(crate) candidate: Candidate,
    /// From the candidate's offset on.
    pub(crate) bytes: &'a [u8],
    /// How much was asked for; the segment may end before.
    pub(crate) asked: usize,
    pub(crate) seeds: &'a Seeds,
    /// Records that begin at this offset of the segment or later are not in the index yet.
    pub(crate) settled: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) location: Location,
    pub(crate) record: Record<'a>,
}

/// So many bytes have to be read instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Longer(pub(crate) usize);

impl<'a> Stretch<'a> {
    /// Records may begin before this place.
    fn starts(&self) -> usize {
        let settled = self.settled.saturating_sub(self.candidate.offset);
        settled.min(self.candidate.window as u64).min(self.bytes.len() as u64) as usize
    }

    fn location(&self, at: usize, len: usize) -> Location {
        let Candidate { segment, offset, .. } = self.candidate;
        Location { segment, offset: offset + at as u64, len: len as u32 }
    }

    /// The record at a place, if one is there and all of it was read.
    fn read(&self, at: usize) -> Option<Item<'a>> {
        let offset = self.candidate.offset + at as u64;
        let (record, len) = Record::read(&self.bytes[at..], self.seeds, offset).ok()?;
        Some(Item { location: self.location(at, len), record })
    }

    /// The last put or tombstone of the key that begins in the window, whether or not it fits the candidate.
    pub(crate) fn newest(&self, key: &[u8]) -> Result<Option<Item<'a>>, Longer> {
        let starts = self.starts();
        let mut newest = None;
        for at in self.places_of(key) {
            let Some(shape) = self.peek(at).filter(|shape| shape.key_len == key.len()) else { continue };
            let key_start = at + shape.key_start();
            if at >= starts || self.bytes.get(key_start..key_start + key.len()) != Some(key) {
                continue;
            }
            self.check_read(at, &shape)?;
            newest = self.read(at).or(newest);
        }
        Ok(newest)
    }

    /// Where a record of the key would begin for the key to be where it is, in ascending order.
    fn places_of(&self, key: &[u8]) -> impl Iterator<Item = usize> {
        const EXPIRY_LEN: usize = 8;
        let key_starts_max = RECORD_HEADER_LEN + EXPIRY_LEN;
        let end = (self.starts() + key_starts_max + key.len()).min(self.bytes.len());
        let searched = self.bytes.get(RECORD_HEADER_LEN..end).unwrap_or_default();
        let mut places: Vec<usize> = Vec::new();
        let finder = Finder::new(key);
        let mut from = 0;
        while let Some(found) = finder.find(&searched[from..]) {
            let at = from + found;
            places.push(at);
            places.extend(at.checked_sub(EXPIRY_LEN));
            from = at + 1;
        }
        places.sort_unstable();
        places.dedup();
        places.into_iter()
    }

    /// The header of a put or tombstone, if the bytes at the place look like one.
    fn peek(&self, at: usize) -> Option<Shape> {
        let shape = Shape::peek(self.bytes.get(at..)?).ok()?;
        (shape.kind == KIND_PUT || shape.kind == KIND_TOMBSTONE).then_some(shape)
    }

    /// An error if more has to be read to tell whether it is a record.
    fn check_read(&self, at: usize, shape: &Shape) -> Result<(), Longer> {
        let end = at + shape.len();
        // Whoever knows the very place knows the length.
        if end > self.asked && self.candidate.window > 1 { Err(Longer(end)) } else { Ok(()) }
    }

    /// Of each key that passes, the last record if it is one that the candidate may stand for.
    pub(crate) fn fitting(&self, passes: impl Fn(&[u8]) -> bool) -> Result<Vec<Item<'a>>, Longer> {
        let mut newest: Vec<Item<'a>> = Vec::new();
        let mut at = 0;
        while at < self.starts() {
            let Some(shape) = self.peek(at) else {
                at += 1;
                continue;
            };
            if at + shape.len() > self.asked && self.candidate.covers(self.location(at, shape.len())) {
                let key = self.bytes.get(at + shape.key_start()..at + shape.key_start() + shape.key_len);
                if key.is_none_or(&passes) {
                    self.check_read(at, &shape)?;
                }
            }
            let Some(item) = self.read(at) else {
                at += 1;
                continue;
            };
            if item.record.key().is_some_and(&passes) {
                newest.retain(|other| other.record.key() != item.record.key());
                newest.push(item);
            }
            at += shape.len();
        }
        newest.retain(|item| matches!(item.record, Record::Put { .. }) && self.candidate.covers(item.location));
        Ok(newest)
    }

    /// Whether frames and records follow each other from the end of `item` to the end of the window, as far as they were
    /// read: whether nothing that was there is hidden by damage.
    pub(crate) fn intact_after(&self, item: &Item<'_>) -> Result<bool, Longer> {
        let mut at = (item.location.offset - self.candidate.offset) as usize + item.location.len as usize;
        while at < self.starts() {
            let bytes = &self.bytes[at..];
            let offset = self.candidate.offset + at as u64;
            if let Ok(header) = FrameHeader::read(bytes, self.seeds, offset) {
                at += header.records_start(bytes).ok_or(Longer(at + header.table_len_max()))?;
            } else if let Ok((_, len)) = Record::read(bytes, self.seeds, offset) {
                at += len;
            } else if at + FRAME_HEADER_LEN > self.asked {
                return Err(Longer(at + FRAME_HEADER_LEN));
            } else {
                // A record that runs over what was read fits another length, so that it is none that this might be.
                return Ok(Shape::peek(bytes).is_ok_and(|shape| at + shape.len() > self.asked));
            }
        }
        Ok(true)
    }
}
