//! The command to compact, as it lies in the log.
//!
//! ```text
//! offset size
//!      0    4  format, 1                     48    8  last seqno of the run
//!      4    4  zero                          56    8  checksum of its last frame
//!      8    8  first segment of the run      64    8  length of the output
//!     16    8  last segment of the run       72    8  checksum of what follows its header
//!     24    8  segment that is made          80    8  number of records in the run
//!     32    8  last seqno before the run     88       for each of them in log order one bit, lowest first: kept or not
//!     40    8  checksum of its last frame
//! ```

use crate::ids::{Mark, SegmentId};
use crate::limits::COMPACT_RECORDS_MAX;
use crate::record::{Record, mark_at, put_u64s, u32_at, u64_at};
use bytes::Bytes;

const CONTROL_KIND: u8 = 0xC0;
const FORMAT: u32 = 1;
const HEADER_LEN: usize = 88;

/// Which records of which segments to keep, and what that gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub(crate) first: SegmentId,
    pub(crate) last: SegmentId,
    pub(crate) output: SegmentId,
    pub(crate) base: Mark,
    pub(crate) end: Mark,
    pub(crate) len: u64,
    pub(crate) checksum: u64,
    pub(crate) records: u64,
    pub(crate) keep: Bitmap,
}

pub(crate) fn is_plan(record: &Record<'_>) -> bool {
    matches!(record, Record::Control { kind: CONTROL_KIND, .. })
}

impl Plan {
    /// The plan that a control record holds; `None` if it is about something else.
    pub(crate) fn of(record: &Record<'_>) -> Option<Result<Plan, &'static str>> {
        match record {
            Record::Control { kind: CONTROL_KIND, bytes } => Some(Plan::decode(bytes)),
            _ => None,
        }
    }

    /// The kind and the bytes of the control record to append.
    pub fn encode(&self) -> (u8, Bytes) {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[..4].copy_from_slice(&FORMAT.to_le_bytes());
        let numbers = [
            self.first.0,
            self.last.0,
            self.output.0,
            self.base.seqno.0,
            self.base.checksum,
            self.end.seqno.0,
            self.end.checksum,
            self.len,
            self.checksum,
            self.records,
        ];
        put_u64s(&mut bytes, 8, &numbers);
        bytes.extend_from_slice(&self.keep.0);
        (CONTROL_KIND, bytes.into())
    }

    fn decode(bytes: &[u8]) -> Result<Plan, &'static str> {
        if bytes.len() < HEADER_LEN || u32_at(bytes, 0) != FORMAT {
            return Err("compaction plan of an unknown format");
        }
        let plan = Plan {
            first: SegmentId(u64_at(bytes, 8)),
            last: SegmentId(u64_at(bytes, 16)),
            output: SegmentId(u64_at(bytes, 24)),
            base: mark_at(bytes, 32),
            end: mark_at(bytes, 48),
            len: u64_at(bytes, 64),
            checksum: u64_at(bytes, 72),
            records: u64_at(bytes, 80),
            keep: Bitmap(bytes[HEADER_LEN..].to_vec()),
        };
        if plan.records > COMPACT_RECORDS_MAX || plan.keep.0.len() as u64 != plan.records.div_ceil(8) {
            return Err("compaction plan has another length than it says");
        }
        if plan.first > plan.last || plan.output.number() != plan.first.number() || !plan.output.is_compacted() {
            return Err("compaction plan names no run of segments");
        }
        Ok(plan)
    }
}

/// One bit for each record of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bitmap(Vec<u8>);

impl Bitmap {
    pub(crate) fn set(&mut self, at: u64, kept: bool) {
        let (byte, bit) = ((at / 8) as usize, 1 << (at % 8));
        if byte >= self.0.len() {
            self.0.resize(byte + 1, 0);
        }
        if kept {
            self.0[byte] |= bit;
        } else {
            self.0[byte] &= !bit;
        }
    }

    pub(crate) fn get(&self, at: u64) -> bool {
        self.0.get((at / 8) as usize).is_some_and(|byte| byte & 1 << (at % 8) != 0)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|byte| byte.count_ones() as u64).sum()
    }
}
