//! The planted bugs of this package are found, and by nothing but the bug. One test, as a mutant is chosen for the process.

use env::sim::{DiskState, single_with};
use std::sync::Arc;
use storage::{Epoch, Log, LogOptions, Lookup, Record, RegionId, StorageError, Store, View};

const REGION: RegionId = RegionId(1);

async fn open(env: &env::Env) -> Result<Log, StorageError> {
    let options = LogOptions { segment_bytes: 1024, ..LogOptions::new(7) };
    Log::open(env, "region", REGION, options).await.map(|(log, _)| log)
}

async fn put(log: &mut Log, value: u8) -> storage::Frame {
    let value = [value; 200];
    let frame = log.append(Epoch(1), 0, &[Record::put(b"key", &value)]).expect("appends");
    let job = log.take_unwritten().expect("queued");
    let written = job.run(true).await.expect("writes");
    log.finish_write(written);
    frame
}

/// Whether some power loss takes a flushed frame.
fn loses_flushed_frames() -> bool {
    let disk = DiskState::new(1, "mutants");
    single_with(disk.clone(), 1, |env| async move {
        let mut log = open(&env).await.expect("opens");
        for value in 0..20 {
            put(&mut log, value).await;
        }
    });
    let lost = |seed: u64| {
        let copy = disk.fork(seed);
        copy.power_loss(seed);
        single_with(copy, 1, |env| async move { !matches!(open(&env).await, Ok(log) if log.head().mark.seqno.0 == 20) })
    };
    (0..20).any(lost)
}

/// Whether an old record of the key, landed in the place of its newest, is taken for it.
fn takes_a_misdirected_record() -> bool {
    let disk = DiskState::new(2, "mutants");
    let medium: Arc<DiskState> = disk.clone();
    single_with(disk, 2, |env| async move {
        let mut log = open(&env).await.expect("opens");
        let old = put(&mut log, 1).await;
        let new = put(&mut log, 2).await;
        log.set_committed(log.durable().seqno);
        let mut store = Store::build(&log).await.expect("builds");
        let at = |frame: &storage::Frame| frame.records().next().expect("one").location;
        let (old, new) = (at(&old), at(&new));
        assert_eq!((old.segment, old.len), (new.segment, new.len));
        let bytes = medium.read_cached("region/000001.seg").expect("is there");
        let record = &bytes[old.offset as usize..][..old.len as usize];
        medium.overwrite("region/000001.seg", new.offset, record).expect("overwrites");
        store.settle().await;
        match store.get(b"key", View::Committed) {
            Lookup::Read(job) => job.run().await.is_ok(),
            Lookup::Ready(_) => unreachable!("it is in the index"),
        }
    })
}

async fn commit(log: &mut Log, store: &mut Store, record: Record<'_>) {
    let frame = log.append(Epoch(1), 0, &[record]).expect("appends");
    store.appended(&frame);
    let written = log.take_unwritten().expect("queued").run(true).await.expect("writes");
    log.finish_write(written);
    log.set_committed(log.durable().seqno);
    store.committed(log.durable().seqno);
    store.settle().await;
    while let Some(job) = log.take_seal() {
        log.finish_seal(job.run().await.expect("seals"));
    }
}

/// Whether a key comes back when the segment with its tombstone is compacted, and the one with its value is not.
fn brings_back_what_was_deleted() -> bool {
    let disk = DiskState::new(3, "mutants");
    single_with(disk, 3, |env| async move {
        let mut log = open(&env).await.expect("opens");
        let mut store = Store::build(&log).await.expect("builds");
        let filler = || Record::put(b"filler", &[0; 400]);
        commit(&mut log, &mut store, Record::put(b"key", b"old")).await;
        for _ in 0..3 {
            commit(&mut log, &mut store, filler()).await;
        }
        let tombstone_in = log.head().segment;
        commit(&mut log, &mut store, Record::Tombstone { key: b"key" }).await;
        for _ in 0..3 {
            commit(&mut log, &mut store, filler()).await;
        }
        let run = (tombstone_in, tombstone_in);
        let output = store.compact(&log, run, 0).await.expect("writes").expect("a sealed segment");
        let (kind, bytes) = output.plan().encode();
        commit(&mut log, &mut store, Record::Control { kind, bytes: &bytes }).await;
        assert!(log.switch(output).await.expect("switches"));
        let rebuilt = Store::build(&log).await.expect("builds");
        match rebuilt.get(b"key", View::Committed) {
            Lookup::Ready(entry) => entry.is_some(),
            Lookup::Read(job) => job.run().await.expect("reads").is_some(),
        }
    })
}

/// Whether a log that was cut and went on is answered with what it held before.
fn answers_from_before_a_cut() -> bool {
    let disk = DiskState::new(4, "mutants");
    single_with(disk, 4, |env| async move {
        let mut log = open(&env).await.expect("opens");
        let mut store = Store::build(&log).await.expect("builds");
        commit(&mut log, &mut store, Record::put(b"key", b"old")).await;
        log.reset().await.expect("resets");
        let frame = log.append(Epoch(1), 0, &[Record::put(b"key", b"new")]).expect("appends");
        let written = log.take_unwritten().expect("queued").run(true).await.expect("writes");
        log.finish_write(written);
        log.set_committed(frame.header.last_seqno());
        let store = Store::build(&log).await.expect("builds");
        match store.get(b"key", View::Committed) {
            Lookup::Ready(entry) => entry.expect("it was put").value != b"new".as_slice(),
            Lookup::Read(job) => job.run().await.expect("reads").expect("it was put").value != b"new".as_slice(),
        }
    })
}

#[test]
fn each_mutant_is_found() {
    let found = || {
        [
            loses_flushed_frames(),
            takes_a_misdirected_record(),
            brings_back_what_was_deleted(),
            answers_from_before_a_cut(),
        ]
    };
    assert_eq!(found(), [false; 4]);
    for (at, mutant) in ["M11", "M14", "M12", "M16"].into_iter().enumerate() {
        env::mutants::choose(Some(mutant));
        let others_silent: [bool; 4] = std::array::from_fn(|other| other == at);
        assert_eq!(found(), others_silent, "{mutant}");
    }
    env::mutants::choose(None);
}
