//! What a power loss may leave, promise by promise: over many seeds every allowed outcome occurs and no other does.

use super::super::{single_crashing, single_with};
use super::*;
use crate::Env;
use std::collections::BTreeSet;
use std::future::Future;

const SEEDS: u64 = 300;

/// Runs `before` on an empty disk, loses power in many ways, and gives what `after` sees of each.
fn outcomes<T, F>(before: impl Fn(Env) -> F, after: impl Fn(&DiskState) -> T) -> BTreeSet<T>
where
    T: Ord,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let disk = DiskState::new(1, "test");
    single_with(disk.clone(), 1, before).expect("a healthy disk");
    let lost = |seed| {
        let fork = disk.fork(seed);
        fork.power_loss(seed);
        after(&fork)
    };
    (0..SEEDS).map(lost).collect()
}

fn names(disk: &DiskState) -> Vec<String> {
    disk.files().into_iter().map(|(path, _)| path).collect()
}

async fn write(env: &Env, path: &str, bytes: &'static [u8]) -> io::Result<Arc<dyn crate::File>> {
    let file = env.disk().open(path, OpenMode::Create).await?;
    file.write_at(vec![Bytes::from_static(bytes)], 0).await?;
    Ok(file)
}

async fn synced(env: &Env, path: &str, bytes: &'static [u8]) -> io::Result<Arc<dyn crate::File>> {
    let file = write(env, path, bytes).await?;
    file.sync_data().await?;
    env.disk().sync_dir("").await?;
    Ok(file)
}

#[test]
fn synced_bytes_of_a_synced_name_survive() {
    let before = |env: Env| async move { synced(&env, "a", b"kept").await.map(drop) };
    let after = |disk: &DiskState| disk.read_cached("a");
    assert_eq!(outcomes(before, after), BTreeSet::from([Some(b"kept".to_vec())]));
}

#[test]
fn a_created_file_may_vanish_until_its_folder_is_synced() {
    let before = |env: Env| async move { write(&env, "a", b"x").await?.sync_data().await };
    let after = |disk: &DiskState| disk.read_cached("a");
    assert_eq!(outcomes(before, after), BTreeSet::from([None, Some(b"x".to_vec())]));
}

#[test]
fn creations_are_undone_independently() {
    let before = |env: Env| async move {
        write(&env, "a", b"x").await?;
        write(&env, "b", b"x").await.map(drop)
    };
    let seen = outcomes(before, names);
    let all: [&[&str]; 4] = [&[], &["a"], &["a", "b"], &["b"]];
    assert_eq!(seen, all.iter().map(|names| names.iter().map(|name| name.to_string()).collect()).collect());
}

#[test]
fn a_file_in_a_lost_folder_is_lost() {
    let before = |env: Env| async move {
        env.disk().create_dir("d/e").await?;
        let file = write(&env, "d/e/a", b"x").await?;
        file.sync_data().await?;
        env.disk().sync_dir("d/e").await?;
        env.disk().sync_dir("d").await
    };
    let after = |disk: &DiskState| disk.read_cached("d/e/a");
    assert_eq!(outcomes(before, after), BTreeSet::from([None, Some(b"x".to_vec())]));
}

#[test]
fn a_replaced_name_is_the_old_or_the_new_file_never_neither() {
    let before = |env: Env| async move {
        synced(&env, "a", b"old").await?;
        synced(&env, "tmp", b"new").await?;
        env.disk().rename("tmp", "a").await
    };
    let after = |disk: &DiskState| (disk.read_cached("a").map(|a| a[0]), disk.read_cached("tmp").map(|tmp| tmp[0]));
    assert_eq!(outcomes(before, after), BTreeSet::from([(Some(b'o'), Some(b'n')), (Some(b'n'), None)]));
}

#[test]
fn a_rename_is_final_once_the_folder_is_synced_but_its_content_is_not() {
    let before = |env: Env| async move {
        synced(&env, "a", b"old").await?;
        write(&env, "tmp", b"new").await?;
        env.disk().rename("tmp", "a").await?;
        env.disk().sync_dir("").await
    };
    let seen = outcomes(before, |disk| (disk.read_cached("a").expect("synced"), names(disk).len()));
    assert!(seen.contains(&(Vec::new(), 1)), "{seen:?}");
    assert!(seen.contains(&(b"new".to_vec(), 1)), "{seen:?}");
    assert!(!seen.contains(&(b"old".to_vec(), 1)), "{seen:?}");
}

#[test]
fn a_removal_may_be_undone_until_the_folder_is_synced() {
    let removed = |env: Env| async move {
        synced(&env, "a", b"x").await?;
        env.disk().remove("a").await
    };
    assert_eq!(outcomes(removed, |disk| names(disk).len()), BTreeSet::from([0, 1]));
    let and_synced = move |env: Env| async move {
        removed(env.clone()).await?;
        env.disk().sync_dir("").await
    };
    assert_eq!(outcomes(and_synced, |disk| names(disk).len()), BTreeSet::from([0]));
}

#[test]
fn a_renamed_file_is_never_lost_between_two_folders() {
    let before = |env: Env| async move {
        env.disk().create_dir("d").await?;
        synced(&env, "a", b"x").await?;
        env.disk().rename("a", "d/a").await
    };
    let seen = outcomes(before, names);
    assert_eq!(seen, BTreeSet::from([vec!["a".to_owned()], vec!["d/a".to_owned()]]));
}

/// Three sectors are overwritten without a flush. Each of them is old, new or garbage, on its own.
#[test]
fn each_unsynced_sector_is_old_or_new_or_garbage() {
    static OLD: [u8; 1536] = [b'o'; 1536];
    static NEW: [u8; 1536] = [b'n'; 1536];
    let before = |env: Env| async move {
        let file = synced(&env, "a", &OLD).await?;
        file.write_at(vec![Bytes::from_static(&NEW)], 0).await
    };
    let kind = |sector: &[u8]| match sector {
        _ if sector.iter().all(|byte| *byte == b'o') => 'o',
        _ if sector.iter().all(|byte| *byte == b'n') => 'n',
        _ => '?',
    };
    let after = |disk: &DiskState| disk.read_cached("a").expect("synced").chunks(512).map(kind).collect::<String>();
    let seen = outcomes(before, after);
    for outcome in ["ooo", "nnn", "noo", "ono", "oon", "nno", "non", "onn"] {
        assert!(seen.contains(outcome), "{outcome} of {seen:?}");
    }
    assert!(seen.iter().any(|outcome| outcome.contains('?')), "{seen:?}");
}

/// Two appends share a sector with synced bytes: those are safe, and the second append never stands without the first.
#[test]
fn appends_in_one_sector_tear_in_order_and_leave_synced_bytes_alone() {
    let before = |env: Env| async move {
        let file = synced(&env, "a", b"safe").await?;
        file.append(vec![Bytes::from_static(b"11")]).await?;
        file.append(vec![Bytes::from_static(b"22")]).await.map(drop)
    };
    let seen = outcomes(before, |disk| disk.read_cached("a").expect("synced"));
    assert!(seen.iter().all(|bytes| bytes.starts_with(b"safe")), "{seen:?}");
    for outcome in [&b"safe"[..], b"safe11", b"safe1122", b"safe\0\0\0\0"] {
        assert!(seen.contains(outcome), "{outcome:?} of {seen:?}");
    }
    assert!(!seen.contains(&b"safe\x00\x0022"[..]), "{seen:?}");
    assert!(seen.iter().all(|bytes| [4, 6, 8].contains(&bytes.len())), "{seen:?}");
}

#[test]
fn a_truncation_takes_place_or_not_until_it_is_flushed() {
    let cut = |env: Env| async move {
        let file = synced(&env, "a", b"0123456789").await?;
        file.truncate(4).await
    };
    let seen = outcomes(cut, |disk| disk.read_cached("a").expect("synced"));
    assert_eq!(seen, BTreeSet::from([b"0123".to_vec(), b"0123456789".to_vec()]));
    let cut_and_grown = move |env: Env| async move {
        cut(env.clone()).await?;
        let file = env.disk().open("a", OpenMode::Write).await?;
        file.truncate(6).await?;
        file.sync_data().await
    };
    let seen = outcomes(cut_and_grown, |disk| disk.read_cached("a").expect("synced"));
    assert_eq!(seen, BTreeSet::from([b"0123\0\0".to_vec()]));
}

#[test]
fn a_failed_flush_followed_by_a_good_one_has_lost_the_data() {
    let disk = DiskState::new(1, "test");
    let switches = disk.clone();
    single_with(disk.clone(), 1, |env| async move {
        let file = synced(&env, "a", b"old").await.expect("healthy");
        file.write_at(vec![Bytes::from_static(b"new")], 0).await.expect("healthy");
        switches.faults(|faults| faults.sync = Failing::NEXT);
        file.sync_data().await.expect_err("told once");
        file.sync_data().await.expect("and never again");
    });
    assert_eq!(disk.read_cached("a"), Some(b"new".to_vec()), "reads still show it");
    assert!(!disk.is_durable("a", 0..3));
    disk.power_loss(1);
    assert_eq!(disk.read_cached("a"), Some(b"old".to_vec()));
}

#[test]
fn a_failed_folder_flush_followed_by_a_good_one_has_lost_the_name() {
    let disk = DiskState::new(1, "test");
    let switches = disk.clone();
    single_with(disk.clone(), 1, |env| async move {
        write(&env, "a", b"x").await.expect("healthy").sync_data().await.expect("healthy");
        switches.faults(|faults| faults.sync = Failing::NEXT);
        env.disk().sync_dir("").await.expect_err("told once");
        env.disk().sync_dir("").await.expect("and never again");
    });
    assert_eq!(names(&disk), ["a"]);
    disk.power_loss(1);
    assert_eq!(names(&disk), [] as [&str; 0]);
}

#[test]
fn a_process_crash_keeps_what_has_completed() {
    let disk = DiskState::new(1, "test");
    single_with(disk.clone(), 1, |env| async move { write(&env, "a", b"kept").await.map(drop) }).expect("healthy");
    disk.process_crash();
    assert_eq!(disk.read_cached("a"), Some(b"kept".to_vec()));
}

#[test]
fn what_is_in_flight_at_a_process_crash_happens_in_whole_or_part_or_not() {
    static BYTES: [u8; 1024] = [b'n'; 1024];
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let disk = DiskState::new(seed, "test");
        let crashed =
            single_crashing(disk.clone(), seed, 1, |env| async move { write(&env, "a", &BYTES).await.map(drop) });
        assert!(crashed.is_none(), "crashed in the write");
        seen.insert(disk.read_cached("a").expect("created").len());
    }
    assert_eq!(seen, BTreeSet::from([0, 512, 1024]));
}

#[test]
fn the_boot_id_changes_with_power_and_not_with_processes() {
    let disk = DiskState::new(1, "test");
    let first = disk.boot_id();
    disk.process_crash();
    assert_eq!(disk.boot_id(), first);
    disk.power_loss(1);
    assert_ne!(disk.boot_id(), first);
}
