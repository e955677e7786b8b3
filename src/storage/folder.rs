//! Which of the files in a region's folder are its log.
//!
//! A compacted segment stands for the segments whose numbers its header names. It is named when it is complete, and they are
//! removed for good before the next one is named, so that a folder may hold at most one compacted segment together with
//! what it was made of. All of that still there: the switch may not be durable, and the compacted one is a leftover, to be
//! made again. Some of that gone: the switch is over, and what is left of it is a leftover.

use crate::error::StorageError;
use crate::ids::SegmentId;
use crate::log::Shared;
use crate::segment::{SegmentReader, segment_of, segment_path};
use crate::span::Span;
use crate::state::TEMP_SUFFIX;
use std::collections::BTreeMap;
use std::io;

/// The names in a region's folder, by meaning.
#[derive(Default)]
pub(crate) struct Folder {
    /// Those of the log, in its order.
    pub(crate) segments: Vec<SegmentId>,
    /// What each compacted one of them stands for.
    pub(crate) spans: BTreeMap<SegmentId, Span>,
    /// Segments that others have taken, or would have taken, the place of.
    pub(crate) superseded: Vec<SegmentId>,
    pub(crate) hints: Vec<SegmentId>,
    pub(crate) temps: Vec<String>,
}

impl Folder {
    pub(crate) async fn list(shared: &Shared) -> Result<Folder, StorageError> {
        let mut folder = Folder::default();
        let entries = match shared.env.disk().list(&shared.dir).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(folder),
            Err(error) => return Err(StorageError::io("list", &shared.dir, error)),
        };
        for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
            if let Some(segment) = segment_of(&entry.name, "seg") {
                folder.segments.push(segment);
            } else if let Some(segment) = segment_of(&entry.name, "hint") {
                folder.hints.push(segment);
            } else if entry.name.ends_with(TEMP_SUFFIX) {
                folder.temps.push(entry.name);
            }
        }
        folder.segments.sort();
        folder.choose(shared).await?;
        Ok(folder)
    }

    /// Tells the log's segments from leftovers.
    async fn choose(&mut self, shared: &Shared) -> Result<(), StorageError> {
        for &segment in self.segments.iter().filter(|segment| segment.is_compacted()) {
            let handle = shared.add_handle(segment);
            let (file, identity) = (handle.file().await?, &shared.identity);
            let reader = SegmentReader::open(file, &handle.path, identity, segment, None).await?;
            self.spans.insert(segment, reader.span.expect("it is a compacted segment"));
        }
        let mut youngest_first: Vec<SegmentId> = self.spans.keys().copied().collect();
        youngest_first.sort_by_key(|segment| std::cmp::Reverse(segment.generation()));
        for compacted in youngest_first {
            if !self.segments.contains(&compacted) {
                continue;
            }
            let made_of = self.replaced_by(compacted);
            let leftover = if self.is_all_of(&made_of, compacted) { vec![compacted] } else { made_of };
            self.segments.retain(|segment| !leftover.contains(segment));
            self.superseded.extend(leftover);
        }
        self.spans.retain(|segment, _| self.segments.contains(segment));
        shared.handles.write().retain(|segment, _| !self.superseded.contains(segment));
        Ok(())
    }

    /// Segments within the span of `compacted`, of earlier generations.
    fn replaced_by(&self, compacted: SegmentId) -> Vec<SegmentId> {
        let numbers = compacted.number()..=self.spans[&compacted].last;
        let within =
            |segment: &&SegmentId| segment.generation() < compacted.generation() && numbers.contains(&segment.number());
        self.segments.iter().filter(within).copied().collect()
    }

    /// Whether these segments together stand for all that `compacted` does.
    fn is_all_of(&self, segments: &[SegmentId], compacted: SegmentId) -> bool {
        let mut next = compacted.number();
        for segment in segments {
            if segment.number() == next {
                next = self.last_number(*segment) + 1;
            }
        }
        next == self.spans[&compacted].last + 1
    }

    /// Number of the last segment that this one stands for.
    pub(crate) fn last_number(&self, segment: SegmentId) -> u64 {
        self.spans.get(&segment).map_or(segment.number(), |span| span.last)
    }

    /// The segments are numbered from 1 without a gap.
    pub(crate) fn check_run(&self, dir: &str) -> Result<(), StorageError> {
        let mut expected = 1;
        for &found in &self.segments {
            if found.number() != expected {
                let missing = segment_path(dir, SegmentId(expected));
                return Err(StorageError::corrupt(&missing, 0, format!("segment is missing, {found} is there")));
            }
            expected = self.last_number(found) + 1;
        }
        Ok(())
    }
}
