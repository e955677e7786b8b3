//! A cluster from its first start to its second, and everything one may ask of it.

use crate::harness::{Cluster, eventually, port_base, run, steadfast};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

#[test]
fn a_cluster_serves_stops_and_finds_its_data_again() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let base = port_base().to_string();
    let cluster = Cluster::start(&folder, &["--port-base", &base]);
    records(&cluster);
    tables(&cluster);
    binary_records_come_back(&cluster);
    compressed_values_take_less_and_come_back(&cluster, &folder);
    malformed_lines_are_reported(&cluster);
    the_cluster_shows_itself(&cluster);
    a_folder_in_use_is_refused(&cluster);
    a_taken_port_is_named(&base);
    assert!(cluster.stop().ends_with("stopped\n"));

    other_layouts_are_refused(&folder);
    // What a lock file holds means nothing.
    std::fs::write(folder.join("LOCK"), "").unwrap();
    std::fs::write(folder.join("server-1").join("LOCK"), "4711 and more").unwrap();
    let again = Cluster::start(&folder, &[]);
    assert_eq!(again.run(&["get", "demo:users", "alice"]).succeeds(), "44\n");
    assert_eq!(again.run(&["get", "demo:users", "log"]).succeeds(), "one two\n");
    assert_eq!(export(&again, "demo:binary", "jsonl").len(), BINARY_RECORDS);
    again.stop();
    a_newer_format_is_refused(&folder);
}

fn records(cluster: &Cluster) {
    let table = ["table", "create", "demo:users", "--regions", "8", "--factor", "3", "--salt", "xxh32"];
    assert!(cluster.run(&table).succeeds().contains("8 regions"));
    cluster.run(&table).succeeds();
    cluster.run(&["table", "create", "demo:users", "--regions", "9", "--factor", "3"]).fails(1, &["demo:users"]);
    cluster.run(&["put", "demo:users", "alice", "42"]).succeeds();
    assert_eq!(cluster.run(&["get", "demo:users", "alice"]).succeeds(), "42\n");
    let raw =
        steadfast().args(["get", "demo:users", "alice", "--raw", "--connect", &cluster.connect]).output().unwrap();
    assert_eq!(raw.stdout, b"42", "not a byte more");
    assert_eq!(cluster.json(&["get", "demo:users", "alice"]), json!({ "key": "alice", "value": "42" }));
    cluster.run(&["get", "demo:users", "bob"]).fails(1, &["demo:users has no record 'bob'"]);
    cluster.run(&["get", "demo:nothing", "bob"]).fails(1, &["demo:nothing"]);

    cluster.run(&["cas", "demo:users", "alice", "42", "43"]).succeeds();
    cluster.run(&["cas", "demo:users", "alice", "42", "99"]).fails(1, &["not set: the value is '43'"]);
    cluster.run(&["cas", "demo:users", "carol", "--absent", "1"]).succeeds();
    cluster.run(&["cas", "demo:users", "carol", "--absent", "2"]).fails(1, &["not set: the value is '1'"]);
    cluster.run(&["cas", "demo:users", "carol", "1", "--delete"]).succeeds();
    cluster.run(&["cas", "demo:users", "carol", "1", "2"]).fails(1, &["not set: there is no record"]);

    assert_eq!(cluster.run(&["increment", "demo:users", "alice"]).succeeds(), "44\n");
    assert_eq!(cluster.run(&["increment", "demo:users", "visits", "-3"]).succeeds(), "-3\n");
    cluster.run(&["put", "demo:users", "log", "one"]).succeeds();
    assert_eq!(cluster.run(&["append", "demo:users", "log", " two"]).succeeds(), "7\n");
    cluster.run(&["increment", "demo:users", "log"]).fails(1, &["invalid"]);

    assert_eq!(cluster.run(&["delete", "demo:users", "visits"]).succeeds(), "deleted\n");
    assert_eq!(cluster.run(&["delete", "demo:users", "visits"]).succeeds(), "there was none\n");
    cluster.run(&["put", "demo:users", "00ff", "fe", "--encoding", "hex"]).succeeds();
    assert_eq!(cluster.run(&["get", "demo:users", "AP8=", "--encoding", "base64"]).succeeds(), "/g==\n");
    cluster.run_with_input(&["put", "demo:users", "file", "--file", "-"], b"from\nstdin").succeeds();
    assert_eq!(cluster.run(&["get", "demo:users", "file", "--raw"]).succeeds(), "from\nstdin\n");
}

fn tables(cluster: &Cluster) {
    let split =
        ["table", "create", "demo:split", "--split", "m", "--split", "d", "--factor", "1", "--durability", "buffered"];
    let described = cluster.json(&split);
    assert_eq!(described["spec"]["durability"], "buffered");
    let starts: Vec<_> = described["regions"].as_array().unwrap().iter().map(|region| &region["start_hex"]).collect();
    assert_eq!(starts, ["", "64", "6d"]);
    let text = cluster.run(&["table", "describe", "demo:split"]).succeeds();
    assert!(text.starts_with("demo:split: 3 regions, factor 1, min in sync 1, buffered\n"), "{text}");
    assert_eq!(cluster.json(&["table", "list"]), json!(["demo:split", "demo:users"]));
    cluster.run(&["table", "drop", "demo:split"]).succeeds();
    assert_eq!(cluster.run(&["table", "list"]).succeeds(), "demo:users\n");
    cluster.run(&["table", "describe", "demo:split"]).fails(1, &["demo:split"]);
}

const BINARY_RECORDS: usize = 3000;

/// Any bytes may be in a key and a value, and go out and in again in both formats.
fn binary_records_come_back(cluster: &Cluster) {
    let bytes =
        |seed: usize, len: usize| (0..len).map(|at| ((seed * 31 + at * at * 7 + at) % 256) as u8).collect::<Vec<u8>>();
    let mut input = String::new();
    for n in 0..BINARY_RECORDS {
        let (key, value) = ([bytes(n, n % 5), n.to_string().into_bytes()].concat(), bytes(n + 1, n % 300));
        let base64 = |bytes: &[u8]| base64(bytes);
        writeln!(input, r#"{{"key_base64": "{}", "value_base64": "{}"}}"#, base64(&key), base64(&value)).unwrap();
    }
    cluster.run(&["table", "create", "demo:binary", "--regions", "4"]).succeeds();
    let summary = cluster.run_with_input(&["import", "demo:binary", "--format", "jsonl", "--json"], input.as_bytes());
    let summary: serde_json::Value = serde_json::from_str(&summary.succeeds()).unwrap();
    assert_eq!((&summary["records"], &summary["lines_in_error"]), (&json!(BINARY_RECORDS), &json!(0)));

    let exported = export(cluster, "demo:binary", "jsonl");
    assert_eq!(exported.len(), BINARY_RECORDS);
    for format in ["tsv", "jsonl"] {
        let copy = format!("demo:copy-{format}");
        cluster.run(&["table", "create", &copy, "--regions", "3", "--salt", "xxh32"]).succeeds();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("records");
        let file = file.to_str().unwrap();
        cluster.run(&["export", "demo:binary", "--format", format, "--to", file]).succeeds();
        // Twice: an import that is repeated changes nothing.
        cluster.run(&["import", &copy, "--format", format, file]).succeeds();
        cluster.run(&["import", &copy, "--format", format, file]).succeeds();
        assert_eq!(export(cluster, &copy, "jsonl"), exported, "{format}");
    }
}

/// What repeats is stored shorter; what does not is as it was; both are read, and changed, as they were put.
fn compressed_values_take_less_and_come_back(cluster: &Cluster, folder: &Path) {
    let long = "over and over ".repeat(20_000);
    let before = bytes_below(folder);
    cluster.run(&["table", "create", "demo:packed", "--factor", "3", "--compression", "lz4"]).succeeds();
    assert_eq!(cluster.json(&["table", "describe", "demo:packed"])["spec"]["compression"], "lz4");
    for key in ["long", "grown"] {
        cluster.run_with_input(&["put", "demo:packed", key, "--file", "-"], long.as_bytes()).succeeds();
    }
    cluster.run(&["put", "demo:packed", "short", "x"]).succeeds();
    cluster.run(&["append", "demo:packed", "grown", "and out"]).succeeds();
    for (key, value) in [("long", long.as_str()), ("grown", &format!("{long}and out")), ("short", "x")] {
        assert!(cluster.json(&["get", "demo:packed", key])["value"] == value, "{key} is another one");
    }
    assert_eq!(export(cluster, "demo:packed", "tsv").len(), 3);
    let taken = bytes_below(folder) - before;
    assert!(taken < long.len() as u64, "{taken} bytes for nine replicas of {} bytes", long.len());
}

pub fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(of).sum()
}

/// Key to value, as the format writes them.
fn export(cluster: &Cluster, table: &str, format: &str) -> BTreeMap<String, String> {
    let out = cluster.run(&["export", table, "--format", format]).succeeds();
    let pair = |line: &str| match format {
        "tsv" => line.split_once('\t').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap(),
        _ => {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let field = |name: &str| format!("{:?} {:?}", record[name], record[format!("{name}_base64")]);
            (field("key"), field("value"))
        }
    };
    out.lines().map(pair).collect()
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn malformed_lines_are_reported(cluster: &Cluster) {
    cluster.run(&["table", "create", "demo:lines"]).succeeds();
    let folder = tempfile::tempdir().unwrap();
    let errors_file = folder.path().join("errors");
    let input = b"a\t1\nno tab here\nb\t2\n\nc\t\\x\na\t3\n";
    let import = ["import", "demo:lines", "--format", "tsv", "--errors-file", errors_file.to_str().unwrap()];
    let ended = cluster.run_with_input(&import, input);
    assert_eq!(ended.status, 0, "{ended:?}");
    for words in ["line 2: no tab", "line 5: '\\x' is no escape", "imported 3 records", "2 lines in error"] {
        assert!(ended.errors.contains(words), "{words:?} is not in {ended:?}");
    }
    let kept = std::fs::read_to_string(&errors_file).unwrap();
    assert!(kept.starts_with("2\tno tab between a key and a value\tno tab here\n5\t"), "{kept}");
    let left: BTreeMap<_, _> = [("a", "3"), ("b", "2")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    assert_eq!(export(cluster, "demo:lines", "tsv"), left, "of lines with one key the last wins");
    let strict = ["import", "demo:lines", "--format", "tsv", "--errors-max", "1"];
    cluster.run_with_input(&strict, input).fails(1, &["--errors-max allows 1", "line 5"]);
    cluster.run(&["import", "demo:nothing", "--format", "tsv"]).fails(1, &["demo:nothing"]);
    cluster.run(&["import", "demo:lines", "--format", "tsv", "/no/such/file"]).fails(1, &["/no/such/file"]);
}

fn the_cluster_shows_itself(cluster: &Cluster) {
    let mut status = json!(null);
    eventually("all regions are served by all their replicas", || {
        status = cluster.json(&["status"]);
        let whole = |table: &serde_json::Value| table["under_replicated"] == 0 && table["unavailable"] == 0;
        status["tables"].as_array().unwrap().iter().all(whole)
    });
    assert_eq!(status["cluster"].as_str().unwrap().len(), 32);
    let count = |key: &str| status[key].as_array().unwrap().len();
    assert_eq!((count("masters"), count("servers")), (3, 4));
    assert_eq!(status["masters"].as_array().unwrap().iter().filter(|master| master["active"] == true).count(), 1);
    assert!(status["servers"].as_array().unwrap().iter().all(|server| server["alive"] == true), "{status}");
    let text = cluster.run(&["status"]).succeeds();
    assert!(text.contains("demo:users") && text.contains("standing by") && text.contains("alive"), "{text}");
    assert_eq!(cluster.ready["servers"][3]["name"], "server-4");
    assert_eq!(cluster.ready["pid"], cluster.dev.pid());
}

fn a_folder_in_use_is_refused(cluster: &Cluster) {
    let folder = cluster.folder.to_str().unwrap();
    run(&["dev", "--data-dir", folder]).fails(1, &[folder, &cluster.dev.pid().to_string()]);
    let server = cluster.folder.join("server-1");
    let server = server.to_str().unwrap();
    let masters = format!("1={}", cluster.ready["masters"][0]["address"].as_str().unwrap());
    run(&["server", "--data-dir", server, "--listen", "127.0.0.1:0", "--masters", &masters]).fails(1, &[server]);
}

fn a_taken_port_is_named(base: &str) {
    let folder = tempfile::tempdir().unwrap();
    let base_number: u16 = base.parse().unwrap();
    let other = ["dev", "--data-dir", folder.path().to_str().unwrap(), "--port-base", base];
    run(&other).fails(1, &["master-1", &format!("127.0.0.1:{}", base_number + 1), "--port-base"]);
}

fn other_layouts_are_refused(folder: &std::path::Path) {
    let folder = folder.to_str().unwrap();
    run(&["dev", "--data-dir", folder, "--servers", "5"]).fails(1, &[folder, "--servers 5", "3 masters and 4 servers"]);
    let parent = std::path::Path::new(folder).parent().unwrap().to_str().unwrap();
    run(&["dev", "--data-dir", parent]).fails(1, &["it is no folder of `steadfast dev`"]);
}

fn a_newer_format_is_refused(folder: &std::path::Path) {
    let layout = folder.join("cluster.json");
    let text = std::fs::read_to_string(&layout).unwrap();
    std::fs::write(&layout, text.replace("\"format\": 1", "\"format\": 255")).unwrap();
    run(&["dev", "--data-dir", folder.to_str().unwrap()]).fails(1, &["format 255", "use the newer program"]);
}

#[test]
fn a_server_of_another_cluster_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| parent.path().join(name));
    let small = ["--masters", "1", "--servers", "1", "--port-base"];
    Cluster::start(&ours, &[&small[..], &[&port_base().to_string()]].concat()).stop();
    let cluster = Cluster::start(&theirs, &[&small[..], &[&port_base().to_string()]].concat());
    let masters = format!("1={}", cluster.ready["masters"][0]["address"].as_str().unwrap());
    let folder = ours.join("server-1");
    let mut command = steadfast();
    command.args(["server", "--listen", "127.0.0.1:0", "--masters", &masters, "--data-dir"]).arg(&folder);
    crate::harness::Running::start(&mut command).wait().fails(1, &["cluster"]);
    cluster.stop();
}
