use super::*;
use crate::testing::*;
use crate::{Location, OwnedRecord};
use env::sim::{Dice, DiskState, Failing, Latency, single, single_crashing, single_with, stream};
use parking_lot::Mutex;
use std::time::Duration;

fn disk(seed: u64) -> Arc<DiskState> {
    DiskState::new(seed, "log")
}

/// Appends `count` frames of one record.
fn append_some(log: &mut Log, count: usize) -> Vec<Frame> {
    let one = |log: &mut Log, i: usize| {
        let key = format!("key{i}");
        log.append(Epoch(1), 1000 + i as u64, &[put(&key, &[i as u8; 100])]).expect("appends")
    };
    (0..count).map(|i| one(log, i)).collect()
}

#[test]
fn frames_come_back_as_they_were_appended() {
    single(1, |env| async move {
        let (mut log, recovery) = open(&env).await;
        assert!(recovery.created && !recovery.power_loss_suspected);
        let records = [
            expiring(b"a", b"", 77),
            Record::Tombstone { key: &[0; KEY_BYTES_MAX] },
            Record::Session { session: 1, number: 2, floor: 1, outcome: b"done" },
            Record::Control { kind: 9, bytes: b"x" },
        ];
        let frame = log.append(Epoch(3), 1234, &records).expect("appends");
        assert_eq!(frame.records().map(|item| item.record).collect::<Vec<_>>(), records);
        assert_eq!(frame.records().map(|item| item.seqno.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!((frame.header.epoch, frame.header.wall_ms), (Epoch(3), 1234));
        flush(&mut log).await;
        let written = append_some(&mut log, 50);
        flush(&mut log).await;
        assert!(log.stats().segments > 3, "{:?}", log.stats());
        log.close().await.expect("closes");

        let (log, recovery) = open(&env).await;
        assert!(recovery.clean);
        let read = all_frames(&log).await.expect("reads");
        let appended: Vec<_> = std::iter::once(frame).chain(written).collect();
        assert_eq!(bytes_of(&read), bytes_of(&appended));
    });
}

#[test]
fn a_log_that_is_not_there_is_destroyed() {
    single(1, |env| async move {
        crate::destroy(&env, "no/folder").await.expect("nothing to do");
    });
}

fn bytes_of(frames: &[Frame]) -> Vec<Bytes> {
    frames.iter().map(|frame| frame.bytes.clone()).collect()
}

#[test]
fn a_record_is_found_at_its_location() {
    single(2, |env| async move {
        let (mut log, _) = open(&env).await;
        let frames = append_some(&mut log, 30);
        flush(&mut log).await;
        for item in frames.iter().flat_map(|frame| frame.records()) {
            let Location { segment, offset, len } = item.location;
            let handle = log.shared.handle(segment).expect("a segment");
            let (read, bytes) = handle.file().await.expect("opens").read_at(vec![0; len as usize], offset).await;
            assert_eq!(read.expect("reads"), len as usize);
            assert_eq!(Record::read(&bytes, &handle.seeds, item.location.offset), Ok((item.record, bytes.len())));
            assert!(Record::read(&bytes, &handle.seeds, offset + 1).is_err());
        }
    });
}

#[test]
fn records_beyond_the_limits_are_refused_and_nothing_is_appended() {
    single(3, |env| async move {
        let (mut log, _) = open(&env).await;
        let long = vec![0; VALUE_BYTES_MAX + 1];
        let large = vec![0; VALUE_BYTES_MAX];
        let refused: [&[Record]; 6] = [
            &[],
            &[put("", b"x")],
            &[Record::Tombstone { key: &long[..KEY_BYTES_MAX + 1] }],
            &[put("k", &long)],
            &[Record::Session { session: 1, number: 1, floor: 0, outcome: &long }],
            &[put("a", &large), put("b", &large), put("c", &large), put("d", &large)],
        ];
        for records in refused {
            assert!(matches!(log.append(Epoch(1), 0, records), Err(StorageError::Invalid { .. })));
        }
        assert_eq!(log.head(), Position::ZERO);
        log.append(Epoch(1), 0, &[put("k", &large)]).expect("the largest value fits");
        flush(&mut log).await;
        assert_eq!(all_frames(&log).await.expect("reads").len(), 1);
    });
}

/// Frames of one replica, taken by another.
#[test]
fn a_backup_holds_the_same_bytes() {
    single(4, |env| async move {
        let (mut primary, _) = Log::open(&env, "primary", REGION, options()).await.expect("opens");
        let backup_options = LogOptions { segment_bytes: 1 << 20, ..options() };
        let (mut backup, _) = Log::open(&env, "backup", REGION, backup_options).await.expect("opens");
        let frames = append_some(&mut primary, 60);
        flush(&mut primary).await;
        let mut from = Position::ZERO;
        while from != primary.head() {
            let chunk = primary.read_chunk(from, 5000).await.expect("reads");
            for bytes in crate::split_frames(chunk.bytes) {
                backup.accept(bytes.expect("whole")).expect("continues");
            }
            flush(&mut backup).await;
            from = chunk.end;
        }
        assert_eq!(backup.head(), primary.head());
        for segment in primary.segments.keys() {
            let ours = state::read_whole(env.disk().as_ref(), &segment_path("primary", *segment)).await;
            let theirs = state::read_whole(env.disk().as_ref(), &segment_path("backup", *segment)).await;
            assert_eq!(ours.expect("reads"), theirs.expect("reads"));
        }
        assert_eq!(backup.find(frames[30].mark()).await.expect("reads"), Some(frames[30].end));
    });
}

#[test]
fn a_backup_takes_only_what_continues_its_log() {
    single(5, |env| async move {
        let (mut primary, _) = Log::open(&env, "primary", REGION, options()).await.expect("opens");
        let (mut other, _) = Log::open(&env, "other", REGION, options()).await.expect("opens");
        let (mut backup, _) = Log::open(&env, "backup", REGION, options()).await.expect("opens");
        let frames = append_some(&mut primary, 5);
        let strange = other.append(Epoch(1), 0, &[put("strange", b"")]).expect("appends");
        let strange_next = other.append(Epoch(1), 0, &[put("strange", b"")]).expect("appends");

        let gap = Reject::Gap { expected: 1, found: 2 };
        assert_eq!(backup.accept(frames[1].bytes.clone()).expect_err("a gap"), gap);
        backup.accept(frames[0].bytes.clone()).expect("continues");
        let duplicate = Reject::Duplicate { last_seqno: 1 };
        assert_eq!(backup.accept(frames[0].bytes.clone()).expect_err("twice"), duplicate);
        let diverges = |first_seqno| Reject::Diverges { first_seqno };
        assert_eq!(backup.accept(strange.bytes).expect_err("another history"), diverges(1));
        assert_eq!(backup.accept(strange_next.bytes).expect_err("another history"), diverges(2));
        for at in 0..frames[1].bytes.len() {
            let mut bytes = frames[1].bytes.to_vec();
            bytes[at] ^= 0x10;
            backup.accept(bytes.into()).expect_err("damaged on the way");
        }
        for len in 0..frames[1].bytes.len() {
            backup.accept(frames[1].bytes.slice(..len)).expect_err("cut on the way");
        }
        backup.accept(frames[1].bytes.clone()).expect("continues");
        assert_eq!(backup.head(), frames[1].end);
    });
}

#[test]
fn a_divergent_suffix_is_cut_and_stays_cut() {
    for keep in [0, 1, 7, 12, 25, 39] {
        let disk = disk(6);
        let kept = single_with(disk.clone(), 6, |env| async move {
            let (mut log, _) = open(&env).await;
            let frames = append_some(&mut log, 38);
            flush(&mut log).await;
            let frames: Vec<_> = frames.into_iter().chain(append_some(&mut log, 2)).collect();
            let to = frames[keep].end;
            log.truncate(to).await.expect("cuts");
            assert_eq!((log.head(), log.durable()), (to, to.mark.min_by_seqno(frames[37].mark())));
            assert_eq!(bytes_of(&all_frames(&log).await.expect("reads")), bytes_of(&frames[..=keep]));
            flush(&mut log).await;
            to
        });
        disk.power_loss(keep as u64);
        single_with(disk, 6, move |env| async move {
            let (mut log, recovery) = open(&env).await;
            assert_eq!((log.head(), recovery.torn_bytes), (kept, 0));
            append_some(&mut log, 3);
            flush(&mut log).await;
            assert_eq!(all_frames(&log).await.expect("reads").len(), keep + 4);
        });
    }
}

impl Mark {
    fn min_by_seqno(self, other: Mark) -> Mark {
        if other.seqno < self.seqno { other } else { self }
    }
}

#[test]
fn nothing_below_the_commit_point_is_cut() {
    single(7, |env| async move {
        let (mut log, _) = open(&env).await;
        let frames = append_some(&mut log, 10);
        flush(&mut log).await;
        log.set_committed(Seqno(5));
        assert!(matches!(log.truncate(frames[3].end).await, Err(StorageError::Invalid { .. })));
        let elsewhere = Position { offset: frames[7].end.offset + 1, ..frames[7].end };
        assert!(matches!(log.truncate(elsewhere).await, Err(StorageError::Invalid { .. })));
        log.truncate(frames[4].end).await.expect("cuts");
        assert_eq!(log.tail_marks(Seqno(0)), []);
    });
}

#[test]
fn a_learner_starts_from_nothing_and_keeps_its_epoch() {
    let disk = disk(8);
    single_with(disk.clone(), 8, |env| async move {
        let (mut log, _) = open(&env).await;
        log.persist_epoch(Epoch(4)).await.expect("persists");
        append_some(&mut log, 30);
        flush(&mut log).await;
        log.set_committed(Seqno(30));
        log.reset().await.expect("resets");
        assert_eq!((log.head(), log.committed(), log.stats().segments), (Position::ZERO, Seqno(0), 0));
    });
    disk.power_loss(8);
    single_with(disk, 8, |env| async move {
        let (mut log, recovery) = open(&env).await;
        assert_eq!((log.head(), log.epoch(), recovery.created), (Position::ZERO, Epoch(4), false));
        assert!(matches!(log.persist_epoch(Epoch(3)).await, Err(StorageError::Invalid { .. })));
        append_some(&mut log, 3);
        flush(&mut log).await;
        assert_eq!(all_frames(&log).await.expect("reads").len(), 3);
    });
}

#[test]
fn the_marks_after_the_commit_point_survive_a_restart() {
    for clean in [true, false] {
        let disk = disk(9);
        let marks = single_with(disk.clone(), 9, move |env| async move {
            let (mut log, _) = open(&env).await;
            append_some(&mut log, 5);
            log.set_committed(Seqno(3));
            append_some(&mut log, 40);
            flush(&mut log).await;
            let marks = log.tail_marks(Seqno(0));
            if clean {
                log.close().await.expect("closes");
            }
            marks
        });
        assert_eq!(marks.len(), 42);
        single_with(disk, 9, move |env| async move {
            let (log, recovery) = open(&env).await;
            assert_eq!((recovery.clean, log.committed()), (clean, Seqno(3)));
            assert_eq!(log.tail_marks(Seqno(0)), marks);
            for mark in marks {
                assert_eq!(log.find(mark).await.expect("reads").expect("is here").mark, mark);
            }
            let unknown = Mark { seqno: Seqno(7), checksum: 1 };
            assert_eq!(log.find(unknown).await.expect("reads"), None);
        });
    }
}

/// What a run did to the log, kept outside so that it survives the run's crash.
#[derive(Default)]
struct History {
    appended: Vec<Frame>,
    durable: usize,
    written: usize,
}

/// Appends, writes and flushes at random, in rounds.
async fn churn(env: Env, history: Arc<Mutex<History>>, mut dice: Dice) {
    let (mut log, _) = open(&env).await;
    for _ in 0..dice.between(1, 12) {
        for _ in 0..dice.between(1, 6) {
            let records: Vec<_> = (0..dice.between(1, 3)).map(|_| random_record(&mut dice)).collect();
            let records: Vec<_> = records.iter().map(OwnedRecord::as_record).collect();
            let frame = log.append(Epoch(1), 0, &records).expect("appends");
            history.lock().appended.push(frame);
        }
        let sync = dice.percent(60);
        let job = if sync { log.take_unflushed() } else { log.take_unwritten() };
        let job = job.expect("something is queued");
        let appended = history.lock().appended.len();
        let written = if sync { Err(job) } else { job.try_now() };
        log.finish_write(match written {
            Ok(written) => written,
            Err(job) => job.run(sync).await.expect("a healthy disk"),
        });
        history.lock().written = appended;
        if sync {
            history.lock().durable = appended;
            log.set_committed(log.durable().seqno);
        }
        if dice.percent(30)
            && let Some(job) = log.take_seal()
        {
            log.finish_seal(job.run().await.expect("a healthy disk"));
        }
    }
}

fn random_record(dice: &mut Dice) -> OwnedRecord {
    let key = format!("key{}", dice.below(50)).into_bytes().into();
    let len_max = if dice.percent(5) { 5000 } else { 300 };
    random_put(dice, key, len_max, None)
}

fn bytes_on(disk: &DiskState) -> u64 {
    disk.files().iter().map(|(_, len)| len).sum()
}

/// A disk that fills up while a write is under way: the write waits, and what is there can be read.
#[test]
fn a_write_waits_for_room_and_loses_nothing() {
    for seed in 0..8 {
        let disk = disk(seed);
        let room = disk.clone();
        single_with(disk.clone(), seed, |env| async move {
            let (mut log, _) = open(&env).await;
            let first = append_some(&mut log, 3);
            flush(&mut log).await;
            // Some of the frames fit, or the next segment's header, or nothing.
            let capacity = bytes_on(&room) + seed * 400;
            room.faults(|faults| faults.capacity = Some(capacity));
            let more = append_some(&mut log, 30);
            let job = log.take_unwritten().expect("queued");
            let mut writing = env.spawn("write", job.run(true));
            let early = env.timeout(Duration::from_secs(5), &mut writing).await;
            assert!(early.is_err() && log.is_out_of_space(), "seed {seed}: it waits");
            let read = log.read_chunk(Position::ZERO, 1).await.expect("reads");
            assert_eq!(read.bytes, first[0].bytes);
            room.faults(|faults| faults.capacity = None);
            log.finish_write(writing.await.expect("runs").expect("there is room"));
            assert!(!log.is_out_of_space());
            assert_eq!(log.durable(), log.head().mark);
            let read = all_frames(&log).await.expect("reads");
            assert_eq!(bytes_of(&read), bytes_of(&[first, more].concat()));
        });
        disk.power_loss(seed);
        single_with(disk, seed, |env| async move {
            let (log, recovery) = open(&env).await;
            assert_eq!((recovery.torn_bytes, all_frames(&log).await.expect("reads").len()), (0, 33));
        });
    }
}

#[test]
fn a_write_that_waits_for_room_ends_when_the_log_is_given_up() {
    let disk = disk(9);
    let room = disk.clone();
    single_with(disk.clone(), 9, |env| async move {
        let (mut log, _) = open(&env).await;
        append_some(&mut log, 3);
        flush(&mut log).await;
        let capacity = bytes_on(&room);
        room.faults(|faults| faults.capacity = Some(capacity));
        append_some(&mut log, 30);
        let job = log.take_unwritten().expect("queued");
        let writing = env.spawn("write", job.run(true));
        env.sleep(Duration::from_secs(1)).await;
        log.give_up();
        assert!(matches!(writing.await.expect("runs"), Err(StorageError::Fenced)));
    });
    disk.faults(|faults| faults.capacity = None);
    single_with(disk, 9, |env| async move {
        let (log, _) = open(&env).await;
        assert!(all_frames(&log).await.expect("reads").len() >= 3);
    });
}

/// The log holds a prefix of what was appended, and at least the first `least` frames; returns how many.
async fn check_prefix(env: &Env, history: &Mutex<History>, least: usize) -> (usize, Recovery) {
    let (log, recovery) = match try_open(env).await {
        Ok(opened) => opened,
        Err(error) => panic!("{error}"),
    };
    let found = all_frames(&log).await.expect("reads");
    let appended = &history.lock().appended;
    assert!(found.len() >= least, "{} frames of {least} are left", found.len());
    assert_eq!(bytes_of(&found), bytes_of(&appended[..found.len()]));
    assert_eq!(log.durable(), log.head().mark);
    (found.len(), recovery)
}

fn crash_rounds(seed: u64, power: bool) -> u64 {
    let disk = disk(seed);
    let history = Arc::new(Mutex::new(History::default()));
    let mut dice = stream(seed, "crashes");
    let mut torn = 0;
    for round in 0..3 {
        disk.faults(|faults| faults.latency = if dice.percent(50) { Latency::SSD } else { Latency::NONE });
        let operations = if dice.percent(70) { dice.below(60) } else { u64::MAX };
        let (kept, churned) = (history.clone(), stream(seed, &format!("churn {round}")));
        single_crashing(disk.clone(), seed, operations, |env| churn(env, kept, churned));
        if power {
            disk.power_loss(dice.next_u64());
        }
        let least = if power { history.lock().durable } else { history.lock().written };
        let mut first = None;
        for _ in 0..3 {
            let kept = history.clone();
            let (left, recovery) =
                single_with(disk.clone(), seed, |env| async move { check_prefix(&env, &kept, least).await });
            torn += recovery.torn_bytes;
            assert_eq!(*first.get_or_insert(left), left, "the same each time");
        }
        let mut history = history.lock();
        history.appended.truncate(first.expect("opened"));
        history.durable = history.appended.len();
        history.written = history.durable;
    }
    torn
}

#[test]
fn after_a_power_loss_all_that_was_flushed_is_there() {
    let torn: u64 = (0..150).map(|seed| crash_rounds(seed, true)).sum();
    assert!(torn > 0, "no run tore anything");
}

#[test]
fn after_a_process_crash_all_that_was_written_is_there() {
    let torn: u64 = (1000..1080).map(|seed| crash_rounds(seed, false)).sum();
    assert!(torn > 0, "no run tore anything");
}

/// A log with a frame that is written, three that are queued, and the job to write these.
async fn queued(env: &Env) -> (Log, Vec<Frame>, WriteJob) {
    let (mut log, _) = open(env).await;
    let mut frames = append_some(&mut log, 1);
    flush(&mut log).await;
    frames.extend(append_some(&mut log, 3));
    let job = log.take_unwritten().expect("queued");
    (log, frames, job)
}

#[test]
fn a_write_at_once_is_there_and_not_flushed() {
    let disk = disk(1);
    disk.faults(|faults| faults.at_once_percent = 100);
    let frames = single_with(disk.clone(), 1, |env| async move {
        let (mut log, frames, job) = queued(&env).await;
        let written = job.try_now().ok().expect("nothing has to be waited for");
        log.finish_write(written);
        assert_eq!((log.written(), log.durable()), (log.head().mark, frames[0].mark()));
        assert!(log.take_unwritten().is_none());
        // The next one fills the segment, so that a file has to be made.
        append_some(&mut log, 30);
        let job = log.take_unwritten().expect("queued").try_now().err().expect("a file has to be made");
        log.finish_write(job.run(false).await.expect("a healthy disk"));
        frames
    });
    single_with(disk, 1, |env| async move {
        let (log, _) = open(&env).await;
        assert_eq!(bytes_of(&all_frames(&log).await.expect("reads")[..4]), bytes_of(&frames));
    });
}

#[test]
fn a_write_at_once_that_fails_is_not_tried_again() {
    let disk = disk(2);
    disk.faults(|faults| faults.at_once_percent = 100);
    let switch = disk.clone();
    single_with(disk, 2, |env| async move {
        let (log, _, job) = queued(&env).await;
        switch.faults(|faults| faults.write = Failing::NEXT);
        let job = job.try_now().err().expect("it failed");
        let writes = switch.counts().writes;
        assert!(matches!(job.run(false).await, Err(StorageError::Io { .. })));
        // Word is left for the next start; the log itself is left alone.
        assert!(log.stats().fenced && switch.counts().writes <= writes + 1, "{writes} {:?}", switch.counts());
    });
}

#[test]
fn a_write_at_once_that_finds_no_room_waits_for_it() {
    let disk = disk(3);
    disk.faults(|faults| faults.at_once_percent = 100);
    let room = disk.clone();
    single_with(disk, 3, |env| async move {
        let (mut log, _, job) = queued(&env).await;
        let capacity = bytes_on(&room);
        room.faults(|faults| faults.capacity = Some(capacity));
        let job = job.try_now().err().expect("no room");
        let mut writing = env.spawn("write", job.run(false));
        assert!(env.timeout(Duration::from_secs(5), &mut writing).await.is_err() && log.is_out_of_space());
        room.faults(|faults| faults.capacity = None);
        log.finish_write(writing.await.expect("runs").expect("there is room"));
        assert_eq!(log.written(), log.head().mark);
    });
}

#[test]
fn a_failed_flush_fences_the_log_and_reads_go_on() {
    for nth in 1..8 {
        let disk = disk(nth);
        let switch = disk.clone();
        let kept = single_with(disk.clone(), nth, move |env| async move {
            let (mut log, _) = open(&env).await;
            let mut kept = append_some(&mut log, 5);
            flush(&mut log).await;
            switch.faults(|faults| faults.sync = Failing::nth(nth));
            let failed = loop {
                append_some(&mut log, 15);
                let job = log.take_unwritten().expect("queued");
                match job.run(true).await {
                    Ok(written) => log.finish_write(written),
                    Err(error) => break error,
                }
                kept = all_frames(&log).await.expect("reads");
            };
            assert!(matches!(failed, StorageError::Io { .. }), "{failed}");
            assert!(matches!(log.append(Epoch(1), 0, &[put("k", b"v")]), Err(StorageError::Fenced)));
            assert!(log.take_unflushed().is_none() && log.stats().fenced);
            assert_eq!(bytes_of(&all_frames(&log).await.expect("reads")[..kept.len()]), bytes_of(&kept));
            assert!(matches!(log.close().await, Err(StorageError::Fenced)));
            kept
        });
        for crash in 0..20 {
            let (fork, kept) = (disk.fork(crash), kept.clone());
            fork.power_loss(crash);
            single_with(fork, nth, move |env| async move {
                let (log, _) = open(&env).await;
                let left = all_frames(&log).await.expect("reads");
                assert_eq!(bytes_of(&left[..kept.len()]), bytes_of(&kept));
            });
        }
    }
}

/// Fills a frame with one record, as the library does.
fn fill_one(log: &mut Log, number: usize) {
    let (key, value) = (format!("key{number}"), [number as u8; 100]);
    let record = put(&key, &value);
    let mut open = log.open_frame(record.encoded_len(), FrameRoom::default());
    open.push(&record, log.identity().key_hash(key.as_bytes()));
    log.append_open(open, Epoch(1), 1000).expect("appends");
}

#[test]
fn a_hint_noted_while_writing_is_the_one_that_reading_the_segment_gives() {
    single(21, |env| async move {
        let (mut log, _) = open(&env).await;
        (0..40).for_each(|number| fill_one(&mut log, number));
        log.append(Epoch(1), 0, &[Record::Session { session: 1, number: 2, floor: 1, outcome: b"done" }])
            .expect("appends");
        (40..70).for_each(|number| fill_one(&mut log, number));
        flush(&mut log).await;
        let (mut drafted, mut sealed) = (0, 0);
        while let Some(job) = log.take_drafted_seal() {
            let Segment { base, end, .. } = job.segment;
            let identity = log.identity();
            let scanned = Hint::scan(&log.shared.add_handle(end.segment), &identity, base, end).await.expect("reads");
            drafted += job.draft.is_some() as usize;
            log.finish_seal(job.run().await.expect("writes"));
            let stored = Hint::load(env.disk().as_ref(), DIR, &identity, end).await;
            assert_eq!(stored, Some(scanned), "segment {}", end.segment);
            sealed += 1;
        }
        assert!(
            sealed > HINT_DRAFTS_MAX && drafted == HINT_DRAFTS_MAX - 1,
            "{drafted} of {sealed}, and the last segment's"
        );
    });
}

#[test]
fn writes_go_on_beside_a_flush_and_what_flushes_waits_for_it() {
    single(22, |env| async move {
        let (mut log, _) = open(&env).await;
        fill_one(&mut log, 0);
        assert!(log.take_flush().is_none(), "nothing is written");
        let written = log.take_unwritten().expect("queued").run(false).await.expect("writes");
        log.finish_write(written);
        let (flushed_to, beside) = (log.written(), log.take_flush().expect("written and not flushed"));
        assert!(log.take_flush().is_none() && log.is_flushing());
        // More than a segment holds: what comes before its end is written, the rest waits.
        (1..30).for_each(|number| fill_one(&mut log, number));
        assert!(log.begins_segment_next() && log.take_unflushed().is_none());
        let written = log.take_unwritten().expect("some lie in the segment").run(false).await.expect("writes");
        log.finish_write(written);
        assert!(log.written().seqno < log.head().mark.seqno && log.written().seqno > flushed_to.seqno);
        assert!(log.take_unwritten().is_none(), "the next one begins a segment");
        log.finish_flush(beside.run().await.expect("flushes"));
        assert_eq!(log.durable(), flushed_to, "what was written when it began");
        let noted = log.take_note().expect("is here").run().await;
        assert!(log.take_unwritten().is_none() && log.take_note().is_none(), "the note is away");
        log.finish_note(noted);
        flush(&mut log).await;
        assert_eq!(log.durable(), log.head().mark);
    });
}

#[test]
fn a_flush_beside_that_fails_or_is_given_up_fences_the_log() {
    for fails in [true, false] {
        let disk = disk(23);
        let switch = disk.clone();
        single_with(disk, 23, move |env| async move {
            let (mut log, _) = open(&env).await;
            fill_one(&mut log, 0);
            let written = log.take_unwritten().expect("queued").run(false).await.expect("writes");
            log.finish_write(written);
            switch.faults(|faults| faults.sync = if fails { Failing::NEXT } else { Failing::NEVER });
            let flush = log.take_flush().expect("written and not flushed");
            match fails {
                true => assert!(matches!(flush.run().await, Err(StorageError::Io { .. }))),
                false => drop(flush),
            }
            assert!(log.stats().fenced && log.take_unflushed().is_none() && log.durable() == Mark::ZERO);
        });
    }
}

#[test]
fn a_log_whose_write_was_given_up_on_a_full_disk_opens_for_reading() {
    for spare in 0..40 {
        let disk = disk(spare);
        let switch = disk.clone();
        let kept = single_with(disk.clone(), spare, move |env| async move {
            let (mut log, _) = open(&env).await;
            let kept = append_some(&mut log, 20);
            flush(&mut log).await;
            let used: u64 = switch.files().iter().map(|(_, len)| len).sum();
            switch.faults(|faults| faults.capacity = Some(used + spare * 37));
            loop {
                append_some(&mut log, 3);
                let job = log.take_unwritten().expect("queued");
                match env.timeout(Duration::from_secs(1), job.run(true)).await {
                    Ok(written) => log.finish_write(written.expect("there is room")),
                    Err(_) => break,
                }
            }
            assert!(log.is_out_of_space());
            assert!(matches!(log.append(Epoch(1), 0, &[put("k", b"v")]), Err(StorageError::Fenced)));
            kept
        });
        if spare % 2 == 0 {
            disk.power_loss(spare);
        }
        let full = kept.clone();
        single_with(disk.clone(), spare, move |env| async move {
            let (log, _) = open(&env).await;
            let left = all_frames(&log).await.expect("reads");
            assert_eq!(bytes_of(&left[..full.len()]), bytes_of(&full));
        });
        disk.faults(|faults| faults.capacity = None);
        single_with(disk, spare, move |env| async move {
            let (mut log, recovery) = open(&env).await;
            assert!(!recovery.read_only);
            append_some(&mut log, 1);
            flush(&mut log).await;
        });
    }
}

#[test]
fn other_clusters_regions_and_formats_are_refused() {
    let disk = disk(11);
    single_with(disk.clone(), 11, |env| async move {
        let (mut log, _) = open(&env).await;
        append_some(&mut log, 20);
        log.close().await
    })
    .expect("closes");
    let segment = disk.read_cached(&segment_path(DIR, SegmentId(1))).expect("is there");
    let newer = disk.clone();
    single_with(disk, 11, move |env| async move {
        let foreign = LogOptions { cluster: 1, ..options() };
        let refused = Log::open(&env, DIR, REGION, foreign).await.err().expect("refused");
        assert!(matches!(refused, StorageError::ForeignCluster { .. }), "{refused}");
        let refused = Log::open(&env, DIR, RegionId(8), options()).await.err().expect("refused");
        assert!(matches!(refused, StorageError::ForeignRegion { .. }), "{refused}");

        let mut changed = segment.clone();
        changed[8] = 2;
        let checksum = xxhash_rust::xxh3::xxh3_64(&changed[..56]);
        changed[56..64].copy_from_slice(&checksum.to_le_bytes());
        newer.write_file(&segment_path(DIR, SegmentId(1)), changed).expect("writes");
        let refused = try_open(&env).await.err().expect("refused");
        assert!(matches!(refused, StorageError::NewerFormat { found: 2, known: 1, .. }), "{refused}");
        newer.write_file(&segment_path(DIR, SegmentId(1)), segment).expect("writes");
        open(&env).await;
    });
}
