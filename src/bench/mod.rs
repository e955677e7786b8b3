//! The load generator behind `steadfast bench ycsb`: the workloads of YCSB, and honest numbers about them.
//!
//! A [`workload`] says how many records there are, what they look like, and in which proportion they are read, updated,
//! inserted, or read, modified and written. The [`runner`] loads them into a [`Target`], checks that they are all there, and
//! then drives operations from many workers at once. Each operation takes a slot from the [`pace`]: with a fixed rate the
//! slot has an intended start, and the latency counts from that, so that an operation which had to wait because the ones
//! before it were slow is as slow as it was for whoever wanted it. The [`generator`] picks the keys and makes values that
//! can be told from any other, so that each read is verified. What happened is counted by a [`report`], failures first of
//! all: an operation that fails is not fast.
//!
//! Keys, distributions and output are those of YCSB 0.17, so that numbers can be set beside numbers of other systems.
//!
//! Missing on purpose: workload E, because ordered scans are not available yet.

pub mod generator;
pub mod limits;
pub mod pace;
pub mod report;
pub mod runner;
pub mod workload;

pub use report::Report;
pub use runner::{Failure, Options, Target};
pub use workload::Workload;
