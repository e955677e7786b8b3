//! Promises of [`Disk`](crate::Disk).

use super::{Check, Context, checks, join, read_all, write};
use crate::disk::{DirEntry, OpenMode};
use std::io::ErrorKind;

pub(super) const CHECKS: &[(&str, Check)] = checks![
    open_modes_differ_in_what_they_need,
    a_folder_is_no_file,
    folders_are_made_with_their_parents,
    folders_are_removed_with_their_contents,
    lists_are_in_byte_order,
    rename_replaces,
    removed_files_stay_readable,
    many_files_at_once,
    a_lock_excludes_until_dropped,
    paths_stay_inside_the_data_folder,
    the_disk_tells_about_itself,
];

async fn kind_of_open(c: &Context, path: &str, mode: OpenMode) -> Option<ErrorKind> {
    c.env.disk().open(path, mode).await.err().map(|error| error.kind())
}

async fn open_modes_differ_in_what_they_need(c: Context) {
    c.empty_folder("modes").await;
    for mode in [OpenMode::Read, OpenMode::Write] {
        assert_eq!(kind_of_open(&c, "modes/a", mode).await, Some(ErrorKind::NotFound), "absent, {mode:?}");
    }
    let file = c.open("modes/a", OpenMode::Create).await;
    assert_eq!(file.len().await.expect("len"), 0, "a new file is empty");
    write(&file, 0, "kept").await;
    assert_eq!(kind_of_open(&c, "modes/a", OpenMode::CreateNew).await, Some(ErrorKind::AlreadyExists));
    for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Create] {
        assert_eq!(read_all(&c.open("modes/a", mode).await).await, b"kept", "{mode:?} keeps what is there");
    }
    c.open("modes/b", OpenMode::CreateNew).await;
    for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Create, OpenMode::CreateNew] {
        assert_eq!(kind_of_open(&c, "modes/no/a", mode).await, Some(ErrorKind::NotFound), "no folder, {mode:?}");
    }
}

async fn a_folder_is_no_file(c: Context) {
    c.empty_folder("folder").await;
    c.env.disk().create_dir("folder/a").await.expect("create a folder");
    for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Create, OpenMode::CreateNew] {
        assert!(kind_of_open(&c, "folder/a", mode).await.is_some(), "opened a folder, {mode:?}");
    }
    c.env.disk().remove("folder/a").await.expect_err("remove a folder as a file");
    c.open("folder/file", OpenMode::CreateNew).await;
    c.env.disk().create_dir("folder/file").await.expect_err("a folder in a file's place");
    assert_eq!(names(&c, "folder").await, ["a/", "file"]);
}

async fn folders_are_made_with_their_parents(c: Context) {
    c.empty_folder("make").await;
    let disk = c.env.disk();
    disk.create_dir("make/a/b/c").await.expect("create with parents");
    disk.create_dir("make/a/b/c").await.expect("create again");
    disk.create_dir("make/a").await.expect("create a parent again");
    c.open("make/a/b/c/file", OpenMode::CreateNew).await;
    disk.create_dir("make/a/b/c").await.expect("create one with contents again");
    assert_eq!(names(&c, "make/a/b/c").await, ["file"]);
    for path in ["make", "make/a", "make/a/b", "make/a/b/c"] {
        disk.sync_dir(path).await.expect("flush a folder");
    }
    assert_eq!(disk.sync_dir("make/none").await.expect_err("no such folder").kind(), ErrorKind::NotFound);
}

async fn folders_are_removed_with_their_contents(c: Context) {
    c.empty_folder("unmake").await;
    let disk = c.env.disk();
    disk.create_dir("unmake/a/b").await.expect("create");
    disk.create_dir("unmake/ab").await.expect("create");
    c.open("unmake/a/file", OpenMode::CreateNew).await;
    c.open("unmake/a/b/file", OpenMode::CreateNew).await;
    disk.remove_dir("unmake/a").await.expect("remove with contents");
    disk.remove_dir("unmake/a").await.expect("remove again");
    assert_eq!(names(&c, "unmake").await, ["ab/"]);
    assert_eq!(kind_of_open(&c, "unmake/a/b/file", OpenMode::Read).await, Some(ErrorKind::NotFound));
    disk.create_dir("unmake/a").await.expect("create again");
    assert!(names(&c, "unmake/a").await.is_empty(), "a folder made anew is empty");
}

async fn lists_are_in_byte_order(c: Context) {
    c.empty_folder("list").await;
    let disk = c.env.disk();
    assert!(disk.list("list").await.expect("list").is_empty());
    let files = ["b", "a", "B", "a.b", "a-b", "ab", "10", "9", "ä", "_"];
    for name in files {
        c.open(&format!("list/{name}"), OpenMode::CreateNew).await;
    }
    disk.create_dir("list/a+/deeper").await.expect("create");
    let mut expected: Vec<DirEntry> = files.map(|name| DirEntry { name: name.into(), is_dir: false }).into();
    expected.push(DirEntry { name: "a+".into(), is_dir: true });
    expected.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    assert_eq!(disk.list("list").await.expect("list"), expected);
    assert_eq!(disk.list("list/none").await.expect_err("no such folder").kind(), ErrorKind::NotFound);
    let root = disk.list("").await.expect("list the data folder");
    assert!(root.contains(&DirEntry { name: "list".into(), is_dir: true }), "{root:?}");
}

/// `name/` for a folder, `name` for a file.
async fn names(c: &Context, path: &str) -> Vec<String> {
    let entries = c.env.disk().list(path).await.expect("list");
    entries.into_iter().map(|entry| entry.name + if entry.is_dir { "/" } else { "" }).collect()
}

async fn rename_replaces(c: Context) {
    c.empty_folder("rename").await;
    let disk = c.env.disk();
    disk.create_dir("rename/other").await.expect("create");
    let old = c.open("rename/to", OpenMode::CreateNew).await;
    write(&old, 0, "old").await;
    let new = c.open("rename/from", OpenMode::CreateNew).await;
    write(&new, 0, "new").await;
    disk.rename("rename/from", "rename/to").await.expect("rename onto a file");
    assert_eq!(read_all(&c.open("rename/to", OpenMode::Read).await).await, b"new");
    assert_eq!(kind_of_open(&c, "rename/from", OpenMode::Read).await, Some(ErrorKind::NotFound));
    assert_eq!(read_all(&old).await, b"old", "a handle on the replaced file");
    write(&new, 3, "er").await;
    disk.rename("rename/to", "rename/other/name").await.expect("rename into another folder");
    assert_eq!(read_all(&c.open("rename/other/name", OpenMode::Read).await).await, b"newer", "written while renamed");
    disk.rename("rename/other", "rename/moved").await.expect("rename a folder");
    assert_eq!(names(&c, "rename").await, ["moved/"]);
    assert_eq!(names(&c, "rename/moved").await, ["name"]);
    let missing = disk.rename("rename/none", "rename/x").await.expect_err("rename what is absent");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let missing = disk.rename("rename/moved/name", "rename/none/x").await.expect_err("rename into no folder");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

async fn removed_files_stay_readable(c: Context) {
    let file = c.new_file("remove").await;
    write(&file, 0, "abc").await;
    c.env.disk().remove("remove/file").await.expect("remove");
    assert!(names(&c, "remove").await.is_empty());
    assert_eq!(c.env.disk().remove("remove/file").await.expect_err("removed").kind(), ErrorKind::NotFound);
    assert_eq!(read_all(&file).await, b"abc", "an open handle");
    let anew = c.open("remove/file", OpenMode::CreateNew).await;
    write(&anew, 0, "new").await;
    assert_eq!(read_all(&file).await, b"abc", "an open handle beside a new file of that name");
}

async fn many_files_at_once(c: Context) {
    c.empty_folder("files").await;
    let tasks = (0..100u8).map(|i| {
        let c = c.clone();
        c.env.clone().spawn("file", async move {
            let temporary = c.open(&format!("files/{i}.tmp"), OpenMode::CreateNew).await;
            write(&temporary, 0, vec![i; 100]).await;
            temporary.sync_data().await.expect("flush");
            let disk = c.env.disk();
            disk.rename(&format!("files/{i}.tmp"), &format!("files/{i}")).await.expect("rename");
            disk.sync_dir("files").await.expect("flush the folder");
        })
    });
    join(tasks.collect()).await;
    assert_eq!(names(&c, "files").await.len(), 100);
    for i in 0..100u8 {
        assert_eq!(read_all(&c.open(&format!("files/{i}"), OpenMode::Read).await).await, vec![i; 100]);
    }
}

async fn a_lock_excludes_until_dropped(c: Context) {
    c.empty_folder("lock").await;
    let disk = c.env.disk();
    let held = disk.lock("lock/LOCK").await.expect("take the lock");
    let refused = disk.lock("lock/LOCK").await.expect_err("the lock is held");
    assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused}");
    let other = disk.lock("lock/OTHER").await.expect("another lock");
    drop(held);
    let again = disk.lock("lock/LOCK").await.expect("the lock was dropped");
    assert_eq!(disk.lock("lock/LOCK").await.expect_err("held again").kind(), ErrorKind::WouldBlock);
    drop((again, other));
}

async fn paths_stay_inside_the_data_folder(c: Context) {
    c.empty_folder("paths").await;
    let disk = c.env.disk();
    for path in ["/x", "../x", "paths/../x", "paths/..", "..", "/", "paths//x", "paths/", "./x", "paths/./x", "a\0b"] {
        for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Create, OpenMode::CreateNew] {
            assert_eq!(kind_of_open(&c, path, mode).await, Some(ErrorKind::InvalidInput), "open {path:?} as {mode:?}");
        }
        let results = [
            ("create_dir", disk.create_dir(path).await.err()),
            ("remove", disk.remove(path).await.err()),
            ("remove_dir", disk.remove_dir(path).await.err()),
            ("rename from", disk.rename(path, "paths/x").await.err()),
            ("rename to", disk.rename("paths/x", path).await.err()),
            ("list", disk.list(path).await.err()),
            ("sync_dir", disk.sync_dir(path).await.err()),
            ("lock", disk.lock(path).await.err()),
        ];
        for (verb, error) in results {
            assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::InvalidInput), "{verb} {path:?}");
        }
    }
    // The data folder itself can be listed and flushed, and nothing else.
    assert_eq!(kind_of_open(&c, "", OpenMode::Create).await, Some(ErrorKind::InvalidInput));
    for error in
        [disk.remove("").await, disk.remove_dir("").await, disk.rename("", "x").await, disk.rename("x", "").await]
    {
        assert_eq!(error.expect_err("the data folder").kind(), ErrorKind::InvalidInput);
    }
}

async fn the_disk_tells_about_itself(c: Context) {
    let disk = c.env.disk();
    assert!(disk.free_bytes().await.expect("free bytes") > 0);
    assert_eq!(disk.boot_id(), disk.boot_id(), "one boot, one id");
    assert_ne!(disk.boot_id(), 0);
    assert!(!disk.backend().is_empty());
}
