//! A log's part in compaction: what it orders, and the switch from a run of segments to the one that takes its place.

use crate::compaction::policy::SegmentUse;
use crate::compaction::{CompactJob, Keep, Output, Run};
use crate::error::StorageError;
use crate::frame::Position;
use crate::ids::SegmentId;
use crate::log::{Log, Ordered, Segment};
use crate::segment::{hint_path, segment_path};
use crate::state;

impl Log {
    /// The next compaction that the log orders and that is committed, as a job; finish it with [`Log::switch`].
    ///
    /// One whose segments are not here was carried out where this log was copied from, and is passed over. `None` also
    /// while the switch before it is not over.
    pub fn compact_job(&mut self) -> Result<Option<CompactJob>, StorageError> {
        while let Some(Ordered { plan, seqno }) = self.next_ordered() {
            let here = [plan.first, plan.last].map(|segment| self.segments.contains_key(&segment));
            if here[0] != here[1] {
                let path = segment_path(&self.shared.dir, plan.first);
                return Err(StorageError::corrupt(&path, 0, "log orders to compact what it holds a part of"));
            }
            if let Some(run) = self.run(plan.first, plan.last) {
                let expected = (plan.base, plan.end, plan.output);
                if (run.first().base, run.last().end.mark, run.output()) != expected {
                    let path = segment_path(&self.shared.dir, plan.first);
                    return Err(StorageError::corrupt(&path, 0, "log orders to compact what it does not hold"));
                }
                let keep = Keep::Listed(plan.clone());
                return Ok(Some(CompactJob::new(self.shared.clone(), run, keep)));
            }
            self.carried_out = *seqno;
            self.ordered.pop_front();
        }
        Ok(None)
    }

    fn next_ordered(&self) -> Option<&Ordered> {
        // A mark within the run must not be among those that this log stands by.
        let stands_after = self.commit_end().mark.seqno;
        let ready = |ordered: &&Ordered| ordered.seqno <= self.committed && ordered.plan.end.seqno < stands_after;
        self.ordered.front().filter(ready).filter(|_| self.shared.retired().is_none())
    }

    /// What policy chooses a run from: the sealed segments in log order, with what of them `live` says is live.
    pub(crate) fn segment_uses(&self, live: impl Fn(SegmentId) -> u64) -> Vec<SegmentUse> {
        let committed = self.commit_end().mark.seqno.min(self.durable.mark.seqno);
        let sealed = self.segments.range(..self.head.segment);
        let compactable = sealed.take_while(|(_, segment)| segment.end.mark.seqno < committed);
        let as_use = |segment: &Segment| SegmentUse {
            segment: segment.id(),
            bytes: segment.end.offset,
            live_bytes: live(segment.id()),
            usage: segment.usage,
        };
        compactable.map(|(_, segment)| as_use(segment)).collect()
    }

    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// The segments before `first`.
    pub(crate) fn before(&self, first: SegmentId) -> Vec<Segment> {
        self.segments.range(..first).map(|entry| *entry.1).collect()
    }

    /// Whether one can be carried out now.
    pub fn compaction_is_due(&self) -> bool {
        self.next_ordered().is_some()
    }

    /// Whether compactions are ordered that were not carried out.
    pub fn has_ordered(&self) -> bool {
        !self.ordered.is_empty()
    }

    /// How many of them.
    pub fn ordered_len(&self) -> usize {
        self.ordered.len()
    }

    /// The segments from `first` to `last`, if both are part of the log.
    pub(crate) fn run(&self, first: SegmentId, last: SegmentId) -> Option<Run> {
        let both = self.segments.contains_key(&first) && self.segments.contains_key(&last);
        let inputs: Vec<Segment> = both.then(|| self.segments.range(first..=last).map(|entry| *entry.1).collect())?;
        (!inputs.is_empty()).then_some(Run { inputs })
    }

    /// Puts `output` in the place of the segments that it was made of, durably; they stay readable for who reads them.
    /// False, and no change, if it is not what the log orders next: the log moved on under it.
    pub async fn switch(&mut self, output: Output) -> Result<bool, StorageError> {
        self.shared.check_fence()?;
        let now = self.run(output.run.first().id(), output.run.last().id());
        let same = |run: Run| {
            let pairs = run.inputs.iter().zip(&output.run.inputs);
            run.inputs.len() == output.run.inputs.len() && pairs.into_iter().all(|(now, then)| now.is_same(then))
        };
        let Some(&Ordered { seqno, .. }) =
            self.next_ordered().filter(|ordered| now.is_some_and(same) && ordered.plan == output.plan())
        else {
            output.discard().await;
            return Ok(false);
        };
        self.name(&output).await?;
        self.ordered.pop_front();
        for input in &output.run.inputs {
            self.segments.remove(&input.id());
        }
        let segment = Segment::hinted(&output.hint.header, output.span.last);
        self.segments.insert(segment.id(), segment);
        self.forget_recent(segment);
        self.shared.retire(seqno, output.run.inputs, segment);
        Ok(true)
    }

    /// Makes the output a segment.
    async fn name(&self, output: &Output) -> Result<(), StorageError> {
        let (disk, dir, segment) = (self.shared.env.disk(), &self.shared.dir, output.span.segment);
        for (from, to) in [(&output.hint_path, hint_path(dir, segment)), (&output.path, segment_path(dir, segment))] {
            disk.rename(from, &to).await.map_err(|error| StorageError::io("rename", &to, error))?;
        }
        let synced = state::sync_dir(disk.as_ref(), &self.shared.dir).await;
        self.fence_on_error(synced).await
    }

    /// Frames of the span are no longer part of this log.
    fn forget_recent(&mut self, compacted: Segment) {
        let end = compacted.end.mark.seqno;
        while self.recent.front().is_some_and(|frame| frame.end.mark.seqno <= end) {
            let frame = self.recent.pop_front().expect("checked above");
            self.recent_bytes -= frame.bytes.len();
        }
        self.buffered.set(self.recent_bytes);
    }

    /// Removes the segments that were replaced, once nobody reads them. True when none is left. On a full disk it may be
    /// tried again.
    pub async fn remove_retired(&mut self) -> Result<bool, StorageError> {
        match self.shared.retired() {
            None => Ok(true),
            Some(retired) if retired.before.strong_count() > 0 => Ok(false),
            Some(_) => {
                let removed = self.remove_retired_now().await;
                self.fence_unless_full(removed).await.map(|()| true)
            }
        }
    }

    /// Segments that were replaced are still there.
    pub fn has_retired(&self) -> bool {
        self.shared.retired().is_some()
    }

    /// Before what is committed is cut: what was replaced must not come back with what replaced it gone, and what is
    /// ordered after `to` may come again.
    pub(super) async fn forget_compactions(&mut self, to: Position) -> Result<(), StorageError> {
        self.remove_retired_now().await?;
        if to.mark.seqno < self.carried_out {
            self.carried_out = to.mark.seqno;
            let disk = self.shared.env.disk().clone();
            self.state().store(disk.as_ref(), &self.shared.dir, &self.shared.identity).await?;
        }
        Ok(())
    }

    async fn remove_retired_now(&mut self) -> Result<(), StorageError> {
        let Some(retired) = self.shared.retired() else { return Ok(()) };
        let (disk, dir) = (self.shared.env.disk().clone(), &self.shared.dir);
        for input in &retired.inputs {
            state::remove_if_present(disk.as_ref(), &hint_path(dir, input.id())).await?;
            state::remove_if_present(disk.as_ref(), &segment_path(dir, input.id())).await?;
        }
        state::sync_dir(disk.as_ref(), dir).await?;
        // Only now: until then the next start may find them all, and compact them again.
        self.carried_out = retired.order;
        self.state().store(disk.as_ref(), dir, &self.shared.identity).await?;
        let removed = |id: &SegmentId| retired.inputs.iter().any(|input| input.id() == *id);
        self.shared.handles.write().retain(|id, _| !removed(id));
        self.shared.pins.lock().retired = None;
        Ok(())
    }
}
