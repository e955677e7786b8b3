//! What `size` says beforehand is what a load takes.

use crate::cluster::bytes_below;
use crate::harness::{Cluster, eventually, port_base};
use serde_json::Value;
use std::fmt::Write as _;

const KEYS: u64 = 150_000;

#[test]
fn a_load_takes_what_was_said() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let base = port_base().to_string();
    let cluster = Cluster::start(&folder, &["--port-base", &base, "--servers", "2", "--masters", "1"]);
    let said = said();
    let empty = bytes_below(&folder);
    let table = ["table", "create", "demo:load", "--factor", "2", "--regions", "4", "--salt", "xxh32"];
    cluster.run(&table).succeeds();
    let mut records = String::new();
    for n in 0..KEYS {
        writeln!(records, "key-{n:08}\t{:0100}", n * 7919).unwrap();
    }
    cluster.run_with_input(&["import", "demo:load", "--format", "tsv"], records.as_bytes()).succeeds();

    let taken = bytes_below(&folder) - empty;
    near("disk", taken, &said["loaded_disk_bytes"]);
    // What was written last moves into the index a little later.
    let mut status = Value::Null;
    eventually("all records are in the indexes", || {
        status = cluster.json(&["status"]);
        sum(&status, "keys") == KEYS
    });
    near("index", sum(&status, "index_bytes"), &said["index_bytes"]);
    cluster.stop();
}

fn said() -> Value {
    let keys = KEYS.to_string();
    let flags = ["--key-bytes", "12", "--value-bytes", "100", "--factor", "2", "--regions", "4", "--salt", "xxh32"];
    let rest = ["--servers", "2", "--batch", "250", "--json"];
    let ended = crate::harness::run(&[&["size", "--keys", &keys], flags.as_slice(), &rest].concat());
    serde_json::from_str(&ended.succeeds()).unwrap()
}

fn sum(status: &Value, what: &str) -> u64 {
    status["servers"].as_array().unwrap().iter().map(|server| server[what].as_u64().unwrap()).sum()
}

#[track_caller]
fn near(what: &str, taken: u64, said: &Value) {
    let said = said.as_u64().unwrap();
    let off = (taken as f64 / said as f64 - 1.0) * 100.0;
    assert!(off.abs() <= 10.0, "{what}: {taken} bytes, {said} were said: {off:+.1} %");
}
