//! What the production backend promises beyond the contract: errors that name their file, locks between processes, panics
//! that are reported, files of the command line; and both engines under drops at random.

// These tests look at the world from outside.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use env::real::{self, IoChoice, Options};
use env::{Disk, Env, File, OpenMode};
use std::future::Future;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::task::Poll;

/// Runs `test` on each engine that the kernel allows, in a new data folder.
fn on_each_engine<F: Future<Output = ()>>(test: impl Fn(Env, PathBuf) -> F) {
    for io in [IoChoice::IoUring, IoChoice::Threads] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("canonical");
        real::runtime().expect("a runtime").block_on(async {
            match open(&root, io) {
                Err(error) if io == IoChoice::IoUring => println!("skipped, the kernel refuses io_uring: {error}"),
                env => test(env.expect("open"), root).await,
            }
        });
    }
}

fn open(data_dir: &Path, io: IoChoice) -> std::io::Result<Env> {
    real::open(Options { data_dir: data_dir.to_owned(), node: "real-1".into(), io })
}

/// As in a container whose system-call filter knows no io_uring.
#[cfg(target_os = "linux")]
#[test]
fn a_kernel_that_refuses_io_uring_gets_threads() {
    use seccompiler::{SeccompAction, SeccompFilter};
    const IO_URING_SETUP: i64 = 425;
    const EPERM: u32 = 1;
    // The filter holds for this thread and those that it starts.
    std::thread::spawn(|| {
        let arch = std::env::consts::ARCH.try_into().expect("a processor that the filter knows");
        let rules = [(IO_URING_SETUP, Vec::new())].into_iter().collect();
        let filter =
            SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(EPERM), arch).expect("a filter");
        let program: seccompiler::BpfProgram = filter.try_into().expect("it compiles");
        seccompiler::apply_filter(&program).expect("the kernel takes it");

        let folder = tempfile::tempdir().expect("a temporary folder");
        real::runtime().expect("a runtime").block_on(async {
            let refused = open(folder.path(), IoChoice::IoUring).expect_err("io_uring was asked for");
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
            let env = open(folder.path(), IoChoice::Auto).expect("threads do as well");
            assert_eq!(env.disk().backend(), "threads");
            let file = env.disk().open("file", OpenMode::Create).await.expect("open");
            file.write_and_sync(vec!["written".into()], 0).await.expect("write");
            let (read, buffer) = file.read_at(vec![0; 7], 0).await;
            assert_eq!((read.expect("read"), &buffer[..]), (7, &b"written"[..]));
        });
    })
    .join()
    .expect("the test thread");
}

#[test]
fn errors_name_what_was_tried_and_keep_their_kind() {
    on_each_engine(|env, root| async move {
        let (disk, root) = (env.disk(), root.display());
        let error = disk.open("a/b", OpenMode::Read).await.err().expect("absent");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(error.to_string(), format!("open {root}/a/b: No such file or directory (os error 2)"));
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<std::io::Error>());
        assert_eq!(source.and_then(|source| source.raw_os_error()), Some(2), "the kernel's own error below it");
        for (error, start) in [
            (disk.rename("a", "b").await.err(), format!("rename {root}/a to {root}/b: ")),
            (disk.remove("a").await.err(), format!("remove {root}/a: ")),
            (disk.list("a").await.err(), format!("list {root}/a: ")),
            (disk.sync_dir("a").await.err(), format!("flush folder {root}/a: ")),
        ] {
            let error = error.expect("absent");
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().starts_with(&start), "{error}");
        }
        let refused = env.net().connect("127.0.0.1:1").await.err().expect("nobody listens there");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(refused.to_string().starts_with("connect to 127.0.0.1:1: "), "{refused}");
    });
}

#[test]
fn a_full_device_is_told_from_other_errors() {
    on_each_engine(|env, root| async move {
        std::os::unix::fs::symlink("/dev/full", root.join("full")).expect("link");
        let file = env.disk().open("full", OpenMode::Write).await.expect("open");
        let error = file.write_at(vec!["abc".into()], 0).await.expect_err("a full device");
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        assert!(error.to_string().starts_with(&format!("write {}/full: ", root.display())), "{error}");
        for _ in 0..3 {
            let error = file.append(vec!["abc".into(), "def".into()]).await.expect_err("a full device");
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        }
    });
}

#[test]
fn a_diskless_node_has_a_world_without_files() {
    real::runtime().expect("a runtime").block_on(async {
        let env = real::open_diskless("client-1".into());
        assert_eq!(env.disk().open("a", OpenMode::Create).await.err().expect("no disk").kind(), ErrorKind::Unsupported);
        assert_eq!(env.spawn("task", async { Env::current().node().to_owned() }).await, Ok("client-1".into()));
        let mut listener = env.net().listen("127.0.0.1:0").await.expect("listen");
        let address = listener.local_address();
        let accepting = env.spawn("accept", async move { listener.accept().await.is_ok() });
        env.net().connect(&address).await.expect("connect");
        assert_eq!(accepting.await, Ok(true));
    });
}

#[test]
fn the_boot_is_the_same_for_every_node() {
    let ids = Mutex::new(Vec::new());
    on_each_engine(|env, _| {
        ids.lock().expect("lock").push(env.disk().boot_id());
        async {}
    });
    let ids = ids.into_inner().expect("lock");
    assert!(ids.iter().all(|id| *id == ids[0] && *id != 0), "{ids:?}");
}

/// Not a test of its own: the process that [`a_lock_ends_with_its_process`] starts.
#[test]
fn hold_a_lock() {
    let Some(root) = std::env::var_os("HOLD_A_LOCK_IN") else { return };
    real::runtime().expect("a runtime").block_on(async {
        let env = open(Path::new(&root), IoChoice::Threads).expect("open");
        let _held = env.disk().lock("LOCK").await.expect("take the lock");
        println!("\nheld");
        std::io::stdout().flush().expect("flush");
        std::future::pending::<()>().await;
    });
}

fn lock_in_another_process(root: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "hold_a_lock", "--nocapture"]).env("HOLD_A_LOCK_IN", root).stdout(Stdio::piped());
    let mut child = command.spawn().expect("start a process");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    assert!(output.lines().any(|line| line.expect("read") == "held"), "the other process did not take the lock");
    child
}

#[test]
fn a_lock_ends_with_its_process() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().canonicalize().expect("canonical");
    real::runtime().expect("a runtime").block_on(async {
        let env = open(&root, IoChoice::Threads).expect("open");
        let mut child = lock_in_another_process(&root);
        let refused = env.disk().lock("LOCK").await.expect_err("another process has it");
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let holder = format!("{} is in use by process {} ", root.display(), child.id());
        assert!(refused.to_string().starts_with(&holder), "{refused}");
        child.kill().expect("kill");
        child.wait().expect("wait");
        env.disk().lock("LOCK").await.expect("the holder is dead");
    });
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("lock").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_panic_ends_its_task_alone_and_is_logged_with_its_name() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let folder = tempfile::tempdir().expect("a temporary folder");
    // One thread, on which the subscriber is set.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async {
            let env = open(folder.path(), IoChoice::Threads).expect("open");
            let count = 41;
            let task = env.spawn("compact-17", async move { assert_eq!(count, 42, "the count") });
            assert_eq!(task.await, Err(env::TaskGone));
            assert_eq!(env.spawn("other", async { 1 }).await, Ok(1));
        });
    });
    let text = String::from_utf8(log.0.lock().expect("lock").clone()).expect("text");
    assert!(text.contains("ERROR") && text.contains("task panicked") && text.contains("the count"), "{text}");
    assert!(text.contains("task=\"compact-17\""), "{text}");
}

#[test]
fn user_files_are_written_as_a_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("ready");
    for content in ["first", "second, longer", ""] {
        real::write_user_file(&path, content.as_bytes()).expect("write");
        assert_eq!(real::read_user_file(&path).expect("read"), content);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("list").count(), 1, "no temporary file is left");

    let mut output = real::user_output(Some(&path)).expect("create");
    output.write_all(b"exported").expect("write");
    output.flush().expect("flush");
    let mut text = String::new();
    real::user_input(Some(&path)).expect("open").read_to_string(&mut text).expect("read");
    assert_eq!(text, "exported");
    assert_eq!(real::user_input_len(Some(&path)), Some(8));
    assert_eq!((real::user_input_len(Some(folder.path())), real::user_input_len(None)), (None, None));

    let missing = folder.path().join("no").join("file");
    for error in [
        real::read_user_file(&missing).expect_err("no folder"),
        real::write_user_file(&missing, b"").expect_err("no folder"),
        real::user_input(Some(&missing)).err().expect("no folder"),
        real::user_output(Some(&missing)).err().expect("no folder"),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
    }
    assert_eq!(real::write_user_file(Path::new("/"), b"").expect_err("no name").kind(), ErrorKind::InvalidInput);
}

const FILES: usize = 24;
const BLOCK: usize = 3_000;
const BLOCKS: u64 = 20;

/// Many tasks on files of their own, far more operations at once than a ring holds; futures are dropped at once, after a
/// poll or never, handles in between. Every byte comes from the file's start or from a write made to its block.
#[test]
fn drops_at_random_leave_every_file_explicable() {
    on_each_engine(|env, _| async move {
        let tasks: Vec<_> = (0..FILES).map(|i| env.spawn("stress", stress(env.disk().clone(), i))).collect();
        for task in tasks {
            task.await.expect("a file that cannot be explained, see above");
        }
    });
}

async fn stress(disk: Arc<dyn Disk>, number: usize) {
    let path = format!("file-{number}");
    let mut chances = number as u64 + 1;
    let mut below = |bound: u64| {
        chances = chances.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (chances >> 33) % bound
    };
    let mut file = disk.open(&path, OpenMode::CreateNew).await.expect("create");
    file.truncate(BLOCKS * BLOCK as u64).await.expect("truncate");
    // For each block the marks it may hold.
    let mut marks = vec![vec![0u8]; BLOCKS as usize];
    for mark in 1..=120u8 {
        let block = below(BLOCKS);
        let offset = block * BLOCK as u64;
        let halves = vec![vec![mark; BLOCK / 2].into(), vec![mark; BLOCK - BLOCK / 2].into()];
        match below(6) {
            0 | 1 => {
                file.write_at(halves, offset).await.expect("write");
                // The older marks stay: a write dropped before may be under way still, and land after this one.
                marks[block as usize].push(mark);
            }
            2 => poll_and_drop(file.write_at(halves, offset), &mut marks[block as usize], mark).await,
            3 => {
                let reads: Vec<_> =
                    (0..30).map(|i| file.read_at(vec![0; BLOCK], (i % BLOCKS) * BLOCK as u64)).collect();
                drop(reads);
            }
            4 => {
                let (read, bytes) = file.read_at(vec![0xEE; BLOCK], offset).await;
                assert_eq!(read.expect("read"), BLOCK);
                explain(&bytes, &marks[block as usize], &path, block);
            }
            _ => {
                let late = file.read_at(vec![0xEE; BLOCK], offset);
                drop(file);
                file = disk.open(&path, OpenMode::Write).await.expect("open");
                let (read, bytes) = late.await;
                assert_eq!(read.expect("read without its handle"), BLOCK);
                explain(&bytes, &marks[block as usize], &path, block);
            }
        }
    }
    check_all(&file, &marks, &path).await;
}

async fn poll_and_drop(write: env::BoxFuture<'static, std::io::Result<()>>, marks: &mut Vec<u8>, mark: u8) {
    let mut write = write;
    std::future::poll_fn(|context| {
        let _ = write.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
    marks.push(mark);
}

async fn check_all(file: &Arc<dyn File>, marks: &[Vec<u8>], path: &str) {
    assert_eq!(file.len().await.expect("len"), BLOCKS * BLOCK as u64, "{path}");
    for (block, marks) in marks.iter().enumerate() {
        let (read, bytes) = file.read_at(vec![0xEE; BLOCK], block as u64 * BLOCK as u64).await;
        assert_eq!(read.expect("read"), BLOCK);
        explain(&bytes, marks, path, block as u64);
    }
}

fn explain(bytes: &[u8], marks: &[u8], path: &str, block: u64) {
    let odd = bytes.iter().find(|byte| !marks.contains(byte));
    assert!(odd.is_none(), "{path}, block {block} holds {odd:?}, which none of its writes {marks:?} wrote");
}

#[test]
fn a_library_waits_on_any_thread_and_its_tasks_run_on_one_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options { data_dir: folder.path().to_owned(), node: "library".into(), io: IoChoice::Threads };
    let (env, keeper) = env::real::open_own(options).expect("opens");
    let waiting = env.clone();
    let (file, read) = env::real::wait(async move {
        let file = waiting.disk().open("f", OpenMode::Create).await.expect("opens");
        file.write_at(vec![b"ours".to_vec().into()], 0).await.expect("writes");
        let read = file.read_at(vec![0; 4], 0).await.1;
        (file, read)
    });
    assert_eq!(read, b"ours");
    let (sleeping, other) = (env.clone(), file.clone());
    let task = env.spawn("reads", async move {
        sleeping.sleep(std::time::Duration::from_millis(1)).await;
        (std::thread::current().name() == Some("library"), other.read_at(vec![0; 4], 0).await.1)
    });
    assert_eq!(env::real::wait(task), Ok((true, b"ours".to_vec())));
    let endless = env.spawn("waits for ever", std::future::pending::<()>());
    drop(keeper);
    assert!(env::real::wait(endless).is_err(), "its tasks end with the keeper");
}
