//! Hints made while their segments are written.
//!
//! Sealing a segment reads it, to know its keys' hashes: all of its bytes for a few of each record. Where frames are filled
//! record by record ([`crate::OpenFrame`]) a log notes these as they come, so that a load costs no second pass. A replica
//! with many regions would rather have the memory.

use crate::frame::Frame;
use crate::hint::{ENTRY_LEN, HintBuilder};
use crate::ids::SegmentId;
use crate::limits::HINT_DRAFTS_MAX;
use crate::seed::Identity;
use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Drafts {
    /// Frames are filled here.
    begun: bool,
    /// Oldest first; the last one may be of the segment that is written to.
    drafts: VecDeque<Draft>,
}

struct Draft {
    segment: SegmentId,
    builder: HintBuilder,
    records: usize,
}

impl Drafts {
    /// From the next segment on.
    pub(super) fn begin(&mut self) {
        self.begun = true;
    }

    /// The log has this frame at its end.
    pub(super) fn add(&mut self, identity: &Identity, frame: &Frame) {
        let segment = frame.start.segment;
        if self.begun && frame.start.begins_segment() {
            let builder = HintBuilder::new(*identity, frame.start.mark);
            self.drafts.push_back(Draft { segment, builder, records: 0 });
            // Whoever seals is behind, and reads the oldest one's file.
            while self.drafts.len() > HINT_DRAFTS_MAX {
                self.drafts.pop_front();
            }
        }
        if let Some(draft) = self.drafts.back_mut().filter(|draft| draft.segment == segment) {
            draft.builder.add(frame);
            draft.records += frame.header.records as usize;
        }
    }

    /// What is noted of a segment that is sealed, if that is all of it.
    pub(super) fn take(&mut self, segment: SegmentId) -> Option<HintBuilder> {
        let at = self.drafts.iter().position(|draft| draft.segment == segment)?;
        self.drafts.remove(at).map(|draft| draft.builder)
    }

    /// The log was cut in that segment.
    pub(super) fn cut(&mut self, segment: SegmentId) {
        self.drafts.retain(|draft| draft.segment < segment);
    }

    pub(super) fn bytes(&self) -> usize {
        self.drafts.iter().map(|draft| draft.records * ENTRY_LEN).sum()
    }
}
