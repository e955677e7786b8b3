//! The simulated backend: whole runs that are a function of their seed.
//!
//! ```text
//!   harness      World (turmoil), single          owns true time, crashes, faults
//!   node         Exec: tasks   ClockState   DiskState   random stream
//!   scheduler    Timeline: true time and sleep; Net
//! ```
//!
//! Everything above the last line is shared by the schedulers: [`World`] for clusters, [`single`] for one node. A node is a [`exec::Root`] that runs
//! its tasks; dropping it is the crash. The [`disk`] and the [`clock`] belong to the machine and outlive it.
//!
//! Every source of chance is a [`stream`] of its own, derived from the seed and a name. A [`Trace`] hashes every task poll, so
//! that two runs of one seed can be compared, and the first simulated second in which they differ be named.

pub mod clock;
mod clog;
mod dice;
pub mod disk;
pub mod exec;
pub mod limits;
mod net;
mod node;
mod single;
mod timeline;
mod trace;
mod turmoil;

pub use clock::{ClockControl, ClockState};
pub use dice::{Dice, stream};
pub use disk::{DiskCounts, DiskState, Failing, Faults, Latency};
pub use node::{CrashKind, NodeState};
pub use single::{Single, single, single_crashing, single_with};
pub use timeline::Timeline;
pub use trace::{Digest, Trace};
pub use turmoil::{Failure, World, WorldOptions};
