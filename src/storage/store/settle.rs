//! Moving committed records from pending into the index.
//!
//! A matching hash is no proof of the same key, so the records that the index holds under it are read before one is
//! replaced. That waits for a device, so it is a job: take it, run it, finish it, while the store goes on serving. At most
//! one job is outstanding, and only settling changes the index, so what a job found is still true when it is finished.

use crate::ids::{SegmentId, Seqno};
use crate::record::Location;
use crate::store::read::{self, Probe, Sight};

pub struct SettleJob {
    pub(crate) sight: Sight,
    pub(crate) changes: Vec<Change>,
    pub(crate) up_to: Seqno,
    /// Where the last of the records ends.
    pub(crate) end: (SegmentId, u64),
    /// Changes that are decided.
    pub(crate) decided: usize,
}

/// The last change of one key in this job.
pub(crate) struct Change {
    /// Looks for what the index holds of the key.
    pub(crate) probe: Probe,
    /// `None` removes the key.
    pub(crate) new: Option<Location>,
    /// Puts of the key in this job that the change hides.
    pub(crate) hidden: Vec<Location>,
}

/// What a [`SettleJob`] found, for [`crate::Store::finish_settle`].
#[must_use]
pub struct Settled {
    pub(crate) changes: Vec<Change>,
    pub(crate) up_to: Seqno,
    pub(crate) end: (SegmentId, u64),
}

impl SettleJob {
    /// Goes as far as it can without waiting for a device; `None` if that is not to the end.
    pub fn try_now(mut self) -> Result<Settled, SettleJob> {
        while let Some(change) = self.changes.get_mut(self.decided) {
            if !read::decide_now(&self.sight, &mut change.probe) {
                return Err(self);
            }
            self.decided += 1;
        }
        Ok(Settled { changes: self.changes, up_to: self.up_to, end: self.end })
    }

    pub async fn run(self) -> Settled {
        let mut job = self;
        loop {
            job = match job.try_now() {
                Ok(settled) => return settled,
                Err(job) => job,
            };
            let probe = &mut job.changes[job.decided].probe;
            let wanted = probe.wanted().expect("not decided");
            let read = read::read(&job.sight.shared, wanted).await;
            probe.look_at(&job.sight, read);
        }
    }
}
