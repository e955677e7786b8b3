//! Runs the simulator as its users do: what it prints, and the status with which it ends.

// Outside of every run, as tests/cli/ is.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::process::Command;

struct Ended {
    status: i32,
    out: String,
    errors: String,
}

fn sim(arguments: &[&str]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    Ended { status: output.status.code().expect("no signal"), out: text(output.stdout), errors: text(output.stderr) }
}

impl Ended {
    /// The `name=value` words of the last line.
    fn last_line(&self) -> BTreeMap<&str, &str> {
        let line = self.out.lines().last().unwrap_or_else(|| panic!("it says nothing but {:?}", self.errors));
        let pair = |word| str::split_once(word, '=').unwrap_or_else(|| panic!("{word:?} in {line:?}"));
        line.split(' ').map(pair).collect()
    }
}

#[test]
fn help_shows_examples_and_what_each_status_means() {
    let help = sim(&["--help"]);
    assert_eq!(help.status, 0);
    assert!(help.out.contains("Example: sim run --seed"), "{}", help.out);
    for verb in ["run", "twice", "scenario", "mutants", "shrink", "replay", "plan", "export", "speed"] {
        let help = sim(&[verb, "--help"]);
        assert_eq!(help.status, 0);
        assert!(help.out.contains(&format!("Example: sim {verb}")), "{}", help.out);
    }
    assert!(sim(&["run", "--help"]).out.contains("0 valid, 1 violated, 2 unknown"));
}

#[test]
fn a_seed_ends_with_its_line_and_is_the_same_in_another_process() {
    let run = sim(&["run", "--seed", "7", "--profile", "calm", "--twice"]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.errors);
    let line = run.last_line();
    assert_eq!(line.keys().copied().collect::<Vec<_>>(), ["seed", "sim_seconds", "trace", "verdict", "wall_seconds"]);
    assert_eq!((line["seed"], line["verdict"]), ("7", "valid"));
    assert!(line["trace"].len() == 16 && u64::from_str_radix(line["trace"], 16).is_ok(), "{line:?}");
    let seconds = |name| line[name].parse::<f64>().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(seconds("sim_seconds") > 5.0 && seconds("wall_seconds") > 0.0, "{line:?}");
    assert!(run.out.contains(&format!("a second process ran the same: trace={}", line["trace"])), "{}", run.out);
}

#[test]
fn a_history_is_written_for_other_checkers() {
    let export = |format: &str| sim(&["export", "--seed", "7", "--profile", "calm", "--format", format]);
    let (edn, jsonl) = (export("edn"), export("jsonl"));
    assert_eq!((edn.status, jsonl.status), (0, 0), "{}{}", edn.errors, jsonl.errors);
    for key in [":index", ":process", ":type :invoke", ":type :ok", ":f", ":value", ":time"] {
        assert!(edn.out.contains(key), "no {key}");
    }
    assert!(jsonl.out.lines().count() > 20 && jsonl.out.lines().all(|line| line.starts_with('{')), "{}", jsonl.out);
    let other = sim(&["export", "--seed", "7", "--format", "xml"]);
    assert!(other.status == 2 && other.errors.contains("edn, elle or jsonl"), "{}", other.errors);
}

#[test]
fn speed_ends_with_its_line() {
    let speed = sim(&["speed", "--seconds", "1"]);
    assert_eq!(speed.status, 0, "{}{}", speed.out, speed.errors);
    let line = speed.last_line();
    assert_eq!(line["backend"], "turmoil");
    assert!(line["sim_seconds_per_second"].parse::<f64>().is_ok_and(|speed| speed > 0.1), "{line:?}");
}

#[test]
fn another_seed_is_another_run() {
    let (one, two) =
        (sim(&["run", "--seed", "1", "--profile", "calm"]), sim(&["run", "--seed", "2", "--profile", "calm"]));
    assert_ne!(one.last_line()["trace"], two.last_line()["trace"]);
}

#[test]
fn seeds_that_nobody_chose_are_named() {
    let run = sim(&["run", "--seeds", "1", "--profile", "calm"]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.errors);
    let seed = run.last_line()["seed"];
    assert!(run.out.starts_with(&format!("seeds from {seed}")), "{}", run.out);
}

/// What a plan needs to fail is found, and fails again when the plan is read from a file.
#[cfg(feature = "mutants")]
#[test]
fn a_failing_seed_is_shrunk_to_a_plan_that_fails_alike() {
    let failing = sim(&["run", "--seed", "0", "--seeds", "40", "--profile", "crash", "--mutant", "M05"]);
    let seed = failing.last_line()["seed"];
    let shrunk = sim(&["shrink", "--seed", seed, "--profile", "crash", "--mutant", "M05", "--runs-max", "3"]);
    assert_eq!(shrunk.status, 0, "{}", shrunk.errors);
    assert!(shrunk.errors.contains("still violates"), "{}", shrunk.errors);
    let file = std::env::temp_dir().join(format!("sim-cli-{}.json", std::process::id()));
    std::fs::write(&file, &shrunk.out).expect("written");
    let path = file.to_str().expect("a plain name");
    let (with, without) = (sim(&["replay", path, "--mutant", "M05"]), sim(&["replay", path]));
    std::fs::remove_file(&file).expect("it was there");
    assert_eq!((with.status, with.last_line()["verdict"]), (1, "violated"));
    assert_eq!((without.status, without.last_line()["verdict"]), (0, "valid"));
}

#[cfg(feature = "mutants")]
#[test]
fn a_violation_ends_with_status_1_and_says_how_to_see_it_again() {
    let run = sim(&["run", "--seed", "0", "--seeds", "40", "--profile", "crash", "--mutant", "M05"]);
    assert_eq!(run.status, 1, "{}", run.out);
    let line = run.last_line();
    assert_eq!(line["verdict"], "violated");
    let again = format!("again: sim run --seed {} --profile crash --mutant M05", line["seed"]);
    assert!(run.out.contains(&again), "{}", run.out);
}

#[test]
fn a_wrong_name_is_refused_with_those_that_there_are() {
    let scenario = sim(&["scenario", "a1-partition-heal"]);
    assert_eq!(scenario.status, 2);
    assert!(scenario.errors.contains("a1-partition-heals"), "{}", scenario.errors);
    let profile = sim(&["run", "--profile", "swarms"]);
    assert_eq!(profile.status, 2);
    assert!(profile.errors.contains("swarm"), "{}", profile.errors);
    assert_eq!(sim(&["run", "--sead", "1"]).status, 2);
    let plan = sim(&["replay", "nowhere.json"]);
    assert_eq!(plan.status, 2);
    assert!(plan.errors.contains("cannot read the plan nowhere.json"), "{}", plan.errors);
    let mutant = sim(&["run", "--mutant", "M99"]);
    assert_eq!(mutant.status, 2);
    assert!(mutant.errors.contains("M01"), "{}", mutant.errors);
}

#[test]
fn scenarios_are_listed_with_their_stories_and_run_by_name() {
    let list = sim(&["scenario", "--list"]);
    assert_eq!(list.status, 0);
    assert!(list.out.lines().count() >= 12 && list.out.contains("a1-partition-heals: Aerospike"), "{}", list.out);
    let run = sim(&["scenario", "a7-three-outcomes"]);
    assert_eq!(run.status, 0, "{}{}", run.out, run.errors);
    assert!(run.out.ends_with("1 passed, 0 failed\n"), "{}", run.out);
}

#[test]
fn a_plan_is_written_down_as_json() {
    let plan = sim(&["plan", "--seed", "7"]);
    assert_eq!(plan.status, 0);
    let plan: serde_json::Value = serde_json::from_str(&plan.out).expect("it is JSON");
    assert_eq!((plan["seed"].as_u64(), plan["profile"].as_str()), (Some(7), Some("swarm")));
    assert!(plan["events"].is_array());
}
