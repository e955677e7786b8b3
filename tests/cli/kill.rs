//! A server is killed in the middle of an import and again while every record is read back by its key: writes and reads go
//! on within seconds, and nothing that was acknowledged is lost.

use crate::harness::{Cluster, Running, eventually, port_base, signal, steadfast};
use serde_json::Value;
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::Duration;

const RECORDS: usize = 20_000;
/// Lines given at once, and the pause after them, so that the import is under way when the server dies.
const PART: usize = 500;
const PAUSE: Duration = Duration::from_millis(25);

#[test]
fn a_killed_server_costs_seconds_and_no_record() {
    let parent = tempfile::tempdir().unwrap();
    let base = port_base().to_string();
    let cluster = Cluster::start(&parent.path().join("data"), &["--processes", "--port-base", &base]);
    let create = ["table", "create", "demo:kill", "--regions", "16", "--factor", "3", "--salt", "xxh32"];
    cluster.run(&create).succeeds();
    // Never the server that the commands talk to first.
    let victim = &cluster.ready["servers"][1];

    import_during(&cluster, &[], || signal("KILL", victim["pid"].as_u64().unwrap() as u32));
    let restarted = restart(victim);
    until_in_sync(&cluster);

    import_during(&cluster, &["--check"], || signal("KILL", restarted.pid()));
    assert_ne!(restarted.wait().status, 0, "it was killed");
    let restarted = restart(victim);
    until_in_sync(&cluster);

    let wrong = "user1\tanother value\nnobody\tvalue\nuser2\tvalue 14\n";
    let check = ["import", "demo:kill", "--format", "tsv", "--check"];
    let found = cluster.run_with_input(&check, wrong.as_bytes());
    found.fails(1, &["line 1: the table has another value", "line 2: the table has no such record", "2 lines"]);

    signal("TERM", restarted.pid());
    assert_eq!(restarted.wait().status, 0);
    cluster.stop();
}

/// Gives all records to `steadfast import`, and lets something happen when a third is given.
fn import_during(cluster: &Cluster, flags: &[&str], happens: impl Fn()) {
    let mut import = steadfast();
    import.args(["import", "demo:kill", "--format", "tsv", "--json", "--connect", &cluster.connect]).args(flags);
    let mut import = Running::start(&mut import);
    let mut input = import.input.take().unwrap();
    let lines: Vec<String> = (0..RECORDS).map(|n| format!("user{n}\tvalue {}", n * 7)).collect();
    for (at, part) in lines.chunks(PART).enumerate() {
        if at == RECORDS / PART / 3 {
            happens();
        }
        writeln!(input, "{}", part.join("\n")).unwrap();
        thread::sleep(PAUSE);
    }
    drop(input);
    let summary: Value = serde_json::from_str(&import.wait().succeeds()).unwrap();
    assert_eq!((&summary["records"], &summary["lines_in_error"]), (&RECORDS.into(), &0.into()), "{summary}");
    let longest_wait_ms = summary["longest_wait_ms"].as_u64().unwrap();
    println!("longest wait for a batch {flags:?}: {longest_wait_ms} ms");
    assert!(longest_wait_ms < 5000, "{summary}");
}

fn until_in_sync(cluster: &Cluster) {
    eventually("all replicas are in sync again", || {
        let status = cluster.json(&["status"]);
        status["tables"][0]["under_replicated"] == 0 && status["tables"][0]["unavailable"] == 0
    });
}

/// The server's own command once more, as `steadfast dev` wrote it down.
fn restart(server: &Value) -> Running {
    let words: Vec<&str> = server["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let mut running = Running::start(Command::new(words[0]).args(&words[1..]));
    running.wait_for_line("ready");
    running
}
