//! Compaction: a run of sealed segments is rewritten as one that holds only what is still needed.
//!
//! What it promises: what the log says about any key, and any session, is the same before and after; a crash at any point
//! leaves the old segments or the new one, complete; and every replica makes the same bytes.
//!
//! The life of a compaction: [`policy`] names a run of committed segments whose dead share is large. A [`Planner`] asks
//! the store which of the run's records are needed, and a [`CompactJob`] writes those to a new file, at a limited rate. What
//! came of it is a [`Plan`], which the primary appends to the log: the run, the records kept, the length and the checksum of
//! the file. Once that record is committed, every replica carries it out ([`crate::Log::compact_job`]): it writes the same
//! file, compares it with the plan (another checksum is corruption, here or there), and [`crate::Log::switch`] puts it in the
//! place of the run. The primary has it already.
//!
//! **The switch** is one rename. A compacted segment's header names the span of the log that it stands for, so that the names
//! in the folder are the manifest: a segment whose place a complete one of a later generation takes is a leftover, and
//! likewise the later one while everything that it replaces is still there. Opening removes leftovers. Segments that were
//! replaced stay until nobody reads them any more, and the next switch waits for that, so that at most one is ever half done.
//!
//! **One output for a run** instead of several: policy picks runs that fit one segment, a switch stays one rename without a
//! manifest file to keep in step with the folder, and catch-up stays a matter of whole segments.
//!
//! **What is kept**: the puts that the index points to; a tombstone, or an expired put, while a segment before the run may
//! hold an older record of its key (its hash is among their hints'); of a session what its table remembers; control
//! records other than plans, which have all been carried out. A put that another record hides is dead for good: what
//! hides it is committed, and comes later in the log than the run or is kept in it.

mod plan;
pub mod policy;
mod worker;

pub use plan::Plan;
pub(crate) use plan::{Bitmap, is_plan};
pub use worker::{CompactJob, Output};
pub(crate) use worker::{Keep, Needed, Run};

#[cfg(test)]
mod tests;
