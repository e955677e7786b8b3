//! The switches of a simulated disk, as the code above the seam meets them.

use env::sim::{DiskState, Failing, Latency, single, single_crashing, single_with};
use env::{Env, File, OpenMode};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

const EIO: i32 = 5;

async fn open(env: &Env, path: &str) -> Arc<dyn File> {
    env.disk().open(path, OpenMode::Create).await.expect("open")
}

async fn read(file: &Arc<dyn File>) -> std::io::Result<Vec<u8>> {
    let len = file.len().await?;
    let (count, mut buffer) = file.read_at(vec![0; len as usize], 0).await;
    buffer.truncate(count?);
    Ok(buffer)
}

fn disk() -> Arc<DiskState> {
    DiskState::new(1, "test")
}

#[test]
fn the_nth_operation_fails_and_the_next_does_not() {
    let disk = disk();
    let switches = disk.clone();
    single_with(disk.clone(), 1, |env| async move {
        let file = open(&env, "a").await;
        switches.faults(|faults| faults.write = Failing::nth(3));
        let mut failed = Vec::new();
        for i in 1..=5 {
            if let Err(error) = file.write_at(vec!["x".into()], 0).await {
                failed.push((i, error.raw_os_error()));
            }
        }
        assert_eq!(failed, [(3, Some(EIO))]);
        switches.faults(|faults| faults.read = Failing::ALWAYS);
        assert_eq!(read(&file).await.expect_err("always").raw_os_error(), Some(EIO));
        switches.faults(|faults| faults.read = Failing::NEVER);
        assert_eq!(read(&file).await.expect("healthy"), b"x");
    });
    assert_eq!(disk.counts().errors, 2);
}

#[test]
fn a_failed_write_may_leave_a_part() {
    let lens: BTreeSet<u64> = (0..60)
        .map(|seed| {
            let disk = DiskState::new(seed, "test");
            disk.faults(|faults| faults.write = Failing::NEXT);
            single_with(disk.clone(), seed, |env| async move {
                let file = open(&env, "a").await;
                file.append(vec![vec![1; 1024].into()]).await.expect_err("fails");
                file.len().await.expect("len")
            })
        })
        .collect();
    assert_eq!(lens, BTreeSet::from([0, 512, 1024]));
}

#[test]
fn a_broken_sector_reads_as_an_error_until_it_is_overwritten() {
    let disk = disk();
    disk.write_file("a", vec![7; 2048]).expect("planted");
    disk.break_sectors("a", 600..601).expect("it is there");
    single_with(disk, 1, |env| async move {
        let file = open(&env, "a").await;
        assert_eq!(file.read_at(vec![0; 512], 0).await.0.expect("another sector"), 512);
        assert_eq!(file.read_at(vec![0; 1], 1023).await.0.expect_err("broken").raw_os_error(), Some(EIO));
        file.write_at(vec!["x".into()], 700).await.expect_err("needs the rest of the sector");
        file.write_at(vec![vec![8; 512].into()], 512).await.expect("overwritten");
        assert_eq!(file.read_at(vec![0; 2048], 0).await.0.expect("mended"), 2048);
    });
}

#[test]
fn flipped_bits_are_read_and_survive_everything() {
    let disk = disk();
    disk.write_file("d/a", vec![0; 100]).expect("planted");
    disk.flip_bit("d/a", 3, 0).expect("it is there");
    disk.flip_bits("d/a", 50..60, 5, 9).expect("it is there");
    disk.power_loss(1);
    let bytes = disk.read_cached("d/a").expect("it is there");
    assert_eq!(bytes[3], 1);
    assert!(bytes[50..60].iter().any(|byte| *byte != 0));
    assert_eq!(bytes.iter().filter(|byte| **byte != 0).count() - 1, bytes[50..60].iter().filter(|b| **b != 0).count());
}

/// The device says Ok and the page cache agrees; the medium does not.
#[test]
fn lost_and_misdirected_writes_show_when_the_cache_lets_go() {
    for misdirected in [false, true] {
        let disk = disk();
        disk.write_file("a", vec![b'o'; 4096]).expect("planted");
        let switches = disk.clone();
        single_with(disk.clone(), 1, |env| async move {
            let file = open(&env, "a").await;
            switches.faults(|faults| match misdirected {
                true => faults.misdirected_write = Failing::ALWAYS,
                false => faults.lost_write = Failing::ALWAYS,
            });
            file.write_at(vec![vec![b'n'; 512].into()], 1024).await.expect("says ok");
            file.sync_data().await.expect("says ok");
            assert_eq!(read(&file).await.expect("cached")[1024], b'n');
        });
        assert!(!disk.is_durable("a", 1024..1536));
        disk.drop_caches();
        let bytes = disk.read_cached("a").expect("there");
        let landed: Vec<usize> = (0..8).filter(|sector| bytes[sector * 512] == b'n').collect();
        match misdirected {
            true => assert!(landed.len() == 1 && landed[0] != 2, "{landed:?}"),
            false => assert_eq!(landed, []),
        }
    }
}

#[test]
fn what_is_meant_for_some_files_spares_the_others() {
    let disk = disk();
    let names = ["d/meant", "d/spared"];
    names.iter().for_each(|name| disk.write_file(name, vec![b'o'; 10]).expect("planted"));
    let switches = disk.clone();
    single_with(disk.clone(), 1, move |env| async move {
        switches.faults(|faults| {
            faults.only_in = "/meant".to_owned();
            faults.read = Failing::ALWAYS;
            faults.lost_write = Failing::ALWAYS;
        });
        for name in names {
            let file = open(&env, name).await;
            assert_eq!(read(&file).await.is_err(), name == "d/meant");
            file.write_at(vec!["n".into()], 0).await.expect("says ok");
            file.sync_data().await.expect("says ok");
        }
    });
    disk.drop_caches();
    assert_eq!(names.map(|name| disk.read_cached(name).expect("there")[0]), [b'o', b'n']);
    let counts = disk.counts();
    assert_eq!((counts.failed_reads, counts.lost_writes, counts.errors), (1, 1, 1));
}

#[test]
fn a_full_disk_refuses_writes_and_serves_reads() {
    let disk = disk();
    disk.faults(|faults| faults.capacity = Some(10_000));
    single_with(disk.clone(), 1, |env| async move {
        let file = open(&env, "a").await;
        file.allocate(6_000).await.expect("fits");
        let other = open(&env, "b").await;
        assert_eq!(env.disk().free_bytes().await.expect("free"), 4_000);
        let refused = other.append(vec![vec![1; 5_000].into()]).await.expect_err("does not fit");
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        other.append(vec![vec![1; 4_000].into()]).await.expect("fits");
        assert_eq!(env.disk().free_bytes().await.expect("free"), 0);
        let refused = env.disk().open("c", OpenMode::CreateNew).await.err().expect("no room for a file");
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        file.write_at(vec![vec![2; 6_000].into()], 0).await.expect("was reserved");
        assert_eq!(read(&other).await.expect("reads work").len(), 4_000);
        env.disk().remove("b").await.expect("removing works");
        assert_eq!(env.disk().free_bytes().await.expect("free"), 0, "still open");
        drop(other);
        assert_eq!(env.disk().free_bytes().await.expect("free"), 4_000);
    });
    assert_eq!(disk.counts().full, 2);
}

#[test]
fn a_stalled_disk_answers_once_it_is_released() {
    let disk = disk();
    let switches = disk.clone();
    single_with(disk, 1, |env| async move {
        let file = open(&env, "a").await;
        switches.stall();
        let inner = file.clone();
        let task = env.spawn("write", async move { inner.append(vec!["x".into()]).await });
        env.sleep(Duration::from_secs(60)).await;
        assert!(file.try_read_at(&mut [0], 0).is_none());
        switches.release();
        assert_eq!(task.await.expect("ends").expect("healthy"), 0);
        assert_eq!(read(&file).await.expect("healthy"), b"x");
    });
}

#[test]
fn a_slow_disk_is_slower() {
    let took = |factor| {
        let disk = disk();
        disk.faults(|faults| {
            faults.latency = Latency { instant_percent: 0, ms_min: 2, ms_max: 2 };
            faults.slow_factor = factor;
        });
        single_with(disk, 1, |env| async move {
            let before = env.now();
            let file = open(&env, "a").await;
            file.append(vec!["x".into()]).await.expect("healthy");
            file.sync_data().await.expect("healthy");
            env.now().since(before)
        })
    };
    assert_eq!(took(1), Duration::from_millis(6));
    assert_eq!(took(100), Duration::from_millis(600));
}

#[test]
fn a_read_at_once_answers_now_and_then() {
    single(1, |env| async move {
        let file = open(&env, "a").await;
        file.append(vec!["abc".into()]).await.expect("healthy");
        let mut answers = [0; 2];
        for _ in 0..100 {
            let mut buffer = [0; 3];
            match file.try_read_at(&mut buffer, 0) {
                Some(count) => {
                    assert_eq!((count.expect("healthy"), &buffer), (3, b"abc"));
                    answers[0] += 1;
                }
                None => answers[1] += 1,
            }
        }
        assert!(answers.iter().all(|count| *count > 20), "{answers:?}");
    });
}

/// A flush covers what was complete when it was asked for: a write under way beside it may miss it.
#[test]
fn durable_means_covered_by_a_flush_and_by_name() {
    let disk = disk();
    let view = disk.clone();
    single_with(disk, 1, |env| async move {
        let file = open(&env, "a").await;
        file.append(vec!["abc".into()]).await.expect("healthy");
        assert!(!view.is_durable("a", 0..3));
        file.sync_data().await.expect("healthy");
        assert!(!view.is_durable("a", 0..3), "its name is not");
        env.disk().sync_dir("").await.expect("healthy");
        assert!(view.is_durable("a", 0..3));
        assert_eq!(view.read_durable("a"), Some(b"abc".to_vec()));
        file.append(vec!["def".into()]).await.expect("healthy");
        assert!(view.is_durable("a", 0..3) && !view.is_durable("a", 3..6));
        file.truncate(2).await.expect("healthy");
        assert!(view.is_durable("a", 0..2) && !view.is_durable("a", 0..3));
    });
}

/// Atomic replacement as everybody writes it: at whatever operation the machine dies, the file is the old or the new one.
#[test]
fn replacing_a_file_by_write_sync_rename_sync_is_atomic_at_every_crash_point() {
    async fn replace(env: Env) -> std::io::Result<()> {
        let temporary = env.disk().open("tmp", OpenMode::Create).await?;
        temporary.truncate(0).await?;
        temporary.write_at(vec![vec![b'n'; 3000].into()], 0).await?;
        temporary.sync_data().await?;
        env.disk().rename("tmp", "a").await?;
        env.disk().sync_dir("").await
    }
    let mut outcomes = BTreeSet::new();
    let mut points = 0;
    for seed in 0..100 {
        for point in 0.. {
            let disk = DiskState::new(seed, "test");
            disk.write_file("a", vec![b'o'; 2000]).expect("planted");
            let ended = single_crashing(disk.clone(), seed, point, replace);
            disk.power_loss(seed);
            let bytes = disk.read_cached("a").expect("never neither");
            assert!(bytes == vec![b'o'; 2000] || bytes == vec![b'n'; 3000], "seed {seed}, operation {point}");
            outcomes.insert((point, bytes[0]));
            if let Some(result) = ended {
                result.expect("healthy");
                assert_eq!(bytes[0], b'n', "acknowledged");
                points = point;
                break;
            }
        }
    }
    assert_eq!(points, 6);
    for point in 0..4 {
        assert!(outcomes.contains(&(point, b'o')) && !outcomes.contains(&(point, b'n')), "{outcomes:?}");
    }
    assert!(outcomes.contains(&(5, b'o')) && outcomes.contains(&(5, b'n')), "{outcomes:?}");
}
