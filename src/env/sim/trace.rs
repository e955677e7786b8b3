//! The oracle of "same seed, same trace": a hash over every task poll of every node of a run.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3Default;

/// Shared by all nodes of a run. Cloning copies a pointer.
#[derive(Clone, Default)]
pub struct Trace {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    hash: Xxh3Default,
    polls: u64,
    /// The digest at the end of each simulated second.
    seconds: Vec<u64>,
}

/// What a run did, in short. Equal for equal runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    pub hash: u64,
    pub polls: u64,
}

impl Trace {
    /// A task of a node is polled.
    pub(super) fn poll(&self, now: Duration, node: u64, task: u64) {
        let mut inner = self.inner.lock().expect("hashing does not panic");
        inner.polls += 1;
        inner.record(now, [node, task]);
    }

    /// Adds an event of the harness: a fault injected, an answer checked.
    pub fn note(&self, now: Duration, kind: &str, value: u64) {
        let kind = xxhash_rust::xxh3::xxh3_64(kind.as_bytes());
        self.inner.lock().expect("hashing does not panic").record(now, [kind, value]);
    }

    pub fn digest(&self) -> Digest {
        let inner = self.inner.lock().expect("hashing does not panic");
        Digest { hash: inner.hash.digest(), polls: inner.polls }
    }

    /// The digest at the end of each simulated second that has ended.
    pub fn seconds(&self) -> Vec<u64> {
        self.inner.lock().expect("hashing does not panic").seconds.clone()
    }

    /// The first simulated second in which two runs differ.
    pub fn first_difference(&self, other: &Trace) -> Option<u64> {
        let (ours, theirs) = (self.seconds(), other.seconds());
        let common = ours.len().min(theirs.len());
        let differs = (0..common).find(|&second| ours[second] != theirs[second]);
        differs.or((self.digest() != other.digest()).then_some(common)).map(|second| second as u64)
    }
}

impl Inner {
    fn record(&mut self, now: Duration, what: [u64; 2]) {
        while self.seconds.len() < now.as_secs() as usize {
            self.seconds.push(self.hash.digest());
        }
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&(now.as_nanos() as u64).to_le_bytes());
        bytes[8..16].copy_from_slice(&what[0].to_le_bytes());
        bytes[16..].copy_from_slice(&what[1].to_le_bytes());
        self.hash.update(&bytes);
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}/{}", self.hash, self.polls)
    }
}
