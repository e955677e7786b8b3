//! Everything that can be checked of a region's folder that nobody has open.
//!
//! Reads all of it and changes nothing: the chain of frames, each hint against its segment, and the store that hints and
//! segments give against a plain replay of the log.

use crate::error::StorageError;
use crate::folder::Folder;
use crate::frame::Frame;
use crate::hint::Hint;
use crate::ids::{Epoch, Mark, RegionId, Seqno};
use crate::log::{Log, LogOptions, Shared, read_frames};
use crate::recovery::{Evidence, Survey, survey};
use crate::state::{self, DurableNote, State, state_path};
use crate::store::{Entry, ScanCursor, Store, Stored};
use bytes::Bytes;
use env::Env;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a check of a region's folder found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub cluster: u128,
    pub region: RegionId,
    pub epoch: Epoch,
    pub head: Mark,
    pub committed: Seqno,
    pub segments: u64,
    pub frames: u64,
    pub records: u64,
    /// Keys with a value, expired or not, counting what is not committed too.
    pub keys: u64,
    /// Sealed segments with a usable hint.
    pub hints: u64,
    /// An unfinished write at the end, which opening would cut.
    pub torn_bytes: u64,
    /// What is wrong; empty if all is well.
    pub problems: Vec<String>,
}

/// Checks the folder `dir`. An error means that it could not be checked to the end; what is wrong with it is in the report.
pub async fn verify(env: &Env, dir: &str) -> Result<Report, StorageError> {
    let disk = env.disk().as_ref();
    let path = state_path(dir);
    let bytes = state::read_whole(disk, &path).await?;
    let bytes = bytes.ok_or_else(|| StorageError::corrupt(&path, 0, "state file is missing"))?;
    let (_, identity, _) = State::decode(&bytes, &path)?;
    let state = State::load(disk, dir, &identity).await?.expect("read above");
    // What is checked is what the disk holds.
    let options = LogOptions::new(identity.cluster).with_memory(0);
    let shared = Shared::new(env, dir, identity.region, options);
    let mut report = Report { cluster: identity.cluster, region: identity.region, ..Report::default() };
    match check(&shared, state, &mut report).await {
        Err(StorageError::Io { doing, path, source }) => Err(StorageError::Io { doing, path, source }),
        Err(problem) => {
            report.problems.push(problem.to_string());
            Ok(report)
        }
        Ok(()) => Ok(report),
    }
}

async fn check(shared: &Arc<Shared>, state: State, report: &mut Report) -> Result<(), StorageError> {
    let disk = shared.env.disk().as_ref();
    let clean = state::load_clean(disk, &shared.dir, &shared.identity).await?;
    let (note, noted) = DurableNote::load(disk, &shared.dir, shared.identity).await?;
    let power_loss_suspected = clean.is_none() && state.boot_id != disk.boot_id();
    let evidence = Evidence { clean, noted, power_loss_suspected };
    let folder = Folder::list(shared).await?;
    let survey = survey(shared, &folder, &evidence).await?;
    report.epoch = state.epoch.max(survey.epoch);
    report.head = survey.head.mark;
    report.committed = survey.committed;
    report.segments = survey.segments.len() as u64;
    report.torn_bytes = survey.torn_bytes;
    let replayed = replay(shared, &survey, report).await?;
    check_hints(shared, &survey, report).await?;
    let log = Log::for_reading(shared.clone(), survey, note);
    check_store(&log, replayed, report).await
}

/// All frames in order; what a map makes of them.
async fn replay(shared: &Shared, survey: &Survey, report: &mut Report) -> Result<BTreeMap<Bytes, Entry>, StorageError> {
    let mut entries = BTreeMap::new();
    for segment in survey.segments.values() {
        for frame in read_frames(shared, segment.start(), segment.end, usize::MAX).await? {
            report.frames += 1;
            report.records += frame.header.records as u64;
            apply(shared, &mut entries, &frame)?;
        }
    }
    report.keys = entries.len() as u64;
    Ok(entries)
}

fn apply(shared: &Shared, entries: &mut BTreeMap<Bytes, Entry>, frame: &Frame) -> Result<(), StorageError> {
    for item in frame.records() {
        let Some(key) = item.record.key() else { continue };
        match Stored::of(&item.record, Bytes::copy_from_slice) {
            Some(stored) => drop(entries.insert(Bytes::copy_from_slice(key), stored.entry(shared, item.location)?)),
            None => drop(entries.remove(key)),
        }
    }
    Ok(())
}

/// A usable hint says what reading the segment says. Opening believes it, so that one that does not is a problem.
async fn check_hints(shared: &Shared, survey: &Survey, report: &mut Report) -> Result<(), StorageError> {
    for segment in survey.segments.values() {
        let disk = shared.env.disk().as_ref();
        let Some(hint) = Hint::load(disk, &shared.dir, &shared.identity, segment.end).await else { continue };
        let handle = shared.add_handle(segment.end.segment);
        let read = Hint::scan(&handle, &shared.identity, segment.base, segment.end).await?;
        report.hints += 1;
        if hint != read {
            report.problems.push(format!("hint of {} says something else than the segment", handle.path));
        }
    }
    Ok(())
}

async fn check_store(log: &Log, mut replayed: BTreeMap<Bytes, Entry>, report: &mut Report) -> Result<(), StorageError> {
    let mut store = Store::build(log).await?;
    store.committed(log.head().mark.seqno);
    store.settle().await;
    let mut cursor = Some(ScanCursor::START);
    while let Some(at) = cursor {
        let page = store.scan(at, 1000).await?;
        for (key, entry) in page.entries {
            if replayed.remove(&key).as_ref() != Some(&entry) {
                report.problems.push(format!("store holds another value of key {key:?} than the log"));
            }
        }
        cursor = page.next;
    }
    report.problems.extend(replayed.keys().map(|key| format!("store lacks key {key:?}")));
    Ok(())
}
