//! Histories that are known to be right or wrong. Each file tells its story in its first lines.

use model::history::{Form, edn, porcupine};
use model::linearizability::{self, Verdict};
use model::{History, oracle};

struct Sample {
    name: &'static str,
    text: &'static str,
    history: History,
}

/// The files of a folder under `histories/`; this list is what runs.
macro_rules! samples {
    ($folder:literal: $($name:literal,)*) => {
        [$(($name, include_str!(concat!("../histories/", $folder, "/", $name, ".edn")))),*]
    };
}

fn good() -> Vec<Sample> {
    read(&samples!["good":
        "concurrent_puts",
        "delete_and_rewrite",
        "failed_write_stays_away",
        "failover",
        "increment_of_text_is_invalid",
        "same_nanosecond",
        "swap_race",
        "unknown_increment_counts_once",
        "unknown_write_never_happens",
        "unknown_write_surfaces_later",
    ])
}

fn bad() -> Vec<Sample> {
    read(&samples!["bad":
        "absent_after_unknown_delete_undone",
        "append_lost",
        "dirty_read_of_a_failed_write",
        "double_increment",
        "failed_write_surfaces_later",
        "lost_increment",
        "lost_write",
        "read_before_it_was_written",
        "resurrection_after_blind_delete",
        "resurrection_after_delete",
        "stale_read",
        "swap_refused_without_reason",
        "two_leaders_serving_reads",
        "two_swaps_from_one_value",
        "unknown_write_takes_effect_twice",
        "value_going_back",
        "value_nobody_wrote",
    ])
}

fn read(files: &[(&'static str, &'static str)]) -> Vec<Sample> {
    let sample = |(name, text): &(&'static str, &'static str)| {
        let history = edn::read(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        Sample { name, text, history }
    };
    files.iter().map(sample).collect()
}

#[test]
fn known_good_histories_are_accepted() {
    for Sample { name, history, .. } in good() {
        let report = linearizability::check(&history);
        assert!(report.is_ok(), "{name}: {report}");
        assert_eq!(oracle::check(&history), [], "{name}");
    }
}

#[test]
fn known_bad_histories_are_refused() {
    for Sample { name, history, .. } in bad() {
        let report = linearizability::check(&history);
        assert_eq!(report.illegal().count(), 1, "{name}: {report}");
        let (_, explanation) = report.illegal().next().expect("just counted");
        assert!(explanation.core.len() <= 6, "{name}: {explanation}");
    }
}

/// What the explanation of a stale read looks like.
#[test]
fn a_stale_read_is_explained_by_three_operations() {
    let samples = bad();
    let sample = samples.iter().find(|sample| sample.name == "stale_read").expect("the file is there");
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
    for Sample { name, history, .. } in bad() {
        if history.operations().iter().any(|operation| operation.version.is_some()) {
            count += 1;
            assert_ne!(oracle::check(&history), [], "{name}");
        }
    }
    assert!(count >= 3, "only {count} samples have versions");
}

#[test]
fn every_sample_tells_its_story_and_survives_both_forms() {
    let all: Vec<Sample> = good().into_iter().chain(bad()).collect();
    assert!(all.len() >= 20, "only {} samples", all.len());
    for Sample { name, text, history } in all {
        assert!(text.starts_with("; "), "{name} starts with no story");
        let mut written = Vec::new();
        edn::write(&history, Form::Register, &mut written).unwrap();
        assert_eq!(edn::read(std::str::from_utf8(&written).unwrap()).unwrap(), history, "{name}");
        let mut written = Vec::new();
        porcupine::write(&history, &mut written).unwrap();
        assert_eq!(porcupine::read(std::str::from_utf8(&written).unwrap()).unwrap(), history, "{name}");
    }
}

#[test]
fn checking_twice_gives_the_same_words() {
    for Sample { name, history, .. } in bad() {
        let report = linearizability::check(&history);
        assert_eq!(report, linearizability::check(&history), "{name}");
        assert!(report.keys.values().any(|verdict| matches!(verdict, Verdict::Illegal(_))));
    }
}
