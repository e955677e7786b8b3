//! The master group: what the cluster consists of, and the one place that changes it.
//!
//! An odd number of masters agree by Raft on the [`state::Catalog`]: tables, regions with their configurations, servers. The
//! Raft leader is the active master; the others stand by and pass requests on to it. Masters may all be down: regions go
//! on serving, and only reconfiguration waits.
//!
//! A proposal's life: a region server (or an operator, or [`placement`]) asks the active master for one change of one
//! region at a known epoch; the master proposes it to the group; once a majority has it on disk every master applies it to
//! its catalog, and the caller gets the configuration that came of it. The other members hear of it in the answer to their
//! next report.
//!
//! - [`state`]: the catalog and its commands; pure.
//! - [`placement`]: which server copies what next; pure.
//! - [`raft`]: the only module that names openraft: the runtime, log, state machine and network that it runs on.
//! - [`service`]: one master: starts the group's member, keeps what servers report, answers requests.
//! - [`transport`]: how masters call each other.

pub mod limits;
pub mod placement;
pub mod raft;
pub mod service;
pub mod state;
pub mod transport;

pub use service::{Master, MasterOptions, Timing};
