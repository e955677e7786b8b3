//! What is said wrong is refused with status 2 and the words that help. No cluster is needed for it.

use crate::harness::run;
use std::path::PathBuf;

fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn an_unknown_flag_or_command_is_refused_with_the_nearest_one() {
    run(&["dev", "--severs", "4"]).fails(2, &["--severs", "--servers"]);
    run(&["stats"]).fails(2, &["stats", "status"]);
    run(&["table", "creat", "a:b"]).fails(2, &["creat", "create"]);
    run(&["import", "a:b", "--format", "json"]).fails(2, &["json", "jsonl"]);
}

#[test]
fn arguments_that_cannot_be_meant_are_refused() {
    run(&["get", "users", "alice"]).fails(2, &["users", "NAMESPACE:TABLE"]);
    run(&["get", "a:b", ""]).fails(2, &["the key is empty"]);
    run(&["get", "a:b", "xyz", "--encoding", "hex"]).fails(2, &["'xyz' is not written in hex"]);
    run(&["cas", "a:b", "key", "one"]).fails(2, &["EXPECTED", "--absent"]);
    run(&["cas", "a:b", "key", "one", "two", "--absent"]).fails(2, &["the NEW value alone"]);
    run(&["table", "create", "a:b", "--factor", "4"]).fails(2, &["4", "1..=3"]);
    run(&["table", "create", "a:b", "--factor", "1", "--min-in-sync", "2"]).fails(2, &["--min-in-sync"]);
    run(&["table", "create", "a:b", "--split", "k", "--split", "k"]).fails(2, &["--split k is given twice"]);
    run(&["dev", "--masters", "2"]).fails(2, &["an odd number"]);
    run(&["recover", "1", "--survivor", "2"]).fails(2, &["--accept-loss"]);
    run(&["status", "--connect", "localhost"]).fails(2, &["HOST:PORT"]);
    run(&["status", "--timeout", "10"]).fails(2, &["for example 30s"]);
    run(&["status", "--log", "a=b=c"]).fails(2, &["log filter"]);
}

#[test]
fn help_shows_an_example() {
    for command in ["dev", "put", "get", "cas", "import", "export", "status", "server"] {
        let help = run(&[command, "--help"]).succeeds();
        assert!(help.contains("Example") && help.contains(&format!("steadfast {command} ")), "{help}");
    }
    assert!(run(&["--version"]).succeeds().starts_with("steadfast "));
}

#[test]
fn nobody_there_is_said_with_what_to_do() {
    let nobody = ["get", "a:b", "key", "--connect", "127.0.0.1:1", "--timeout", "300ms"];
    run(&nobody).fails(1, &["127.0.0.1:1", "steadfast dev"]);
}

#[test]
fn settings_files_are_checked_without_starting() {
    let text = "role: server\ndata_dir: x\nlisten: 127.0.0.1:7401\nmasters: {1: 127.0.0.1:7301}\n";
    let (_folder, good) = file("server.yaml", text);
    let good = good.to_str().unwrap();
    assert!(run(&["check-config", good]).succeeds().contains("good settings of a server"));
    run(&["server", "--config", good, "--check-config"]).succeeds();
    run(&["master", "--id", "1", "--config", good, "--check-config"])
        .fails(2, &["settings of a server, not of a master"]);
}

#[test]
fn broken_settings_are_refused_with_file_line_and_key() {
    let (_folder, broken) = file("server.yaml", "role: server\nlisten: 127.0.0.1:7401\nmastres: {1: a:1}\n");
    let broken = broken.to_str().unwrap();
    run(&["check-config", broken]).fails(2, &["server.yaml:3: unknown key 'mastres': did you mean 'masters'?"]);
    run(&["server", "--config", broken]).fails(2, &["server.yaml:3", "mastres"]);
    run(&["check-config", "/no/such/file.yaml"]).fails(2, &["/no/such/file.yaml"]);
    let (_folder, empty) = file("empty.yaml", "");
    run(&["check-config", empty.to_str().unwrap()]).fails(2, &["empty.yaml:1: the file is empty"]);
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    run(&["server", "--listen", "127.0.0.1:1"]).fails(2, &["'masters' is missing"]);
    run(&["master", "--id", "2", "--data-dir", "x", "--masters", "1=a:1"])
        .fails(2, &["master 2 is not one of the masters"]);
    run(&["master", "--id", "1", "--data-dir", "x", "--masters", "1=a:1,1=b:1"])
        .fails(2, &["a number stands there twice"]);
}

#[test]
fn an_open_address_needs_a_secret() {
    let open =
        ["server", "--data-dir", "x", "--masters", "1=127.0.0.1:1", "--listen", "0.0.0.0:7401", "--check-config"];
    run(&open).fails(2, &["0.0.0.0:7401", "--secret-file"]);
    let (_folder, secret) = file("secret", "0123456789abcdef\n");
    run(&[&open[..], &["--secret-file", secret.to_str().unwrap()]].concat()).succeeds();
    let (_folder, short) = file("secret", "short\n");
    run(&[&open[..], &["--secret-file", short.to_str().unwrap()]].concat()).fails(2, &["16 bytes or more"]);
}
