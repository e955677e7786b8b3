//! How the production backend ends. Alone in its process, whose threads and signals it looks at.

// These tests look at the world from outside.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use env::real::{self, IoChoice, Options};
use env::{Env, OpenMode};
use std::time::Duration;

#[test]
fn a_node_stops_when_asked_and_leaves_no_thread() {
    real::runtime().expect("a runtime").block_on(async {
        for io in [IoChoice::Auto, IoChoice::Threads] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let options = Options { data_dir: folder.path().to_owned(), node: "real-1".into(), io };
            let env = real::open(options).expect("open");
            leave_io_under_way(&env).await;
            assert!(file_threads() > 0, "{} works on threads", env.disk().backend());
            drop(env);
            wait_until_none_is_left().await;
            assert_eq!(std::fs::read(folder.path().join("file")).expect("read").len() % 100_000, 0);
        }
        let stop = real::shutdown_signal().expect("listen for signals");
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).expect("signal");
        tokio::time::timeout(Duration::from_secs(10), stop).await.expect("asked to stop");
    });
}

/// Futures dropped while the engine works on their operations, and the handle with them.
async fn leave_io_under_way(env: &Env) {
    let file = env.disk().open("file", OpenMode::Create).await.expect("open");
    for _ in 0..50 {
        let write = file.append(vec![vec![7; 100_000].into()]);
        let read = file.read_at(vec![0; 100_000], 0);
        let _ = env.timeout(Duration::ZERO, async { (write.await, read.await) }).await;
    }
}

fn file_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("list threads");
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("file-")).count()
}

async fn wait_until_none_is_left() {
    for _ in 0..1_000 {
        if file_threads() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} threads for file I/O are left", file_threads());
}
