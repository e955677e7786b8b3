//! The contract suite on the production backend, once for each way of doing file I/O.

use env::contract::{self, Context};
use env::real::{IoChoice, Options};
use std::time::Duration;

#[test]
fn the_contract_holds_on_io_uring() {
    run("io_uring", IoChoice::IoUring);
}

#[test]
fn the_contract_holds_on_threads() {
    run("threads", IoChoice::Threads);
}

fn run(backend: &str, io: IoChoice) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    env::real::runtime().expect("a runtime").block_on(async {
        let options = Options { data_dir: folder.path().join("data"), node: "real-1".into(), io };
        let env = match env::real::open(options) {
            Err(error) if io == IoChoice::IoUring => return println!("skipped, the kernel refuses io_uring: {error}"),
            opened => opened.expect("open"),
        };
        assert_eq!(env.disk().backend(), backend);
        for (name, check) in contract::all() {
            let context = Context { env: env.clone(), host: "127.0.0.1".into() };
            let checked = env.spawn(name, check(context));
            let ended = env.timeout(Duration::from_secs(60), checked).await;
            assert_eq!(ended, Ok(Ok(())), "{name} on {backend}; what it found is above");
        }
    });
}
