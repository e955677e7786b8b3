//! Executable specifications, and the checkers that hold a recorded history against them.
//!
//! Nothing here knows the system it judges: no disk, no network, no clock, no randomness. A run of the simulator or of real
//! processes leaves a [`history`]: who asked what, when, and what came back. The checkers read that and nothing else:
//!
//! 1. [`register`] says what one key does, [`map`] what a whole table does, [`rows`] one with columns, [`expiring`] one with
//!    expiries, [`session`] what "exactly once" means. They are too simple to be wrong, and what the checkers and
//!    property tests hold everything else to.
//! 2. [`oracle`] checks a history in which the store disclosed the version behind each answer: one sort and one pass, so
//!    every run affords it.
//! 3. [`linearizability`] needs no versions: it looks for an order of the operations that explains every answer, and when
//!    there is none says up to where there was one. Costlier, so that long runs are sampled.
//! 4. [`transactions`] looks for cycles in what transactions over several lists saw of each other, as Elle does.
//!
//! Beside them stands [`replication`]: leases, reconfiguration and reconciliation in small, of which `tests/replication.rs` goes
//! through every reachable state.
//!
//! Histories that are known to be right or wrong lie under `histories/`, each with its story; a test holds the checkers to
//! them, because a checker that accepts everything passes every other test.
//!
//! Missing on purpose: scans and expiry by time in histories. They need other checkers.

pub mod expiring;
pub mod history;
pub mod limits;
pub mod linearizability;
pub mod map;
pub mod oracle;
pub mod register;
pub mod replication;
pub mod rows;
pub mod session;
pub mod transactions;

pub use history::{Action, Answer, History, Operation, Outcome, Version};
