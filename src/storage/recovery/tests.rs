//! Damage of every kind: what is found is what was there, or an error says what is wrong. Never silently less.

use super::*;
use crate::testing::*;
use crate::{FileCache, Frame, Log, Lookup, Record, Store, View, verify};
use bytes::Bytes;
use env::Env;
use env::sim::{DiskState, Failing, single_crashing, single_with};

fn disk(seed: u64) -> Arc<DiskState> {
    DiskState::new(seed, "recovery")
}

async fn append(log: &mut Log, count: usize) {
    for i in 0..count {
        let key = format!("key{}", i % 7);
        let session = Record::Session { session: 1, number: i as u64, floor: 0, outcome: b"ok" };
        log.append(Epoch(1), 5, &[put(&key, &[i as u8; 90]), session]).expect("appends");
    }
}

/// Three segments, the first two with hints, all of it durable and long enough ago for the kernel to have written all.
fn three_segments(seed: u64, clean: bool) -> Arc<DiskState> {
    let disk = disk(seed);
    single_with(disk.clone(), seed, move |env| async move {
        let (mut log, _) = open(&env).await;
        append(&mut log, 22).await;
        flush(&mut log).await;
        log.set_committed(Seqno(42));
        append(&mut log, 2).await;
        flush(&mut log).await;
        assert_eq!(log.stats().segments, 3);
        while let Some(job) = log.take_seal() {
            log.finish_seal(job.run().await.expect("seals"));
        }
        if clean {
            log.close().await.expect("closes");
        }
    });
    for (path, _) in disk.files() {
        let bytes = disk.read_cached(&path).expect("is there");
        disk.write_file(&path, bytes).expect("writes");
    }
    disk
}

/// Opens the log and reads all of it, by frame and by key.
async fn read_all(env: &Env) -> Result<(Vec<Bytes>, u64, Recovery), StorageError> {
    let (log, recovery) = try_open(env).await?;
    let frames: Vec<Frame> = all_frames(&log).await?;
    let mut store = Store::build(&log).await?;
    store.committed(log.head().mark.seqno);
    store.settle().await;
    let mut cursor = Some(crate::ScanCursor::START);
    while let Some(at) = cursor {
        cursor = store.scan(at, 100).await?.next;
    }
    Ok((frames.into_iter().map(|frame| frame.bytes).collect(), store.len(), recovery))
}

fn read_from(disk: Arc<DiskState>) -> Result<(Vec<Bytes>, u64, Recovery), StorageError> {
    single_with(disk, 0, |env| async move { read_all(&env).await })
}

/// Tries each damage on a copy of the disk: the same data or an error. Returns how many were errors.
fn survives(disk: &Arc<DiskState>, damages: impl Iterator<Item = impl Fn(&DiskState)>) -> usize {
    let (frames, keys, _) = read_from(disk.fork(0)).expect("undamaged");
    let mut errors = 0;
    for (i, damage) in damages.enumerate() {
        let copy = disk.fork(i as u64);
        damage(&copy);
        if i % 3 == 0 {
            copy.power_loss(i as u64);
        }
        match read_from(copy) {
            Ok((left, left_keys, _)) => {
                assert_eq!((left.len(), left_keys), (frames.len(), keys), "damage {i}");
                assert!(left == frames, "damage {i} changed what is read");
            }
            Err(StorageError::Fenced | StorageError::Busy | StorageError::Invalid { .. }) => panic!("not of damage"),
            Err(_) => errors += 1,
        }
    }
    errors
}

/// Whether damage to the file is an error. Hints and marks can be done without.
fn matters(path: &str) -> bool {
    path.ends_with(".seg") || path.ends_with("state")
}

/// Where to damage a file: everywhere after a crash, here and there after a clean stop, and not in the gap between marks.
fn places(path: &str, len: u64, clean: bool) -> impl Iterator<Item = u64> + use<> {
    let gap = if path.ends_with("durable") { 64..4096 } else { 0..0 };
    (0..len).step_by(if clean { 7 } else { 1 }).filter(move |at| !gap.contains(at))
}

#[test]
fn no_flipped_bit_goes_unnoticed() {
    for clean in [false, true] {
        let disk = three_segments(1, clean);
        for (path, len) in disk.files() {
            let flips = places(&path, len, clean).map(|at| {
                let path = path.clone();
                move |disk: &DiskState| disk.flip_bit(&path, at, (at % 8) as u8).expect("flips")
            });
            let errors = survives(&disk, flips);
            let all = places(&path, len, clean).count();
            assert_eq!(errors, if matters(&path) { all } else { 0 }, "of {all} flips in {path}");
        }
    }
}

#[test]
fn no_cut_goes_unnoticed() {
    for clean in [false, true] {
        let disk = three_segments(2, clean);
        for (path, len) in disk.files() {
            let cuts = places(&path, len, clean).map(|to| {
                let path = path.clone();
                move |disk: &DiskState| disk.truncate(&path, to).expect("cuts")
            });
            let errors = survives(&disk, cuts);
            let all = places(&path, len, clean).count();
            assert_eq!(errors, if matters(&path) { all } else { 0 }, "of {all} cuts of {path}");
        }
    }
}

#[test]
fn no_missing_file_goes_unnoticed() {
    for clean in [false, true] {
        let disk = three_segments(3, clean);
        for (path, _) in disk.files() {
            let removed = path.clone();
            let errors =
                survives(&disk, std::iter::once(move |disk: &DiskState| disk.remove_file(&removed).expect("removes")));
            assert_eq!(errors, matters(&path) as usize, "without {path}");
        }
    }
}

#[test]
fn leftovers_are_removed_and_mean_nothing() {
    let disk = three_segments(4, false);
    for name in ["000004.seg.tmp", "000002.hint.tmp", "state.tmp", "clean.tmp", "000009.hint", "LOCK", "fenced"] {
        for content in [Vec::new(), vec![0xa5; 700]] {
            let planted = content.clone();
            let path = format!("{DIR}/{name}");
            let plant = move |disk: &DiskState| disk.write_file(&path, planted.clone()).expect("writes");
            assert_eq!(survives(&disk, std::iter::once(plant)), 0, "with {name}");
        }
    }
}

#[test]
fn zeros_at_the_end_are_no_damage() {
    let disk = three_segments(5, false);
    let path = segment_path(DIR, SegmentId(3));
    let len = disk.files().iter().find(|(name, _)| *name == path).expect("is there").1;
    let zeros = [1, 63, 64, 500, 70_000].map(|count| {
        let path = path.clone();
        move |disk: &DiskState| disk.overwrite(&path, len, &vec![0; count]).expect("extends")
    });
    assert_eq!(survives(&disk, zeros.into_iter()), 0);
}

/// Frames that were written after the last flush: only a power loss excuses damage to them.
#[test]
fn damage_to_what_was_never_flushed_is_a_torn_tail_only_after_a_power_loss() {
    let disk = disk(6);
    let (flushed, from) = single_with(disk.clone(), 6, |env| async move {
        let (mut log, _) = open(&env).await;
        append(&mut log, 3).await;
        flush(&mut log).await;
        let flushed = log.head();
        append(&mut log, 3).await;
        let job = log.take_unwritten().expect("queued");
        log.finish_write(job.run(false).await.expect("writes"));
        (flushed, flushed.offset)
    });
    let path = segment_path(DIR, SegmentId(1));
    // As if the unflushed frames had reached the medium but for one sector.
    disk.overwrite(&path, from + 70, &[0xa5; 10]).expect("damages");
    let crashed = disk.fork(1);
    let error = read_from(crashed).expect_err("written in order, so it was whole once");
    assert!(matches!(&error, StorageError::Corrupt { offset, .. } if *offset == from), "{error}");

    let whole = disk.read_cached(&path).expect("is there");
    disk.power_loss(1);
    disk.write_file(&path, whole).expect("writes");
    let (frames, _, recovery) = read_from(disk.fork(2)).expect("opens");
    assert_eq!((frames.len(), recovery.head), (3, flushed.mark));
    assert!(recovery.power_loss_suspected && recovery.torn_bytes > 0);
}

/// The kernel says once that a flush failed, drops the pages, and says Ok from then on.
#[test]
fn after_a_failed_flush_what_a_restart_finds_is_made_durable_anew() {
    for nth in 1..9 {
        let disk = disk(nth);
        let switch = disk.clone();
        single_with(disk.clone(), nth, move |env| async move {
            let (mut log, _) = open(&env).await;
            append(&mut log, 5).await;
            flush(&mut log).await;
            switch.faults(|faults| faults.sync = Failing::nth(nth));
            loop {
                append(&mut log, 9).await;
                match log.take_unwritten().expect("queued").run(true).await {
                    Ok(written) => log.finish_write(written),
                    Err(_) => break,
                }
            }
        });
        let found = single_with(disk.clone(), nth, |env| async move {
            let (mut log, recovery) = open(&env).await;
            assert!(recovery.fenced_before && !recovery.power_loss_suspected);
            log.persist_epoch(Epoch(2)).await.expect("persists");
            append(&mut log, 1).await;
            flush(&mut log).await;
            all_frames(&log).await.expect("reads").len()
        });
        for seed in 0..30 {
            let copy = disk.fork(seed);
            copy.power_loss(seed);
            let (frames, _, recovery) = read_from(copy).expect("opens");
            assert_eq!((frames.len(), recovery.fenced_before), (found, false), "failure {nth}, seed {seed}");
        }
    }
}

#[test]
fn a_closed_folder_verifies_and_a_damaged_one_does_not() {
    let disk = three_segments(7, true);
    let check = |disk: Arc<DiskState>| single_with(disk, 0, |env| async move { verify(&env, DIR).await });
    let report = check(disk.fork(0)).expect("checks");
    assert_eq!((report.problems.len(), report.segments, report.hints), (0, 3, 2), "{report:?}");
    assert_eq!((report.frames, report.records, report.keys), (24, 48, 7));
    for (path, len) in disk.files() {
        for at in (0..len).step_by(29) {
            let copy = disk.fork(at);
            copy.flip_bit(&path, at, 1).expect("flips");
            let sound = check(copy).is_ok_and(|report| report.problems.is_empty());
            assert!(!(sound && matters(&path)), "flip at {at} of {path}");
        }
    }
}

/// Crashes `procedure` at each of its disk operations, with and without a power loss after it, and hands what is then
/// found to `check`.
fn crash_everywhere<F>(
    before: &Arc<DiskState>,
    procedure: impl Fn(Env) -> F,
    check: impl Fn(Result<(Vec<Bytes>, u64, Recovery), StorageError>),
) where
    F: Future<Output = ()> + Send + 'static,
{
    for operations in 0.. {
        let mut ended = false;
        for seed in 0..6 {
            let disk = before.fork(seed);
            ended |= single_crashing(disk.clone(), seed, operations, &procedure).is_some();
            if seed > 0 {
                disk.power_loss(seed);
            }
            let first = read_from(disk.clone());
            let head = first.as_ref().map(|found| found.2.head).ok();
            assert_eq!(head, read_from(disk).map(|found| found.2.head).ok(), "the second time");
            check(first);
        }
        if ended {
            assert!(operations > 3, "it does something");
            return;
        }
    }
}

fn frames_of(disk: &Arc<DiskState>) -> Vec<Bytes> {
    read_from(disk.fork(0)).expect("sound").0
}

#[test]
fn a_crash_while_a_log_is_made_leaves_an_empty_one() {
    let procedure = |env: Env| async move { drop(open(&env).await) };
    crash_everywhere(&disk(20), procedure, |found| assert_eq!(found.expect("opens").0.len(), 0));
}

#[test]
fn a_crash_while_a_log_is_opened_or_closed_loses_nothing() {
    for clean in [true, false] {
        let disk = three_segments(21, clean);
        let frames = frames_of(&disk);
        let procedure = |env: Env| async move { open(&env).await.0.close().await.expect("closes") };
        crash_everywhere(&disk, procedure, |found| assert!(found.expect("opens").0 == frames));
    }
}

#[test]
fn a_crash_while_a_suffix_is_cut_keeps_what_is_before_it() {
    let disk = disk(22);
    single_with(disk.clone(), 22, |env| async move {
        let (mut log, _) = open(&env).await;
        append(&mut log, 60).await;
        flush(&mut log).await;
        while let Some(job) = log.take_seal() {
            log.finish_seal(job.run().await.expect("seals"));
        }
    });
    let frames = frames_of(&disk);
    for keep in [0, 1, 9, 20] {
        let procedure = |env: Env| async move {
            let (mut log, _) = open(&env).await;
            let to = all_frames(&log).await.expect("reads").get(keep).map(|frame| frame.start).expect("is there");
            let to = log.find(to.mark).await.expect("reads").expect("is there");
            log.truncate(to).await.expect("cuts");
        };
        crash_everywhere(&disk, procedure, |found| {
            let left = found.expect("opens").0;
            assert!(left.len() >= keep && left == frames[..left.len()], "{} left of {keep}", left.len());
        });
    }
    let procedure = |env: Env| async move { open(&env).await.0.reset().await.expect("resets") };
    crash_everywhere(&disk, procedure, |found| {
        let left = found.expect("opens").0;
        assert!(left == frames[..left.len()]);
    });
}

#[test]
fn a_crash_while_an_epoch_is_persisted_leaves_the_old_or_the_new_one() {
    let before = disk(23);
    single_with(before.clone(), 23, |env| async move {
        open(&env).await.0.persist_epoch(Epoch(4)).await.expect("persists");
    });
    for operations in 0.. {
        let disk = before.fork(operations);
        let procedure = |env: Env| async move { open(&env).await.0.persist_epoch(Epoch(5)).await.expect("persists") };
        let ended = single_crashing(disk.clone(), 23, operations, procedure).is_some();
        disk.power_loss(operations);
        let epoch = single_with(disk, 23, |env| async move { open(&env).await.0.epoch() });
        assert!(epoch == Epoch(5) || (epoch == Epoch(4) && !ended), "{epoch}");
        if ended {
            break;
        }
    }
}

#[test]
fn open_files_are_bounded_however_many_segments_are_read() {
    single_with(disk(24), 24, |env| async move {
        let files = FileCache::new(2);
        let shared = crate::LogOptions { files: files.clone(), ..options() };
        let mut stores = Vec::new();
        for region in 0..5 {
            let dir = format!("regions/{region}");
            let (mut log, _) = Log::open(&env, &dir, crate::RegionId(region), shared.clone()).await.expect("opens");
            append(&mut log, 40).await;
            flush(&mut log).await;
            log.set_committed(log.durable().seqno);
            stores.push(Store::build(&log).await.expect("builds"));
        }
        for turn in 0..70 {
            let key = format!("key{}", turn % 7);
            let Lookup::Read(job) = stores[turn % 5].get(key.as_bytes(), View::Committed) else { panic!("is there") };
            assert!(job.run().await.expect("reads").is_some());
            assert!(files.open_files() <= 2);
        }
    });
}
