//! A server is killed in the middle of an import: writes go on within seconds, and nothing that was acknowledged is lost.

use crate::harness::{Cluster, PATIENCE, Running, eventually, port_base, signal, steadfast};
use serde_json::Value;
use std::collections::BTreeMap;
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

    let victim = &cluster.ready["servers"][1];
    // The victim is never the server that the commands talk to first.
    let records: Vec<(String, String)> =
        (0..RECORDS).map(|n| (format!("user{n}"), format!("value {}", n * 7))).collect();
    let mut import = steadfast();
    import.args(["import", "demo:kill", "--format", "tsv", "--json", "--connect", &cluster.connect]);
    let mut import = Running::start(&mut import);
    let mut input = import.input.take().unwrap();
    for (at, part) in records.chunks(PART).enumerate() {
        if at == RECORDS / PART / 3 {
            signal("KILL", victim["pid"].as_u64().unwrap() as u32);
        }
        part.iter().for_each(|(key, value)| writeln!(input, "{key}\t{value}").unwrap());
        thread::sleep(PAUSE);
    }
    drop(input);
    let summary: Value = serde_json::from_str(&import.wait().succeeds()).unwrap();
    assert_eq!(summary["records"], RECORDS, "{summary}");
    let longest_wait_ms = summary["longest_wait_ms"].as_u64().unwrap();
    println!("longest wait for a batch: {longest_wait_ms} ms");
    assert!(longest_wait_ms < 5000, "{summary}");

    let restarted = restart(victim);
    eventually("all replicas are in sync again", || {
        let status = cluster.json(&["status"]);
        status["tables"][0]["under_replicated"] == 0 && status["tables"][0]["unavailable"] == 0
    });
    let exported = cluster.run(&["export", "demo:kill"]).succeeds();
    let pair = |line: &str| line.split_once('\t').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap();
    let exported: BTreeMap<String, String> = exported.lines().map(pair).collect();
    assert!(exported == records.into_iter().collect(), "{} of {RECORDS} records are there", exported.len());

    signal("TERM", restarted.pid());
    assert_eq!(restarted.wait().status, 0);
    assert!(PATIENCE > Duration::from_secs(5));
    cluster.stop();
}

/// The server's own command once more, as `steadfast dev` wrote it down.
fn restart(server: &Value) -> Running {
    let words: Vec<&str> = server["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let mut running = Running::start(Command::new(words[0]).args(&words[1..]));
    running.wait_for_line("ready");
    running
}
