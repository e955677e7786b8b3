//! Histories that are known to be right or wrong. Each file tells its story in its first lines.

use model::history::{Form, edn, json};
use model::linearizability::{self, Verdict};
use model::{History, oracle};
use std::path::PathBuf;

struct Sample {
    name: String,
    text: String,
    history: History,
}

fn samples(folder: &str) -> Vec<Sample> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("histories").join(folder);
    #[allow(clippy::disallowed_methods)] // A test reads its own fixtures.
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        #[allow(clippy::disallowed_methods)]
        let text = std::fs::read_to_string(&path).unwrap();
        let history = edn::read(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        Sample { name, text, history }
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn known_good_histories_are_accepted() {
    for Sample { name, history, .. } in samples("good") {
        let report = linearizability::check(&history);
        assert!(report.is_ok(), "{name}: {report}");
        assert_eq!(oracle::check(&history), [], "{name}");
    }
}

#[test]
fn known_bad_histories_are_refused() {
    for Sample { name, history, .. } in samples("bad") {
        let report = linearizability::check(&history);
        assert_eq!(report.illegal().count(), 1, "{name}: {report}");
        let (_, explanation) = report.illegal().next().expect("just counted");
        assert!(explanation.core.len() <= 6, "{name}: {explanation}");
    }
}

/// What the explanation of a stale read looks like.
#[test]
fn a_stale_read_is_explained_by_three_operations() {
    let samples = samples("bad");
    let sample = samples.iter().find(|sample| sample.name == "stale_read.edn").expect("the file is there");
    let report = linearizability::check(&sample.history);
    let (_, explanation) = report.illegal().next().expect("it is wrong");
    assert_eq!(
        explanation.text,
        r#"key "x": not linearizable. The history has an order up to just before this returned, and none with it:
  client 2 get -> "1" [60..70 ns]
With 4 operations placed the key can be: "2"
The key would have to hold "1" and "2" at the same time.
These contradict each other, whatever the others did:
  |-----|                                           client 0 put "1" -> ok [0..10 ns]
                       |------|                     client 0 put "2" -> ok [32..42 ns]
                                          |------|  client 2 get -> "1" [60..70 ns]
"#
    );
}

#[test]
fn a_history_with_versions_is_refused_by_the_oracle_too() {
    let mut count = 0;
    for Sample { name, history, .. } in samples("bad") {
        if history.operations().iter().any(|operation| operation.version.is_some()) {
            count += 1;
            assert_ne!(oracle::check(&history), [], "{name}");
        }
    }
    assert!(count >= 3, "only {count} samples have versions");
}

#[test]
fn every_sample_tells_its_story_and_survives_both_forms() {
    let all: Vec<Sample> = samples("good").into_iter().chain(samples("bad")).collect();
    assert!(all.len() >= 20, "only {} samples", all.len());
    for Sample { name, text, history } in all {
        assert!(text.starts_with("; "), "{name} starts with no story");
        let mut written = Vec::new();
        edn::write(&history, Form::Register, &mut written).unwrap();
        assert_eq!(edn::read(std::str::from_utf8(&written).unwrap()).unwrap(), history, "{name}");
        let mut written = Vec::new();
        json::write(&history, &mut written).unwrap();
        assert_eq!(json::read(std::str::from_utf8(&written).unwrap()).unwrap(), history, "{name}");
    }
}

#[test]
fn checking_twice_gives_the_same_words() {
    for Sample { name, history, .. } in samples("bad") {
        let report = linearizability::check(&history);
        assert_eq!(report, linearizability::check(&history), "{name}");
        assert!(report.keys.values().any(|verdict| matches!(verdict, Verdict::Illegal(_))));
    }
}
